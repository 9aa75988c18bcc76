"""The states of a columnar operator: for every visit, Arrow columns beside its distinct keys.

The first time a state is asked for in a visit it is read for all keys of the visit in one lookup; what the operator
sets goes to the table in one piece when the visit ends. No state is ever a Python value here.

Invariant: a visit sees what the visits before it set; null is no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.state.keys.equality import Bools
from millstream.state.keys.key_columns import KeyColumn
from millstream.state.tables.state_table import StateTable

__all__ = ["ColumnState", "ColumnStates"]


class ColumnState(StateHandle):
    """One state, as a column beside the keys of the visit."""

    def __init__(self, table: StateTable, scope: Scope) -> None:
        super().__init__(table, scope)
        assert table.layout.value_type is not None
        self.kind = table.layout.value_type
        self._keys: KeyColumn | None = None
        self._stored: Bools | None = None
        self._new: pa.Array | None = None

    def begin(self) -> None:
        self._keys = self._stored = self._new = None

    def visit(self, keys: KeyColumn) -> None:
        self._keys, self._stored, self._new = keys, None, None

    def get(self) -> pa.Array:
        """The values of the visit's keys; null where there is none."""
        if self._new is not None:
            return self._new
        assert self._keys is not None
        if self.table.view.is_empty:
            self._stored = np.zeros(len(self._keys), dtype=np.bool_)
            return pa.nulls(len(self._keys), self.kind)
        lookup = self.table.view.get(self._keys)
        self._stored = lookup.mask
        assert lookup.values is not None
        if len(lookup.values) == len(self._keys):
            return lookup.values
        positions = np.cumsum(lookup.mask) - 1
        return lookup.values.take(pa.array(positions, mask=~lookup.mask))

    def set(self, values: pa.Array) -> None:
        """Set the values of all keys of the visit; null removes."""
        self._new = values

    def leave(self) -> None:
        new, keys, self._new = self._new, self._keys, None
        if new is None or keys is None:
            return
        if not new.null_count:
            self.table.changes.put(keys, new)
            return
        has_value = np.asarray(new.is_valid())
        # A key that is known to have no row needs no tombstone.
        removed = ~has_value if self._stored is None else ~has_value & self._stored
        if not self.table.view.is_empty:
            self.table.delete_keys(keys.take(np.flatnonzero(removed)))
        if has_value.any():
            self.table.changes.put(keys.take(np.flatnonzero(has_value)), new.filter(pa.array(has_value)))


class ColumnStates(Mapping[str, ColumnState]):
    """All states of an operator. `kinds`: their types by name."""

    def __init__(self, backend: KeyedBackend, kinds: Mapping[str, TypeInformation]) -> None:
        self._states = {name: ColumnState(backend.table(name, kind), backend.scope) for name, kind in kinds.items()}
        for name, state in self._states.items():
            backend.keep(name, state)

    def columns(self) -> dict[str, pa.Array]:
        """Every state of the visit's keys."""
        return {name: state.get() for name, state in self._states.items()}

    def __getitem__(self, name: str) -> ColumnState:
        return self._states[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)
