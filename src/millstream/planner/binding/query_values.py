"""Subqueries in expressions as columns: each becomes a left join below the expression.

    (SELECT v …)             its single value; an error in the epoch if it has several rows
    EXISTS (SELECT …)        whether the subquery has a row: a **mark**, TRUE in joined rows
    x IN (SELECT v …)        TRUE if a row is equal; else NULL if a NULL on either side might be; else FALSE
    x > SOME (SELECT v …)    likewise, by the minimum or maximum; ALL is NOT … SOME of the opposite comparison

The joined rows are grouped by their correlation (`query_joins`), so each enclosing row has at most one match. During
binding, columns are numbered from `FIRST_VALUE` on; `QueryValues.joined` inserts the joins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.aggregation.rolling_columns import rolls_in_columns
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, columns_of, transform
from millstream.expressions.types import BooleanType
from millstream.planner.binding.calls import system_call, written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.decorrelation import joining, outer_columns, pulled, relocated, row_of_nothing
from millstream.planner.binding.overs import FIRST_OVER
from millstream.planner.binding.query_joins import TRUTH, InsideQuery, extreme_of, joined_rows
from millstream.planner.binding.scope import FIRST_OUTER, Scope
from millstream.planner.binding.subqueries import bound_inside, operands_of
from millstream.planner.passes.rewriting import conjunction
from millstream.planner.relations import Join, JoinKind, Relation, Schema
from millstream.sql import query_syntax, syntax
from millstream.sql.places import problem

if TYPE_CHECKING:
    from millstream.planner.binding.expressions import ExpressionBinder

__all__ = ["FIRST_VALUE", "QueryValues"]

FIRST_VALUE = 3_500_000
_CONTRARY = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

Place = Callable[[int], int]
"""Maps a column to its position in the relation that the joins read."""


def _as_it_is(column: int) -> int:
    return column


class QueryValues:
    """The subqueries of one clause, collected during binding."""

    def __init__(self, scope: Scope, context: QueryContext, other: QueryValues | None = None) -> None:
        self._scope, self._context = scope, context
        self._queries: list[InsideQuery] = []
        # The cache also references the nodes: the id of a collected object may be reused.
        self._inside: dict[int, tuple[query_syntax.Query, Relation]] = {} if other is None else other._inside

    def __bool__(self) -> bool:
        return bool(self._queries)

    @staticmethod
    def used(expression: RowExpression) -> bool:
        """Whether an expression uses a subquery's column."""
        return any(FIRST_VALUE <= at < FIRST_OUTER for at in columns_of(expression))

    def inside(self, query: query_syntax.Query) -> Relation:
        """A subquery's relation, bound once per node."""
        entry = self._inside.get(id(query))
        if entry is None:
            entry = self._inside[id(query)] = query, bound_inside(query, self._scope, self._context)
        return entry[1]

    # --- columns of the expression ------------------------------------------------------------------------------------

    def column(self, node: syntax.Scalar) -> RowExpression:
        """A scalar subquery."""
        inner = self.inside(node.query)
        if len(inner.schema) != 1:
            raise problem(f"A scalar subquery must return one column, but this one returns {len(inner.schema)}", node)
        return self._value(inner, node)

    def exists(self, node: syntax.Exists) -> RowExpression:
        """EXISTS."""
        return self._mark(self.inside(node.query), node)

    def membership(self, node: syntax.In, binder: ExpressionBinder) -> RowExpression:
        """IN (SELECT …)."""
        assert node.query is not None
        inner = self.inside(node.query)
        operands = [binder.bind(each) for each in operands_of(node.operand, inner, node)]
        match = self._is_in(operands, inner, node)
        return Call(match.type, "NOT", (match,)) if node.negated else match

    def quantified(self, node: syntax.Scalar, binder: ExpressionBinder) -> RowExpression:
        """A comparison with SOME or ALL rows of a subquery."""
        assert node.operand is not None and node.operator is not None
        is_all = node.quantifier == "ALL"
        operator = _CONTRARY[node.operator] if is_all else node.operator
        inner = self.inside(node.query)
        operands = [binder.bind(each) for each in operands_of(node.operand, inner, node)]
        for operand, (place, type_) in zip(operands, enumerate(inner.schema.types), strict=True):
            system_call(node.operator, [operand, Column(type_, place)], node)  # checks types
        if operator == "=":
            match = self._is_in(operands, inner, node)
        elif len(operands) > 1:
            raise problem("Rows of several values support only = and <> with SOME and ALL", node)
        else:
            match = self._compares(operands[0], operator, inner, node)
        return Call(match.type, "NOT", (match,)) if is_all else match

    def _is_in(self, operands: list[RowExpression], inner: Relation, node: syntax.Expression) -> RowExpression:
        equals = [
            system_call("=", [_outside(operand, node), Column(type_, place)], node)
            for place, (operand, type_) in enumerate(zip(operands, inner.schema.types, strict=True))
        ]
        equal = conjunction(equals)
        assert equal is not None
        matched = self._mark(inner, node, equal)
        if not equal.type.is_nullable:
            return matched
        if len(operands) == 1:
            return _three_valued([matched], self._might_match(operands[0], inner, node))
        unknown = Call(TRUTH, "IS NULL", (equal,))
        return _three_valued([matched], self._mark(inner, node, unknown))

    def _compares(
        self, operand: RowExpression, operator: str, inner: Relation, node: syntax.Expression
    ) -> RowExpression:
        """Whether the comparison holds for some row."""
        type_ = inner.schema.types[0]
        own = Column(type_, 0)
        if not rolls_in_columns("min", type_.arrow):
            compared = system_call(operator, [_outside(operand, node), own], node)
            matches: list[RowExpression] = [self._mark(inner, node, compared)]
        else:
            bounds = {"<": ("MAX",), "<=": ("MAX",), ">": ("MIN",), ">=": ("MIN",)}.get(operator, ("MIN", "MAX"))
            values = [self._value(extreme_of(inner, bound), node) for bound in bounds]
            matches = [system_call(operator, [operand, value], node) for value in values]
        return _three_valued(matches, self._might_match(operand, inner, node))

    def _might_match(self, operand: RowExpression, inner: Relation, node: syntax.Expression) -> RowExpression:
        """Whether a NULL on either side leaves a match undecided."""
        type_ = inner.schema.types[0]
        open_: list[RowExpression] = []
        if operand.type.is_nullable:
            absent = Call(TRUTH, "IS NULL", (operand,))
            open_.append(Call(TRUTH, "AND", (absent, self._mark(inner, node))))
        if type_.is_nullable:
            open_.append(self._mark(inner, node, Call(TRUTH, "IS NULL", (Column(type_, 0),))))
        if not open_:
            return Literal(TRUTH, False)
        return open_[0] if len(open_) == 1 else Call(TRUTH, "OR", tuple(open_))

    def _mark(self, inner: Relation, node: syntax.Expression, *conditions: RowExpression) -> RowExpression:
        number = self._number(InsideQuery(node, inner, conditions, is_mark=True))
        return Call(TRUTH, "IS NOT NULL", (Column(BooleanType(), FIRST_VALUE + 2 * number + 1),))

    def _value(self, inner: Relation, node: syntax.Expression) -> RowExpression:
        parts = pulled(inner, node)
        nothing = row_of_nothing(inner, self._context.session)
        is_plain = nothing is None or (parts is not None and nothing.is_sure)
        number = self._number(InsideQuery(node, inner, is_dependent=parts is None or not is_plain))
        type_, place = inner.schema.types[0], FIRST_VALUE + 2 * number
        column = Column(type_.nullable(), place)
        if nothing is None or parts is None or not nothing.is_sure:
            return column
        value = nothing.values[0]
        if isinstance(value, Literal) and value.value is None:
            return column
        if not type_.is_nullable:
            return Call(type_, "COALESCE", (column, value))  # COUNT of no rows is 0
        is_absent = Call(TRUTH, "IS NULL", (Column(BooleanType(), place + 1),))
        return Call(type_, "CASE", (is_absent, value, column))

    def _number(self, query: InsideQuery) -> int:
        for number, other in enumerate(self._queries):
            if query.node == other.node and replace(query, node=other.node) == other:
                return number
        self._queries.append(query)
        return len(self._queries) - 1

    # --- the joins ----------------------------------------------------------------------------------------------------

    def joined(
        self,
        relation: Relation,
        above: Sequence[RowExpression],
        place_inside: Place = _as_it_is,
        placed: Callable[[RowExpression], RowExpression] | None = None,
    ) -> tuple[Relation, list[RowExpression]]:
        """Joins the relation with the subqueries that expressions above it use; returns it with their columns appended,
        and these expressions. `place_inside` maps a column of the scope, as subqueries refer to it, to its position in
        the relation; `placed` maps columns of the expressions to the relation's."""
        places: dict[int, int] = {}

        def final(part: RowExpression) -> RowExpression:
            if not isinstance(part, Column) or part.index < FIRST_OUTER:
                return part
            own = replace(part, index=part.index - FIRST_OUTER)
            own = _placed(own, places) if own.index >= FIRST_VALUE or placed is None else placed(own)  # type: ignore[assignment]
            return replace(own, index=own.index + FIRST_OUTER)

        for number in self._used(above):
            query = self._queries[number]
            conditions = [transform(each, final) for each in query.conditions]
            rows = query.rows if place_inside is _as_it_is else relocated(query.rows, place_inside)
            rows, terms = joined_rows(replace(query, rows=rows, conditions=tuple(conditions)), relation, self._context)
            width = len(relation.schema)
            places[FIRST_VALUE + 2 * number] = width
            places[FIRST_VALUE + 2 * number + 1] = width + len(rows.schema) - 1
            optional = tuple(replace(each, type=each.type.nullable(), time=None) for each in rows.schema.fields)
            fields = (*(replace(each, time=None) for each in relation.schema.fields), *optional)
            condition = conjunction([joining(each, width) for each in terms])
            relation = Join(Schema(fields), relation, rows, JoinKind.LEFT, condition, site=written_text(query.node))
        return relation, [transform(each, lambda part: _placed(part, places)) for each in above]

    def split(self, relation: Join, parts: Sequence[RowExpression]) -> tuple[Join, list[RowExpression]] | None:
        """For the ON of an outer join: joins each side with the subqueries that refer to it, and returns the conjuncts
        over both sides; None if a subquery refers to both."""
        width = len(relation.left.schema)
        sides: dict[int, bool] = {}
        for number in self._used(parts):
            named = self._named(number)
            if any(at < width for at in named) and any(width <= at < FIRST_VALUE for at in named):
                return None
            sides[number] = any(width <= at < FIRST_VALUE for at in named)
        if any(
            sides[self._number_at(at)] != is_right for number, is_right in sides.items() for at in self._uses(number)
        ):
            return None
        left, right = self._side(relation.left, sides, False, 0), self._side(relation.right, sides, True, width)
        grown = len(left[0].schema)
        moves = {FIRST_VALUE + at: place for at, place in left[1].items()}
        moves |= {FIRST_VALUE + at: grown + place for at, place in right[1].items()}

        def moved_part(part: RowExpression) -> RowExpression:
            if not isinstance(part, Column):
                return part
            if part.index >= FIRST_VALUE:
                return replace(part, index=moves[part.index])
            return part if part.index < width else replace(part, index=part.index - width + grown)

        optional = {JoinKind.LEFT: (False, True), JoinKind.RIGHT: (True, False)}.get(relation.kind, (True, True))
        fields = [
            replace(each, type=each.type.nullable()) if is_optional else each
            for rows, is_optional in ((left[0], optional[0]), (right[0], optional[1]))
            for each in rows.schema.fields
        ]
        made = replace(relation, schema=Schema(tuple(fields)), left=left[0], right=right[0])
        return made, [transform(each, moved_part) for each in parts]

    def _side(
        self, rows: Relation, sides: dict[int, bool], is_right: bool, first: int
    ) -> tuple[Relation, dict[int, int]]:
        """One side joined with its subqueries, and the positions of their columns, by number from `FIRST_VALUE`."""
        wanted: list[RowExpression] = []
        for number in (number for number, side in sides.items() if side is is_right):
            query = self._queries[number]
            if not query.is_mark:
                wanted.append(Column(query.rows.schema.types[0].nullable(), FIRST_VALUE + 2 * number))
            wanted.append(Column(BooleanType(), FIRST_VALUE + 2 * number + 1))

        def placed(part: RowExpression) -> RowExpression:
            return replace(part, index=part.index - first) if isinstance(part, Column) else part

        made, columns = self.joined(rows, wanted, lambda at: at - first, placed)
        return made, {
            old.index - FIRST_VALUE: new.index
            for old, new in zip(wanted, columns, strict=True)
            if isinstance(old, Column) and isinstance(new, Column)
        }

    def _named(self, number: int) -> set[int]:
        """The outer columns that a subquery's rows or conditions refer to."""
        query = self._queries[number]
        inside = {at - FIRST_OUTER for at in outer_columns([query.rows])}
        return inside | {at - FIRST_OUTER for at in columns_of(*query.conditions) if at >= FIRST_OUTER}

    @staticmethod
    def _number_at(column: int) -> int:
        return (column - FIRST_VALUE) // 2

    def _uses(self, number: int) -> list[int]:
        """The columns of other subqueries that a subquery's conditions refer to."""
        return [at for at in self._named(number) if FIRST_VALUE <= at < FIRST_OUTER]

    def _used(self, above: Sequence[RowExpression]) -> list[int]:
        """The subqueries that expressions use, each preceded by those that its conditions use."""
        used = {self._number_at(at) for at in columns_of(*above) if FIRST_VALUE <= at < FIRST_OUTER}
        for number in range(len(self._queries) - 1, -1, -1):
            if number in used:
                used |= {self._number_at(at) for at in self._uses(number)}
        return sorted(used)


def _three_valued(matches: Sequence[RowExpression], is_open: RowExpression) -> RowExpression:
    """TRUE if anything matches, else NULL if a match is undecided, else FALSE."""
    true, false, unknown = Literal(TRUTH, True), Literal(TRUTH, False), Literal(BooleanType(), None)
    if isinstance(is_open, Literal):
        is_open = false
    pairs = [each for match in matches for each in (match, true)]
    return Call(BooleanType(), "CASE", (*pairs, is_open, unknown, false))


def _outside(expression: RowExpression, node: syntax.Expression) -> RowExpression:
    """An expression of the enclosing query, as referred to by a subquery."""
    if any(FIRST_OVER <= at < FIRST_VALUE for at in columns_of(expression)):
        raise problem("A call with OVER cannot be compared with a subquery's rows: compute it in a query in FROM", node)

    def moved_part(part: RowExpression) -> RowExpression:
        return replace(part, index=part.index + FIRST_OUTER) if isinstance(part, Column) else part

    return transform(expression, moved_part)


def _placed(part: RowExpression, places: dict[int, int]) -> RowExpression:
    return replace(part, index=places[part.index]) if isinstance(part, Column) and part.index in places else part
