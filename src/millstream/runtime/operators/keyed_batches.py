"""Keyed functions over whole Arrow batches: input and output are columns of records, keys and states.

A per-record keyed function costs a Python call per record. A function that works on columns (numpy, `pyarrow.compute`)
receives all records of a batch with the states of their keys at once, and returns output and new states the same way.
The first access to a state in a visit reads it for all keys of the visit in one lookup; new values are written to the
table together when the visit ends.

The function's results are checked against the declared types and the number of keys; an error names the state.

Invariant: a visit sees the updates of earlier visits; null means no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError, TypeMismatchError
from millstream.graph.nodes import KeyedBatches
from millstream.records.batch import Batch, Timestamps
from millstream.records.columns import KIND_COLUMN, checked_batch
from millstream.runtime.keyed.keyed_backend import KeyedBackend, Visit
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.runtime.operators.keyed_operator import KeyedOperator, Part
from millstream.runtime.operators.operator import OperatorSetting
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.tables.state_table import StateTable

__all__ = ["ColumnState", "ColumnStates", "ColumnarOperator", "KeyedBatch", "KeyedBatchResult", "KeyedBatchesOperator"]


class ColumnState(StateHandle):
    """One state, as a column parallel to the keys of the visit."""

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
        """The values of the visit's keys; null if a key has none."""
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
        """Sets the values of all keys of the visit; null removes."""
        self._new = values

    def leave(self) -> None:
        new, keys, self._new = self._new, self._keys, None
        if new is None or keys is None:
            return
        if not new.null_count:
            self.table.changes.put(keys, new)
            return
        has_value = np.asarray(new.is_valid())
        # A key known to have no row needs no tombstone.
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
        """The values of every state for the visit's keys."""
        return {name: state.get() for name, state in self._states.items()}

    def __getitem__(self, name: str) -> ColumnState:
        return self._states[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)


@dataclass(frozen=True)
class KeyedBatch:
    """Records of a keyed stream, in arrival order per key, and the states of their keys.

    `records`      the records, one column per field (one column `value` if a record is a single value)
    `keys`         the distinct keys, in the order of the store
    `key_of`       for every record, the index of its key in `keys`: an int array as long as `records`
    `states`       for every state a column as long as `keys`; null if a key has no value
    `timestamps`   event time of every record in ms, or None
    """

    records: pa.RecordBatch
    keys: pa.Array
    key_of: Int64s
    states: Mapping[str, pa.Array]
    timestamps: Timestamps | None = None


@dataclass(frozen=True)
class KeyedBatchResult:
    """The result of a keyed batch function.

    `output`   a record batch (or table) of the declared output type; None: no output
    `states`   new columns for states, as long as `keys`; null removes; an omitted state is unchanged
    `rows`     for every output row, the index of its input record: it gets that record's timestamp. By default an
               output as long as the input has the input's timestamps, any other has none
    """

    output: pa.RecordBatch | pa.Table | None = None
    states: Mapping[str, Any] = field(default_factory=dict)
    rows: Int64s | None = None


class ColumnarOperator(KeyedOperator):
    """An operator whose states are columns. `kinds`: their types by name."""

    def __init__(self, setting: OperatorSetting, kinds: Mapping[str, TypeInformation]) -> None:
        super().__init__(setting)
        self.states = ColumnStates(self.backend, kinds)

    def columns(self) -> dict[str, pa.Array]:
        """The states of the visit's keys."""
        with self.call.running("state"):
            return self.states.columns()


class KeyedBatchesOperator(ColumnarOperator):
    """Runs a user's `KeyedBatchFunction`."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation = setting.node.operation
        assert isinstance(operation, KeyedBatches)
        super().__init__(setting, dict(operation.states))
        self._function = self.call.bind(operation.function, "process_batch", "keyed batch function")

    def work(self, visit: Visit) -> Iterator[Part]:
        batch, keys, states = visit.records, visit.keys.array, self.columns()
        with self.call.running("process_batch"):
            keyed_batch = KeyedBatch(_without_kinds(batch.columns()), keys, visit.codes, states, batch.timestamps)
            result = self._function(keyed_batch)
            if not isinstance(result, KeyedBatchResult):
                raise ProgramError(
                    f"process_batch returned {type(result).__name__}, expected a KeyedBatchResult(output, states)"
                )
            for name, values in result.states.items():
                column = self._state_column(self._declared(name), values, len(keys))
                self.states[name].set(column)
            output = self._output(result, batch)
        if output is not None:
            yield None, output

    def _declared(self, name: str) -> str:
        if name in self.states:
            return name
        raise ProgramError(
            f"process_batch returned a state {name!r}; states() declares {list(self.states)}. Declare it there"
        )

    def _state_column(self, name: str, values: Any, length: int) -> pa.Array:
        kind = self.states[name].kind
        try:
            column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            column = column if isinstance(column, pa.Array) else pa.array(column, kind)
            column = column if column.type == kind else column.cast(kind)
        except (pa.ArrowException, TypeError, ValueError) as refusal:
            raise TypeMismatchError(
                f"state {name!r} is declared as {kind} and was returned as {type(values).__name__} ({refusal}). "
                "Cast it, or declare another type",
                value=values,
            ) from None
        if len(column) != length:
            raise ProgramError(
                f"state {name!r} was returned with {len(column)} values for {length} keys. Return one per key, in the "
                "order of batch.keys"
            )
        return column

    def _output(self, result: KeyedBatchResult, batch: Batch) -> Batch | None:
        if result.output is None:
            return None
        assert self.node.output_type is not None
        output: Any = result.output
        if isinstance(output, pa.Table):
            parts = output.combine_chunks().to_batches()
            output = parts[0] if parts else pa.RecordBatch.from_pylist([], schema=output.schema)
        if not isinstance(output, pa.RecordBatch):
            raise ProgramError(
                f"process_batch returned output of {type(output).__name__}, expected a pyarrow RecordBatch or Table"
            )
        columns = checked_batch(output, self.node.output_type)
        return Batch.of_columns(columns, self.node.output_type, _timestamps(result, columns.num_rows, batch))


def _timestamps(result: KeyedBatchResult, length: int, batch: Batch) -> Timestamps | None:
    if batch.timestamps is None:
        return None
    if result.rows is None:
        return batch.timestamps if length == len(batch) else None
    rows = np.asarray(result.rows)
    if rows.shape != (length,):
        raise ProgramError(f"process_batch returned rows of shape {rows.shape} for {length} rows of output")
    return batch.timestamps[rows]


def _without_kinds(columns: pa.RecordBatch) -> pa.RecordBatch:
    kind = columns.schema.get_field_index(KIND_COLUMN)
    if kind < 0:
        return columns
    if columns.column(kind).null_count:
        raise ProgramError("a record is None, and None has no columns. Filter such records out first")
    return columns.select([name for name in columns.schema.names if name != KIND_COLUMN])
