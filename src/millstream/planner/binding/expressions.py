"""Binds expressions: syntax becomes typed calls over the columns of a scope, with casts where types differ.

`ExpressionBinder.bind` visits a node top down. It first calls `replaced`, with which aggregations and windows
substitute their own columns for subexpressions (`binding.grouping`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.expressions.coercion import can_cast
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import FunctionDefinition, FunctionKind
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Literal, RowExpression
from millstream.expressions.types import BooleanType, NullType
from millstream.planner.binding.calls import find_function, placed_arguments, system_call, user_call, written_text
from millstream.planner.binding.literals import bind_interval, bind_literal
from millstream.planner.binding.overs import OverCalls
from millstream.planner.binding.query_values import QueryValues
from millstream.planner.binding.scope import Scope, field_of
from millstream.planner.not_yet import not_yet
from millstream.planner.session import PlannerSession
from millstream.planner.type_names import data_type
from millstream.sql import query_syntax, syntax
from millstream.sql.places import problem

__all__ = ["ExpressionBinder", "bind_condition", "bind_expression"]


def bind_expression(written: syntax.Expression, scope: Scope, session: PlannerSession) -> RowExpression:
    """The row expression of an expression over a scope."""
    return ExpressionBinder(scope, session).bind(written)


def bind_condition(written: syntax.Expression, binder: ExpressionBinder, clause: str) -> RowExpression:
    """An expression of WHERE, HAVING or ON, which must be BOOLEAN."""
    bound = binder.bind(written)
    if isinstance(bound.type, NullType):
        return Literal(BooleanType(), None)
    if not isinstance(bound.type, BooleanType):
        raise problem(f"{clause} clause must be a condition: expected BOOLEAN, found {bound.type.nullable()}", written)
    return bound


class ExpressionBinder:
    """Binds expressions over one scope. `in_clause` names the clause in errors about misplaced aggregates."""

    def __init__(
        self, scope: Scope, session: PlannerSession, in_clause: str = "", later_names: frozenset[str] = frozenset()
    ) -> None:
        self.scope = scope
        self.session = session
        self.in_clause = in_clause
        self.later_names = later_names  # aliases of SELECT, not visible in earlier clauses
        self.overs: OverCalls | None = None  # set where calls with OVER are allowed
        self.values: QueryValues | None = None  # set where subqueries are allowed as values

    def replaced(self, node: syntax.Expression) -> RowExpression | None:
        """The expression that replaces a node; None to bind the node's operands."""
        return None

    def bind(self, node: syntax.Expression) -> RowExpression:
        """The row expression of a node."""
        instead = self.replaced(node)
        if instead is not None:
            return instead
        method = _METHODS.get(type(node))
        if method is None:
            raise problem(f"{_noun(node)} is not allowed in an expression", node)
        return method(self, node)

    def bind_all(self, nodes: Sequence[syntax.Expression]) -> list[RowExpression]:
        """The row expressions of several nodes."""
        return [self.bind(node) for node in nodes]

    # --- names and constants ------------------------------------------------------------------------------------------

    def _name(self, node: syntax.Name) -> RowExpression:
        name = node.parts[0]
        if name in self.later_names and name not in self.scope.names and len(node.parts) == 1:
            words = f"Column '{name}' not found: it is an alias of SELECT, which {self.in_clause} cannot see"
            raise problem(f"{words}. Repeat the expression, or put the query into FROM", node)
        return self.scope.resolve(node.parts, node)

    def _field(self, node: syntax.FieldAccess) -> RowExpression:
        return field_of(self.bind(node.operand), node.name, node)

    def _item(self, node: syntax.ItemAccess) -> RowExpression:
        operand = self.bind(node.operand)
        if isinstance(operand.type, RowType):
            return _field_at(operand, operand.type, node)
        return system_call("ITEM", [operand, self.bind(node.index)], node)

    def _row(self, node: syntax.RowValue) -> RowExpression:
        return system_call("ROW", self.bind_all(node.values), node)

    def _as(self, node: syntax.As) -> RowExpression:
        return self.bind(node.operand)

    # --- constructs with their own syntax -----------------------------------------------------------------------------

    def _cast(self, node: syntax.Cast) -> RowExpression:
        operand = self.bind(node.operand)
        target = node.target if isinstance(node.target, DataType) else data_type(node.target)
        return cast_to(operand, target, node, node.is_try)

    def _case(self, node: syntax.Case) -> RowExpression:
        parts: list[RowExpression] = []
        operand = self.bind(node.operand) if node.operand is not None else None
        for when, then in node.whens:
            if operand is not None:
                parts.append(system_call("=", [operand, self.bind(when)], when))
            else:
                parts.append(bind_condition(when, self, "WHEN"))
            parts.append(self.bind(then))
        parts.append(self.bind(node.otherwise) if node.otherwise is not None else Literal(NullType(), None))
        return system_call("CASE", parts, node)

    def _between(self, node: syntax.Between) -> RowExpression:
        operand, low, high = self.bind(node.operand), self.bind(node.low), self.bind(node.high)

        def inside(first: RowExpression, last: RowExpression) -> RowExpression:
            bounds = [system_call(">=", [operand, first], node), system_call("<=", [operand, last], node)]
            return system_call("AND", bounds, node)

        within = inside(low, high)
        if node.symmetric:
            within = system_call("OR", [within, inside(high, low)], node)
        return system_call("NOT", [within], node) if node.negated else within

    def _in(self, node: syntax.In) -> RowExpression:
        if node.query is not None:
            return self._queries(node).membership(node, self)
        match = system_call("IN", [self.bind(node.operand), *self.bind_all(node.values)], node)
        return system_call("NOT", [match], node) if node.negated else match

    def _like(self, node: syntax.Like) -> RowExpression:
        parts = [self.bind(node.operand), self.bind(node.pattern)]
        if node.escape is not None:
            parts.append(self.bind(node.escape))
        match = system_call("SIMILAR TO" if node.similar else "LIKE", parts, node)
        return system_call("NOT", [match], node) if node.negated else match

    def _subquery(self, node: syntax.Exists | syntax.Scalar) -> RowExpression:
        if isinstance(node, syntax.Exists):
            return self._queries(node).exists(node)
        if node.quantifier is None:
            return self._queries(node).column(node)
        listed = _listed(node.query)
        if listed is None:
            return self._queries(node).quantified(node, self)
        assert node.operand is not None and node.operator is not None
        operand = self.bind(node.operand)
        compared: list[RowExpression] = [
            system_call(node.operator, [operand, self.bind(each)], node) for each in listed
        ]
        word = "AND" if node.quantifier == "ALL" else "OR"
        return compared[0] if len(compared) == 1 else system_call(word, compared, node)

    def _queries(self, node: syntax.Expression) -> QueryValues:
        """The collector of the clause's subqueries."""
        if self.values is None:
            words = f" in {self.in_clause}" if self.in_clause else " here"
            raise not_yet(f"A subquery in an expression{words}", node, "put it into a query in FROM, as a column")
        return self.values

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call(self, node: syntax.Call) -> RowExpression:
        window, _, word = node.name.upper().partition("_")
        if window in ("TUMBLE", "HOP", "SESSION") and word in ("START", "END", "ROWTIME", "PROCTIME"):
            raise problem(f"{node.name} is allowed in SELECT or HAVING of a query with GROUP BY {window}(…)", node)
        function = find_function(node, self.session)
        if isinstance(function, FunctionDefinition):
            if function.kind is FunctionKind.AGGREGATE:
                where = f" in {self.in_clause}" if self.in_clause else " here"
                raise problem(f"Aggregate expression is illegal{where}: {function.name} aggregates rows", node)
            if function.kind is FunctionKind.WINDOW:
                raise problem(f"{function.name} needs an OVER clause", node)
            if function.kind is FunctionKind.TABLE:
                raise problem(f"{function.name} returns rows: write TABLE({function.syntax}) in FROM", node)
            return system_call(function.name, self._arguments(node), node, node.options)
        return user_call(function, self.bind_all(placed_arguments(function, node)), node)

    def _arguments(self, node: syntax.Call) -> list[RowExpression]:
        for argument in node.arguments:
            if isinstance(argument, syntax.Argument):
                raise problem(f"{node.name} has no named arguments: leave '{argument.name} =>' out", argument)
            if isinstance(argument, syntax.Star):
                raise problem(f"{node.name}(*): only COUNT takes *", argument)
        return self.bind_all(node.arguments)

    def _aggregated(self, node: syntax.Aggregated) -> RowExpression:
        where = f" in {self.in_clause}" if self.in_clause else " here"
        raise problem(f"Aggregate expression is illegal{where}: {node.call.name} aggregates rows", node)

    def _over(self, node: syntax.Over) -> RowExpression:
        if self.overs is None:
            where = f" in {self.in_clause}" if self.in_clause else " here"
            raise problem(f"OVER is illegal{where}: use it in SELECT, ORDER BY or QUALIFY", node)
        return self.overs.column(node, self)


def _field_at(operand: RowExpression, row: RowType, node: syntax.ItemAccess) -> RowExpression:
    """row['field'] or row[position], with a constant index: the type depends on it."""
    index = node.index
    if isinstance(index, syntax.Literal) and index.kind == "TEXT":
        return field_of(operand, str(index.value), node)
    if not isinstance(index, syntax.Literal) or index.kind != "NUMBER" or not str(index.value).isdigit():
        raise problem(
            "A field of a row is selected by a constant: its name, as in row['field'], or its position, from 1", node
        )
    place = int(index.value)
    if not 1 <= place <= len(row.fields):
        raise problem(f"the row has {len(row.fields)} fields, but none at position {place}", node)
    return field_of(operand, row.names[place - 1], node)


def _listed(query: query_syntax.Query) -> list[syntax.Expression] | None:
    """The values of x = SOME (1, 2); None for a query."""
    if not isinstance(query.body, query_syntax.Values) or query.span is not None:
        return None
    return [value for (value,) in query.body.rows]


def cast_to(operand: RowExpression, target: DataType, node: syntax.Node | None, is_try: bool = False) -> RowExpression:
    """CAST or TRY_CAST of an expression; rejected for types without a cast between them."""
    if not can_cast(operand.type, target, explicit=True):
        hint = f" {operand.type.nullable()} cannot become {target.nullable()}"
        raise problem(f"Cast function cannot convert value of type {operand.type} to type {target}:{hint}", node)
    nullable = is_try or operand.type.is_nullable or isinstance(operand.type, NullType)
    name = "TRY_CAST" if is_try else "CAST"
    return Call(target.with_nullability(nullable), name, (operand,), (), written_text(node))


def _noun(node: syntax.Expression) -> str:
    return {syntax.Star: "*", syntax.Descriptor: "DESCRIPTOR", syntax.TableArgument: "TABLE"}.get(
        type(node), type(node).__name__
    )


_METHODS: dict[type, Callable[[ExpressionBinder, Any], RowExpression]] = {
    syntax.Literal: lambda binder, node: bind_literal(node, binder.session.zone),
    syntax.Interval: lambda binder, node: bind_interval(node),
    syntax.Name: ExpressionBinder._name,
    syntax.FieldAccess: ExpressionBinder._field,
    syntax.ItemAccess: ExpressionBinder._item,
    syntax.RowValue: ExpressionBinder._row,
    syntax.As: ExpressionBinder._as,
    syntax.Cast: ExpressionBinder._cast,
    syntax.Case: ExpressionBinder._case,
    syntax.Between: ExpressionBinder._between,
    syntax.In: ExpressionBinder._in,
    syntax.Like: ExpressionBinder._like,
    syntax.Exists: ExpressionBinder._subquery,
    syntax.Scalar: ExpressionBinder._subquery,
    syntax.Call: ExpressionBinder._call,
    syntax.Aggregated: ExpressionBinder._aggregated,
    syntax.Over: ExpressionBinder._over,
}
