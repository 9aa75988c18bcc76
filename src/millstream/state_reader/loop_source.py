"""The records that are on their way round a loop when an epoch ends.

They are stored as blocks (`runtime.blocks`), as they cross an exchange: Arrow columns of typed records, one pickle of
untyped ones. A row here is a record, with the subtask that kept it, its place there and its timestamp. What is in a
loop fits the memory of a task, and is read whole.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.runtime.blocks import TIMESTAMP_COLUMN
from millstream.runtime.operator_lists import Slice, column_of
from millstream.state_reader.catalog import StoredState
from millstream.state_reader.forms import Encoded, Fields, Form, Plain
from millstream.state_reader.table_source import ALL_KEYS
from millstream.storage.store import Store

__all__ = ["LoopSource"]

_TYPED = b"A"
_VALUE = "value"


@dataclass(frozen=True)
class LoopSource:
    """Records of a loop, of all subtasks of its end."""

    store: Store
    state: StoredState
    flatten: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns: subtask, index, timestamp_ms, value."""
        return self._whole().schema

    def blocks(self, groups: range | None = None, key: Any = ALL_KEYS) -> Iterator[pa.RecordBatch]:
        """All records at once."""
        if key is not ALL_KEYS:
            raise ProgramError(f"{self.state.what} belongs to subtasks and has no keys. Read it without a key.")
        yield self._whole()

    def _whole(self) -> pa.RecordBatch:
        stored = list(self._stored())
        pieces = [_records(block) for _, block in stored]
        records = pa.concat_tables(pieces, promote_options="default")
        stamps, values = (pa.concat_arrays(records.column(name).chunks) for name in ("timestamp_ms", _VALUE))
        subtasks = [subtask for (subtask, _), piece in zip(stored, pieces, strict=True) for _ in range(len(piece))]
        indexes = [number for count in Counter(subtasks).values() for number in range(count)]
        form = self._form(values.type, is_typed=_is_typed(stored[0][1]))
        whole = pa.int64()
        fields = [pa.field(name, whole) for name in ("subtask", "index", "timestamp_ms")]
        arrays = [pa.array(subtasks, whole), pa.array(indexes, whole), stamps, *form.arrays(values)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*fields, *form.fields]))

    def _stored(self) -> Iterator[tuple[int, pa.Buffer]]:
        """The blocks, with the subtask that kept each."""
        for subtask, entry in enumerate(self.state.entries):
            if entry is not None:
                blocks = column_of([(entry, Slice(subtask, 0, entry["items"]))], self.store, self.state.what)
                yield from ((subtask, block.as_buffer()) for block in blocks or ())

    def _form(self, type_: pa.DataType, *, is_typed: bool) -> Form:
        if not is_typed:
            return Encoded(_VALUE, "pickle")
        is_struct = pa.types.is_struct(type_) and type_.num_fields > 0
        return Fields(_VALUE, type_) if self.flatten and is_struct else Plain(_VALUE, type_)


def _is_typed(block: pa.Buffer) -> bool:
    return bool(block[0:1].to_pybytes() == _TYPED)


def _records(block: pa.Buffer) -> pa.Table:
    """The records of a block: their timestamps, and themselves in one column."""
    if not _is_typed(block):
        values, times = pickle.loads(block.slice(1))
        pickled = [pickle.dumps(value, protocol=5) for value in values]
        return _table(pa.array(pickled, pa.binary()), None if times is None else pa.array(times))
    with pa.ipc.open_stream(block.slice(1)) as reader:
        columns = reader.read_all().combine_chunks()
    stamps = None
    if TIMESTAMP_COLUMN in columns.column_names:
        stamps = columns.column(TIMESTAMP_COLUMN)
        columns = columns.drop_columns([TIMESTAMP_COLUMN])
    is_plain = columns.column_names == [_VALUE]
    return _table(columns.column(_VALUE) if is_plain else columns.to_struct_array(), stamps)


def _table(values: Any, stamps: Any) -> pa.Table:
    times = pa.nulls(len(values), pa.int64()) if stamps is None else stamps
    return pa.table({"timestamp_ms": times, _VALUE: values})
