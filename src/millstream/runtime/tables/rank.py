"""Top-N: the first rows of every partition by an order, maintained over append-only and changing tables.

Over an append-only table only the first rows are stored: a row outside them never enters (`partial_rank` drops most of
these before the exchange). Over a changelog all rows are stored, since a delete promotes the next row. In an epoch the
stored rows of changed partitions are ranked before and after, and the difference is emitted.

If the output has the row number, a row that changes rank is an update. In BATCH rows are emitted in order when the
input has ended.

When rows expire by the clock, others are promoted at the next change of their partition. The emitted ranks cannot be
computed from the remaining rows and are stored in `emitted_results`.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pyarrow as pa

from millstream.aggregation.groups import groups_of
from millstream.common.typeinfo import Types
from millstream.common.types import RowKind
from millstream.graph.table_nodes import RankRows
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import equal_rows
from millstream.runtime.tables.emitted_results import EmittedResults, expired_retractions
from millstream.runtime.tables.gathering import GatheringOperator, rowtimes
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.runtime.tables.ranked_rows import CandidateRows, RankedRows, emitted_rows
from millstream.runtime.tables.ranking import ranks_of
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.table_names import RANK_NUMBERS, RANKED_ROWS

__all__ = ["RankOperator"]

_INSERT, _DELETE = RowKind.INSERT.value, RowKind.DELETE.value

_EmittedRows = tuple[pa.RecordBatch, Int64s]
"""Emitted rows and their kinds."""


def _chosen(numbers: Int64s, rows: Int64s) -> pa.Array:
    return pa.array(numbers[rows])


def _column_of(candidates: CandidateRows, number: int, chosen: Int64s, rows: Int64s) -> pa.Array:
    return candidates.column(number, chosen[rows])


class RankOperator(GatheringOperator):
    """Emits the first rows of every partition."""

    def __init__(self, setting: OperatorSetting) -> None:
        operation, edge, output_type = setting.node.operation, setting.node.inputs[0], setting.node.output_type
        assert isinstance(operation, RankRows) and output_type is not None
        super().__init__(setting, operation.row_type, None if operation.is_changing else "rank")
        self._operation, self._type = operation, output_type
        self._schema = typed_schema(output_type)
        codec = task_codec(TableRowType(operation.row_type), f"state '{RANKED_ROWS}' of '{self.node.name}'")
        self._rows = RankedRows(
            RANKED_ROWS, edge.key_type, setting.context.max_parallelism, codec, self.backend.scope, operation.ttl_ms
        )
        self.backend.keep(RANKED_ROWS, self._rows)
        self._numbers = self._emitted_ranks_table(setting, operation) if self._rows.has_ttl else None
        self._expired_retractions = expired_retractions(setting) if self._rows.has_ttl else None
        self._is_batch = setting.facts.batch

    def _emitted_ranks_table(self, setting: OperatorSetting, operation: RankRows) -> EmittedResults | None:
        """The emitted rank of each stored row, 0 if it was not emitted; None if all stored rows were emitted without a
        number."""
        is_plain = operation.last == 1 or not operation.has_number
        if is_plain and operation.first == 1 and not operation.is_changing:
            return None
        key_type, max_parallelism = setting.node.inputs[0].key_type, setting.context.max_parallelism
        codec = task_codec(Types.LONG(), f"state '{RANK_NUMBERS}' of '{self.node.name}'")
        numbers = EmittedResults(RANK_NUMBERS, key_type, max_parallelism, codec, self.backend.scope, operation.ttl_ms)
        self.backend.keep(RANK_NUMBERS, numbers)
        return numbers

    def apply_changes(self, rows: SignedRows) -> None:
        with self.call.running("rank"):
            emitted = self._applied(rows)
        for changed, kinds in emitted:
            self.emit_changes(changed, kinds, self._type)

    def end_input(self) -> None:
        if not self._is_batch:
            return
        with self.call.running("state"):
            rows = self._rows.all()
        operation = self._operation
        partitions, columns = key_numbers([rows.keys.array])[0], rows.contents.flatten()
        ranks, order = ranks_of(
            operation.kind, partitions, columns, operation.order, latest_first=operation.latest_first
        )
        chosen = order[self._is_emitted(ranks)[order]]
        first = emitted_rows(self._schema, rows, ranks[chosen], chosen)
        self.emit_changes(first, np.full(first.num_rows, _INSERT), self._type, rowtimes(first, operation.rowtime))

    def _applied(self, changes: SignedRows) -> list[_EmittedRows]:
        """The changes of the partitions' first rows; also updates the store."""
        groups = groups_of(changes.keys.array)
        before, partitions = self._rows.of_partitions(changes.keys.take(groups.firsts()))
        deleted, is_added, missing = before.match_changes(changes, "the table", has_ttl=self._rows.has_ttl)
        if self._expired_retractions is not None:
            self._expired_retractions.inc(len(missing))
        added = changes.where(is_added)
        candidates = CandidateRows(before, added, np.concatenate([partitions, groups.codes[is_added]]))
        remaining = np.flatnonzero(np.append(~deleted, np.ones(len(added), dtype=np.bool_)))
        previous, ranks = np.zeros(len(candidates), dtype=np.int64), np.zeros(len(candidates), dtype=np.int64)
        previous[: len(before)] = self._ranks(candidates, np.arange(len(before)))
        ranks[remaining] = self._ranks(candidates, remaining)
        # In an append-only table a row outside the first ones never enters them.
        is_retained = ranks > 0 if self._operation.is_changing else (ranks > 0) & (ranks <= self._operation.last)
        retained_before, retained_added = is_retained[: len(before)], is_retained[len(before) :]
        self._rows.delete(before, np.flatnonzero(~retained_before))
        if self._numbers is not None:
            added = self._rows.numbered(added)
        self._rows.add(added.where(retained_added), self.time.now_ms)
        if self._numbers is not None:
            previous[: len(before)] = self._update_emitted_ranks(
                self._numbers, before, added, previous[: len(before)], ranks, is_retained
            )
        return [] if self._is_batch else self._difference(candidates, previous, ranks)

    def _update_emitted_ranks(
        self,
        numbers: EmittedResults,
        before: SignedRows,
        added: SignedRows,
        previous: Int64s,
        ranks: Int64s,
        is_retained: Bools,
    ) -> Int64s:
        """The emitted rank of each stored row; from `previous` for rows without an entry. Stores the new ranks."""
        operation, split = self._operation, len(before)
        known, emitted = numbers.numbers_of(before, previous)
        now = np.where(self._is_emitted(ranks), ranks if operation.has_number else operation.first, 0)
        numbers.delete(before, np.flatnonzero(~is_retained[:split]))
        for rows, place, is_new in (
            (before, slice(split), is_retained[:split] & (~known | (now[:split] != emitted))),
            (added, slice(split, None), is_retained[split:]),
        ):
            numbers.put(rows, is_new, pa.array(now[place][is_new]), self.time.now_ms)
        return emitted

    def _difference(self, candidates: CandidateRows, previous: Int64s, ranks: Int64s) -> list[_EmittedRows]:
        """Retractions and inserts. `previous` and `ranks`: the previous and current row numbers of all rows, 0 if
        absent."""
        was_emitted, is_emitted = self._is_emitted(previous), self._is_emitted(ranks)
        # A row emitted before and after, with the same number if it is output, is unchanged.
        unchanged = was_emitted & is_emitted
        if self._operation.has_number:
            unchanged &= previous == ranks
        retracted, inserted = np.flatnonzero(was_emitted & ~unchanged), np.flatnonzero(is_emitted & ~unchanged)
        if len(retracted):
            retracted, inserted = self._consolidated(candidates, previous, ranks, retracted, inserted)
        return self._emitted_changes(candidates, previous, ranks, retracted, inserted)

    def _consolidated(
        self, candidates: CandidateRows, previous: Int64s, ranks: Int64s, retracted: Int64s, inserted: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Retractions and inserts without pairs that cancel out. Equal rows have the same partition and, if it is
        output, the same number: other columns are read only for such candidates."""
        both, split = np.concatenate([retracted, inserted]), len(retracted)
        numbers = [candidates.partitions[both]]
        if self._operation.has_number:
            numbers.append(np.concatenate([previous[retracted], ranks[inserted]]))
        ordered = [key.column for key in self._operation.order]
        others = (at for at in range(self.row_kind.num_fields) if at not in ordered)
        equal = equal_rows(
            len(both),
            split,
            itertools.chain(
                (partial(_chosen, each) for each in numbers),
                (partial(_column_of, candidates, at, both) for at in (*ordered, *others)),
            ),
        )
        remaining = np.ones(len(both), dtype=np.bool_)
        remaining[equal] = False
        return both[:split][remaining[:split]], both[split:][remaining[split:]]

    def _emitted_changes(
        self, candidates: CandidateRows, previous: Int64s, ranks: Int64s, retracted: Int64s, inserted: Int64s
    ) -> list[_EmittedRows]:
        """Changes per source, retractions first, so that sources need not be concatenated."""
        stored = len(candidates.before)
        moved, new = inserted[inserted < stored], inserted[inserted >= stored]
        emitted = []
        for source, rows, numbers, kinds in (
            (
                candidates.before,
                np.concatenate([retracted, moved]),
                np.concatenate([previous[retracted], ranks[moved]]),
                np.repeat([_DELETE, _INSERT], [len(retracted), len(moved)]),
            ),
            (candidates.added, new - stored, ranks[new], np.full(len(new), _INSERT)),
        ):
            if len(rows):
                emitted.append((emitted_rows(self._schema, source, numbers, rows), kinds))
        return emitted

    def _is_emitted(self, ranks: Int64s) -> Bools:
        return (ranks >= self._operation.first) & (ranks <= self._operation.last)

    def _ranks(self, candidates: CandidateRows, rows: Int64s) -> Int64s:
        """The number of each of these rows in its partition."""
        operation = self._operation
        columns = {key.column: candidates.column(key.column, rows) for key in operation.order}
        partitions = candidates.partitions[rows]
        return ranks_of(operation.kind, partitions, columns, operation.order, latest_first=operation.latest_first)[0]
