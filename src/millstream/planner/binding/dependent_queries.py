"""Subqueries computed for each distinct value of their outer columns: the general form of decorrelation.

Handles what `decorrelation` cannot pull up: an inequality below an aggregation, an outer column in SELECT, nested
correlation, an aggregate without GROUP BY whose row for empty input matters. The distinct outer values, **D**, are
joined to the query where it refers to them, and every relation above appends D to its own columns: groups and
partitions include D, joins equate D on both sides. The result is joined to the outer rows by D.

An aggregate without GROUP BY emits a row for each row of D, even for empty input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, transform
from millstream.expressions.types import BooleanType, IntType
from millstream.planner.binding.calls import written_text
from millstream.planner.binding.decorrelation import outer_columns, values_of_nothing
from millstream.planner.binding.scope import FIRST_OUTER
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.rewriting import conjunction
from millstream.planner.relations import (
    Aggregate,
    Correlate,
    Field,
    Filter,
    Join,
    JoinKind,
    Limit,
    Over,
    Project,
    Rank,
    Relation,
    Schema,
    SetOperation,
    Sort,
    Unnest,
    Values,
)
from millstream.sql import syntax

__all__ = ["dependent_rows", "distinct_columns", "same"]


def dependent_rows(inner: Relation, outer: Relation, node: syntax.Node) -> tuple[Relation, list[RowExpression]]:
    """The rows of a query for each value of its outer columns (appended to its own columns), and the conditions that
    join them to `outer`. Columns of `outer` are numbered from `FIRST_OUTER` on."""
    used = sorted({at - FIRST_OUTER for at in outer_columns([inner]) if at < 2 * FIRST_OUTER})
    rows = _Dependent(distinct_columns(outer, used) if used else None, used, node).over(inner)
    width = len(inner.schema)
    types = outer.schema.types
    conditions = [
        same(Column(types[at], width + place), Column(types[at], FIRST_OUTER + at)) for place, at in enumerate(used)
    ]
    return rows, conditions


def distinct_columns(relation: Relation, columns: list[int]) -> Aggregate:
    """The distinct values of these columns."""
    fields = tuple(Field(f"$d{at}", relation.schema.types[at]) for at in columns)
    narrow = Project(Schema(fields), relation, tuple(Column(relation.schema.types[at], at) for at in columns))
    return Aggregate(Schema(fields), narrow, tuple(range(len(fields))), ())


def same(left: RowExpression, right: RowExpression) -> RowExpression:
    """Whether two values are equal, with NULL equal to NULL."""
    is_plain = not left.type.is_nullable and not right.type.is_nullable
    return Call(BooleanType(False), "=" if is_plain else "IS NOT DISTINCT FROM", (left, right))


class _Dependent:
    """Appends D to the columns of relations. Without outer columns D is empty, and nothing is appended."""

    def __init__(self, values: Relation | None, used: list[int], node: syntax.Node) -> None:
        self._values, self._used, self._node = values, used, node
        self._fields = () if values is None else values.schema.fields

    def over(self, relation: Relation) -> Relation:
        """The relation with D after its columns."""
        if not outer_columns([relation]):
            return self._crossed(relation)
        rule = _RULES.get(type(relation))
        if rule is None:
            raise not_yet(f"A subquery that names outer columns below {type(relation).__name__}", self._node)
        return rule(self, relation)

    def _crossed(self, relation: Relation) -> Relation:
        if _has_row_of_nothing(relation):
            relation = _RULES[type(relation)](_Dependent(None, [], self._node), relation)
        if self._values is None:
            return relation
        if isinstance(relation, Values) and len(relation.rows) == 1:  # SELECT or UNNEST without a table
            schema = self._with_fields(relation)
            return Project(schema, self._values, (*relation.rows[0], *self._columns(0)))
        fields = (*(replace(each, time=None) for each in relation.schema.fields), *self._fields)
        return Join(Schema(fields), relation, self._values, JoinKind.INNER, None, site=written_text(self._node))

    # --- columns ------------------------------------------------------------------------------------------------------

    def _placed(self, expression: RowExpression, first: int, moves: Callable[[int], int] = lambda at: at) -> Any:
        """The expression with outer columns replaced by those of D, which start at `first`, and its own moved."""

        def place(part: RowExpression) -> RowExpression:
            if not isinstance(part, Column):
                return part
            if part.index >= 2 * FIRST_OUTER:  # from the next enclosing query, now one level nearer
                return replace(part, index=part.index - FIRST_OUTER)
            if part.index >= FIRST_OUTER:
                return replace(part, index=first + self._used.index(part.index - FIRST_OUTER))
            return replace(part, index=moves(part.index))

        return transform(expression, place)

    def _columns(self, first: int) -> tuple[RowExpression, ...]:
        return tuple(Column(field.type, first + place) for place, field in enumerate(self._fields))

    def _with_fields(self, relation: Relation) -> Schema:
        return Schema((*relation.schema.fields, *self._fields))

    def _reordered(self, made: Relation, wanted: Relation, places: list[int], first: int) -> Project:
        """The columns of `wanted`, which are at `places` in `made`, then D, which starts at `first`."""
        own = tuple(Column(made.schema.types[at], at) for at in places)
        return Project(self._with_fields(wanted), made, (*own, *self._columns(first)))

    # --- relations ----------------------------------------------------------------------------------------------------

    def _filter(self, relation: Filter) -> Relation:
        below = self.over(relation.input)
        condition = self._placed(relation.condition, len(relation.schema))
        return Filter(below.schema, below, condition, site=relation.site)

    def _project(self, relation: Project) -> Relation:
        below = self.over(relation.input)
        width = len(relation.input.schema)
        expressions = tuple(self._placed(each, width) for each in relation.expressions)
        schema = self._with_fields(relation)
        return Project(schema, below, (*expressions, *self._columns(width)), site=relation.site)

    def _aggregate(self, relation: Aggregate) -> Relation:
        if relation.sets is not None and not all(relation.sets):
            raise not_yet("GROUPING SETS with an empty set over rows that depend on outer columns", self._node)
        below = self.over(relation.input)
        width, first, added = len(relation.input.schema), len(relation.groups), len(self._fields)
        places = tuple(range(width, width + added))
        sets = relation.sets
        if sets is not None:
            sets = tuple((*each, *range(first, first + added)) for each in sets)
        fields = relation.schema.fields
        schema = Schema((*fields[:first], *self._fields, *fields[first:]))
        groups = (*relation.groups, *places)
        grouped = replace(relation, schema=schema, input=below, groups=groups, sets=sets)
        own = [*range(first), *range(first + added, len(schema))]
        made = self._reordered(grouped, relation, own, first)
        return made if relation.groups or sets is not None else self._with_nothing(made, relation)

    def _with_nothing(self, made: Project, relation: Aggregate) -> Relation:
        """Adds the row for empty input to each row of D without input rows."""
        width = len(relation.schema)
        number = Literal(IntType(False), 0)
        values = self._values or Values(Schema((Field("ZERO", number.type),)), ((number,),))
        marker = Field("$there", BooleanType(False))
        rows = Project(Schema((*made.schema.fields, marker)), made, (*made.schema.columns, Literal(marker.type, True)))
        left = len(values.schema)
        equal = [
            same(Column(field.type, at), Column(field.type, left + width + at)) for at, field in enumerate(self._fields)
        ]
        fields = (*values.schema.fields, *(replace(each, type=each.type.nullable()) for each in rows.schema.fields))
        joined = Join(Schema(fields), values, rows, JoinKind.LEFT, conjunction(equal), site=written_text(self._node))
        is_absent = Call(BooleanType(False), "IS NULL", (Column(BooleanType(), len(fields) - 1),))
        nothing = values_of_nothing(relation)
        chosen = tuple(
            Call(field.type, "CASE", (is_absent, value, Column(field.type.nullable(), left + at)))
            for at, (field, value) in enumerate(zip(relation.schema.fields, nothing, strict=True))
        )
        schema = Schema(
            (*(_nullable_as(f, v) for f, v in zip(relation.schema.fields, nothing, strict=True)), *self._fields)
        )
        return Project(schema, joined, (*chosen, *self._columns(0)))

    def _sort(self, relation: Sort) -> Relation:
        return self.over(relation.input)  # an order without LIMIT has no effect

    def _limit(self, relation: Limit) -> Relation:
        sort = relation.input if isinstance(relation.input, Sort) else None
        below = self.over(relation.input if sort is None else sort.input)
        if relation.count is None:
            raise not_yet("A subquery with OFFSET and no LIMIT over rows that depend on outer columns", self._node)
        width = len(relation.schema)
        order, last = () if sort is None else sort.keys, relation.offset + relation.count
        partition = tuple(range(width, width + len(self._fields)))
        return Rank(below.schema, below, partition, order, relation.offset + 1, last, site=written_text(self._node))

    def _partitioned(self, relation: Rank | Over) -> Relation:
        width, added = len(relation.input.schema), len(self._fields)
        below = self.over(relation.input)
        partition = (*relation.partition, *range(width, width + added))
        behind = relation.schema.fields[width:]
        made = replace(relation, schema=below.schema + Schema(behind), input=below, partition=partition)
        return self._reordered(made, relation, [*range(width), *range(width + added, len(made.schema))], width)

    def _made_of_rows(self, relation: Unnest | Correlate) -> Relation:
        width, added = len(relation.input.schema), len(self._fields)
        below = self.over(relation.input)
        made: Any = replace(relation, schema=below.schema + Schema(relation.schema.fields[width:]), input=below)
        if isinstance(relation, Unnest):
            made = replace(made, collection=self._placed(relation.collection, width))
        else:
            made = replace(made, arguments=tuple(self._placed(each, width) for each in relation.arguments))
        if relation.condition is not None:  # it also refers to the derived columns, which now follow D
            condition = self._placed(relation.condition, width, lambda at: at if at < width else at + added)
            made = replace(made, condition=condition)
        return self._reordered(made, relation, [*range(width), *range(width + added, len(made.schema))], width)

    def _set(self, relation: SetOperation) -> Relation:
        branches = tuple(self.over(each) for each in relation.branches)
        return replace(relation, schema=self._with_fields(relation), branches=branches)

    def _join(self, relation: Join) -> Relation:
        if type(relation) is not Join:
            raise not_yet("A subquery that names outer columns next to a time-bounded join", self._node)
        kind, added = relation.kind, len(self._fields)
        widths = len(relation.left.schema), len(relation.right.schema)
        uses = [bool(outer_columns([relation.left])), bool(outer_columns([relation.right]))]
        if kind in (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI, JoinKind.FULL) or not any(uses):
            uses[0] = True
        if kind in (JoinKind.RIGHT, JoinKind.FULL):
            uses[1] = True
        left = self.over(relation.left) if uses[0] else relation.left
        right = self.over(relation.right) if uses[1] else relation.right
        second = widths[0] + (added if uses[0] else 0)  # the start of the right side
        firsts = widths[0], second + widths[1]  # the start of D on each side
        first = firsts[0] if uses[0] and kind is not JoinKind.RIGHT else firsts[1]
        terms: list[RowExpression] = []
        if relation.condition is not None:
            # A condition's outer columns come from a side that carries D.
            known = firsts[0] if uses[0] else firsts[1]
            terms.append(
                self._placed(relation.condition, known, lambda at: at if at < widths[0] else at - widths[0] + second)
            )
        if all(uses):
            terms += [same(*pair) for pair in zip(self._columns(firsts[0]), self._columns(firsts[1]), strict=True)]
        is_one_sided = kind in (JoinKind.SEMI, JoinKind.ANTI)
        fields = self._join_fields(relation, widths, (uses[0], uses[1]))
        made = replace(relation, schema=Schema(fields), left=left, right=right, condition=conjunction(terms))
        if is_one_sided:
            return made
        places = [*range(widths[0]), *range(second, second + widths[1])]
        if kind is not JoinKind.FULL:
            return self._reordered(made, relation, places, first)
        own = tuple(Column(made.schema.types[at], at) for at in places)
        both = zip(self._fields, self._columns(firsts[0]), self._columns(firsts[1]), strict=True)
        values = tuple(Call(field.type, "COALESCE", (one, other)) for field, one, other in both)
        return Project(self._with_fields(relation), made, (*own, *values))

    def _join_fields(self, relation: Join, widths: tuple[int, int], uses: tuple[bool, bool]) -> tuple[Field, ...]:
        fields = relation.schema.fields
        optional = tuple(replace(each, type=each.type.nullable()) for each in self._fields)
        kind = relation.kind
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            return (*fields, *self._fields)
        of_left = optional if kind in (JoinKind.RIGHT, JoinKind.FULL) else self._fields
        of_right = optional if kind in (JoinKind.LEFT, JoinKind.FULL) else self._fields
        lefts = (*fields[: widths[0]], *(of_left if uses[0] else ()))
        return (*lefts, *fields[widths[0] :], *(of_right if uses[1] else ()))


def _nullable_as(field: Field, value: RowExpression) -> Field:
    return replace(field, type=field.type.nullable()) if value.type.is_nullable else field


def _has_row_of_nothing(relation: Relation) -> bool:
    """Whether rows come from an aggregate without GROUP BY, which in a stream emits no row for empty input."""
    while isinstance(relation, Project | Filter | Sort):
        relation = relation.input
    return isinstance(relation, Aggregate) and not relation.groups and relation.sets is None


_RULES: dict[type[Relation], Callable[[_Dependent, Any], Relation]] = {
    Filter: _Dependent._filter,
    Project: _Dependent._project,
    Aggregate: _Dependent._aggregate,
    Sort: _Dependent._sort,
    Limit: _Dependent._limit,
    Rank: _Dependent._partitioned,
    Over: _Dependent._partitioned,
    Unnest: _Dependent._made_of_rows,
    Correlate: _Dependent._made_of_rows,
    SetOperation: _Dependent._set,
    Join: _Dependent._join,
}
