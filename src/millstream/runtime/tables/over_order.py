"""OVER by any order, over append-only and changing tables. Emits changes of the results of partitions.

All rows of a partition are stored. In an epoch, results of changed partitions are computed before and after; a row
whose results differ is retracted and emitted again; inserted rows are emitted and deleted rows retracted. So after
every epoch the output is the query's result over all rows read so far. In BATCH rows are emitted when the input has
ended.

Rows that expire by the clock leave all frames at the next change of their partition. The results with which other rows
were emitted cannot be computed from the remaining rows and are stored in `emitted_results`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.expressions.nested_types import RowType
from millstream.graph.over_nodes import OverOrder
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import changed_mask, difference
from millstream.runtime.tables.emitted_results import EmittedResults, expired_retractions
from millstream.runtime.tables.gathering import GatheringOperator, rowtimes
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.over_calls import functions_of, over_calls
from millstream.runtime.tables.over_frames import ordered
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.table_names import ORDERED_RESULTS, ORDERED_ROWS

__all__ = ["OverOrderOperator"]


class OverOrderOperator(GatheringOperator):
    """Emits rows with their results, and changes of these results."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation, edge, output_type = setting.node.operation, setting.node.inputs[0], setting.node.output_type
        assert isinstance(operation, OverOrder) and output_type is not None
        super().__init__(setting, operation.row_type, None if operation.is_changing else "over")
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        self._calls = over_calls(operation.columns)
        codec = task_codec(TableRowType(operation.row_type), f"state '{ORDERED_ROWS}' of '{self.node.name}'")
        max_parallelism = setting.context.max_parallelism
        self._rows = JoinedRows(
            ORDERED_ROWS, edge.key_type, max_parallelism, codec, self.backend.scope, operation.ttl_ms
        )
        self.backend.keep(ORDERED_ROWS, self._rows)
        self._emitted = self._results_table(setting, output_type) if self._rows.has_ttl else None
        self._expired_retractions = expired_retractions(setting) if self._rows.has_ttl else None
        self._is_batch = setting.facts.batch

    def _results_table(self, setting: OperatorSetting, output_type: TypeInformation) -> EmittedResults:
        """The results with which each stored row was emitted."""
        assert isinstance(output_type, TableRowType)
        types = output_type.row_type.types[self.row_kind.num_fields :]
        results = RowType.of([f"r{at}" for at in range(len(types))], [each.nullable() for each in types], False)
        key_type, max_parallelism = setting.node.inputs[0].key_type, setting.context.max_parallelism
        codec = task_codec(TableRowType(results), f"state '{ORDERED_RESULTS}' of '{self.node.name}'")
        emitted = EmittedResults(
            ORDERED_RESULTS, key_type, max_parallelism, codec, self.backend.scope, self._operation.ttl_ms
        )
        self.backend.keep(ORDERED_RESULTS, emitted)
        return emitted

    def user_functions(self) -> Iterable[Any]:
        return functions_of(self._operation.columns)

    def apply_changes(self, rows: SignedRows) -> None:
        with self.call.running("over"):
            changed = self._applied(rows)
        if changed is not None:
            self.emit_changes(*changed, self._type)

    def end_input(self) -> None:
        if not self._is_batch:
            return
        with self.call.running("over"):
            rows = self._rows.all()
            output = self._with_results(rows, self._results(rows), np.arange(len(rows)))
        self.emit_changes(
            output, np.zeros(len(rows), dtype=np.int64), self._type, rowtimes(output, self._operation.rowtime)
        )

    def _applied(self, changes: SignedRows) -> tuple[pa.RecordBatch, Int64s] | None:
        """The changes of the partitions' rows, with kinds; also updates the store."""
        if self._is_batch:
            self._rows.add(changes.consolidated(), self.time.now_ms)
            return None
        before = self._rows.of_keys(changes.keys)
        deleted, is_added, missing = before.match_changes(changes, "the table", has_ttl=self._rows.has_ttl)
        if self._expired_retractions is not None:
            self._expired_retractions.inc(len(missing))
        added = self._rows.numbered(changes.where(is_added))
        retained = np.flatnonzero(~deleted)
        after = SignedRows.concat([before.take(retained), added])
        self._rows.delete(before, np.flatnonzero(deleted))
        self._rows.add(added, self.time.now_ms)
        previous, current = self._results(before), self._results(after)
        was_stored = np.ones(len(before), dtype=np.bool_)
        if self._emitted is not None:
            was_stored, previous = self._emitted_results(self._emitted, before, previous)
        # A remaining row can differ only in its results.
        at = pa.array(retained)
        differ = changed_mask(
            [column.take(at) for column in previous], [column[: len(retained)] for column in current], len(retained)
        )
        if self._emitted is not None:
            self._emitted.delete(before, np.flatnonzero(deleted))
            is_new = np.append(differ | ~was_stored[retained], np.ones(len(added), dtype=np.bool_))
            self._emitted.put(after, is_new, self._packed(self._emitted, current, is_new), self.time.now_ms)
        retracted = np.concatenate([np.flatnonzero(deleted), retained[differ]])
        inserted = np.concatenate([np.flatnonzero(differ), np.arange(len(retained), len(after))])
        return difference(self._with_results(before, previous, retracted), self._with_results(after, current, inserted))

    def _emitted_results(
        self, emitted: EmittedResults, rows: SignedRows, results: list[pa.Array]
    ) -> tuple[Bools, list[pa.Array]]:
        """A mask of the rows with stored results, and the results that each row was emitted with: the stored ones, or
        else those in `results`."""
        known, stored = emitted.of(rows)
        # Stored results follow the computed ones in the concatenation.
        at = pa.array(np.where(known, len(rows) + np.cumsum(known) - 1, np.arange(len(rows))))
        columns = zip(results, stored.flatten(), strict=True)
        return known, [pa.concat_arrays([column, own]).take(at) for column, own in columns]

    def _packed(self, emitted: EmittedResults, results: list[pa.Array], chosen: Bools) -> pa.Array:
        kind, at = emitted.table.layout.value_type, pa.array(np.flatnonzero(chosen))
        assert kind is not None
        return pa.StructArray.from_arrays([column.take(at) for column in results], fields=list(kind))

    def _results(self, rows: SignedRows) -> list[pa.Array]:
        """The results of all calls, in the order of `rows`."""
        if not len(rows):
            return [pa.nulls(0, field.type) for field in list(self._schema)[self.row_kind.num_fields :]]
        partitions = key_numbers([rows.keys.array])[0]
        in_order = ordered(partitions, rows.contents.flatten(), self._operation.order)
        columns = pa.RecordBatch.from_struct_array(rows.contents.take(pa.array(in_order.rows)))
        places = np.empty(len(rows), dtype=np.int64)
        places[in_order.rows] = np.arange(len(rows))
        at = pa.array(places)
        return [call.results(in_order, columns).take(at) for call in self._calls]

    def _with_results(self, rows: SignedRows, results: list[pa.Array], chosen: Int64s) -> pa.RecordBatch:
        at = pa.array(chosen)
        columns = [*rows.contents.take(at).flatten(), *(column.take(at) for column in results)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
