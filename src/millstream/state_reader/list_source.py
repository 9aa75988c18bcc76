"""The rows of operator state: lists and maps that belong to subtasks, not to keys.

They are small, and are read whole: a row is an element with its place in its subtask's list, or an entry of its
subtask's copy of a map. Values come as they are stored, of their Arrow type or as pickles.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millstream.state.stored.operator_lists import Slice, column_of
from millstream.state_reader.forms import Encoded, Form, Plain
from millstream.state_reader.subtask_source import SubtaskSource, value_form

__all__ = ["ListSource"]

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
