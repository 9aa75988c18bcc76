"""Encodes rows as CSV messages, column by column.

Each field becomes a column of strings, quoted where `CsvLines` quotes them, and the columns are joined row by row.
Invariant: the messages equal those of `CsvMessages.write`, which also writes the types unsupported here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import BasicType, BasicTypeInfo, DecimalTypeInfo, TypeInformation
from millstream.connectors.messages.codecs import MessageEncoder
from millstream.connectors.messages.csv_messages import CsvMessages
from millstream.connectors.messages.row_kinds import inserted_rows
from millstream.records.batch import Batch
from millstream.records.columns import from_record_batch
from millstream.records.shapes import plain_type
from millstream.records.text import texts

__all__ = ["CsvEncoder"]

Write = Callable[[pa.Array], pa.Array]
_WHOLE = (BasicType.BOOLEAN, BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG)
_PLAIN_SCALE_MAX = 6  # Python writes smaller numbers with an exponent
_UNQUOTED_CHARS_MAX = 24


class CsvEncoder(MessageEncoder):
    """Encodes rows as messages.

    >>> from millstream.common.typeinfo import Types
    >>> row_type = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    >>> CsvEncoder(CsvMessages(row_type)).encode(Batch.of_values([("a b", 1), (None, 2)], row_type)).to_pylist()
    [b'"a b",1\\n', b',2\\n']
    """

    def __init__(self, messages: CsvMessages) -> None:
        self._messages = messages
        writers = [_writer(field_type) for field_type in messages.row_type.get_field_types()]
        known = [writer for writer in writers if writer is not None]
        is_quoted = messages.dialect.quote is not None and messages.dialect.escape is None
        self._writers = known if is_quoted and known and len(known) == len(writers) else None

    def encode(self, batch: Batch) -> pa.Array:
        row_type = self._messages.row_type
        columns = inserted_rows(batch, row_type, "CSV")
        if self._writers is None:
            return pa.array(self._messages.write(from_record_batch(columns, row_type)), pa.binary())
        fields = [self._field(*pair) for pair in zip(self._writers, columns.columns, strict=True)]
        lines = pc.binary_join_element_wise(*fields, self._messages.dialect.delimiter)
        if len(fields) == 1:
            # A lone empty field would be a blank line, which readers skip.
            lines = pc.if_else(pc.equal(lines, ""), (self._messages.dialect.quote or "") * 2, lines)
        return pc.binary_join_element_wise(lines, self._messages.line_delimiter, "").cast(pa.binary())

    def _field(self, writer: tuple[Write, bool], column: pa.Array) -> pa.Array:
        """The strings of a field, quoted where necessary; null is not quoted."""
        write, is_bare = writer
        dialect = self._messages.dialect
        quote = dialect.quote or ""
        written = write(column)
        form = (
            f"[{re.escape(dialect.delimiter + quote)}\r\n]" if is_bare else _coarsely_quoted(dialect.delimiter, quote)
        )
        is_quoted = pc.match_substring_regex(written, form)
        if pc.any(is_quoted, min_count=0).as_py():
            doubled = pc.replace_substring(written, quote, quote * 2)
            written = pc.if_else(is_quoted, pc.binary_join_element_wise(quote, doubled, quote, ""), written)
        return pc.fill_null(written, dialect.null_text or "")


def _coarsely_quoted(delimiter: str, quote: str) -> str:
    """The pattern of text that Jackson quotes without checking whether it must."""
    last = ord(max(delimiter, quote, "\r"))
    return rf"(?s)[\x{{0}}-\x{{{last:x}}}]|^.{{{_UNQUOTED_CHARS_MAX + 1}}}"


def _writer(type_info: TypeInformation) -> tuple[Write, bool] | None:
    """The writer of a column, and whether it is unquoted unless it contains a separator; None: value by value."""
    plain = plain_type(type_info)
    if isinstance(plain, DecimalTypeInfo):
        return (_text, True) if plain.scale <= _PLAIN_SCALE_MAX else None
    if not isinstance(plain, BasicTypeInfo):
        return None
    if plain.basic_type in (BasicType.STRING, BasicType.CHAR):
        return _text, False
    if plain.basic_type in (BasicType.FLOAT, BasicType.DOUBLE):
        return _fractions(plain), True
    return (_text, True) if plain.basic_type in _WHOLE else None


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _fractions(plain: BasicTypeInfo) -> Write:
    def write(column: pa.Array) -> pa.Array:
        written = pa.array(texts(column.to_pylist(), plain), pa.string())
        return pc.if_else(column.is_valid(), written, pa.scalar(None, pa.string())) if column.null_count else written

    return write
