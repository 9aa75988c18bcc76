"""The states of a columnar operator: Arrow columns over the keys met in this epoch.

For every batch the keys are numbered, the states of keys new to the epoch are read from the last version in one
lookup, and the operator gets each state as a column beside the distinct keys. What it sets goes back the same way;
at the end of the epoch what was set is handed to the table, in blocks. No state is ever a Python value here.

Invariant: within an epoch a batch sees what the batches before it set; null is no value.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.runtime.key_numbers import KeyNumbers, Numbering
from millstream.runtime.keyed_backend import KeyedBackend
from millstream.runtime.numbered_column import NumberedColumn, grown
from millstream.runtime.state_table import StateTable
from millstream.runtime.states import Scope, StateHandle
from millstream.state.equality import Bools
from millstream.state.keys import KeyColumn
from millstream.state.xxh64 import Int64s

__all__ = ["ColumnState", "ColumnStates"]

_FLUSHED_KEYS_MAX = 1 << 18


class ColumnState(StateHandle):
    """One state, as a column by key number."""

    def __init__(self, table: StateTable, scope: Scope) -> None:
        super().__init__(table, scope, renews_on_read=False)
        assert table.layout.value_type is not None
        self.kind = table.layout.value_type
        self._numbers: KeyNumbers | None = None

    def begin(self) -> None:
        self._column = NumberedColumn(self.kind)
        self._changed = np.zeros(0, dtype=np.int64)

    def follow(self, numbers: KeyNumbers) -> None:
        """These are the epoch's keys."""
        self._numbers = numbers

    def load(self, numbers: Int64s, keys: KeyColumn) -> None:
        """Read what the last version holds of keys met for the first time."""
        if len(numbers) and self.table.view.refs:
            found = self.table.view.get(keys)
            if found.values is not None:
                self._column.set(numbers[found.mask], found.values)

    def get(self, numbers: Int64s) -> pa.Array:
        """The values of keys; null where there is none."""
        return self._column.get(numbers)

    def set(self, numbers: Int64s, values: pa.Array) -> None:
        """Set the values of different keys; null removes."""
        self._column.set(numbers, values)
        if len(numbers):
            self._changed = grown(self._changed, int(numbers.max()) + 1, 0)
            self._changed[numbers] = 1

    def flush(self) -> None:
        changed = np.flatnonzero(self._changed)
        for start in range(0, len(changed), _FLUSHED_KEYS_MAX):
            block = changed[start : start + _FLUSHED_KEYS_MAX]
            assert self._numbers is not None
            values, keys = self._column.get(block), self._numbers.keys(block)
            if not values.null_count:
                self.table.changes.put(keys, values)
                continue
            there = np.asarray(values.is_valid())
            self.table.changes.put(_chosen(keys, there), values.filter(pa.array(there)))
            if self.table.view.refs:
                self.table.changes.delete(_chosen(keys, ~there))
        self._changed[:] = 0


def _chosen(keys: KeyColumn, mask: Bools) -> KeyColumn:
    return KeyColumn(keys.hashes[mask], keys.array.filter(pa.array(mask)))


class ColumnStates:
    """All states of an operator, over one numbering of keys. `kinds`: their types by name."""

    def __init__(self, backend: KeyedBackend, kinds: Mapping[str, TypeInformation]) -> None:
        self._states = {name: ColumnState(backend.table(name, kind), backend.scope) for name, kind in kinds.items()}
        for name, state in self._states.items():
            backend.keep(name, state)

    def begin(self, key_kind: pa.DataType) -> None:
        """An epoch begins: no key is known."""
        self._numbers = KeyNumbers(key_kind)
        for state in self._states.values():
            state.follow(self._numbers)

    def enter(self, keys: KeyColumn) -> tuple[Numbering, dict[str, pa.Array]]:
        """The keys of a batch, and every state of its distinct keys."""
        numbering = self._numbers.number(keys)
        if len(numbering.fresh):
            fresh = self._numbers.keys(numbering.fresh)
            for state in self._states.values():
                state.load(numbering.fresh, fresh)
        return numbering, {name: state.get(numbering.distinct) for name, state in self._states.items()}

    def keys(self, numbers: Int64s) -> pa.Array:
        """The keys of these numbers, as a column."""
        return self._numbers.keys(numbers).array

    def __getitem__(self, name: str) -> ColumnState:
        return self._states[name]

    def __contains__(self, name: str) -> bool:
        return name in self._states

    def names(self) -> list[str]:
        """The names of the states."""
        return list(self._states)
