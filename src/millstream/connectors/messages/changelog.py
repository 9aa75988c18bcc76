"""Changelog messages in JSON: rows with row kinds, in Debezium's envelope and in Canal's.

An update is two rows: the previous (UPDATE_BEFORE) and the current (UPDATE_AFTER) one. Both formats write one row
per message, as Flink does: a new or current row as an insert, a deleted or previous one as a delete.

In compacted topics a message without a value (a tombstone, for the broker) follows a delete; it has no row. Debezium's
messages are decoded in columnar form; doubtful ones, and all of Canal's, whose values are strings, individually.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.common.types import Row, RowKind
from millstream.connectors.files.values import json_converter, text_converter
from millstream.connectors.messages.codecs import MessageEncoder
from millstream.connectors.messages.json_reading import JsonDecoder
from millstream.connectors.messages.json_values import holds_decimals, json_writer, parse
from millstream.connectors.messages.json_writing import JsonEncoder
from millstream.connectors.messages.row_decoder import ReadColumns, RowDecoder
from millstream.connectors.messages.row_kinds import rows_and_kinds
from millstream.errors import TypeMismatchError
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, as_declared, stream_schema

__all__ = [
    "CanalDecoder",
    "Change",
    "ChangelogDecoder",
    "ChangelogEncoder",
    "DebeziumDecoder",
    "canal_changes",
    "changelog_message",
    "debezium_changes",
    "envelope_rows",
    "enveloped",
]


Change = tuple[RowKind, Any]
"""A row as a JSON object, and its kind."""


class ChangelogDecoder(RowDecoder):
    """The base of both formats: parses documents, and returns rows with kinds."""

    def __init__(self, type_info: RowTypeInfo, ignore_parse_errors: bool) -> None:
        self.type_info: TypeInformation = type_info
        self.ignores_bad = ignore_parse_errors
        self._is_exact = holds_decimals(type_info)

    def rows(self, message: bytes) -> Sequence[Row]:
        document = parse(message, self._is_exact)
        if not isinstance(document, dict):
            raise ValueError(f"it is a {type(document).__name__}, expected an object")
        return self.changes(document)

    @abstractmethod
    def changes(self, document: dict[str, Any]) -> Sequence[Row]:
        """The rows of a parsed message."""

    def deserialized(self, message: bytes) -> list[Row]:
        """The rows of a message, checked against the type."""
        return as_declared(list(self.rows(message)), self.type_info)


class DebeziumDecoder(ChangelogDecoder):
    """Decodes rows from Debezium's envelope. `with_schema`: the envelope is under `payload`, next to the connector's
    schema.

    >>> row = Types.ROW_NAMED(["id"], [Types.INT()])
    >>> DebeziumDecoder(row).rows(b'{"before": {"id": 1}, "after": {"id": 2}, "op": "u"}')
    [<Row(1)>, <Row(2)>]
    """

    def __init__(self, type_info: RowTypeInfo, with_schema: bool = False, ignore_parse_errors: bool = False) -> None:
        super().__init__(type_info, ignore_parse_errors)
        self._with_schema = with_schema
        envelope = Types.ROW_NAMED(["before", "after", "op"], [type_info, type_info, Types.STRING()])
        self._envelopes = JsonDecoder(Types.ROW_NAMED(["payload"], [envelope]) if with_schema else envelope)
        self.has_columns = self._envelopes.has_columns

    def changes(self, document: dict[str, Any]) -> Sequence[Row]:
        convert = json_converter(self.type_info)
        assert convert is not None
        return [Row.of_kind(kind, *convert(cells)) for kind, cells in debezium_changes(document, self._with_schema)]

    def columns(self, values: pa.Array) -> ReadColumns | None:
        read = self._envelopes.columns(values)
        if read is None:
            return None
        return envelope_rows(read, self._with_schema, self.type_info)


def debezium_changes(document: dict[str, Any], with_schema: bool) -> list[Change]:
    """The rows of an envelope, as JSON objects with their kinds. Raises ValueError."""
    envelope = document.get("payload") if with_schema else document
    if not isinstance(envelope, dict):
        raise ValueError("it has no payload; omit with_schema if messages have no schema")
    operation = envelope.get("op")
    if operation in ("c", "r"):
        return [(RowKind.INSERT, _side(envelope, "after"))]
    if operation == "u":
        before = _side(envelope, "before")
        return [(RowKind.UPDATE_BEFORE, before), (RowKind.UPDATE_AFTER, _side(envelope, "after"))]
    if operation == "d":
        return [(RowKind.DELETE, _side(envelope, "before"))]
    raise ValueError(f"its op is {operation!r}, expected c, r, u or d")


def _side(envelope: dict[str, Any], side: str) -> Any:
    cells = envelope.get(side)
    if cells is None:
        hint = ". Set REPLICA IDENTITY FULL on the table" if side == "before" else ""
        raise ValueError(f"it is of op {envelope['op']!r} but has nothing under {side!r}{hint}")
    return cells


def envelope_rows(read: ReadColumns, with_schema: bool, type_info: TypeInformation) -> ReadColumns:
    """The rows of envelopes that were decoded in columnar form, without the doubtful ones."""
    before, after, operations = read.batch.column(0).flatten() if with_schema else read.batch.columns
    has_before, has_after = np.asarray(before.is_valid()), np.asarray(after.is_valid())
    is_insert = _is_in(operations, ["c", "r"]) & has_after
    is_delete = _is_in(operations, ["d"]) & has_before
    is_update = _is_in(operations, ["u"]) & has_before & has_after
    is_known = is_insert | is_delete | is_update
    is_read = read.is_read.copy()
    is_read[np.flatnonzero(is_read)[~is_known]] = False
    counts = np.where(is_update, 2, 1)[is_known]
    batch = _interleaved(before, after, is_insert, is_update, is_known, type_info)
    return ReadColumns(batch, is_read, counts)


def _is_in(column: pa.Array, values: list[str]) -> Any:
    return pc.is_in(column, pa.array(values)).to_numpy(zero_copy_only=False)


def _interleaved(
    before: pa.Array, after: pa.Array, is_insert: Any, is_update: Any, is_known: Any, type_info: TypeInformation
) -> pa.RecordBatch:
    """The rows of all changes in order, with their kinds; a previous row precedes the current one."""
    size = len(before)
    messages = np.repeat(np.arange(size)[is_known], np.where(is_update, 2, 1)[is_known])
    # The second of the two rows of an update repeats the message index of the first.
    is_second = np.zeros(len(messages), np.bool_)
    is_second[1:] = messages[1:] == messages[:-1]
    takes_after = is_insert[messages] | is_second
    before_kinds = np.where(is_update[messages], RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)
    kinds = np.where(
        is_insert[messages], RowKind.INSERT.value, np.where(is_second, RowKind.UPDATE_AFTER.value, before_kinds)
    )
    at = pa.array(messages + np.where(takes_after, size, 0))
    pairs = zip(before.flatten(), after.flatten(), strict=True)
    columns = [pa.concat_arrays(pair).take(at) for pair in pairs]
    schema = stream_schema(type_info)
    assert schema is not None
    if kinds.any():
        columns.append(pa.array(kinds.astype(np.int8)))
        schema = schema.append(pa.field(KIND_COLUMN, pa.int8()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class CanalDecoder(ChangelogDecoder):
    """Decodes rows from Canal's messages, each of which may hold several. `database`, `table`: patterns to select.

    Canal writes values as strings, so numbers are parsed from strings here.
    """

    def __init__(
        self,
        type_info: RowTypeInfo,
        database: str | None = None,
        table: str | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        super().__init__(type_info, ignore_parse_errors)
        self._filters = [(name, pattern) for name, pattern in (("database", database), ("table", table)) if pattern]

    def changes(self, document: dict[str, Any]) -> Sequence[Row]:
        return [self._row(cells, kind) for kind, cells in canal_changes(document, self._filters)]

    def _row(self, cells: dict[str, Any], kind: RowKind) -> Row:
        assert isinstance(self.type_info, RowTypeInfo)
        fields = zip(self.type_info.get_field_names(), self.type_info.get_field_types(), strict=True)
        return Row.of_kind(kind, *[_canal_value(cells.get(name), field) for name, field in fields])


def canal_changes(document: dict[str, Any], filters: Sequence[tuple[str, str]]) -> list[Change]:
    """The rows of a message, as JSON objects with their kinds; `filters`: patterns by name. Raises ValueError."""
    for name, pattern in filters:
        if not re.fullmatch(pattern, str(document.get(name))):
            return []
    kind, data = document.get("type"), document.get("data")
    if kind == "CREATE" or (document.get("isDdl") is True and data is None):
        return []
    if kind not in ("INSERT", "UPDATE", "DELETE"):
        raise ValueError(f"its type is {kind!r}, expected INSERT, UPDATE or DELETE")
    if not isinstance(data, list) or not all(isinstance(cells, dict) for cells in data):
        raise ValueError(f"its data is {data!r}, expected a list of objects")
    if kind != "UPDATE":
        row_kind = RowKind.INSERT if kind == "INSERT" else RowKind.DELETE
        return [(row_kind, cells) for cells in data]
    old = document.get("old")
    if not isinstance(old, list) or len(old) != len(data) or not all(isinstance(cells, dict) for cells in old):
        raise ValueError(f"it is an UPDATE of {len(data)} rows, but its old is {old!r}, expected as many objects")
    changes: list[Change] = []
    for before, after in zip(old, data, strict=True):
        # `old` has only the changed fields.
        changes += [(RowKind.UPDATE_BEFORE, {**after, **before}), (RowKind.UPDATE_AFTER, after)]
    return changes


def _canal_value(value: Any, type_info: TypeInformation) -> Any:
    if isinstance(value, str):
        convert = text_converter(type_info)
        return value if convert is None else convert(value)
    convert = json_converter(type_info)
    return value if convert is None else convert(value)


_INSERT_PARTS: dict[str, tuple[str, str]] = {
    "Debezium": ('{"before":null,"after":', ',"op":"c"}'),
    "Canal": ('{"data":[', '],"type":"INSERT"}'),
}
_DELETE_PARTS: dict[str, tuple[str, str]] = {
    "Debezium": ('{"before":', ',"after":null,"op":"d"}'),
    "Canal": ('{"data":[', '],"type":"DELETE"}'),
}
_COMING_KINDS = (RowKind.INSERT, RowKind.UPDATE_AFTER)


def changelog_message(row: Any, type_info: RowTypeInfo, format_name: str) -> bytes:
    """The message of one row. `format_name` is Debezium or Canal."""
    [value] = as_declared([row], type_info)
    if value is None:
        raise TypeMismatchError(
            f"{format_name} received None in place of a row. Filter such records before the sink", value=row
        )
    head, tail = (_INSERT_PARTS if value.get_row_kind() in _COMING_KINDS else _DELETE_PARTS)[format_name]
    return f"{head}{json_writer(type_info)(value)}{tail}".encode()


class ChangelogEncoder(MessageEncoder):
    """Encodes every row as a message; `format_name` is Debezium or Canal."""

    def __init__(self, type_info: RowTypeInfo, format_name: str) -> None:
        self._type_info, self._format_name = type_info, format_name
        self._documents = JsonEncoder(type_info)

    def encode(self, batch: Batch) -> pa.Array:
        columns, kinds = rows_and_kinds(batch, self._type_info)
        return enveloped(self._documents.texts(columns), kinds, self._format_name).cast(pa.binary())


def enveloped(rows: pa.Array, kinds: npt.NDArray[np.int8], format_name: str) -> pa.Array:
    """Wraps rows, as JSON strings, in messages with their kind."""
    is_insert = pa.array((kinds == RowKind.INSERT.value) | (kinds == RowKind.UPDATE_AFTER.value))
    insert_parts, delete_parts = _INSERT_PARTS[format_name], _DELETE_PARTS[format_name]
    heads, tails = (
        pc.if_else(is_insert, insert_part, delete_part)
        for insert_part, delete_part in zip(insert_parts, delete_parts, strict=True)
    )
    return pc.binary_join_element_wise(heads, rows, tails, "")
