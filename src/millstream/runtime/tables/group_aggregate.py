"""Unbounded GROUP BY. Maintains one accumulator row per group and emits the net changes of each epoch.

Each upstream task pre-aggregates its rows into partial accumulators (`PartialGroupsOperator`), so a hot group crosses
the exchange as a few rows per task. `GroupsOperator` collects an epoch's partials, merges them to one per group and
combines them with the stored accumulators, which it reads once. It writes the changed accumulators and emits each
changed group's previous and current row (`runtime.tables.changes`). Values of large groups spill to rows of their own
(`group_spills`). `added_measures` detects aggregates added to the query since the state was written.

A group is removed when its row count reaches zero. Without GROUP BY there is one group, which is never removed once it
exists. In BATCH only final rows are emitted, when the input has ended; without GROUP BY there is one final row even if
the input is empty.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.distinct_arguments import partial_measures
from millstream.aggregation.groups import Groups
from millstream.aggregation.pane_rows import Accumulators, PaneRows, accumulator_type
from millstream.errors import ProgramError
from millstream.plan.operations import FinalGroups, PartialGroups
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.states import StateHandle
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.added_measures import AddedMeasures, Unseen, masked
from millstream.runtime.tables.changes import (
    attach_row_kinds,
    change_signs,
    changed_mask,
    changed_rows,
    reject_retractions,
)
from millstream.runtime.tables.group_keys import GroupKeys
from millstream.runtime.tables.group_spills import GroupSpills, stored_measures
from millstream.runtime.tables.spilled_values import ValueTables, reject_expiry
from millstream.runtime.tables.user_aggregates import user_functions_of
from millstream.runtime.windows.partial_aggregates import PartialsOperator
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.segments.sorting import ascending
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import GROUPS
from millstream.state.tables.layout import orders_of
from millstream.state.tables.state_table import StateTable

__all__ = ["GroupsOperator", "PartialGroupsOperator"]

# Partials are merged when they reach this size, and again when they have doubled.
_GATHERED_BYTES = 128 << 20
_BATCH_ROWS_MAX = 65_536
# An epoch with more groups than this is processed in store order, which makes reads and writes sequential.
_UNSORTED_GROUPS_MAX = 1_024


class PartialGroupsOperator(PartialsOperator):
    """Pre-aggregates a task's input by group; deletes subtract from the accumulator."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation, key_type = setting.node.operation, setting.node.inputs[0].key_type
        assert isinstance(operation, PartialGroups) and key_type is not None
        super().__init__(setting, operation.measures)
        self._keys, self._is_signed = GroupKeys(operation.keys, key_type), operation.is_signed

    def apply(self, batch: Batch) -> Batch | None:
        columns, signs = change_signs(batch.columns())
        if signs is not None and not self._is_signed:
            reject_retractions(self.call, batch, signs, "aggregate")
        panes = np.zeros(len(batch), dtype=np.int64)
        return self._partial(self._keys.of(columns), panes, self._input_of(columns, batch.timestamps, signs))


class GroupsOperator(KeyedOperator):
    """Maintains the groups' accumulators and emits their changes."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, key_type, output_type = self.node.operation, self.node.inputs[0].key_type, self.node.output_type
        assert isinstance(operation, FinalGroups) and key_type is not None and output_type is not None
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        stored_aggregates = stored_measures(operation.measures, operation.ttl_ms)
        partials = partial_measures(operation.measures, operation.ttl_ms)
        self._partial_accumulators, self._accumulators = Accumulators(partials), Accumulators(stored_aggregates)
        codec = task_codec(accumulator_type(stored_aggregates), f"state '{GROUPS}' of '{self.node.name}'")
        self._table = StateTable(GROUPS, key_type, setting.context.max_parallelism, codec, ttl_ms=operation.ttl_ms)
        self.backend.keep(GROUPS, StateHandle(self._table, self.backend.scope))
        tables = ValueTables(key_type, setting.context.max_parallelism, self.backend, self.node.name)
        self._values = GroupSpills(operation.measures, stored_aggregates, operation.ttl_ms, tables)
        self._added = AddedMeasures(operation.measures, stored_aggregates, operation.is_signed)
        self._is_batch = setting.facts.batch

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        with self.call.running("state"):
            if self._operation.ttl_ms:
                reject_expiry(self.node.name, accounts)
            self._values.check_stored(self._table, accounts)
        self._partials: list[PaneRows] = []
        self._partial_bytes, self._partial_bytes_max = 0, _GATHERED_BYTES

    def user_functions(self) -> Iterable[Any]:
        return user_functions_of(self._operation.measures)

    def take(self, batch: Batch) -> None:
        """Collect partials until the epoch's input is complete."""
        started = time.perf_counter_ns()
        columns = batch.columns()
        self.records_in += len(batch)
        rows = PaneRows(self.keying.column_to_group(batch), columns.column(1).to_numpy(), columns.columns[3:])
        self._partials.append(rows)
        self._partial_bytes += rows.nbytes
        if self._partial_bytes > self._partial_bytes_max:
            merged = self._merged()
            self._partials, self._partial_bytes = [merged], merged.nbytes
            self._partial_bytes_max = max(2 * merged.nbytes, _GATHERED_BYTES)
        self.busy_ns += time.perf_counter_ns() - started

    def _merged(self) -> PaneRows:
        with self.call.running("aggregate"):
            return self._partial_accumulators.combined(PaneRows.concat(self._partials))[0]

    def _ordered(self, fresh: PaneRows) -> PaneRows:
        """The partials of an epoch, in an order that makes lookups cheap."""
        if len(fresh) <= _UNSORTED_GROUPS_MAX:
            return fresh
        return fresh.take(ascending(orders_of(fresh.keys.hashes, self._table.layout.max_parallelism)))

    def advance(self, watermark: int) -> int:
        had_ended = self.time.watermark == MAX_WATERMARK
        reached = super().advance(watermark)
        started = time.perf_counter_ns()
        for columns in self._apply(self._ordered(self._merged())) if self._partials else ():
            self.busy_ns += time.perf_counter_ns() - started
            self.emit(Batch.of_columns(columns, self._type))
            started = time.perf_counter_ns()
        self.busy_ns += time.perf_counter_ns() - started
        if self._is_batch and reached == MAX_WATERMARK and not had_ended:
            for columns in self._final_rows():
                self.emit(Batch.of_columns(columns, self._type))
        return reached

    def _apply(self, fresh: PaneRows) -> Iterator[pa.RecordBatch]:
        """Combine with the stored accumulators, write the result, and emit the changes."""
        self._partials = []
        keys, count = fresh.keys, len(fresh)
        with self.call.running("state"):
            was_stored, stored = self._stored(keys)
            unseen = self._added.unseen(was_stored, stored)
            stored, unknown = self._added.with_counts(stored), self._added.unknown(unseen)
            incoming = self._values.absorb(keys, self._added.known_parts(fresh.parts, unknown), was_stored, stored)
        with self.call.running("aggregate"):
            both = [pa.concat_arrays([old, new]) for old, new in zip(stored, incoming, strict=True)]
            codes = np.concatenate([np.flatnonzero(was_stored), np.arange(count)])
            parts = self._accumulators.consolidated(self._accumulators.combine(both, Groups(codes, count)))
            is_live = self._live_groups(keys, parts)
        with self.call.running("state"):
            parts, unknown = self._added.storable(self._values.spill(keys, parts, was_stored, stored), unknown)
            self._store(keys, parts, was_stored, is_live)
        if not self._is_batch:
            yield from self._changes(keys, stored, parts, was_stored, is_live, unseen, unknown)

    def _stored(self, keys: KeyColumn) -> tuple[Bools, Parts]:
        """A mask of the groups that are stored, and their accumulators."""
        if self._table.view.is_empty:
            kinds = [pa.nulls(0, kind) for kernel in self._accumulators.kernels for kind in kernel.part_kinds]
            return np.zeros(len(keys), dtype=np.bool_), kinds
        lookup = self._table.view.get(keys)
        assert lookup.values is not None
        return lookup.mask, self._accumulators.read(lookup.values)

    def _live_groups(self, keys: KeyColumn, parts: Parts) -> Bools:
        """A mask of the groups that have rows. A negative row count means that a delete arrived for a row that was
        never inserted or that has expired."""
        if not self._operation.is_signed:
            return np.ones(len(keys), dtype=np.bool_)
        rows = parts[-1].to_numpy()
        if (rows < 0).any() and not self._operation.ttl_ms:
            key = keys.array.slice(int(np.flatnonzero(rows < 0)[0]), 1).to_pylist()[0]
            raise ProgramError(
                f"group {key!r}: a row was retracted that was never inserted. Check the source's changelog: every -U "
                "and -D must be of a row that it emitted before"
            )
        # Without GROUP BY there is a row even if the group is empty.
        is_live: Bools = rows > 0 if self._operation.keys else rows >= 0
        return is_live

    def _store(self, keys: KeyColumn, parts: Parts, was_stored: Bools, is_live: Bools) -> None:
        if was_stored.any():
            self._table.delete_keys(keys.take(np.flatnonzero(was_stored & ~is_live)))
        live = np.flatnonzero(is_live)
        if not len(live):
            return
        expires = None
        if self._operation.ttl_ms:
            expires = np.full(len(live), self.time.now_ms + self._operation.ttl_ms, dtype=np.int64)
        stored = self._accumulators.packed(parts)
        if len(live) < len(keys):
            keys, stored = keys.take(live), stored.take(pa.array(live))
        self._table.changes.put(keys, stored, expires_ms=expires)

    def _changes(
        self,
        keys: KeyColumn,
        stored: Parts,
        parts: Parts,
        was_stored: Bools,
        is_live: Bools,
        unseen: Unseen,
        unknown: Unseen,
    ) -> Iterator[pa.RecordBatch]:
        """`unseen` masks results that the stored group lacks, `unknown` results that are not known."""
        count = len(keys)
        at = pa.array(np.where(was_stored, np.cumsum(was_stored) - 1, 0), mask=~was_stored)
        with self.call.running("aggregate"):
            before = [
                masked(column.take(at), mask) for column, mask in zip(self._results(stored), unseen, strict=False)
            ]
            after = [masked(column, mask) for column, mask in zip(self._results(parts), unknown, strict=False)]
            rows, kinds = changed_rows(was_stored, is_live, changed_mask(before, after, count))
        columns = self._key_columns(keys.array)
        both = [pa.concat_arrays(pair) for pair in zip(before, after, strict=True)]
        for start in range(0, len(rows), _BATCH_ROWS_MAX):
            some = rows[start : start + _BATCH_ROWS_MAX]
            arrays = [column.take(pa.array(some % count)) for column in columns]
            arrays += [column.take(pa.array(some)) for column in both]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            yield attach_row_kinds(batch, kinds[start : start + _BATCH_ROWS_MAX])

    def _results(self, parts: Parts) -> list[pa.Array]:
        """The results that are output columns; the row count need not be one of them."""
        results = self._accumulators.results(parts)
        return results[: len(self._schema) - self._operation.keys]

    def _key_columns(self, keys: pa.Array) -> list[pa.Array]:
        if self._operation.keys == 0:
            return []
        return [keys] if self._operation.keys == 1 else keys.flatten()

    def _final_rows(self) -> Iterator[pa.RecordBatch]:
        """All groups in their final state."""
        with self.call.running("state"):
            self._table.settle()
            blocks: Sequence[pa.RecordBatch] = list(self._table.view.scan())
        if not self._operation.keys and not sum(block.num_rows for block in blocks):
            with self.call.running("aggregate"):
                results = self._accumulators.results_of_nothing()[: len(self._schema)]
                yield pa.RecordBatch.from_arrays(results, schema=self._schema)
        for block in blocks:
            with self.call.running("aggregate"):
                results = self._results(self._accumulators.read(block.column("value")))
                columns = [*self._key_columns(block.column("key")), *results]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
