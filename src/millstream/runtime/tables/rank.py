"""Top-N: of every partition the first rows of an order, kept in step with a table that grows or changes.

Of a table that only grows, just the first rows are kept: what is not among them will never be (most of it does not
come here, see `partial_rank`). Of one that changes all
rows are kept, since the next one moves up when a row goes. In an epoch the stored rows of the partitions that got
changes are ranked as they were and as they are, and the difference is given out.

With the number of a row in what is given, a row that moves is another row: changes are by place. In BATCH rows are
given when the input has ended, in their order.

Rows that are forgotten by the clock make room: others move up, when something changes of their partition next. What was
given of these cannot be seen from the rows that are left, and stands beside them (`emitted_results`).
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
from millstream.runtime.tables.ranked_rows import Lots, RankedRows, emitted_rows
from millstream.runtime.tables.ranking import ranks_of
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.table_names import RANK_NUMBERS, RANKED_ROWS

__all__ = ["RankOperator"]

_INSERT, _DELETE = RowKind.INSERT.value, RowKind.DELETE.value

_GivenRows = tuple[pa.RecordBatch, Int64s]
"""Rows that are given, and their kinds."""


def _chosen(numbers: Int64s, rows: Int64s) -> pa.Array:
    return pa.array(numbers[rows])


def _column_of(lots: Lots, number: int, chosen: Int64s, rows: Int64s) -> pa.Array:
    return lots.column(number, chosen[rows])


class RankOperator(GatheringOperator):
    """Gives the first rows of every partition."""

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
        self._numbers = self._given_numbers(setting, operation) if self._rows.forgets else None
        self._forgotten = expired_retractions(setting) if self._rows.forgets else None
        self._is_batch = setting.facts.batch

    def _given_numbers(self, setting: OperatorSetting, operation: RankRows) -> EmittedResults | None:
        """As which number each stored row was given, 0 if it was not; None where all that are stored were, and the
        number says nothing."""
        is_plain = operation.last == 1 or not operation.has_number
        if is_plain and operation.first == 1 and not operation.is_changing:
            return None
        key_type, most = setting.node.inputs[0].key_type, setting.context.max_parallelism
        codec = task_codec(Types.LONG(), f"state '{RANK_NUMBERS}' of '{self.node.name}'")
        numbers = EmittedResults(RANK_NUMBERS, key_type, most, codec, self.backend.scope, operation.ttl_ms)
        self.backend.keep(RANK_NUMBERS, numbers)
        return numbers

    def change(self, rows: SignedRows) -> None:
        with self.call.running("rank"):
            given = self._applied(rows)
        for changed, kinds in given:
            self.give(changed, kinds, self._type)

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
        chosen = order[self._is_given(ranks)[order]]
        first = emitted_rows(self._schema, rows, ranks[chosen], chosen)
        self.give(first, np.full(first.num_rows, _INSERT), self._type, rowtimes(first, operation.rowtime))

    def _applied(self, changes: SignedRows) -> list[_GivenRows]:
        """What is no more among the first rows of the partitions, and what is new; the store follows."""
        groups = groups_of(changes.keys.array)
        before, partitions = self._rows.of_partitions(changes.keys.take(groups.firsts()))
        gone, is_added, missing = before.followed_by(changes, "the table", forgets=self._rows.forgets)
        if self._forgotten is not None:
            self._forgotten.inc(len(missing))
        added = changes.where(is_added)
        lots = Lots(before, added, np.concatenate([partitions, groups.codes[is_added]]))
        left = np.flatnonzero(np.append(~gone, np.ones(len(added), dtype=np.bool_)))
        was, ranks = np.zeros(len(lots), dtype=np.int64), np.zeros(len(lots), dtype=np.int64)
        was[: len(before)] = self._ranks(lots, np.arange(len(before)))
        ranks[left] = self._ranks(lots, left)
        # Of a table that only grows, what is not among the first now will never be.
        is_kept = ranks > 0 if self._operation.is_changing else (ranks > 0) & (ranks <= self._operation.last)
        kept_before, kept_added = is_kept[: len(before)], is_kept[len(before) :]
        self._rows.forget(before, np.flatnonzero(~kept_before))
        if self._numbers is not None:
            added = self._rows.numbered(added)
        self._rows.add(added.where(kept_added), self.time.now_ms)
        if self._numbers is not None:
            was[: len(before)] = self._numbers_followed(
                self._numbers, before, added, was[: len(before)], ranks, is_kept
            )
        return [] if self._is_batch else self._difference(lots, was, ranks)

    def _numbers_followed(
        self, numbers: EmittedResults, before: SignedRows, added: SignedRows, was: Int64s, ranks: Int64s, is_kept: Bools
    ) -> Int64s:
        """As which number each stored row was given; `was` is what the rows say that are left, for those that were
        stored before this was written down. What is given from now on is written."""
        operation, split = self._operation, len(before)
        known, given = numbers.numbers_of(before, was)
        now = np.where(self._is_given(ranks), ranks if operation.has_number else operation.first, 0)
        numbers.forget(before, np.flatnonzero(~is_kept[:split]))
        for rows, place, is_new in (
            (before, slice(split), is_kept[:split] & (~known | (now[:split] != given))),
            (added, slice(split, None), is_kept[split:]),
        ):
            numbers.put(rows, is_new, pa.array(now[place][is_new]), self.time.now_ms)
        return given

    def _difference(self, lots: Lots, was: Int64s, ranks: Int64s) -> list[_GivenRows]:
        """Rows that were given and are not any more, and the other way round. `was` and `ranks`: the numbers of all
        rows, 0 of those that were not there, or are not."""
        goes, comes = self._is_given(was), self._is_given(ranks)
        # What stood and stands, in its place if that is told, is no change.
        stays = goes & comes
        if self._operation.has_number:
            stays &= was == ranks
        less, more = np.flatnonzero(goes & ~stays), np.flatnonzero(comes & ~stays)
        if len(less):
            less, more = self._netted(lots, was, ranks, less, more)
        return self._given_of(lots, was, ranks, less, more)

    def _netted(self, lots: Lots, was: Int64s, ranks: Int64s, less: Int64s, more: Int64s) -> tuple[Int64s, Int64s]:
        """What goes and what comes, without rows that are equal to one of the other side. Such rows are of one
        partition and, if that is told, of one number: columns are only looked at where those are."""
        both, split = np.concatenate([less, more]), len(less)
        numbers = [lots.partitions[both]]
        if self._operation.has_number:
            numbers.append(np.concatenate([was[less], ranks[more]]))
        ordered = [key.column for key in self._operation.order]
        others = (at for at in range(self.row_kind.num_fields) if at not in ordered)
        equal = equal_rows(
            len(both),
            split,
            itertools.chain(
                (partial(_chosen, each) for each in numbers),
                (partial(_column_of, lots, at, both) for at in (*ordered, *others)),
            ),
        )
        left = np.ones(len(both), dtype=np.bool_)
        left[equal] = False
        return both[:split][left[:split]], both[split:][left[split:]]

    def _given_of(self, lots: Lots, was: Int64s, ranks: Int64s, less: Int64s, more: Int64s) -> list[_GivenRows]:
        """Changes lot by lot, what goes first; so no lot is copied to stand beside the other."""
        stored = len(lots.before)
        moved, new = more[more < stored], more[more >= stored]
        given = []
        for source, rows, numbers, kinds in (
            (
                lots.before,
                np.concatenate([less, moved]),
                np.concatenate([was[less], ranks[moved]]),
                np.repeat([_DELETE, _INSERT], [len(less), len(moved)]),
            ),
            (lots.added, new - stored, ranks[new], np.full(len(new), _INSERT)),
        ):
            if len(rows):
                given.append((emitted_rows(self._schema, source, numbers, rows), kinds))
        return given

    def _is_given(self, ranks: Int64s) -> Bools:
        return (ranks >= self._operation.first) & (ranks <= self._operation.last)

    def _ranks(self, lots: Lots, rows: Int64s) -> Int64s:
        """The number of each of these rows in its partition."""
        operation = self._operation
        columns = {key.column: lots.column(key.column, rows) for key in operation.order}
        partitions = lots.partitions[rows]
        return ranks_of(operation.kind, partitions, columns, operation.order, latest_first=operation.latest_first)[0]
