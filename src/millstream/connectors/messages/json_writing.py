"""Encodes rows as JSON documents, column by column.

Each field becomes a column of strings, and the columns are joined row by row. Invariant: the documents equal those of
`JsonDocuments.write` for each row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)
from millstream.connectors.messages.codecs import MessageEncoder
from millstream.connectors.messages.json_values import json_writer, quoted
from millstream.connectors.messages.row_kinds import inserted_rows
from millstream.records.batch import Batch
from millstream.records.columns import from_record_batch, stream_schema
from millstream.records.shapes import is_byte_array, is_sequence, plain_type
from millstream.records.text import texts
from millstream.records.unpickling import unpickled

__all__ = ["JsonEncoder"]

Write = Callable[[pa.Array], pa.Array]
"""Writes a column: the text of every value, 'null' for a null."""

_WHOLE = (BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BOOLEAN)
_PLAIN_SCALE_MAX = 6  # Python writes smaller numbers with an exponent
_ESCAPED = r'["\\\x00-\x1f]'


class JsonEncoder(MessageEncoder):
    """Encodes rows of `type_info` as documents.

    >>> row_type = Types.ROW_NAMED(["ad", "n"], [Types.STRING(), Types.INT()])
    >>> JsonEncoder(row_type).encode(Batch.of_values([("x", 1), (None, 2)], row_type)).to_pylist()
    [b'{"ad":"x","n":1}', b'{"ad":null,"n":2}']
    """

    def __init__(self, type_info: RowTypeInfo) -> None:
        self._type_info = type_info
        fields = zip(type_info.get_field_names(), type_info.get_field_types(), strict=True)
        self._fields = [(f"{quoted(name)}:", _writer(field)) for name, field in fields]

    def encode(self, batch: Batch) -> pa.Array:
        return self.texts(inserted_rows(batch, self._type_info, "JSON")).cast(pa.binary())

    def texts(self, columns: pa.RecordBatch) -> pa.Array:
        """The documents as text; `columns` are those of the type only."""
        return _object(self._fields, columns.columns, columns.num_rows)


def _object(fields: list[tuple[str, Write]], columns: list[pa.Array], rows: int) -> pa.Array:
    pieces: list[pa.Array | str] = []
    for at, ((head, write), column) in enumerate(zip(fields, columns, strict=True)):
        pieces += [("," if at else "{") + head, write(column)]
    if not pieces:
        return pa.array(["{}"] * rows, pa.string())
    return pc.binary_join_element_wise(*pieces, "}", "")


def _writer(type_info: TypeInformation) -> Write:
    plain = plain_type(type_info)
    write = _present_writer(plain)
    return (lambda column: pc.fill_null(write(column), "null")) if write is not None else _one_by_one(type_info)


def _present_writer(plain: TypeInformation) -> Write | None:
    """The writer of a whole column, null where a value is null; None: this type is written value by value."""
    if isinstance(plain, BasicTypeInfo):
        if plain.basic_type in (BasicType.STRING, BasicType.CHAR):
            return _quoted
        if plain.basic_type in (BasicType.FLOAT, BasicType.DOUBLE):
            return _fraction_writer(plain)
        return _text if plain.basic_type in _WHOLE else None
    if isinstance(plain, RowTypeInfo):
        names = map(quoted, plain.get_field_names())
        fields = [(f"{name}:", _writer(field)) for name, field in zip(names, plain.get_field_types(), strict=True)]
        return lambda column: _with_nulls(_object(fields, column.flatten(), len(column)), column)
    if is_byte_array(plain):
        return None
    if is_sequence(plain):
        return _list_writer(_writer(plain.element_type))
    if isinstance(plain, MapTypeInfo) and plain_type(plain.key_type) == Types.STRING():
        return _map_writer(_writer(plain.value_type))
    return _text if isinstance(plain, DecimalTypeInfo) and plain.scale <= _PLAIN_SCALE_MAX else None


def _one_by_one(type_info: TypeInformation) -> Write:
    write, row_type = json_writer(type_info), Types.ROW([type_info])
    schema = stream_schema(row_type)

    def write_column(column: pa.Array) -> pa.Array:
        rows = from_record_batch(pa.RecordBatch.from_arrays([column], schema=schema), row_type, unpickled)
        return pa.array([write(row[0]) for row in rows], pa.string())

    return write_column


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _quoted(column: pa.Array) -> pa.Array:
    plain = pc.binary_join_element_wise('"', column, '"', "")
    is_escaped = pc.fill_null(pc.match_substring_regex(column, _ESCAPED), False)
    if not pc.any(is_escaped, min_count=0).as_py():
        return plain
    escaped = pa.array([quoted(text) for text in column.filter(is_escaped).to_pylist()], pa.string())
    return pc.replace_with_mask(plain, is_escaped, escaped)


def _fraction_writer(plain: BasicTypeInfo) -> Write:
    def write(column: pa.Array) -> pa.Array:
        values = column.to_pylist()
        written = texts(values, plain)
        for at in np.flatnonzero(~np.isfinite(column.to_numpy(zero_copy_only=False))).tolist():
            written[at] = "null" if values[at] is None else quoted(written[at])
        return pa.array(written, pa.string())

    return write


def _list_writer(write: Write) -> Write:
    def write_lists(column: pa.Array) -> pa.Array:
        offsets = _offsets(pc.list_value_length(column))
        items = pa.ListArray.from_arrays(offsets, write(column.flatten()))
        return _with_nulls(pc.binary_join_element_wise("[", pc.binary_join(items, ","), "]", ""), column)

    return write_lists


def _map_writer(write: Write) -> Write:
    def write_maps(column: pa.Array) -> pa.Array:
        pairs = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
        keys, items = pairs.flatten().flatten()
        entries = pc.binary_join_element_wise(_quoted(keys), write(items), ":")
        lists = pa.ListArray.from_arrays(_offsets(pc.list_value_length(pairs)), entries)
        return _with_nulls(pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", ""), column)

    return write_maps


def _offsets(lengths: pa.Array) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.asarray(pc.fill_null(lengths, 0)), out=offsets[1:])
    return pa.array(offsets)


def _with_nulls(texts: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts
