r"""JSON lines straight into columns, where that is certain to give what parsing document by document gives.

Arrow's reader is many times faster and a little more generous: it does not care where lines end, and it has its own
idea of dates and decimals. So it is only asked about blocks in which every line is plainly one object, and only for
types that both read alike. In every other case, an error included, the answer is None and the slow way decides.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.json as pj

from millstream.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TypeInformation
from millstream.records.columns import stream_schema
from millstream.records.shapes import is_byte_array, is_sequence, plain_type

__all__ = ["json_columns"]

_ALIKE = frozenset(
    {
        BasicType.STRING,
        BasicType.BOOLEAN,
        BasicType.BYTE,
        BasicType.SHORT,
        BasicType.INT,
        BasicType.LONG,
        BasicType.DOUBLE,
    }
)
# To Python a whole -0 is 0, to Arrow it is -0.0; '-0' also stands in every date.
_MINUS_ZERO = re.compile(rb"-0[^.\deE]")


def json_columns(block: bytes, type_info: TypeInformation) -> pa.RecordBatch | None:
    r"""The lines of `block` as a batch of `type_info`, or None when only the slow way can say.

    >>> from millstream.common.typeinfo import Types
    >>> row = Types.ROW_NAMED(["n"], [Types.LONG()])
    >>> json_columns(b'{"n":1}\n{"x":2}\n', row).to_pylist()
    [{'n': 1}, {'n': None}]
    >>> json_columns(b'{"n":1}{"n":2}\n', row) is None
    True
    """
    schema = _schema(type_info)
    body = block.removesuffix(b"\n")
    breaks = body.count(b"\n")
    # A line that starts with '{' does not go on with a document of the line before, if that ended with '}'.
    if schema is None or body[:1] != b"{" or body[-1:] != b"}" or body.count(b"}\n{") != breaks:
        return None
    if b"-0" in body and _MINUS_ZERO.search(body):
        return None
    try:
        body.decode("utf-8")
        table = pj.read_json(
            pa.BufferReader(body),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(body) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    if table.num_rows != breaks + 1 or not table.schema.equals(schema):
        return None
    [batch] = table.combine_chunks().to_batches()
    return batch


@lru_cache(maxsize=256)
def _schema(type_info: TypeInformation) -> pa.Schema | None:
    """The columns to ask Arrow for; None for types it reads otherwise than we do."""
    plain = plain_type(type_info)
    return stream_schema(plain) if isinstance(plain, RowTypeInfo) and _is_alike(plain) else None


def _is_alike(type_info: TypeInformation) -> bool:
    plain = plain_type(type_info)
    if isinstance(plain, RowTypeInfo):
        return bool(plain.get_field_types()) and all(_is_alike(field) for field in plain.get_field_types())
    if is_sequence(plain):
        return not is_byte_array(plain) and _is_alike(plain.element_type)
    return isinstance(plain, BasicTypeInfo) and plain.basic_type in _ALIKE
