"""Rows that belong to subtasks instead of keys: operator state, and records in a loop.

They are read whole, without lookup by key.

**Operator state** is small: a row is an element with its index in its subtask's list, or an entry of its subtask's copy
of a map. Values are returned as stored, of their Arrow type or as pickles.

**Records in the feedback edge of a loop** at the end of an epoch are stored as blocks (`runtime.exchange.blocks`), as
they cross an exchange: Arrow columns of typed records, one pickle of untyped ones. A row here is a record, with the
subtask that stored it, its index there and its timestamp. Untyped records cannot be separated without opening their
pickle, which only the job does: in this case a row is a whole block, and its value is the pickle of two lists, values
and timestamps. The content of a loop fits the memory of a task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.errors import ProgramError, StoreDamagedError
from millstream.records.columns import TIMESTAMP_COLUMN, TYPED
from millstream.state.stored.operator_lists import Slice, column_of
from millstream.state_reader.catalog import StoredState
from millstream.state_reader.forms import Encoded, Fields, Form, Plain
from millstream.state_reader.table_source import ALL_KEYS
from millstream.storage.store import Store

__all__ = ["ListSource", "LoopSource", "SubtaskSource", "value_form"]


@dataclass(frozen=True)
class SubtaskSource(ABC):
    """Rows of all subtasks. `flatten`: a struct becomes a column per field."""

    store: Store
    state: StoredState
    flatten: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns; the first is the subtask."""
        return self.whole().schema

    def blocks(self, groups: range | None = None, key: Any = ALL_KEYS) -> Iterator[pa.RecordBatch]:
        """All rows at once."""
        if key is not ALL_KEYS:
            raise ProgramError(f"{self.state.what} belongs to subtasks and has no keys. Read it without a key.")
        yield self.whole()

    @abstractmethod
    def whole(self) -> pa.RecordBatch:
        """All rows."""


def value_form(name: str, type_: pa.DataType, flatten: bool) -> Form:
    """The form of values of a known type."""
    is_struct = pa.types.is_struct(type_) and type_.num_fields > 0
    return Fields(name, type_) if flatten and is_struct else Plain(name, type_)


_PICKLED = "pickled"


@dataclass(frozen=True)
class ListSource(SubtaskSource):
    """Elements of a list or map state of all subtasks: subtask, index or map_key, value."""

    raw: bool = False

    def whole(self) -> pa.RecordBatch:
        entries = [(n, entry) for n, entry in enumerate(self.state.entries) if entry is not None]
        subtasks = [n for n, entry in entries for _ in range(entry.items)]
        indexes = [i for _, entry in entries for i in range(entry.items)]
        parts = [(entry, Slice(n, 0, entry.items)) for n, entry in entries]
        values = column_of(parts, self.store, self.state.what)
        assert values is not None, "a state without elements is in no manifest"
        named: list[tuple[Form, pa.Array]] = [(Plain("subtask", pa.int64()), pa.array(subtasks, pa.int64()))]
        first = entries[0][1]
        if first.mode == "broadcast":
            keys, values = values.flatten()
            is_pickled = first.schema.declared == "PICKLED" and first.schema.version is None
            named.append((self._form("map_key", keys.type, first.schema.map_key == "PICKLED", flatten=False), keys))
            named.append((self._form("value", values.type, is_pickled, self.flatten), values))
        else:
            named.append((Plain("index", pa.int64()), pa.array(indexes, pa.int64())))
            named.append((self._form("value", values.type, first.type == _PICKLED, self.flatten), values))
        arrays = [array for form, column in named for array in form.arrays(column)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([f for form, _ in named for f in form.fields]))

    def _form(self, name: str, type_: pa.DataType, is_pickled: bool, flatten: bool) -> Form:
        if is_pickled:
            return Encoded(name, "pickle", self.raw)
        return value_form(name, type_, flatten)


_VALUE = "value"


@dataclass(frozen=True)
class LoopSource(SubtaskSource):
    """Records of a loop, of all subtasks of its end: subtask, index, timestamp_ms, value."""

    raw: bool = False

    def whole(self) -> pa.RecordBatch:
        stored = list(self._stored())
        try:
            pieces = [_records(block) for _, block in stored]
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StoreDamagedError(
                f"{self.state.what}: a block of records is damaged ({error}). Restore the store from a copy, or read "
                "an older epoch."
            ) from error
        records = pa.concat_tables(pieces, promote_options="default")
        stamps, values = (pa.concat_arrays(records.column(name).chunks) for name in ("timestamp_ms", _VALUE))
        subtasks = [subtask for (subtask, _), piece in zip(stored, pieces, strict=True) for _ in range(len(piece))]
        indexes = [number for count in Counter(subtasks).values() for number in range(count)]
        is_typed = _is_typed(stored[0][1])
        form = value_form(_VALUE, values.type, self.flatten) if is_typed else Encoded(_VALUE, "pickle", self.raw)
        whole = pa.int64()
        fields = [pa.field(name, whole) for name in ("subtask", "index", "timestamp_ms")]
        arrays = [pa.array(subtasks, whole), pa.array(indexes, whole), stamps, *form.arrays(values)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*fields, *form.fields]))

    def _stored(self) -> Iterator[tuple[int, pa.Buffer]]:
        """The blocks, with the subtask that stored each."""
        for subtask, entry in enumerate(self.state.entries):
            if entry is not None:
                blocks = column_of([(entry, Slice(subtask, 0, entry.items))], self.store, self.state.what)
                yield from ((subtask, block.as_buffer()) for block in blocks or ())


def _is_typed(block: pa.Buffer) -> bool:
    return bool(block[0:1].to_pybytes() == TYPED)


def _records(block: pa.Buffer) -> pa.Table:
    """The records of a block as timestamps and one value column; an untyped block is one row."""
    if not _is_typed(block):
        return _table(pa.array([block.slice(1).to_pybytes()], pa.binary()), None)
    with pa.ipc.open_stream(block.slice(1)) as reader:
        table = reader.read_all()
    table.validate(full=True)
    columns = table.combine_chunks()
    stamps = None
    if TIMESTAMP_COLUMN in columns.column_names:
        stamps = columns.column(TIMESTAMP_COLUMN)
        columns = columns.drop_columns([TIMESTAMP_COLUMN])
    is_plain = columns.column_names == [_VALUE]
    return _table(columns.column(_VALUE) if is_plain else columns.to_struct_array(), stamps)


def _table(values: Any, stamps: Any) -> pa.Table:
    times = pa.nulls(len(values), pa.int64()) if stamps is None else stamps
    return pa.table({"timestamp_ms": times, _VALUE: values})
