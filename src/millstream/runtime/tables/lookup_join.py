"""Lookup joins: every row with the rows that another table has for its key now.

Rows keep their order and their times. Of a table that changes (`ChangingLookupOperator`) what was found for a row is
kept until the row goes: then just that is taken away, whatever the other table has by then.

An epoch that is done again asks again, and may find other rows; only one of its results is ever committed.

The slow, obvious form of it is `looked_up_slowly`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.types import RowKind
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType
from millstream.graph.changing_nodes import ChangingLookupJoin, LookupJoin
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.changes import netted_rows, signs_of, with_kinds
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.lookups import Lookups
from millstream.runtime.tables.task_program import functions_in
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import LOOKED_UP_ROWS

__all__ = ["ChangingLookupOperator", "LookupJoinOperator", "looked_up_slowly"]

_GIVEN_ROWS = 65_536


class LookupJoinOperator(Operator):
    """Looks rows up that only come."""

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


class ChangingLookupOperator(KeyedOperator):
    """Looks rows up that go again. Column 0 of the input is a key of its rows, the others are the rows. What was found
    is stored with the number of the first row found: rows of one number go together."""

    role = "lookup join"

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, edge, output_type = self.node.operation, self.node.inputs[0], self.node.output_type
        assert isinstance(operation, ChangingLookupJoin) and isinstance(output_type, TableRowType)
        self._operation, self._type = operation, output_type
        self._schema = output_type.row_type.schema
        self._lookups = Lookups(operation, self)
        self._kind = pa.struct(list(operation.row_type.schema))
        names = [f"f{at}" for at in range(len(self._schema))]
        stored = RowType.of([*names, "number"], [*output_type.row_type.types, operation.number_type], nullable=False)
        self._stored_kind = pa.struct(list(stored.schema))
        codec = task_codec(TableRowType(stored), f"state '{LOOKED_UP_ROWS}' of '{self.node.name}'")
        parallelism, scope = setting.context.max_parallelism, self.backend.scope
        self._rows = JoinedRows(LOOKED_UP_ROWS, edge.key_type, parallelism, codec, scope, operation.ttl_ms)
        self.backend.keep(LOOKED_UP_ROWS, self._rows)
        self._come: list[SignedRows] = []

    def user_functions(self) -> Iterable[Any]:
        return functions_in(*self._operation.keys, self._operation.condition)

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        self._come = []

    def close(self) -> None:
        self._lookups.close()
        super().close()

    def take(self, batch: Batch) -> None:
        """Keep changes until the epoch's input is in."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        columns, signs = signs_of(batch.columns())
        contents = pa.StructArray.from_arrays(columns.columns[1 : 1 + self._kind.num_fields], fields=list(self._kind))
        self._come.append(SignedRows.of(self.keying.column(batch), contents, signs))
        self.busy_ns += time.perf_counter_ns() - started

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        started = time.perf_counter_ns()
        if self._come:
            changes, self._come = SignedRows.concat(self._come).netted(), []
            gone = self._gone(changes.take(np.flatnonzero(changes.signs < 0)))
            come = self._found(changes.take(np.flatnonzero(changes.signs > 0)))
            self._rows.remove(gone)
            self._rows.add(come, self.time.now_ms)
            self._give(gone, come)
        self.busy_ns += time.perf_counter_ns() - started
        return reached

    def _gone(self, rows: SignedRows) -> SignedRows:
        """The stored results of rows that go: of equal rows those that came first."""
        stored = self._rows.of_keys(rows.keys)
        if not len(rows):
            return stored
        fields = stored.contents.flatten() if len(stored) else [pa.nulls(0, each.type) for each in self._stored_kind]
        width = self._kind.num_fields
        left = pa.StructArray.from_arrays(fields[:width], fields=list(self._kind))
        codes, wanted = key_numbers([left, rows.contents])
        count = int(max(codes.max(initial=-1), wanted.max(initial=-1))) + 1
        counts = np.bincount(wanted, minlength=count)
        numbers = np.asarray(fields[-1], dtype=np.int64)
        order = np.lexsort((numbers, codes))
        # How many results of the same row, by their numbers, stand before each.
        is_new = np.ones(len(order), dtype=np.bool_)
        is_new[1:] = (codes[order][1:] != codes[order][:-1]) | (numbers[order][1:] != numbers[order][:-1])
        starts = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=count))])[:-1]
        total = np.cumsum(is_new)
        rank: Int64s = total - np.where(starts[codes[order]] > 0, total[starts[codes[order]] - 1], 0)
        known = np.bincount(codes[order][is_new], minlength=count)
        missing = np.flatnonzero(counts > known)
        if len(missing) and self._operation.keeps_all:
            row = rows.contents.take(pa.array(np.flatnonzero(wanted == missing[0])[:1])).to_pylist()[0]
            raise ProgramError(
                f"a row was taken away that had never been added: {row}. Look at what the source says of its changes: "
                "each -U and -D is of a row that it has given before"
            )
        return stored.take(np.sort(order[rank <= counts[codes[order]]]))

    def _found(self, rows: SignedRows) -> SignedRows:
        """The results of rows that come."""
        if not len(rows):
            return self._rows.no_rows()
        columns = pa.RecordBatch.from_arrays(rows.contents.flatten(), schema=self._operation.row_type.schema)
        left, found = self._lookups.pairs(Batch.of_columns(columns, TableRowType(self._operation.row_type)))
        first = np.ones(len(left), dtype=np.bool_)
        first[1:] = left[1:] != left[:-1]
        numbers = self._rows.next_number + np.flatnonzero(first)[np.cumsum(first) - 1] if len(left) else left
        contents = pa.StructArray.from_arrays([*found, pa.array(numbers)], fields=list(self._stored_kind))
        return SignedRows.of(rows.keys.take(left), contents)

    def _give(self, gone: SignedRows, come: SignedRows) -> None:
        """Give out what is no more, and what is new."""
        sides = [side.contents.flatten()[:-1] for side in (gone, come) if len(side)]
        if not sides:
            return
        columns = [pa.concat_arrays(parts) for parts in zip(*sides, strict=True)]
        signs: Int64s = np.repeat(np.array([-1, 1]), [len(gone), len(come)])
        rows, signs = netted_rows(pa.RecordBatch.from_arrays(columns, schema=self._schema), signs)
        order = np.argsort(signs, kind="stable")
        rows, kinds = rows.take(pa.array(order)), np.where(signs > 0, 0, RowKind.DELETE.value)[order]
        for start in range(0, rows.num_rows, _GIVEN_ROWS):
            piece = with_kinds(rows.slice(start, _GIVEN_ROWS), kinds[start : start + _GIVEN_ROWS])
            self.emit(Batch.of_columns(piece, self._type))


def looked_up_slowly(
    rows: Iterable[tuple[Any, ...]], key: int, table: Sequence[tuple[Any, ...]], their_key: int, keeps_all: bool
) -> list[tuple[Any, ...]]:
    """The reference: every row with each row of the table that has its key; NULL finds nothing."""
    width = len(table[0]) if table else 0
    result: list[tuple[Any, ...]] = []
    for row in rows:
        found = [each for each in table if row[key] is not None and each[their_key] == row[key]]
        result += [(*row, *each) for each in found]
        if not found and keeps_all:
            result.append((*row, *[None] * width))
    return result
