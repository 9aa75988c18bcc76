"""Aggregations: binds GROUP BY, the aggregates, and the expressions over both.

The input is projected to the groups and the aggregates' arguments, without duplicates; an Aggregate, or a
WindowAggregate for legacy windows in GROUP BY, reads the projection. In SELECT and HAVING the largest subexpressions
that are groups or aggregates are replaced by their columns; any other column is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import FunctionDefinition, FunctionKind, definition_of
from millstream.expressions.row_expressions import Column, Literal, RowExpression, columns_of, transform
from millstream.expressions.types import BigIntType, LocalZonedTimestampType, TimestampType
from millstream.expressions.user_functions import UserFunction, UserFunctionKind
from millstream.planner.binding.aggregate_arguments import COMPOSED, as_json, composed, counted_arguments, is_true
from millstream.planner.binding.aggregate_syntax import is_aggregate, names_grouping, parts_of, written_sets
from millstream.planner.binding.calls import bound_arguments, cast_for_user, find_function, written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.expressions import ExpressionBinder, bind_condition
from millstream.planner.binding.overs import FIRST_OVER
from millstream.planner.binding.projections import item_name, passed_field, project
from millstream.planner.binding.query_values import QueryValues
from millstream.planner.binding.scope import FIRST_OUTER, Scope
from millstream.planner.binding.windows import (
    ALIAS_PROPERTIES,
    GROUP_FUNCTIONS,
    PROPERTY_FUNCTIONS,
    LegacyWindow,
    check_multiple,
    group_window,
    is_group_window,
    legacy_sizes,
)
from millstream.planner.relations import (
    Aggregate,
    AggregateCall,
    Field,
    Relation,
    Schema,
    SortKey,
    TimeKind,
    WindowAggregate,
    WindowProperty,
    WindowShape,
)
from millstream.planner.traits.windows import window_columns
from millstream.sql import query_syntax, syntax
from millstream.sql.places import problem

__all__ = ["Grouping"]

_CALLS = 1_000_000
_PROPERTIES = 2_000_000
"""Until all are collected, the columns of calls and of window properties are numbered from these."""


class Grouping(ExpressionBinder):
    """One aggregation during binding. Binds expressions above it, which `finished` places over the groups.

    Many attributes: each collects one kind of part, such as groups, calls or subqueries."""

    def __init__(
        self, relation: Relation, scope: Scope, context: QueryContext, groups: Sequence[syntax.Expression]
    ) -> None:
        session = context.session
        super().__init__(scope, session)
        self.input = relation
        self.plain = ExpressionBinder(scope, session, "GROUP BY")
        # Subqueries in groups and arguments are joined below the aggregation, those above it to its result.
        self.plain.values = QueryValues(scope, context)
        self.values = QueryValues(scope, context, self.plain.values)
        self.slots: list[RowExpression] = []
        self.groups: list[RowExpression] = []
        self.group_names: list[str | None] = []
        self.calls: list[AggregateCall] = []
        self.call_names: dict[int, str] = {}
        self.properties: list[WindowProperty] = []
        self._slot_numbers: dict[int, int] = {}
        self.window: LegacyWindow | None = None
        self.node = groups[0] if groups else None
        self.sets: list[frozenset[int]] | None = None
        self.plain_groups: set[int] = set()
        self._named_groups: dict[str, syntax.Expression] = {}  # `group_by(expression.alias(name))`
        for group in groups:
            self._add_group(group)

    def _add_group(self, group: syntax.Expression) -> None:
        if isinstance(group, syntax.As):
            name, group = group.names[0], group.operand
            self._named_groups[name] = group
        if isinstance(group, query_syntax.GroupingSets):
            self._add_sets(group)
            return
        if is_group_window(group):
            if self.window is not None:
                raise problem("GROUP BY accepts only one window", group)
            kind = GROUP_FUNCTIONS[group.name.upper()]
            time = self.plain.bind(group.arguments[0])
            sizes = legacy_sizes(kind, group.arguments[1:], group)
            shape = group_window(kind, time, self.input, sizes, self.session, group)
            self.window = LegacyWindow(shape, group)
            return
        self.plain_groups.add(self._group_number(group))

    def _add_sets(self, group: query_syntax.GroupingSets) -> None:
        """Adds GROUPING SETS, ROLLUP or CUBE: the product with the earlier sets."""
        made = [frozenset(self._group_number(each) for each in positions) for positions in written_sets(group)]
        self.sets = [before | each for before in self.sets or [frozenset()] for each in made]

    def _group_number(self, group: syntax.Expression) -> int:
        bound = self.plain.bind(group)
        if bound not in self.groups:
            self.groups.append(bound)
            self.group_names.append(item_name(group, None))
            self.slot(bound)
        return self.groups.index(bound)

    def add_window(self, shape: WindowShape, alias: str) -> None:
        """Sets the window of the Table API."""
        self.window = LegacyWindow(shape, None, alias)

    def slot(self, expression: RowExpression) -> int:
        """The column of the projected input that computes an expression."""
        if expression not in self.slots:
            self.slots.append(expression)
        return self.slots.index(expression)

    # --- expressions above the aggregation ----------------------------------------------------------------------------

    def replaced(self, node: syntax.Expression) -> RowExpression | None:
        if isinstance(node, syntax.Over):
            return None
        if is_aggregate(node, self.session):
            return self._aggregate(node)
        if self._names_group(node):
            node = self._named_groups[node.parts[0]]  # type: ignore[attr-defined]
        special = self._property(node) or self._grouping(node)
        if special is not None:
            return special
        if any(self._is_special(part) for part in parts_of(node)):
            return None
        bound = self.plain.bind(node)
        if bound in self.groups:
            return Column(self._group_type(self.groups.index(bound)), self.groups.index(bound))
        if all(at >= FIRST_OUTER for at in columns_of(bound)):  # only outer columns
            return bound
        if isinstance(node, syntax.Name):
            raise problem(f"Expression '{'.'.join(node.parts)}' is not being grouped. Group or aggregate it", node)
        return None

    def _is_special(self, part: syntax.Node) -> bool:
        return (
            is_aggregate(part, self.session)
            or isinstance(part, syntax.Over)
            or self._names_property(part)
            or names_grouping(part)
            or self._names_group(part)
        )

    def _names_group(self, part: syntax.Node) -> bool:
        return isinstance(part, syntax.Name) and len(part.parts) == 1 and part.parts[0] in self._named_groups

    def _grouping(self, node: syntax.Expression) -> RowExpression | None:
        """GROUPING(a, b) and similar functions: which groups are absent from a row's grouping set."""
        if not isinstance(node, syntax.Call) or not names_grouping(node):
            return None
        name = node.name.upper()
        if name != "GROUP_ID" and not node.arguments:
            raise problem(f"{name} takes grouping expressions: {name}(a, b)", node)
        groups = []
        for argument in node.arguments:
            bound = self.plain.bind(argument)
            if bound not in self.groups:
                raise problem(f"Argument to operator '{name}' must be a grouped expression", argument)
            groups.append(self.groups.index(bound))
        made = AggregateCall(name, tuple(groups), BigIntType(False), "")
        if self.sets is None:
            return Literal(made.type, 0)
        if made not in self.calls:
            self.calls.append(made)
        return self._slot_column(made.type, _CALLS + self.calls.index(made))

    def _names_property(self, part: syntax.Node) -> bool:
        return isinstance(part, syntax.Call) and (
            part.name.upper() in PROPERTY_FUNCTIONS or part.name.upper() in ALIAS_PROPERTIES
        )

    def _property(self, node: syntax.Expression) -> RowExpression | None:
        """TUMBLE_START(…) and similar functions over the window in GROUP BY."""
        if not isinstance(node, syntax.Call) or not self._names_property(node):
            return None
        name = node.name.upper()
        if self.window is None:
            raise problem(f"{node.name} needs the window in GROUP BY: GROUP BY {name.split('_')[0]}(…)", node)
        if name in ALIAS_PROPERTIES:
            return self._property_column(ALIAS_PROPERTIES[name], node)
        kind, wanted = PROPERTY_FUNCTIONS[name]
        call = self.window.call
        if call is None or call.name.upper() != kind or call.arguments != node.arguments:
            raise problem(f"{node.name} does not match the window in GROUP BY: write the same arguments in both", node)
        return self._property_column(wanted, node)

    def _property_column(self, wanted: WindowProperty, node: syntax.Node) -> RowExpression:
        assert self.window is not None
        of_rows = self.window.shape.time_kind is TimeKind.ROWTIME
        if wanted is WindowProperty.TIME and not of_rows:
            raise problem("a processing-time window has no rowtime: use its proctime", node)
        if wanted not in self.properties:
            self.properties.append(wanted)
        return self._slot_column(self._property_field(wanted).type, _PROPERTIES + self.properties.index(wanted))

    def _property_field(self, wanted: WindowProperty) -> Field:
        assert self.window is not None
        name = {"start": "w$start", "end": "w$end", "time": "w$rowtime", "proctime": "w$proctime"}[wanted.value]
        if wanted is WindowProperty.TIME:
            time = self.input.schema.fields[self.window.shape.time].type
            return Field(name, time, TimeKind.ROWTIME)
        if wanted is WindowProperty.PROCTIME:
            return Field(name, LocalZonedTimestampType(3, False), TimeKind.PROCTIME)
        return Field(name, TimestampType(3, False))

    # --- aggregates ---------------------------------------------------------------------------------------------------

    def _aggregate(self, node: syntax.Expression) -> RowExpression:
        whole = node if isinstance(node, syntax.Aggregated) else syntax.Aggregated(node, span=node.span)  # type: ignore[arg-type]
        call = whole.call
        self.node = self.node or whole
        function = find_function(call, self.session)
        inside = ExpressionBinder(self.scope, self.session, "an aggregate")
        inside.values = self.plain.values
        is_star = len(call.arguments) == 1 and isinstance(call.arguments[0], syntax.Star)
        bound = [] if is_star else inside.bind_all(call.arguments)
        condition = None if whole.filter is None else bind_condition(whole.filter, inside, "FILTER")

        def column(called: Any, operands: list[RowExpression]) -> RowExpression:
            made = self._call_of(called, operands, whole, condition)
            if made not in self.calls:
                self.calls.append(made)
            return self._slot_column(made.type, _CALLS + self.calls.index(made))

        if isinstance(function, FunctionDefinition) and function.name in COMPOSED:
            return composed(function, bound, call, lambda each: column(definition_of("ARRAY_AGG"), [each]))
        return column(function, bound)

    def _call_of(
        self, function: Any, operands: list[RowExpression], whole: syntax.Aggregated, condition: RowExpression | None
    ) -> AggregateCall:
        node = whole.call
        name, user = "", None
        if isinstance(function, FunctionDefinition):
            if function.kind is not FunctionKind.AGGREGATE:
                raise problem(f"{function.name} is not an aggregate: DISTINCT, FILTER and WITHIN GROUP need one", whole)
            if not node.arguments and function.name == "COUNT":
                raise problem("COUNT() has no argument: write COUNT(*)", node)
            arguments, result = bound_arguments(function, operands, node, node.options)
            name = function.name
            if name in ("JSON_ARRAYAGG", "JSON_OBJECTAGG"):
                arguments = (as_json(name, arguments, node),)
            if name not in _NEVER_NULL and (not self._has_groups or condition is not None):
                result = result.nullable()
        elif isinstance(function, UserFunction) and function.kind is UserFunctionKind.AGGREGATE:
            arguments, result, user = cast_for_user(function, operands, node), function.result_type, function
        else:
            raise problem(f"{node.name} is not an aggregate", node)
        if name == "COUNT" and not whole.distinct:
            arguments, condition = counted_arguments(arguments, condition)
        order = tuple(self._sort_key(item) for item in (whole.within_group or whole.order_by))
        filter_ = None if condition is None else self.slot(is_true(condition))
        # `user` is the function itself, not its wrapper: equal plans compare equal across processes.
        options = tuple(option for option in node.options if option[0] != "function")
        options += (("nulls", whole.nulls),) if whole.nulls else ()
        columns = tuple(self.slot(each) for each in arguments)
        return AggregateCall(name, columns, result, "", whole.distinct, filter_, order, user, options)

    @property
    def _has_groups(self) -> bool:
        return bool(self.groups) or self.window is not None

    def _sort_key(self, item: syntax.OrderItem) -> SortKey:
        bound = ExpressionBinder(self.scope, self.session).bind(item.expression)
        nulls_first = item.nulls_first if item.nulls_first is not None else not item.descending
        return SortKey(self.slot(bound), item.descending, nulls_first)

    # --- the relation -------------------------------------------------------------------------------------------------

    def finished(self, *above: RowExpression) -> tuple[Relation, list[RowExpression]]:
        """The aggregation, and the expressions above it, over its columns."""
        window = self.window
        if window is not None:
            time = Column(self.input.schema.fields[window.shape.time].type, window.shape.time)
            window = replace(window, shape=replace(window.shape, time=self.slot(time)))
        names = self._slot_names()
        assert self.plain.values is not None
        source, slots = self.plain.values.joined(self.input, self.slots)
        if source is not self.input and window is not None:
            raise problem("A subquery in a window's aggregate is unsupported: compute it in a query in FROM", self.node)
        projected = project(source, slots, names)
        calls = tuple(replace(call, name=name) for call, name in zip(self.calls, self._call_names(names), strict=True))
        schema = self._schema(projected, names, calls)
        groups = tuple(range(len(self.groups)))
        sets = None if self.sets is None else tuple(tuple(sorted(each | self.plain_groups)) for each in self.sets)
        relation: Relation
        if window is not None:
            relation = WindowAggregate(schema, projected, window.shape, groups, calls, tuple(self.properties), sets)
        else:
            relation = Aggregate(schema, projected, groups, calls, sets, site=written_text(self.node))
        return relation, [transform(expression, self._placed) for expression in above]

    def with_queries(self, aggregated: Relation, placed: list[RowExpression]) -> tuple[Relation, list[RowExpression]]:
        """The groups, joined with the subqueries that the expressions above use."""
        assert self.values is not None
        return self.values.joined(aggregated, placed, self._group_at, self._placed)

    def _group_at(self, column: int) -> int:
        """The group that computes an input column, for a subquery above the groups."""
        for at, group in enumerate(self.groups):
            if isinstance(group, Column) and group.index == column:
                return at
        name = self.input.schema.names[column]
        raise problem(f"Expression '{name}' is not being grouped, but a subquery refers to it", self.node)

    def _group_type(self, group: int) -> DataType:
        """The type of a group, nullable unless the group is in every set."""
        return self.groups[group].type if self._is_whole(group) else self.groups[group].type.nullable()

    def _is_whole(self, group: int) -> bool:
        """Whether a group is in every set."""
        return self.sets is None or group in self.plain_groups or all(group in each for each in self.sets)

    def _slot_names(self) -> list[str]:
        """Pass-through columns keep their names; others are numbered."""
        own = [*self.group_names, *([None] * (len(self.slots) - len(self.group_names)))]
        names: list[str] = []
        for index, slot in enumerate(self.slots):
            passed = passed_field(self.input.schema, slot)
            name = own[index] or (None if passed is None else passed.name)
            names.append(name if name is not None and name not in names else f"$f{index}")
        return names

    def _call_names(self, slot_names: list[str]) -> list[str]:
        names: list[str] = []
        for index in range(len(self.calls)):
            name = self.call_names.get(index, f"EXPR${index}")
            while name in slot_names[: len(self.groups)] or name in names:
                name += "0"
            names.append(name)
        return names

    def _slot_column(self, data_type: DataType, index: int) -> Column:
        self._slot_numbers.setdefault(index, len(self._slot_numbers))
        return Column(data_type, index)

    def slot_name(self, expression: RowExpression) -> str | None:
        """Flink's name of an unnamed aggregate or window property: EXPR$ and its number. None for other expressions."""
        if not isinstance(expression, Column) or expression.index not in self._slot_numbers:
            return None
        return f"EXPR${self._slot_numbers[expression.index]}"

    def name_call(self, expression: RowExpression, name: str) -> None:
        """Names the column of the aggregate that an expression refers to, unless it has a name."""
        if isinstance(expression, Column) and _CALLS <= expression.index < _PROPERTIES:
            index = expression.index - _CALLS
            if not self.call_names.get(index):
                self.call_names[index] = name

    def _schema(self, projected: Relation, names: list[str], calls: tuple[AggregateCall, ...]) -> Schema:
        inside = window_columns(projected)
        whole = tuple(group for group in range(len(self.groups)) if self._is_whole(group))
        in_windows = inside is not None and inside.are_all_in(whole)
        if in_windows and inside is not None:
            check_multiple(inside.shape.kind, inside.shape.size_ms, inside.shape.slide_ms, self.node)
        keys = []
        for index in range(len(self.groups)):
            time = (
                projected.schema.fields[index].time
                if in_windows and inside and index in inside.times & {*whole}
                else None
            )
            keys.append(Field(names[index], self._group_type(index), time))
        properties = [self._property_field(each) for each in self.properties]
        return Schema((*keys, *(Field(call.name, call.type) for call in calls), *properties))

    def _placed(self, expression: RowExpression) -> RowExpression:
        """A call's or property's column, at its final position."""
        if not isinstance(expression, Column) or not _CALLS <= expression.index < FIRST_OVER:
            return expression
        if expression.index >= _PROPERTIES:
            index = len(self.groups) + len(self.calls) + expression.index - _PROPERTIES
        else:
            index = len(self.groups) + expression.index - _CALLS
        return Column(expression.type, index)


_NEVER_NULL = frozenset(
    {"COUNT", "APPROX_COUNT_DISTINCT", "SUM0", "$SUM0", "JSON_OBJECTAGG", "JSON_ARRAYAGG", "COLLECT"}
)
