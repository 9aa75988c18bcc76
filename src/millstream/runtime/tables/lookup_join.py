"""Lookup joins: joins every row with the current rows of another table for its key.

Rows keep their order and times. Over a changelog (`ChangingLookupOperator`) the rows looked up are stored until the
input row is deleted; the retraction then equals the emitted result, even if the other table has changed.

A repeated epoch repeats its lookups and may read different rows; only one of its attempts is ever committed.

`lookup_join_slowly` is the slow reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType
from millstream.graph.changing_nodes import ChangingLookupJoin, LookupJoin
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.changes import difference, row_numbers
from millstream.runtime.tables.gathering import GatheringOperator
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.lookups import Lookups
from millstream.runtime.tables.task_program import functions_in
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.table_names import LOOKUP_RESULTS

__all__ = ["ChangingLookupOperator", "LookupJoinOperator", "lookup_join_slowly"]


class LookupJoinOperator(Operator):
    """Looks up append-only rows."""

    role = "lookup join"

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, LookupJoin) and output_type is not None
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        self._lookups = Lookups(operation, self)

    def user_functions(self) -> Iterable[Any]:
        return functions_in(*self._operation.keys, self._operation.condition)

    def stateful(self) -> Any:
        return None

    def close(self) -> None:
        self._lookups.close()
        super().close()

    def apply(self, batch: Batch) -> Batch | None:
        left, columns = self._lookups.pairs(batch)
        if not len(left):
            return None
        times = None if batch.timestamps is None else batch.timestamps[left]
        return Batch.of_columns(pa.RecordBatch.from_arrays(columns, schema=self._schema), self._type, times)


class ChangingLookupOperator(GatheringOperator):
    """Looks up rows of a changelog. Column 0 of the input is the key, the others are the row. Results are stored under
    the number of the row's first result: results with the same number are retracted together."""

    role = "lookup join"

    def __init__(self, setting: OperatorSetting) -> None:
        operation, edge, output_type = setting.node.operation, setting.node.inputs[0], setting.node.output_type
        assert isinstance(operation, ChangingLookupJoin) and isinstance(output_type, TableRowType)
        super().__init__(setting, operation.row_type)
        self._operation, self._type = operation, output_type
        self._schema = output_type.row_type.schema
        self._lookups = Lookups(operation, self)
        names = [f"f{at}" for at in range(len(self._schema))]
        stored = RowType.of([*names, "number"], [*output_type.row_type.types, operation.number_type], nullable=False)
        self._stored_kind = pa.struct(list(stored.schema))
        codec = task_codec(TableRowType(stored), f"state '{LOOKUP_RESULTS}' of '{self.node.name}'")
        parallelism, scope = setting.context.max_parallelism, self.backend.scope
        self._rows = JoinedRows(LOOKUP_RESULTS, edge.key_type, parallelism, codec, scope, operation.ttl_ms)
        self.backend.keep(LOOKUP_RESULTS, self._rows)

    def user_functions(self) -> Iterable[Any]:
        return functions_in(*self._operation.keys, self._operation.condition)

    def close(self) -> None:
        self._lookups.close()
        super().close()

    def apply_changes(self, rows: SignedRows) -> None:
        changes = rows.consolidated()
        deleted = self._deleted_results(changes.take(np.flatnonzero(changes.signs < 0)))
        inserted = self._lookup(changes.take(np.flatnonzero(changes.signs > 0)))
        self._rows.remove(deleted)
        self._rows.add(inserted, self.time.now_ms)
        self.emit_changes(*difference(self._results(deleted), self._results(inserted)), self._type)

    def _deleted_results(self, rows: SignedRows) -> SignedRows:
        """The stored results of deleted rows; of equal rows, those of the earliest."""
        stored = self._rows.of_keys(rows.keys)
        if not len(rows):
            return stored
        fields = stored.contents.flatten() if len(stored) else [pa.nulls(0, each.type) for each in self._stored_kind]
        width = self.row_kind.num_fields
        left = pa.StructArray.from_arrays(fields[:width], fields=list(self.row_kind))
        codes, deleted_codes = row_numbers([left, rows.contents])
        count = int(max(codes.max(initial=-1), deleted_codes.max(initial=-1))) + 1
        counts = np.bincount(deleted_codes, minlength=count)
        numbers = np.asarray(fields[-1], dtype=np.int64)
        order = np.lexsort((numbers, codes))
        # The rank of each result's number among the results of equal rows.
        is_new = np.ones(len(order), dtype=np.bool_)
        is_new[1:] = (codes[order][1:] != codes[order][:-1]) | (numbers[order][1:] != numbers[order][:-1])
        starts = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=count))])[:-1]
        total = np.cumsum(is_new)
        rank: Int64s = total - np.where(starts[codes[order]] > 0, total[starts[codes[order]] - 1], 0)
        known = np.bincount(codes[order][is_new], minlength=count)
        missing = np.flatnonzero(counts > known)
        if len(missing) and self._operation.keeps_all and not self._rows.has_ttl:
            row = rows.contents.take(pa.array(np.flatnonzero(deleted_codes == missing[0])[:1])).to_pylist()[0]
            raise ProgramError(
                f"a row was retracted that was never inserted: {row}. Check the source's changelog: "
                "every -U and -D must be of a row that it emitted before"
            )
        return stored.take(np.sort(order[rank <= counts[codes[order]]]))

    def _lookup(self, rows: SignedRows) -> SignedRows:
        """The results of inserted rows."""
        if not len(rows):
            return self._rows.no_rows()
        columns = pa.RecordBatch.from_arrays(rows.contents.flatten(), schema=self._operation.row_type.schema)
        left, matches = self._lookups.pairs(Batch.of_columns(columns, TableRowType(self._operation.row_type)))
        first = np.ones(len(left), dtype=np.bool_)
        first[1:] = left[1:] != left[:-1]
        numbers = self._rows.next_number + np.flatnonzero(first)[np.cumsum(first) - 1] if len(left) else left
        contents = pa.StructArray.from_arrays([*matches, pa.array(numbers)], fields=list(self._stored_kind))
        return SignedRows.of(rows.keys.take(left), contents)

    def _results(self, rows: SignedRows) -> pa.RecordBatch:
        if not len(rows):
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        return pa.RecordBatch.from_arrays(rows.contents.flatten()[:-1], schema=self._schema)


def lookup_join_slowly(
    rows: Iterable[tuple[Any, ...]], key: int, table: Sequence[tuple[Any, ...]], table_key: int, keeps_all: bool
) -> list[tuple[Any, ...]]:
    """The reference: every row with each row of the table that has its key; NULL matches nothing."""
    width = len(table[0]) if table else 0
    result: list[tuple[Any, ...]] = []
    for row in rows:
        matches = [each for each in table if row[key] is not None and each[table_key] == row[key]]
        result += [(*row, *each) for each in matches]
        if not matches and keeps_all:
            result.append((*row, *[None] * width))
    return result
