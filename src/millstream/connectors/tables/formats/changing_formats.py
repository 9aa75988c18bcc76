"""Changelog formats: Flink's `debezium-json` and `canal-json`. Messages carry rows with row kinds.

An update is two rows: the previous (-U) and the current (+U) one. The sink writes one message per row, as Flink does:
+I and +U as insert, -U and -D as delete. Debezium's messages are decoded in columnar form; doubtful ones, and all of
Canal's, individually by `debezium_changes` and `canal_changes`, which define the result.

A file of changes is read by one reader, from its front: a delete must not precede its insert.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.types import RowKind
from millstream.connectors.files.formats import FileFormat
from millstream.connectors.files.parts import PartEncoder, PartFormat
from millstream.connectors.messages.changelog import (
    Change,
    canal_changes,
    debezium_changes,
    envelope_rows,
    enveloped,
)
from millstream.connectors.messages.codecs import MessageDecoder, MessageEncoder
from millstream.connectors.messages.row_decoder import ReadColumns, RowDecoder
from millstream.connectors.messages.row_kinds import rows_and_kinds
from millstream.connectors.tables.factory import ALL_CHANGES, TableOption
from millstream.connectors.tables.formats.change_metadata import (
    CANAL_METADATA,
    DEBEZIUM_METADATA,
    ReadMetadata,
    canal_metadata,
    debezium_metadata,
)
from millstream.connectors.tables.formats.csv_format import line_encoder
from millstream.connectors.tables.formats.decoded_rows import MessageLines
from millstream.connectors.tables.formats.format import FormatOptions, TableFormat, refuse_types
from millstream.connectors.tables.formats.json_cells import ISO, SQL, JsonReading, JsonWriting, is_json_type, json_texts
from millstream.connectors.tables.formats.json_format import JsonTableDecoder
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowField, RowType
from millstream.expressions.types import VarCharType
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.records.table_type import TableRowType

__all__ = ["CanalJsonFormat", "DebeziumJsonFormat"]

_TEXT = VarCharType(0x7FFFFFFF)
_METADATA: dict[str, ReadMetadata] = {"Debezium": debezium_metadata, "Canal": canal_metadata}


def _json_options(name: str) -> tuple[TableOption, ...]:
    return (
        TableOption(f"{name}.ignore-parse-errors", "skip unreadable messages", default="false"),
        TableOption(f"{name}.timestamp-format.standard", f"{SQL} (a space before the time) or {ISO}", default=SQL),
        TableOption(f"{name}.map-null-key.mode", "FAIL, DROP or LITERAL; maps here have no NULL keys", default="FAIL"),
        TableOption(f"{name}.map-null-key.literal", "the key that LITERAL writes", default="null"),
        TableOption(f"{name}.encode.decimal-as-plain-number", "write 1E-7 as 0.0000001", default="false"),
        TableOption(f"{name}.encode.ignore-null-fields", "omit NULL fields", default="false"),
    )


class _ChangingFormat(TableFormat):
    """Shared by both formats. `envelope` is the messages' name in errors."""

    changes = ALL_CHANGES
    envelope: str

    def decoder_with(self, options: FormatOptions, row_type: RowType, metadata: Sequence[str]) -> MessageDecoder:
        decoder = self.decoder(options, row_type)
        if not metadata:
            return decoder
        assert isinstance(decoder, _ChangeRows)
        return _RowsWithMetadata(decoder, metadata, [self.metadata[key] for key in metadata], _METADATA[self.envelope])

    def reader(self, options: FormatOptions, row_type: RowType) -> FileFormat:
        lines = MessageLines(self.decoder(options, row_type), self.envelope)
        lines.ignore_parse_errors = options.boolean(f"{self.name}.ignore-parse-errors")
        lines.cuttable = False
        return lines

    def parts(self, options: FormatOptions, row_type: RowType) -> PartFormat:
        return _ChangeParts(replace(self._encoder(options, row_type), line_end="\n"))

    def encoder(self, options: FormatOptions, row_type: RowType) -> MessageEncoder:
        return self._encoder(options, row_type)

    def _encoder(self, options: FormatOptions, row_type: RowType) -> _ChangeEncoder:
        refuse_types(self.name, options.table, row_type, is_json_type)
        options.choice(f"{self.name}.map-null-key.mode", ("FAIL", "DROP", "LITERAL"))
        writing = JsonWriting(
            options.choice(f"{self.name}.timestamp-format.standard", (SQL, ISO)),
            options.boolean(f"{self.name}.encode.decimal-as-plain-number"),
            options.boolean(f"{self.name}.encode.ignore-null-fields"),
        )
        return _ChangeEncoder(row_type, writing, self.envelope)

    def _reading(self, options: FormatOptions, row_type: RowType) -> JsonReading:
        refuse_types(self.name, options.table, row_type, is_json_type)
        return JsonReading(options.choice(f"{self.name}.timestamp-format.standard", (SQL, ISO)))

    def _ignores_bad(self, options: FormatOptions) -> bool:
        return options.boolean(f"{self.name}.ignore-parse-errors")


class DebeziumJsonFormat(_ChangingFormat):
    """Flink's `debezium-json`."""

    name = "debezium-json"
    envelope = "Debezium"
    metadata = DEBEZIUM_METADATA
    options = (
        TableOption("debezium-json.schema-include", "messages have a schema and a payload", default="false"),
        *_json_options("debezium-json"),
    )

    def decoder(self, options: FormatOptions, row_type: RowType) -> MessageDecoder:
        with_schema = options.boolean("debezium-json.schema-include")
        return _DebeziumRows(row_type, self._reading(options, row_type), with_schema, self._ignores_bad(options))

    def _encoder(self, options: FormatOptions, row_type: RowType) -> _ChangeEncoder:
        if options.boolean("debezium-json.schema-include"):
            raise options.wrong("debezium-json.schema-include", "false for a sink table: it writes payloads only")
        return super()._encoder(options, row_type)


class CanalJsonFormat(_ChangingFormat):
    """Flink's `canal-json`."""

    name = "canal-json"
    envelope = "Canal"
    metadata = CANAL_METADATA
    options = (
        TableOption("canal-json.database.include", "a pattern of the databases whose changes are read"),
        TableOption("canal-json.table.include", "a pattern of the tables whose changes are read"),
        *_json_options("canal-json"),
    )

    def decoder(self, options: FormatOptions, row_type: RowType) -> MessageDecoder:
        named = ((name, options.text(f"canal-json.{name}.include")) for name in ("database", "table"))
        filters = tuple((name, pattern) for name, pattern in named if pattern)
        for name, pattern in filters:
            try:
                re.compile(pattern)
            except re.error as error:
                raise options.wrong(f"canal-json.{name}.include", f"a regular expression ({error})") from None
        return _CanalRows(row_type, self._reading(options, row_type), filters, self._ignores_bad(options))


class _ChangeRows(RowDecoder):
    """Decodes rows from messages; a row read by itself is a pair of kind and JSON row."""

    def __init__(self, row_type: RowType, reading: JsonReading, ignores_bad: bool) -> None:
        self.row_type, self.reading, self.ignores_bad = row_type, reading, ignores_bad
        self.type_info = TableRowType(row_type)

    def changes(self, document: dict[str, Any]) -> Sequence[Change]:
        """The rows of a parsed message. Raises ValueError."""
        raise NotImplementedError

    def rows(self, message: bytes) -> Sequence[Any]:
        return self.rows_of(self.document(message))

    def document(self, message: bytes) -> dict[str, Any]:
        """A message, parsed. Raises ValueError."""
        document = json.loads(message, parse_float=Decimal)
        if not isinstance(document, dict):
            raise ValueError(f"it is a {type(document).__name__}, expected an object")
        return document

    def rows_of(self, document: dict[str, Any]) -> list[tuple[RowKind, dict[str, Any]]]:
        """The rows of a message with their kinds. Raises ValueError."""
        return [(kind, self._row(cells)) for kind, cells in self.changes(document)]

    def _row(self, cells: Any) -> dict[str, Any]:
        row = self.reading.row(cells, self.row_type)
        for field in self.row_type.fields:
            if row[field.name] is None and not field.data_type.is_nullable:
                raise ValueError(
                    f"column {field.name!r} is NOT NULL, and found NULL. Omit NOT NULL, or let the database log "
                    "all columns of deleted rows"
                )
        return row

    def batch_of(self, rows: list[Any]) -> pa.RecordBatch:
        kinds = [kind.value for kind, _ in rows]
        columns = [
            pa.array([row[field.name] for _, row in rows], field.data_type.arrow) for field in self.row_type.fields
        ]
        schema = self.row_type.schema.append(pa.field(KIND_COLUMN, pa.int8()))
        return pa.RecordBatch.from_arrays([*columns, pa.array(kinds, pa.int8())], schema=schema)


class _DebeziumRows(_ChangeRows):
    """Decodes rows from Debezium's envelopes."""

    def __init__(self, row_type: RowType, reading: JsonReading, with_schema: bool, ignores_bad: bool) -> None:
        super().__init__(row_type, reading, ignores_bad)
        self._with_schema = with_schema
        # NULLs are checked in the rows: a missing row consists of NULLs.
        cells = RowType([RowField(field.name, field.data_type.nullable()) for field in row_type.fields])
        envelope = RowType.of(["before", "after", "op"], [cells, cells, _TEXT])
        wire = RowType.of(["payload"], [envelope], nullable=False) if with_schema else envelope
        self._envelopes = JsonTableDecoder(wire, reading)
        self.has_columns = self._envelopes.has_columns

    def changes(self, document: dict[str, Any]) -> Sequence[Change]:
        return debezium_changes(document, self._with_schema)

    def columns(self, values: pa.Array) -> ReadColumns | None:
        read = self._envelopes.columns(values)
        if read is None:
            return None
        rows = envelope_rows(read, self._with_schema, self.type_info)
        is_bad = np.zeros(rows.batch.num_rows, np.bool_)
        for column, field in zip(rows.batch.columns, self.row_type.fields, strict=False):
            if column.null_count and not field.data_type.is_nullable:
                is_bad |= np.asarray(column.is_null())
        return None if is_bad.any() else rows


class _CanalRows(_ChangeRows):
    """Decodes rows from Canal's messages, each of which may hold several."""

    def __init__(
        self, row_type: RowType, reading: JsonReading, filters: tuple[tuple[str, str], ...], ignores_bad: bool
    ) -> None:
        super().__init__(row_type, reading, ignores_bad)
        self._filters = filters

    def changes(self, document: dict[str, Any]) -> Sequence[Change]:
        return canal_changes(document, self._filters)


class _RowsWithMetadata(RowDecoder):
    """Decodes rows with the metadata of their messages; messages are read one by one."""

    def __init__(
        self, rows: _ChangeRows, keys: Sequence[str], types: Sequence[DataType], read_metadata: ReadMetadata
    ) -> None:
        self._rows, self._keys, self._types, self._read = rows, tuple(keys), tuple(types), read_metadata
        self.ignores_bad = rows.ignores_bad
        # No table column can have this name: it would also have to be a metadata key of the connector.
        metadata = [RowField(f"metadata {key}", of) for key, of in zip(keys, types, strict=True)]
        self._row_type = RowType([*rows.row_type.fields, *metadata], False)
        self.type_info = TableRowType(self._row_type)

    def rows(self, message: bytes) -> Sequence[Any]:
        document = self._rows.document(message)
        changes = self._rows.rows_of(document)
        metadata = [self._read(document, key, self._rows.reading) for key in self._keys] if changes else []
        return [(kind, row, metadata) for kind, row in changes]

    def batch_of(self, rows: list[Any]) -> pa.RecordBatch:
        plain = self._rows.batch_of([(kind, row) for kind, row, _ in rows])
        columns = [pa.array([each[2][at] for each in rows], of.arrow) for at, of in enumerate(self._types)]
        kinds = plain.schema.get_field_index(KIND_COLUMN)
        schema = self._row_type.schema.append(plain.schema.field(kinds))
        return pa.RecordBatch.from_arrays([*plain.columns[:kinds], *columns, plain.column(kinds)], schema=schema)


@dataclass(frozen=True)
class _ChangeEncoder(MessageEncoder):
    """Encodes each row as a message with its kind."""

    row_type: RowType
    writing: JsonWriting
    envelope: str
    line_end: str = ""

    def encode(self, batch: Batch) -> pa.Array:
        return self.lines(batch).cast(pa.binary())

    def lines(self, batch: Batch) -> pa.Array:
        """The messages as strings, each with its line end."""
        columns, kinds = rows_and_kinds(batch, TableRowType(self.row_type))
        rows = pa.StructArray.from_arrays(columns.columns, type=self.row_type.arrow)
        lines = enveloped(json_texts(rows, self.row_type, self.writing), kinds, self.envelope)
        return pc.binary_join_element_wise(lines, self.line_end, "") if self.line_end else lines


@dataclass(frozen=True)
class _ChangeParts(PartFormat):
    """Files with one message per line."""

    encoder_of_rows: _ChangeEncoder
    suffix = ".json"
    is_bytes = True

    def encoder(self) -> PartEncoder:
        return line_encoder(self.encoder_of_rows)
