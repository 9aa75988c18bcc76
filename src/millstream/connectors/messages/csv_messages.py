"""Messages with one CSV record each: conversion to rows and back.

`CsvMessages` is the reference, message by message, using Python's csv module and the converters of `files/values`. The
decoder passes to Arrow's CSV reader only messages that are certainly one record with the right number of fields: every
field is either unquoted, or fully quoted, and contains no line end. Their fields are then columns of text.

A message with more than one record is a bad one: the others would be lost silently.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.connectors.files.csv_records import CsvDialect
from millstream.connectors.files.csv_text import CsvLines, field_text
from millstream.connectors.files.values import text_converter
from millstream.connectors.messages.row_decoder import ReadColumns, RowDecoder
from millstream.connectors.messages.text_columns import Finish, finish_of_text
from millstream.errors import TypeMismatchError
from millstream.records.columns import as_declared, stream_schema

__all__ = ["CsvDecoder", "CsvMessages"]

_FIELD_CHARS_MAX = 256 * 1024 * 1024
_LINE_END = "\r\n"
_USUAL = CsvDialect()


@dataclass(frozen=True)
class CsvMessages:
    """Records of a row type in the syntax of `dialect`; written records end with `line_delimiter`."""

    row_type: RowTypeInfo
    dialect: CsvDialect = _USUAL
    line_delimiter: str = "\n"

    def value(self, message: bytes) -> tuple[Any, ...] | None:
        """The content of a message, before its type check; None for a comment. Raises ValueError."""
        text = message.decode()
        if self.dialect.comments and text.startswith("#"):
            return None
        # The csv module's limit is global to this process; it is only ever raised.
        csv.field_size_limit(max(csv.field_size_limit(), _FIELD_CHARS_MAX))
        try:
            records = list(csv.reader(io.StringIO(text, newline=""), **self._arguments(), strict=True))
        except csv.Error as error:
            raise ValueError(str(error)) from error
        while records and not records[-1]:
            records.pop()  # empty lines after the record
        if len(records) > 1:
            raise ValueError(f"it holds {len(records)} records, expected one")
        fields = records[0] if records else []
        types = self.row_type.get_field_types()
        if len(fields) != len(types):
            raise ValueError(f"it has {len(fields)} fields, expected {len(types)}")
        converters = (text_converter(field_type, self.dialect.array_separator) for field_type in types)
        return tuple(
            [
                None if field == self.dialect.null_text else field if convert is None else convert(field)
                for field, convert in zip(fields, converters, strict=True)
            ]
        )

    def read(self, message: bytes) -> Any:
        """The row of a message; None for a comment. Raises ValueError or TypeMismatchError."""
        value = self.value(message)
        return None if value is None else as_declared([value], self.row_type)[0]

    def write(self, rows: Sequence[Any]) -> list[bytes]:
        """The messages of rows whose type was checked."""
        if not rows:
            return []
        dialect, end = self.dialect, self.line_delimiter
        if dialect.quote is not None and dialect.escape is None:
            lines = CsvLines(dialect.delimiter, dialect.quote, dialect.null_text or "", dialect.array_separator)
            return [f"{line}{end}".encode() for line in lines.write(rows, self.row_type)]
        return [self._unquoted(row) for row in rows]

    def _unquoted(self, row: Any) -> bytes:
        """Uses Python's writer, which supports escapes."""
        dialect = self.dialect
        fields = [
            field_text(field, field_type, dialect.array_separator, dialect.null_text or "")
            for field, field_type in zip(row, self.row_type.get_field_types(), strict=True)
        ]
        text = io.StringIO(newline="")
        # The writer quotes only its own line end, but readers recognise both: so its line end contains both.
        writer = csv.writer(text, **self._arguments(), lineterminator=_LINE_END)
        try:
            writer.writerow(fields)
        except csv.Error as error:
            raise TypeMismatchError(
                f"{row!r} cannot be written as a CSV record without quotes: {error}. "
                "Enable the quote character, or set an escape character",
                value=row,
            ) from error
        return (text.getvalue().removesuffix(_LINE_END) + self.line_delimiter).encode()

    def _arguments(self) -> dict[str, Any]:
        """The dialect as arguments of Python's csv module."""
        return {
            "delimiter": self.dialect.delimiter,
            "quotechar": self.dialect.quote,
            "escapechar": self.dialect.escape,
            "quoting": csv.QUOTE_NONE if self.dialect.quote is None else csv.QUOTE_MINIMAL,
        }


class CsvDecoder(RowDecoder):
    """Decodes rows from CSV messages."""

    def __init__(self, messages: CsvMessages, ignore_parse_errors: bool = False) -> None:
        self._messages = messages
        self.type_info: TypeInformation = messages.row_type
        self.ignores_bad = ignore_parse_errors
        self.has_columns = _layout(messages) is not None

    def rows(self, message: bytes) -> Sequence[Any]:
        value = self._messages.value(message)
        return () if value is None else (value,)

    def columns(self, values: pa.Array) -> ReadColumns | None:
        layout = _layout(self._messages)
        if layout is None:
            return None
        try:
            texts = pc.utf8_rtrim(values.cast(pa.string()), characters="\r\n")
        except pa.ArrowInvalid:  # not UTF-8
            return None
        is_plain = pc.match_substring_regex(texts, layout.form).to_numpy(zero_copy_only=False)
        eligible = texts if is_plain.all() else texts.filter(pa.array(is_plain))
        if not len(eligible):
            return None
        columns = layout.fields(eligible)
        if columns is None:
            return None
        doubt = np.zeros(len(eligible), np.bool_)
        null_text = self._messages.dialect.null_text
        try:
            finished = []
            for finish, column in zip(layout.finishes, columns, strict=True):
                present = column
                if null_text is not None:
                    present = pc.if_else(pc.equal(column, null_text), pa.scalar(None, pa.string()), column)
                finished.append(finish(present, doubt))
        except pa.ArrowInvalid:  # such as a number that is too large for its column
            return None
        batch = pa.RecordBatch.from_arrays(finished, schema=stream_schema(self.type_info))
        if doubt.any():
            is_plain[np.flatnonzero(is_plain)[doubt]] = False
            batch = batch.filter(pa.array(~doubt))
        return ReadColumns(batch, is_plain)


@dataclass(frozen=True)
class _Layout:
    """How messages of one dialect and type are read at once: the form of eligible ones, and each column."""

    form: str
    finishes: list[Finish]
    delimiter: str
    quote: str | None

    def fields(self, texts: pa.Array) -> list[pa.Array] | None:
        """The fields of eligible messages, a column of text for each."""
        lists = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
        names = [str(at) for at in range(len(self.finishes))]
        try:
            body = pc.binary_join(lists, "\n")[0].as_buffer()
            table = pv.read_csv(
                pa.BufferReader(body),
                read_options=pv.ReadOptions(use_threads=False, block_size=body.size + 1, column_names=names),
                parse_options=pv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char=self.quote or False,
                    double_quote=self.quote is not None,
                    escape_char=False,
                    newlines_in_values=False,
                    ignore_empty_lines=False,
                ),
                convert_options=pv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=False,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowCapacityError, OverflowError):
            return None
        if table.num_rows != len(texts):
            return None
        return [column.combine_chunks() for column in table.columns]


@lru_cache(maxsize=256)
def _layout(messages: CsvMessages) -> _Layout | None:
    dialect = messages.dialect
    finishes = [finish_of_text(field_type) for field_type in messages.row_type.get_field_types()]
    known = [finish for finish in finishes if finish is not None]
    marks = dialect.delimiter + (dialect.quote or "")
    if dialect.comments or dialect.escape is not None or not marks.isascii() or not known or len(known) < len(finishes):
        return None
    quote, delimiter = re.escape(dialect.quote or ""), re.escape(dialect.delimiter)
    # Arrow removes a byte order mark at the start, which Python reads as a character.
    bare = rf"[^{quote}{delimiter}\r\n\x00\x{{FEFF}}]*"
    field = rf"(?:{bare}|{quote}[^{quote}\r\n\x00]*(?:{quote}{quote}[^{quote}\r\n\x00]*)*{quote})" if quote else bare
    more = f"(?:{delimiter}{field}){{{len(known) - 1}}}" if len(known) > 1 else ""
    first = field.replace("]*", "]+", 1) if len(known) == 1 else field  # an empty message has no field at all
    return _Layout(f"^{first}{more}$", known, dialect.delimiter, dialect.quote)
