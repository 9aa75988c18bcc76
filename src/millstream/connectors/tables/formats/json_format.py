"""The JSON table format: Flink's `json`. A message, or a line of a file, is one object.

Arrow parses documents into columns where they certainly match the types (`messages/json_reading`); text for
a time or bytes is then converted column by column. Every doubtful document is read by itself, by `JsonReading`, which
defines the result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.connectors.files.formats import FileFormat
from millstream.connectors.files.parts import PartEncoder, PartFormat
from millstream.connectors.messages.codecs import MessageDecoder, MessageEncoder
from millstream.connectors.messages.json_reading import JsonDecoder
from millstream.connectors.messages.row_decoder import ReadColumns, RowDecoder
from millstream.connectors.messages.row_kinds import inserted_rows
from millstream.connectors.tables.factory import TableOption
from millstream.connectors.tables.formats.cell_text import Mask, read_cells
from millstream.connectors.tables.formats.csv_format import line_encoder
from millstream.connectors.tables.formats.decoded_rows import MessageLines
from millstream.connectors.tables.formats.format import FormatOptions, TableFormat, refuse_types
from millstream.connectors.tables.formats.json_cells import ISO, SQL, JsonReading, JsonWriting, is_json_type, json_texts
from millstream.errors import ProgramError
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, RowType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType

__all__ = ["JsonFormat", "JsonTableDecoder", "JsonTableEncoder"]


class JsonFormat(TableFormat):
    """Flink's `json`."""

    name = "json"
    options = (
        TableOption("json.fail-on-missing-field", "whether a missing field is an error", default="false"),
        TableOption(
            "json.ignore-parse-errors", "unreadable fields are NULL, unreadable messages skipped", default="false"
        ),
        TableOption("json.timestamp-format.standard", f"{SQL} (a space before the time) or {ISO} (a T)", default=SQL),
        TableOption("json.map-null-key.mode", "FAIL, DROP or LITERAL; maps here have no NULL keys", default="FAIL"),
        TableOption("json.map-null-key.literal", "the key that LITERAL writes", default="null"),
        TableOption("json.encode.decimal-as-plain-number", "write 1E-7 as 0.0000001", default="false"),
        TableOption("json.encode.ignore-null-fields", "omit NULL fields", default="false"),
        TableOption("json.decode.json-parser.enabled", "accepted as in Flink; it has no effect here", default="true"),
    )

    def reader(self, options: FormatOptions, row_type: RowType) -> FileFormat:
        lines = MessageLines(self.decoder(options, row_type), "JSON")
        lines.ignore_parse_errors = options.boolean("json.ignore-parse-errors")
        return lines

    def parts(self, options: FormatOptions, row_type: RowType) -> PartFormat:
        return JsonTableParts(self._encoder(options, row_type, "\n"))

    def decoder(self, options: FormatOptions, row_type: RowType) -> MessageDecoder:
        refuse_types("json", options.table, row_type, is_json_type)
        reading = JsonReading(
            options.choice("json.timestamp-format.standard", (SQL, ISO)),
            options.boolean("json.fail-on-missing-field"),
            options.boolean("json.ignore-parse-errors"),
        )
        if reading.fails_on_missing and reading.ignores_bad:
            raise ProgramError(
                f"table {options.table!r}: fail-on-missing-field and ignore-parse-errors shouldn't both be enabled. "
                "Set one of them"
            )
        return JsonTableDecoder(row_type, reading)

    def encoder(self, options: FormatOptions, row_type: RowType) -> MessageEncoder:
        return self._encoder(options, row_type, "")

    def _encoder(self, options: FormatOptions, row_type: RowType, line_end: str) -> JsonTableEncoder:
        refuse_types("json", options.table, row_type, is_json_type)
        options.choice("json.map-null-key.mode", ("FAIL", "DROP", "LITERAL"))
        writing = JsonWriting(
            options.choice("json.timestamp-format.standard", (SQL, ISO)),
            options.boolean("json.encode.decimal-as-plain-number"),
            options.boolean("json.encode.ignore-null-fields"),
        )
        return JsonTableEncoder(row_type, writing, line_end)


class JsonTableDecoder(RowDecoder):
    """Decodes rows from documents."""

    def __init__(self, row_type: RowType, reading: JsonReading) -> None:
        self.row_type, self.reading = row_type, reading
        self.type_info: TypeInformation = TableRowType(row_type)
        self.ignores_bad = reading.ignores_bad
        wire = _wire(row_type)
        self._texts = JsonDecoder(wire, reading.fails_on_missing) if isinstance(wire, RowTypeInfo) else None
        self.has_columns = self._texts is not None and self._texts.has_columns

    def columns(self, values: pa.Array) -> ReadColumns | None:
        read = None if self._texts is None else self._texts.columns(values)
        if read is None:
            return None
        doubt = np.zeros(read.batch.num_rows, np.bool_)
        columns = []
        for column, field in zip(read.batch.columns, self.row_type.fields, strict=True):
            finished = _finished(column, field.data_type, self.reading.style, doubt)
            if finished is None:
                return None
            if not field.data_type.is_nullable and finished.null_count:
                doubt |= np.asarray(finished.is_null())
            columns.append(finished)
        batch, is_read = pa.RecordBatch.from_arrays(columns, schema=self.row_type.schema), read.is_read
        if doubt.any():
            is_read = is_read.copy()
            is_read[np.flatnonzero(is_read)[doubt]] = False
            batch = batch.filter(pa.array(~doubt))
            return ReadColumns(batch, is_read)
        return replace(read, batch=batch)

    def rows(self, message: bytes) -> Sequence[Any]:
        try:
            document = json.loads(message, parse_float=Decimal)
        except InvalidOperation:
            raise ValueError("a number in it has an exponent of more than 17 digits") from None
        if document is None:
            return ()
        row = self.reading.row(document, self.row_type)
        for field in self.row_type.fields:
            if row[field.name] is None and not field.data_type.is_nullable:
                raise ValueError(f"column {field.name!r} is NOT NULL, and found NULL")
        return (row,)

    def batch_of(self, rows: list[Any]) -> pa.RecordBatch:
        fields = self.row_type.fields
        columns = [pa.array([row[field.name] for row in rows], field.data_type.arrow) for field in fields]
        return pa.RecordBatch.from_arrays(columns, schema=self.row_type.schema)


_ALIKE: dict[type[DataType], TypeInformation] = {
    types.BooleanType: Types.BOOLEAN(),
    types.TinyIntType: Types.BYTE(),
    types.SmallIntType: Types.SHORT(),
    types.IntType: Types.INT(),
    types.BigIntType: Types.LONG(),
    types.FloatType: Types.FLOAT(),
    types.DoubleType: Types.DOUBLE(),
    types.CharType: Types.STRING(),
    types.VarCharType: Types.STRING(),
    types.DateType: Types.STRING(),
    types.TimeType: Types.STRING(),
    types.TimestampType: Types.STRING(),
    types.LocalZonedTimestampType: Types.STRING(),
    types.BinaryType: Types.STRING(),
    types.VarBinaryType: Types.STRING(),
}


def _wire(data_type: DataType) -> TypeInformation | None:
    """The type that Arrow parses in place of a type; None: documents are read one by one."""
    if isinstance(data_type, RowType):
        parts = [_wire(each) for each in data_type.types]
        known = [part for part in parts if part is not None]
        return Types.ROW_NAMED(data_type.names, known) if known and len(known) == len(parts) else None
    if isinstance(data_type, ArrayType):
        element = _wire(data_type.element_type)
        return None if element is None else Types.LIST(element)
    if isinstance(data_type, types.DecimalType):
        return Types.DECIMAL(data_type.precision, data_type.scale)
    return _ALIKE.get(type(data_type))


def _finished(column: pa.Array, data_type: DataType, style: str, doubt: Mask) -> pa.Array | None:
    """Converts the parsed column to its type; marks doubtful rows. None: all rows are doubtful because of a nested
    value."""
    if column.type.equals(data_type.arrow):
        return column
    if isinstance(data_type, RowType):
        parts = [_nested(column.field(at), each, style) for at, each in enumerate(data_type.types)]
        if any(part is None for part in parts):
            return None
        nulls = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, type=data_type.arrow, mask=nulls)
    if isinstance(data_type, ArrayType):
        items = _nested(column.flatten(), data_type.element_type, style)
        if items is None:
            return None
        offsets = np.zeros(len(column) + 1, np.int32)
        np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(column), 0)), out=offsets[1:])
        nulls = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=data_type.arrow, mask=nulls)
    finished, bad = read_cells(column, data_type, style)
    if bad is not None:
        doubt |= bad
    return finished


def _nested(column: pa.Array, data_type: DataType, style: str) -> pa.Array | None:
    doubt = np.zeros(len(column), np.bool_)
    finished = _finished(column, data_type, style, doubt)
    return None if doubt.any() else finished


@dataclass(frozen=True)
class JsonTableEncoder(MessageEncoder):
    """Encodes rows as messages, column by column."""

    row_type: RowType
    writing: JsonWriting
    line_end: str = ""

    def encode(self, batch: Batch) -> pa.Array:
        return self.lines(batch).cast(pa.binary())

    def lines(self, batch: Batch) -> pa.Array:
        """The documents as strings, each with its line end."""
        columns = inserted_rows(batch, TableRowType(self.row_type), "JSON")
        rows = pa.StructArray.from_arrays(columns.columns, type=self.row_type.arrow)
        lines = json_texts(rows, self.row_type, self.writing)
        return pc.binary_join_element_wise(lines, self.line_end, "") if self.line_end else lines


@dataclass(frozen=True)
class JsonTableParts(PartFormat):
    """Files with one document per line."""

    encoder_of_rows: JsonTableEncoder
    suffix = ".json"
    is_bytes = True

    def encoder(self) -> PartEncoder:
        return line_encoder(self.encoder_of_rows)
