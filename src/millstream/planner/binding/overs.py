"""Collects the calls with OVER of a SELECT.

Each call becomes a column of an Over relation between the SELECT's rows and its items; calls with the same PARTITION BY
and ORDER BY share one. Until all are collected, their columns have high numbers, from `FIRST_OVER` on.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.expressions.functions.registry import FunctionDefinition, FunctionKind
from millstream.expressions.interval_types import DayTimeIntervalType
from millstream.expressions.nested_types import ArrayType
from millstream.expressions.row_expressions import Column, Literal, RowExpression, transform
from millstream.expressions.types import FractionalType, IntegralType, NumericType
from millstream.expressions.user_functions import UserFunction, UserFunctionKind
from millstream.planner.binding.aggregate_arguments import COMPOSED, composed
from millstream.planner.binding.calls import bound_arguments, cast_for_user, find_function, written_text
from millstream.planner.binding.projections import project
from millstream.planner.not_yet import not_yet
from millstream.planner.relations import AggregateCall, Field, Over, OverCall, Relation, Schema, SortKey
from millstream.sql import query_syntax, syntax
from millstream.sql.places import problem

if TYPE_CHECKING:
    from millstream.planner.binding.expressions import ExpressionBinder

__all__ = ["FIRST_OVER", "OverCalls"]

FIRST_OVER = 3_000_000


@dataclass(frozen=True)
class _Written:
    """One call: its function, over slots, and its window."""

    call: OverCall
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    site: Any


class OverCalls:
    """The calls of one SELECT. `slots` are the expressions they refer to."""

    def __init__(self, windows: Sequence[query_syntax.NamedWindow] = ()) -> None:
        self._windows = {each.name: each.window for each in windows}
        self._calls: list[_Written] = []
        self.slots: list[RowExpression] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def column(self, node: syntax.Over, binder: ExpressionBinder) -> RowExpression:
        """The future column of a call, or an expression over it."""
        written = node.call.call
        function = find_function(written, binder.session)
        if not isinstance(function, FunctionDefinition) or function.name not in COMPOSED:
            return self._column(node, self._call(node, binder), binder)

        def listed(value: RowExpression) -> RowExpression:
            condition = node.call.filter
            filter_ = None if condition is None else self._slot(binder.bind(condition))
            array = ArrayType(value.type.nullable())
            call = AggregateCall("ARRAY_AGG", (self._slot(value),), array, "", node.call.distinct, filter_)
            return self._column(node, OverCall(call), binder)

        return composed(function, binder.bind_all(written.arguments), written, listed)

    def _column(self, node: syntax.Over, call: OverCall, binder: ExpressionBinder) -> RowExpression:
        window = self._window(node)
        partition = tuple(dict.fromkeys(self._slot(binder.bind(each)) for each in window.partition_by))
        order = tuple(self._sort_key(item, binder) for item in window.order_by)
        if not order and call.call.function in _NEED_ORDER:
            raise problem(f"{call.call.function} needs an ORDER BY in its OVER clause", node)
        made = _Written(_framed(call, window, binder), partition, order, written_text(node))
        if not binder.session.is_batch:
            self._check_window(made, node)
        known = next((at for at, each in enumerate(self._calls) if replace(each, site=made.site) == made), None)
        if known is None:
            known = len(self._calls)
            self._calls.append(made)
        return Column(call.call.type, FIRST_OVER + known)

    def _check_window(self, made: _Written, node: syntax.Over) -> None:
        """In a stream all aggregates of a SELECT share one window, as in Flink. Calls without a frame fit any."""
        for other in self._calls:
            is_same = (made.partition, made.order) == (other.partition, other.order)
            if {made.call.call.function, other.call.call.function}.isdisjoint(_NEED_ORDER):
                is_same = is_same and _frame_of(made.call) == _frame_of(other.call)
            if not is_same:
                raise problem(
                    "All aggregates must be computed on the same window. Compute the others in an enclosing SELECT",
                    node,
                )

    def _window(self, node: syntax.Over) -> syntax.WindowSpec:
        spec = node.window
        if isinstance(spec, str):
            spec = syntax.WindowSpec(base=spec, span=node.span)
        if spec.base is None:
            return spec
        if spec.base not in self._windows:
            raise problem(f"Window '{spec.base}' not found: define it in a WINDOW clause", node)
        base = self._windows[spec.base]
        return replace(
            spec,
            partition_by=spec.partition_by or base.partition_by,
            order_by=spec.order_by or base.order_by,
            frame=spec.frame or base.frame,
        )

    def _call(self, node: syntax.Over, binder: ExpressionBinder) -> OverCall:
        written = node.call.call
        function = find_function(written, binder.session)
        condition = node.call.filter
        filter_ = None if condition is None else self._slot(binder.bind(condition))
        if isinstance(function, UserFunction) and function.kind is UserFunctionKind.AGGREGATE:
            operands = cast_for_user(function, binder.bind_all(written.arguments), written)
            slots = tuple(self._slot(each) for each in operands)
            result = function.result_type.nullable()
            return OverCall(AggregateCall("", slots, result, "", node.call.distinct, filter_, user=function))
        if not isinstance(function, FunctionDefinition):
            raise problem(f"{written.name} takes no OVER clause: it is not an aggregate", node)
        if node.call.nulls == "RESPECT" and function.kind is FunctionKind.AGGREGATE:
            raise not_yet(f"{function.name} RESPECT NULLS", node, f"{function.name}, which ignores NULL")
        if node.call.nulls == "IGNORE" and function.kind is FunctionKind.WINDOW:
            raise not_yet(f"{function.name} IGNORE NULLS", node)
        if function.kind not in (FunctionKind.WINDOW, FunctionKind.AGGREGATE):
            raise problem(f"{function.name} takes no OVER clause: it is a scalar function", node)
        is_star = len(written.arguments) == 1 and isinstance(written.arguments[0], syntax.Star)
        written_arguments = [] if is_star else binder.bind_all(written.arguments)
        arguments, result = bound_arguments(function, written_arguments, written, written.options)
        if function.kind is FunctionKind.AGGREGATE and function.name != "COUNT":
            result = result.nullable()
        slots = tuple(self._slot(each) for each in arguments)
        return OverCall(AggregateCall(function.name, slots, result, "", node.call.distinct, filter_))

    def _sort_key(self, item: syntax.OrderItem, binder: ExpressionBinder) -> SortKey:
        nulls_first = item.nulls_first if item.nulls_first is not None else not item.descending
        return SortKey(self._slot(binder.bind(item.expression)), item.descending, nulls_first)

    def _slot(self, expression: RowExpression) -> int:
        if expression not in self.slots:
            self.slots.append(expression)
        return self.slots.index(expression)

    # --- the relation -------------------------------------------------------------------------------------------------

    def over(
        self, relation: Relation, slots: Sequence[RowExpression], above: Sequence[RowExpression]
    ) -> tuple[Relation, list[RowExpression]]:
        """The relation with the calls' columns appended, and the expressions above it. `slots` and `above` refer to the
        relation's columns; `above` also to the columns of calls."""
        width = len(relation.schema)
        columns = list(relation.schema.columns)
        names = list(relation.schema.names)
        places = []
        for number, slot in enumerate(slots):
            if slot not in columns:
                columns.append(slot)
                names.append(f"$o{number}")
            places.append(columns.index(slot))
        made: Relation = relation if len(columns) == width else project(relation, columns, names)
        column_of: dict[int, int] = {}
        for partition, order in dict.fromkeys((each.partition, each.order) for each in self._calls):
            together = [at for at, each in enumerate(self._calls) if (each.partition, each.order) == (partition, order)]
            made = self._over(made, together, places)
            first = len(made.schema) - len(together)
            column_of |= {call: first + number for number, call in enumerate(together)}

        def placed(part: RowExpression) -> RowExpression:
            is_call = isinstance(part, Column) and part.index >= FIRST_OVER
            return replace(part, index=column_of[part.index - FIRST_OVER]) if is_call else part  # type: ignore[call-arg,attr-defined]

        return made, [transform(each, placed) for each in above]

    def _over(self, below: Relation, together: Sequence[int], places: Sequence[int]) -> Over:
        first = self._calls[together[0]]
        calls, fields = [], []
        for at in together:
            written = self._calls[at].call
            name = f"w0$o{at}"
            call = replace(
                written.call,
                arguments=tuple(places[each] for each in written.call.arguments),
                filter=None if written.call.filter is None else places[written.call.filter],
                name=name,
            )
            calls.append(replace(written, call=call))
            fields.append(Field(name, call.type))
        order = tuple(replace(key, column=places[key.column]) for key in first.order)
        partition = tuple(places[each] for each in first.partition)
        schema = Schema((*below.schema.fields, *fields))
        return Over(schema, below, partition, order, tuple(calls), site=first.site)


_MEASURED = (DayTimeIntervalType, NumericType)
_NEED_ORDER = frozenset({"ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD"})


def _frame_of(call: OverCall) -> tuple[str, float | None, float | None]:
    return call.frame, call.preceding, call.following


def _framed(call: OverCall, window: syntax.WindowSpec, binder: ExpressionBinder) -> OverCall:
    """The call with its frame. The default frame ends at the row and its peers, or spans the partition without ORDER
    BY. Ranking functions have no frame."""
    frame = window.frame
    if call.call.function in _NEED_ORDER:
        if frame is not None:
            raise problem(f"{call.call.function} takes no ROWS or RANGE: it ranks the whole partition", frame)
        return call
    if frame is None:
        return call if window.order_by else replace(call, following=None)
    preceding = _distance(frame, frame.start, binder, "PRECEDING")
    following = _distance(frame, frame.end, binder, "FOLLOWING")
    if frame.start.kind == "FOLLOWING" and frame.start.amount is None:
        raise problem("UNBOUNDED FOLLOWING cannot be specified for the lower frame boundary", frame.start)
    if frame.end.kind == "PRECEDING" and frame.end.amount is None:
        raise problem("UNBOUNDED PRECEDING cannot be specified for the upper frame boundary", frame.end)
    if preceding is not None and following is not None and -preceding > following:
        raise problem("the frame ends before it starts: write the earlier bound first", frame)
    bounds = (each.amount for each in (frame.start, frame.end) if each.amount is not None)
    is_interval = any(isinstance(binder.bind(amount).type, DayTimeIntervalType) for amount in bounds)
    return replace(call, frame=frame.unit, preceding=preceding, following=following, is_interval=is_interval)


def _distance(frame: syntax.Frame, bound: syntax.FrameBound, binder: ExpressionBinder, side: str) -> float | None:
    """The distance of a bound from the current row on this side, negative on the other side; None if unbounded."""
    if bound.kind == "CURRENT":
        return 0
    if bound.amount is None:
        return None
    amount = binder.bind(bound.amount)
    is_rows = frame.unit == "ROWS"
    is_fit = isinstance(amount.type, IntegralType) if is_rows else isinstance(amount.type, _MEASURED)
    if not isinstance(amount, Literal) or amount.value is None or not is_fit:
        wanted = "a constant number of rows" if is_rows else "a constant interval of days to milliseconds, or number"
        raise problem(f"a bound of {frame.unit} must be {wanted}", bound.amount)
    if isinstance(amount.value, datetime.timedelta):
        distance: float = amount.value // datetime.timedelta(milliseconds=1)
    else:
        distance = float(amount.value) if isinstance(amount.type, FractionalType) else int(amount.value)
    if distance < 0:
        raise problem("a frame offset must not be negative: PRECEDING or FOLLOWING gives the direction", bound.amount)
    return distance if bound.kind == side else -distance
