"""The records that are on their way round a loop when an epoch ends.

They are stored as blocks (`runtime.exchange.blocks`), as they cross an exchange: Arrow columns of typed records, one
pickle of untyped ones. A row here is a record, with the subtask that kept it, its place there and its timestamp.
Untyped records cannot be told apart without opening their pickle, which only the job does: there a row is a whole
block, and its value the pickle of two lists, of values and of timestamps. What is in a loop fits the memory of a task,
and is read whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.errors import StoreDamagedError
from millstream.records.columns import TIMESTAMP_COLUMN, TYPED
from millstream.state.stored.operator_lists import Slice, column_of
from millstream.state_reader.forms import Encoded
from millstream.state_reader.subtask_source import SubtaskSource, value_form

__all__ = ["LoopSource"]

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
        """The blocks, with the subtask that kept each."""
        for subtask, entry in enumerate(self.state.entries):
            if entry is not None:
                blocks = column_of([(entry, Slice(subtask, 0, entry.items))], self.store, self.state.what)
                yield from ((subtask, block.as_buffer()) for block in blocks or ())


def _is_typed(block: pa.Buffer) -> bool:
    return bool(block[0:1].to_pybytes() == TYPED)


def _records(block: pa.Buffer) -> pa.Table:
    """The records of a block: their timestamps, and themselves in one column; or a block of untyped ones as one."""
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
