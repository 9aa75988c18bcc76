"""Pairs of rows of two tables: which belong together, and what is given out for them. Joins of all kinds share this.

Rows belong together where their keys are equal and the rest of the condition holds. A row whose key has a NULL has no
partner: nothing is equal to NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import RowExpression
from millstream.graph.table_nodes import TableSession
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType
from millstream.runtime.expressions.draws import Draws
from millstream.runtime.joins.matching import key_numbers, pairs
from millstream.runtime.operators.operator import Operator
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.runtime.tables.task_program import TaskProgram, functions_in
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools

__all__ = ["PairMatcher", "Pairs", "columns_of_pairs", "without_key"]


@dataclass(frozen=True)
class Pairs:
    """Results on their way: rows of both sides by position (-1: NULLs in its place), with a sign."""

    left: SignedRows
    left_rows: Int64s
    right: SignedRows
    right_rows: Int64s
    signs: Int64s

    @classmethod
    def alone(cls, number: int, rows: SignedRows, at: Int64s, nothing: SignedRows, sign: int = 1) -> Pairs:
        """Rows of side `number`, each with NULLs for the other side, of which `nothing` has no row."""
        absent, signs = np.full(len(at), -1), np.full(len(at), sign)
        return cls(rows, at, nothing, absent, signs) if number == 0 else cls(nothing, absent, rows, at, signs)


class PairMatcher:
    """Finds partners, in one subtask. What a condition draws at random is drawn again when an epoch is repeated."""

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
        if condition is not None:
            self._condition = TaskProgram((), types, condition, session, operator.call, self._draws)

    def begin(self, epoch: int) -> None:
        """An epoch begins."""
        self._draws.begin(epoch)

    @property
    def functions(self) -> Iterable[Any]:
        """The functions of the program's in the condition."""
        return self._functions

    def matches(self, left: SignedRows, right: SignedRows) -> Iterator[tuple[Int64s, Int64s]]:
        """Pairs of rows that belong together: their places on both sides, a piece at a time."""
        if not len(left) or not len(right):
            return
        left_rows, right_rows = np.flatnonzero(~without_key(left)), np.flatnonzero(~without_key(right))
        codes = key_numbers([left.keys.array.take(pa.array(left_rows)), right.keys.array.take(pa.array(right_rows))])
        zeros = np.zeros(len(left_rows), dtype=np.int64), np.zeros(len(right_rows), dtype=np.int64)
        for a, b in pairs(codes[0], zeros[0], zeros[0], codes[1], zeros[1]):
            yield self.meeting(left, left_rows[a], right, right_rows[b])

    def meeting(
        self, left: SignedRows, left_rows: Int64s, right: SignedRows, right_rows: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Of pairs with one key those that meet the rest of the condition."""
        if self._condition is None:
            return left_rows, right_rows
        columns = [
            *left.contents.take(pa.array(left_rows)).flatten(),
            *right.contents.take(pa.array(right_rows)).flatten(),
        ]
        batch = Batch.of_columns(pa.RecordBatch.from_arrays(columns, names=self._names), self._type)
        chosen = self._condition.run(batch, self._time.now_ms, self._time.watermark, "join condition").selected
        return (left_rows, right_rows) if chosen is None else (left_rows[chosen], right_rows[chosen])

    def pairs(self, left: SignedRows, right: SignedRows) -> Iterator[Pairs]:
        """What rows that belong together give."""
        for left_rows, right_rows in self.matches(left, right):
            yield Pairs(left, left_rows, right, right_rows, left.signs[left_rows] * right.signs[right_rows])

    def partners(self, number: int, rows: SignedRows, others: SignedRows) -> Bools:
        """Which rows of side `number` have a partner among the others."""
        has = np.zeros(len(rows), dtype=np.bool_)
        left, right = (rows, others) if number == 0 else (others, rows)
        for matched in self.matches(left, right):
            has[matched[number]] = True
        return has


def columns_of_pairs(results: Pairs, schema: pa.Schema, sides: int = 2) -> pa.RecordBatch:
    """Results as columns; `sides` is 1 where only the left side's are given."""
    columns: list[pa.Array] = []
    for rows, at in ((results.left, results.left_rows), (results.right, results.right_rows))[:sides]:
        absent = at < 0
        index = pa.array(at, mask=absent) if absent.any() else pa.array(at)
        columns += rows.contents.take(index).flatten() if len(rows) else _nulls(rows.contents.type, len(at))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _nulls(kind: pa.DataType, count: int) -> Sequence[pa.Array]:
    return [pa.nulls(count, field.type) for field in kind]


def without_key(rows: SignedRows) -> Bools:
    """Which rows have a NULL in their key, so that nothing is equal to it."""
    keys = rows.keys.array
    absent: Bools = np.asarray(keys.is_null())
    if pa.types.is_struct(keys.type):
        for field in keys.flatten():
            absent = absent | np.asarray(field.is_null())
    return absent
