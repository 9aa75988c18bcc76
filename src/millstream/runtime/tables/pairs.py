"""Pairs of matching rows of two tables, and the output rows built from them. All joins share this module.

Rows match if their keys are equal and the rest of the condition holds. A row with a NULL in its key matches nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import MillstreamError
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Column, RowExpression, walk
from millstream.graph.table_nodes import TableSession
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType
from millstream.runtime.expressions.draws import Draws
from millstream.runtime.joins.matching import key_numbers, pairs, pairs_of_unique
from millstream.runtime.operators.interruption import check_cancelled
from millstream.runtime.operators.operator import Operator
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.runtime.tables.task_program import TaskProgram, functions_in
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools

__all__ = ["PairMatcher", "Pairs", "columns_of_pairs", "without_key"]


MatchTimes = tuple[Int64s, Int64s, Int64s]
EmptySides = tuple[SignedRows, SignedRows]


@dataclass(frozen=True)
class Pairs:
    """Join results as row positions on both sides (-1: NULLs), with a sign."""

    left: SignedRows
    left_rows: Int64s
    right: SignedRows
    right_rows: Int64s
    signs: Int64s

    @classmethod
    def unmatched(cls, number: int, rows: SignedRows, at: Int64s, empty: SignedRows, sign: int = 1) -> Pairs:
        """Rows of side `number` padded with NULLs; `empty` is an empty set of the other side's rows."""
        absent, signs = np.full(len(at), -1), np.full(len(at), sign)
        return cls(rows, at, empty, absent, signs) if number == 0 else cls(empty, absent, rows, at, signs)


class PairMatcher:
    """Matches rows in one subtask. Random calls in a condition are redrawn identically when an epoch is repeated."""

    def __init__(
        self, operator: Operator, rows: tuple[RowType, RowType], condition: RowExpression | None, session: TableSession
    ) -> None:
        self._time = operator.time
        self._condition: TaskProgram | None = None
        self._functions = tuple(functions_in(condition))
        setting = operator.setting
        self._draws = Draws(setting.facts.job_id, operator.uid, setting.context.subtask)
        types = (*rows[0].types, *rows[1].types)
        self._names = [f"f{number}" for number in range(len(types))]
        self._type = TableRowType(RowType.of(self._names, types, nullable=False))
        self._condition_columns: frozenset[int] = frozenset()
        if condition is not None:
            self._condition_columns = frozenset(part.index for part in walk(condition) if isinstance(part, Column))
            self._condition = TaskProgram((), types, condition, session, operator.call, self._draws)

    def begin(self, epoch: int) -> None:
        """Start an epoch."""
        self._draws.begin(epoch)

    @property
    def functions(self) -> Iterable[Any]:
        """The program's functions in the condition."""
        return self._functions

    def matches(
        self, left: SignedRows, right: SignedRows, times: MatchTimes | None = None
    ) -> Iterator[tuple[Int64s, Int64s]]:
        """Matching pairs, in pieces: their positions on both sides. `times`: for every left row the earliest and latest
        time of a match, and the times of the right rows."""
        if not len(left) or not len(right):
            return
        unique = pairs_of_unique(left.keys.array, right.keys.array) if times is None else None
        if unique is not None:
            for a, b in unique:
                yield self.filtered(left, a, right, b)
            return
        left_rows, right_rows = np.flatnonzero(~without_key(left)), np.flatnonzero(~without_key(right))
        codes = key_numbers([left.keys.array.take(pa.array(left_rows)), right.keys.array.take(pa.array(right_rows))])
        if times is None:
            first = last = np.zeros(len(left_rows), dtype=np.int64)
            right_ms = np.zeros(len(right_rows), dtype=np.int64)
        else:
            first, last, right_ms = times[0][left_rows], times[1][left_rows], times[2][right_rows]
        for a, b in pairs(codes[0], first, last, codes[1], right_ms):
            yield self.filtered(left, left_rows[a], right, right_rows[b])

    def filtered(
        self, left: SignedRows, left_rows: Int64s, right: SignedRows, right_rows: Int64s
    ) -> tuple[Int64s, Int64s]:
        """The pairs, of equal keys, that satisfy the rest of the condition."""
        check_cancelled()
        if self._condition is None:
            return left_rows, right_rows
        try:
            chosen = self._selected(self._condition, left, left_rows, right, right_rows, self._condition_columns)
        except MillstreamError:  # evaluate with whole rows, so that the error can show them
            chosen = self._selected(self._condition, left, left_rows, right, right_rows, range(len(self._names)))
        return (left_rows, right_rows) if chosen is None else (left_rows[chosen], right_rows[chosen])

    def _selected(
        self,
        condition: TaskProgram,
        left: SignedRows,
        left_rows: Int64s,
        right: SignedRows,
        right_rows: Int64s,
        needed: Container[int],
    ) -> Int64s | None:
        """The pairs that satisfy the condition (None: all). Unused columns are NULL: copying wide rows for each pair
        would cost more than the join itself."""
        columns: list[pa.Array] = []
        for rows, at in ((left, left_rows), (right, right_rows)):
            index = pa.array(at)
            for number, field in enumerate(rows.contents.type):
                is_needed = len(columns) in needed
                columns.append(_field(rows, number).take(index) if is_needed else pa.nulls(len(at), field.type))
        batch = Batch.of_columns(pa.RecordBatch.from_arrays(columns, names=self._names), self._type)
        return condition.run(batch, self._time.now_ms, self._time.watermark, "join condition").selected

    def pairs(self, left: SignedRows, right: SignedRows) -> Iterator[Pairs]:
        """The inner join of two sides."""
        for left_rows, right_rows in self.matches(left, right):
            yield Pairs(left, left_rows, right, right_rows, left.signs[left_rows] * right.signs[right_rows])

    def joined(self, kind: str, left: SignedRows, right: SignedRows, empty: EmptySides) -> Iterator[Pairs]:
        """The complete join of append-only rows. `empty`: an empty set of rows for each side."""
        is_matched = np.zeros(len(left), dtype=np.bool_), np.zeros(len(right), dtype=np.bool_)
        for left_rows, right_rows in self.matches(left, right):
            is_matched[0][left_rows], is_matched[1][right_rows] = True, True
            if kind not in ("SEMI", "ANTI"):
                yield Pairs(left, left_rows, right, right_rows, np.ones(len(left_rows), dtype=np.int64))
        if kind in ("LEFT", "FULL", "SEMI", "ANTI"):
            yield Pairs.unmatched(0, left, np.flatnonzero(is_matched[0] == (kind == "SEMI")), empty[1])
        if kind in ("RIGHT", "FULL"):
            yield Pairs.unmatched(1, right, np.flatnonzero(~is_matched[1]), empty[0])

    def matched_mask(self, number: int, rows: SignedRows, others: SignedRows) -> Bools:
        """Mask of the rows of side `number` with a match among the others."""
        is_matched = np.zeros(len(rows), dtype=np.bool_)
        left, right = (rows, others) if number == 0 else (others, rows)
        for matched in self.matches(left, right):
            is_matched[matched[number]] = True
        return is_matched

    def match_counts(self, number: int, rows: SignedRows, others: SignedRows) -> Int64s:
        """The match count of each row of side `number` among the others."""
        counts = np.zeros(len(rows), dtype=np.int64)
        left, right = (rows, others) if number == 0 else (others, rows)
        for matched in self.matches(left, right):
            counts += np.bincount(matched[number], minlength=len(rows))
        return counts


def columns_of_pairs(results: Pairs, schema: pa.Schema, sides: int = 2) -> pa.RecordBatch:
    """Results as columns; with `sides=1` only the left side's."""
    columns: list[pa.Array] = []
    for rows, at in ((results.left, results.left_rows), (results.right, results.right_rows))[:sides]:
        absent = at < 0
        index = pa.array(at, mask=absent) if absent.any() else pa.array(at)
        columns += rows.contents.take(index).flatten() if len(rows) else _nulls(rows.contents.type, len(at))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _field(rows: SignedRows, number: int) -> pa.Array:
    """A column of the contents, NULL where they are NULL."""
    return pc.struct_field(rows.contents, number) if rows.contents.null_count else rows.contents.field(number)


def _nulls(kind: pa.DataType, count: int) -> Sequence[pa.Array]:
    return [pa.nulls(count, field.type) for field in kind]


def without_key(rows: SignedRows) -> Bools:
    """Mask of the rows with a NULL in their key."""
    keys = rows.keys.array
    absent: Bools = np.asarray(keys.is_null())
    if pa.types.is_struct(keys.type):
        for field in keys.flatten():
            absent = absent | np.asarray(field.is_null())
    return absent
