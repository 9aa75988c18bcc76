"""Decorrelates subqueries: pulls up the conditions that refer to columns of the enclosing query.

Outer columns are numbered from `FIRST_OUTER` on. A condition on an outer column is pulled up through projections,
aggregations and LIMIT until it can become a join condition. A correlated aggregation is grouped by the columns equated
to outer values, and a correlated LIMIT takes the first rows of each such group. Other references to outer columns
cannot be pulled up: `dependent_queries` handles the general case.

An aggregation without GROUP BY also emits a row for empty input, unlike one with groups: see `row_of_nothing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.expressions.row_expressions import (
    Call,
    Column,
    Literal,
    RowExpression,
    UserCall,
    columns_of,
    transform,
)
from millstream.expressions.user_functions import CallMode, UserFunction, of_no_rows
from millstream.planner.binding.calls import written_text
from millstream.planner.binding.scope import FIRST_OUTER
from millstream.planner.passes.fold_constants import folded
from millstream.planner.passes.rewriting import conjunction, conjuncts, moved, relations_of
from millstream.planner.relations import (
    Aggregate,
    AggregateCall,
    Field,
    Filter,
    Limit,
    Project,
    Rank,
    Relation,
    Schema,
    Sort,
)
from millstream.planner.session import PlannerSession
from millstream.sql import syntax

__all__ = [
    "RowOfNothing",
    "is_input_correlated",
    "joining",
    "keyed",
    "outer_columns",
    "pulled",
    "relocated",
    "row_of_nothing",
    "values_of_nothing",
]

_OF_NO_ROWS: dict[str, Any] = {
    **dict.fromkeys(("COUNT", "APPROX_COUNT_DISTINCT", "$SUM0", "SUM0"), 0),
    "COLLECT": {},
    "JSON_ARRAYAGG": "[]",
    "JSON_OBJECTAGG": "{}",
}
"""The results of aggregates over no rows. All others are NULL, except user functions, which are called."""


def joining(condition: RowExpression, width: int) -> RowExpression:
    """Converts a condition over inner and outer columns to a join condition over both sides."""
    columns = columns_of(condition)
    places = {at: at - FIRST_OUTER if at >= FIRST_OUTER else at + width for at in columns}
    return moved(condition, places)


def is_correlated(expression: RowExpression) -> bool:
    return any(at >= FIRST_OUTER for at in columns_of(expression))


class _NotPulledError(Exception):
    """An outer column occurs in a position from which conditions cannot be pulled up."""


def pulled(relation: Relation, node: syntax.Node) -> tuple[Relation, list[RowExpression]] | None:
    """The relation without its conditions on outer columns, and those conditions over its columns, to which some may
    have been appended. None if outer columns occur elsewhere."""
    try:
        made, conditions = _pull(relation, node)
    except _NotPulledError:
        return None
    return None if outer_columns([made]) else (made, conditions)


def keyed(
    below: Relation, conditions: Sequence[RowExpression]
) -> tuple[Relation, list[int], list[RowExpression]] | None:
    """The columns that conditions equate to outer values, and the conditions over these columns; None if a condition is
    not an equality of this kind."""
    try:
        return _with_keys(below, conditions)
    except _NotPulledError:
        return None


_EXPRESSIONS = ("condition", "collection", "expressions", "arguments")
"""The attributes of relations that hold an expression or several."""


def outer_columns(relations: Sequence[Relation]) -> set[int]:
    """The outer columns that relations and their inputs refer to, with their numbers."""
    named: set[int] = set()
    for each in relations_of(relations):
        for attribute in _EXPRESSIONS:
            value = getattr(each, attribute, None)
            parts = value if isinstance(value, tuple) else () if value is None else (value,)
            named |= {at for at in columns_of(*parts) if at >= FIRST_OUTER}
    return named


def relocated(relation: Relation, place: Callable[[int], int]) -> Relation:
    """Renumbers the outer columns of a relation. `place` maps each column of the enclosing query to its new
    position."""
    if not outer_columns([relation]):
        return relation

    def moved_part(part: RowExpression) -> RowExpression:
        if not isinstance(part, Column) or not FIRST_OUTER <= part.index < 2 * FIRST_OUTER:
            return part
        return replace(part, index=FIRST_OUTER + place(part.index - FIRST_OUTER))

    changed: dict[str, Any] = {}
    for attribute in _EXPRESSIONS:
        value = getattr(relation, attribute, None)
        if isinstance(value, tuple):
            changed[attribute] = tuple(transform(each, moved_part) for each in value)
        elif value is not None:
            changed[attribute] = transform(value, moved_part)
    relation = relation.with_inputs(*(relocated(each, place) for each in relation.inputs))
    return replace(relation, **changed)


def _pull(relation: Relation, node: syntax.Node) -> tuple[Relation, list[RowExpression]]:
    if isinstance(relation, Filter):
        below, conditions = _pull(relation.input, node)
        parts = conjuncts(relation.condition)
        plain = conjunction([part for part in parts if not is_correlated(part)])
        made = below if plain is None else Filter(below.schema, below, plain)
        return made, [*conditions, *(part for part in parts if is_correlated(part))]
    if isinstance(relation, Project):
        below, conditions = _pull(relation.input, node)
        return _through_project(relation, below, conditions)
    if isinstance(relation, Aggregate):
        below, conditions = _pull(relation.input, node)
        if is_input_correlated(relation.input):
            raise _NotPulledError
        return _through_groups(relation, below, conditions) if conditions else (relation, [])
    if isinstance(relation, Limit):
        return _through_limit(relation, node)
    return relation, []


def _inner_columns(conditions: Sequence[RowExpression]) -> list[int]:
    return sorted({at for each in conditions for at in columns_of(each) if at < FIRST_OUTER})


def _through_project(
    relation: Project, below: Relation, conditions: list[RowExpression]
) -> tuple[Relation, list[RowExpression]]:
    if not conditions:
        return (relation if below is relation.input else replace(relation, input=below)), []
    needed = _inner_columns(conditions)
    width = len(relation.schema)
    fields = (*relation.schema.fields, *(replace(below.schema.fields[at], name=f"$c{at}") for at in needed))
    columns = tuple(Column(below.schema.types[at], at) for at in needed)
    made = Project(Schema(fields), below, (*relation.expressions, *columns), site=relation.site)
    places = {at: width + number for number, at in enumerate(needed)}
    return made, [_moved_inner(each, places) for each in conditions]


def _with_keys(below: Relation, conditions: Sequence[RowExpression]) -> tuple[Relation, list[int], list[RowExpression]]:
    """The columns that conditions equate to outer values, and the conditions over these columns. Expressions that are
    not columns of `below` are appended to it."""
    width, added = len(below.schema), list[RowExpression]()
    keys: list[int] = []
    made: list[RowExpression] = []
    for each in conditions:
        if not _inner_columns([each]):  # no reference to inner rows
            made.append(each)
            continue
        equality = each if isinstance(each, Call) and each.function in ("=", "IS NOT DISTINCT FROM") else None
        sides = () if equality is None else equality.arguments
        own = [side for side in sides if _inner_columns([side]) and not is_correlated(side)]
        outer = [side for side in sides if not _inner_columns([side])]
        if equality is None or len(own) != 1 or len(outer) != 1:
            raise _NotPulledError
        if not isinstance(own[0], Column):
            added.append(own[0])
        at = own[0].index if isinstance(own[0], Column) else width + len(added) - 1
        keys.append(at)
        made.append(replace(equality, arguments=(Column(own[0].type, at), outer[0])))
    if added:
        fields = (*below.schema.fields, *(Field(f"$e{number}", part.type) for number, part in enumerate(added)))
        below = Project(Schema(fields), below, (*below.schema.columns, *added))
    return below, sorted(set(keys)), made


def _through_limit(relation: Limit, node: syntax.Node) -> tuple[Relation, list[RowExpression]]:
    sort = relation.input if isinstance(relation.input, Sort) else None
    below, conditions = _pull(relation.input if sort is None else sort.input, node)
    if not conditions:
        return relation, []
    if relation.count is None:
        raise _NotPulledError
    below, keys, conditions = _with_keys(below, conditions)
    order, last = () if sort is None else sort.keys, relation.offset + relation.count
    return Rank(below.schema, below, tuple(keys), order, relation.offset + 1, last, site=written_text(node)), conditions


def _through_groups(
    relation: Aggregate, below: Relation, conditions: list[RowExpression]
) -> tuple[Relation, list[RowExpression]]:
    if relation.sets is not None:
        raise _NotPulledError
    below, needed, conditions = _with_keys(below, conditions)
    first = len(relation.groups)
    keys = tuple(Field(f"$c{at}", below.schema.types[at]) for at in needed)
    fields = relation.schema.fields
    grouped = Aggregate(
        Schema((*fields[:first], *keys, *fields[first:])),
        below,
        (*relation.groups, *needed),
        relation.calls,
        site=relation.site,
    )
    # The previous columns, then the new groups.
    order = [*range(first), *range(first + len(keys), len(grouped.schema)), *range(first, first + len(keys))]
    schema = Schema(tuple(grouped.schema.fields[at] for at in order))
    made = Project(schema, grouped, tuple(Column(grouped.schema.types[at], at) for at in order))
    places = {at: len(fields) + number for number, at in enumerate(needed)}
    return made, [_moved_inner(each, places) for each in conditions]


def _moved_inner(condition: RowExpression, places: dict[int, int]) -> RowExpression:
    return moved(condition, {at: places.get(at, at) for at in columns_of(condition)})


# --- the row for empty input ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowOfNothing:
    """The row that an aggregate without GROUP BY emits for empty input, as constant expressions. `is_sure`: no HAVING
    can drop it or a row for other input."""

    values: tuple[RowExpression, ...]
    is_sure: bool = True


def row_of_nothing(relation: Relation, session: PlannerSession) -> RowOfNothing | None:
    """The row that a query emits if its aggregation has no input; None if it emits none."""
    if isinstance(relation, Aggregate) and not relation.groups and relation.sets is None:
        return RowOfNothing(values_of_nothing(relation))
    if not isinstance(relation, Project | Filter | Sort | Limit):
        return None
    row = row_of_nothing(relation.input, session)
    if row is None or isinstance(relation, Sort):
        return row
    if isinstance(relation, Limit):
        return None if relation.offset or relation.count == 0 else row
    values = row.values

    def substituted(part: RowExpression) -> RowExpression:
        return values[part.index] if isinstance(part, Column) and part.index < FIRST_OUTER else part

    if isinstance(relation, Project):
        return replace(
            row, values=tuple(folded(transform(each, substituted), session, False) for each in relation.expressions)
        )
    condition = folded(transform(relation.condition, substituted), session, False)
    return None if isinstance(condition, Literal) and condition.value is not True else replace(row, is_sure=False)


def values_of_nothing(relation: Aggregate) -> tuple[RowExpression, ...]:
    """The aggregates' results for empty input."""
    return tuple(_of_no_rows(call) for call in relation.calls)


def _of_no_rows(call: AggregateCall) -> RowExpression:
    if isinstance(call.user, UserFunction) and call.user.mode is CallMode.PER_ROW:
        return UserCall(call.type.nullable(), of_no_rows(call.user))
    value = _OF_NO_ROWS.get(call.function.upper())
    return Literal(call.type.nullable() if value is None else call.type, value)


def is_input_correlated(relation: Relation) -> bool:
    """Whether the input of an aggregate without GROUP BY depends on outer columns, so that it may be empty for some."""
    while isinstance(relation, Project | Filter | Sort | Limit):
        relation = relation.input
    return isinstance(relation, Aggregate) and not relation.groups and bool(outer_columns([relation.input]))
