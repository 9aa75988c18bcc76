"""Interval joins: every pair of records with equal keys and close times, vectorised.

In an epoch the new records of each side are matched with the other side's: first stored left records with new right
ones, then new left records with all right ones. So every pair is formed once, in the epoch in which its later record
arrives, regardless of arrival order and epoch boundaries. Results are produced in pieces.

A row is stored as long as a timely record can match it: a left one while the watermark is at most its time plus the
upper bound, a right one while it is at most its time minus the lower. With a bound in the other direction it expires
before its own time.

`matching` defines the output order. `reference` is the slow reference implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.graph.nodes import IntervalJoin
from millstream.runtime.joins.buffer import SideRows, moved_times
from millstream.runtime.joins.matching import PAIRS_MAX, key_numbers, pairs
from millstream.runtime.joins.projected_rows import ProjectedRows
from millstream.runtime.joins.sides import Side, TwoSidedOperator
from millstream.runtime.operators.function_operators import ProcessOperator, inherited_timestamps
from millstream.runtime.operators.operator import OperatorSetting
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn

__all__ = ["JoinContext", "ProcessJoinOperator", "ProjectedJoinOperator"]

_SIDES = ("left records", "right records")
# The number of pairs that are Python values at once.
_PAIRS_OF_VALUES = 4_096
_EARLIEST_MS, _LATEST_MS = -(2**63), 2**63 - 1


class _IntervalJoinOperator(TwoSidedOperator):
    """Finds the pairs; subclasses compute results from them."""

    pairs_max = PAIRS_MAX

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = setting.node.operation
        assert isinstance(operation, IntervalJoin)
        self._operation = operation
        self._lower_ms, self._upper_ms = operation.lower_ms, operation.upper_ms
        self.late_tags = operation.late_tags

    def join(self, left: SideRows, right: SideRows) -> None:
        if not len(left) and not len(right):
            return
        with self.call.running("state"):
            stored_left = self._stored(self.sides[0], right, -self._upper_ms, -self._lower_ms)
            stored_right = self._stored(self.sides[1], left, self._lower_ms, self._upper_ms)
        all_right = SideRows.concat([stored_right, right]) if len(stored_right) else right
        codes = key_numbers([rows.keys.array for rows in (stored_left, left, all_right)])
        self._match(stored_left, codes[0], right, codes[2][len(stored_right) :])
        self._match(left, codes[1], all_right, codes[2])
        with self.call.running("state"):
            self.store_rows(self.sides[0], left, moved_times(left.times, self._upper_ms + 1))
            self.store_rows(self.sides[1], right, moved_times(right.times, 1 - self._lower_ms))

    def _stored(self, side: Side, new_rows: SideRows, earlier_ms: int, later_ms: int) -> SideRows:
        """The rows of a side's buffer that new rows of the other side may match."""
        if side.buffer.is_empty or not len(new_rows):
            return side.buffer.no_rows()
        first = max(int(new_rows.times.min()) + earlier_ms, _EARLIEST_MS)
        last = min(int(new_rows.times.max()) + later_ms, _LATEST_MS)
        return side.buffer.candidates(new_rows.keys, first, last)

    def _match(self, left: SideRows, left_codes: Int64s, right: SideRows, right_codes: Int64s) -> None:
        first, last = moved_times(left.times, self._lower_ms), moved_times(left.times, self._upper_ms)
        for left_rows, right_rows in pairs(left_codes, first, last, right_codes, right.times, pairs_max=self.pairs_max):
            self.matched(left, left_rows, right, right_rows)

    def matched(self, left: SideRows, left_rows: Int64s, right: SideRows, right_rows: Int64s) -> None:
        """Emit the results of these pairs."""
        raise NotImplementedError


class ProjectedJoinOperator(_IntervalJoinOperator):
    """Results are chosen fields of both records. Nothing runs per record, and only the chosen fields are stored."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self._operation
        assert operation.fields is not None
        self._results = ProjectedRows(operation.fields, operation.types, self.node.output_type)
        left, right = (
            self.make_side(number, _SIDES[number - 1], *self._results.stored_fields(number)) for number in (1, 2)
        )
        self.sides = (left, right)

    def matched(self, left: SideRows, left_rows: Int64s, right: SideRows, right_rows: Int64s) -> None:
        times = np.maximum(left.times[left_rows], right.times[right_rows])
        self.hand_on(None, self._results.batch(left, left_rows, right, right_rows, times))


class JoinContext:
    """The `ctx` of `ProcessJoinFunction.process_element`."""

    __slots__ = ("_left_ms", "_right_ms")

    def __init__(self) -> None:
        self._left_ms = self._right_ms = 0

    def get_left_timestamp(self) -> int:
        return self._left_ms

    def get_right_timestamp(self) -> int:
        return self._right_ms

    def get_timestamp(self) -> int:
        return max(self._left_ms, self._right_ms)


class ProcessJoinOperator(_IntervalJoinOperator, ProcessOperator):
    """Calls a function for every pair, with the state of the pair's key."""

    role = "join function"
    pairs_max = _PAIRS_OF_VALUES

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        types = self._operation.types
        self.sides = (self.make_side(1, _SIDES[0], types[0]), self.make_side(2, _SIDES[1], types[1]))
        self._side_names = self.backend.names

    def matched(self, left: SideRows, left_rows: Int64s, right: SideRows, right_rows: Int64s) -> None:
        times = left.times[left_rows], right.times[right_rows]
        values = _values(self.sides[0], left, left_rows), _values(self.sides[1], right, right_rows)
        holds_state = len(self.backend.names) > len(self._side_names)
        numbers = self._visited(left.keys, left_rows) if holds_state else None
        call = self._call_plain if self._operation.is_plain else self._call
        out, ends = call(*values, times[0].tolist(), times[1].tolist(), numbers)
        if holds_state:
            with self.call.running("state"):
                self.backend.leave()
        stamps = inherited_timestamps(np.maximum(*times), ends)
        for tag, part in self._parts(out, stamps):
            self.hand_on(tag, part)

    def _visited(self, keys: KeyColumn, rows: Int64s) -> list[int]:
        """Visit the keys of these rows with the function's states; returns the index of each row's key in the visit."""
        codes = key_numbers([keys.array.take(pa.array(rows))])[0]
        distinct, first = np.unique(codes, return_index=True)
        with self.call.running("state"):
            self.backend.settle()
            self.backend.visit(keys.take(rows[first]))
        numbers: list[int] = np.searchsorted(distinct, codes).tolist()
        return numbers

    def _call(
        self, lefts: list[Any], rights: list[Any], left_ms: list[int], right_ms: list[int], numbers: list[int] | None
    ) -> tuple[list[Any], list[int]]:
        """All results, and the number of results up to each pair."""
        function, scope, context = self._function, self.backend.scope, JoinContext()
        out: list[Any] = []
        ends: list[int] = []
        try:
            for at, left in enumerate(lefts):
                if numbers is not None:
                    scope.at = numbers[at]
                context._left_ms, context._right_ms = left_ms[at], right_ms[at]
                results = function(left, rights[at], context)
                if results is not None:
                    out.extend(results)
                ends.append(len(out))
        except Exception as error:
            raise self._failed(error, lefts, rights, len(ends)) from error
        scope.leave()
        return out, ends

    def _call_plain(
        self, lefts: list[Any], rights: list[Any], left_ms: list[int], right_ms: list[int], numbers: list[int] | None
    ) -> tuple[list[Any], list[int]]:
        function: Callable[[Any, Any], Any] = self._function
        out: list[Any] = []
        try:
            for left, right in zip(lefts, rights, strict=True):
                out.append(function(left, right))
        except Exception as error:
            raise self._failed(error, lefts, rights, len(out)) from error
        return out, list(range(1, len(out) + 1))

    def _failed(self, error: Exception, lefts: list[Any], rights: list[Any], at: int) -> Exception:
        return self.call.failed(error, self.role, ((lefts[at], rights[at]),))


def _values(side: Side, rows: SideRows, at: Int64s) -> list[Any]:
    """The records of these rows, each decoded once."""
    distinct, numbers = np.unique(at, return_inverse=True)
    values = side.codec.decode(rows.contents.take(pa.array(distinct)))
    return [values[number] for number in numbers.tolist()]
