"""The joined side of a subquery in an expression: at most one row per enclosing row, with the subquery's value.

The subquery's rows are grouped by their correlation with the enclosing rows: a **mark** is a key with at least one row;
a value is taken from the key's only row, and several rows are an error in their epoch. A subquery with conditions other
than equalities is computed for each distinct outer value (`dependent_queries`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.expressions.nested_types import ArrayType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, transform
from millstream.expressions.types import BooleanType
from millstream.planner.binding.calls import written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.decorrelation import keyed, pulled, row_of_nothing
from millstream.planner.binding.dependent_queries import dependent_rows, distinct_columns
from millstream.planner.binding.scope import FIRST_OUTER
from millstream.planner.passes.rewriting import conjunction
from millstream.planner.relations import (
    Aggregate,
    AggregateCall,
    Field,
    Filter,
    Limit,
    Project,
    Relation,
    Schema,
    Values,
)
from millstream.planner.traits.keys import upsert_keys
from millstream.sql import syntax

__all__ = ["TRUTH", "InsideQuery", "extreme_of", "joined_rows"]

TRUTH = BooleanType(False)


@dataclass(frozen=True)
class InsideQuery:
    """A subquery that becomes a column. `rows` refers to columns of its scope, `conditions` to its own columns and
    those of the enclosing expression; both number outer columns from `FIRST_OUTER` on. `is_mark`: tests whether a row
    exists."""

    node: syntax.Expression
    rows: Relation
    conditions: tuple[RowExpression, ...] = ()
    is_mark: bool = False
    is_dependent: bool = False


def joined_rows(query: InsideQuery, outer: Relation, context: QueryContext) -> tuple[Relation, list[RowExpression]]:
    """The relation to join to the rows of `outer`, with the subquery's value first and its marker last, and the join
    conditions over its columns and those of `outer`."""
    rows, condition = query.rows, conjunction(query.conditions)
    if condition is not None:
        rows = Filter(rows.schema, rows, condition)
    needs_row = query.is_dependent or (query.is_mark and row_of_nothing(rows, context.session) is not None)
    parts = None if needs_row else pulled(rows, query.node)
    is_single = not query.is_mark and _is_single(rows)
    if parts is not None and is_single:
        return _marked(parts[0]), parts[1]
    keys = None if parts is None else keyed(*parts)
    if keys is None:
        made, terms = dependent_rows(rows, outer, query.node)
        if is_single:
            return _marked(made), terms
        keys = made, list(range(len(rows.schema), len(made.schema))), terms
    return _marks(*keys) if query.is_mark else _single_values(*keys, query.node)


def extreme_of(inner: Relation, function: str) -> Aggregate:
    """The minimum or maximum of a query's rows."""
    type_ = inner.schema.types[0].nullable()
    return Aggregate(Schema((Field(function, type_),)), inner, (), (AggregateCall(function, (0,), type_, function),))


def _marked(relation: Relation) -> Relation:
    """Appends a marker column, which is NULL in unmatched rows of an outer join."""
    schema = Schema((*relation.schema.fields, Field("$there", TRUTH)))
    return Project(schema, relation, (*relation.schema.columns, Literal(TRUTH, True)))


def _marks(rows: Relation, keys: list[int], terms: list[RowExpression]) -> tuple[Relation, list[RowExpression]]:
    """The keys with at least one row; without keys, a row if any exists."""
    if not keys:
        present = Project(Schema((Field("$there", TRUTH),)), rows, (Literal(TRUTH, True),))
        return distinct_columns(present, [0]), terms
    return _marked(distinct_columns(rows, keys)), [_by_keys(each, keys, 0) for each in terms]


def _single_values(
    rows: Relation, keys: list[int], terms: list[RowExpression], node: syntax.Expression
) -> tuple[Relation, list[RowExpression]]:
    """The value of each key's single row."""
    if any(key <= set(keys) for key in upsert_keys(rows)):
        return _marked(rows), terms
    type_ = rows.schema.types[0]
    keep = [0, *keys]
    fields = tuple(rows.schema.fields[at] for at in keep)
    narrow = Project(
        Schema(fields), rows, tuple(Column(field.type, at) for field, at in zip(fields, keep, strict=True))
    )
    groups = tuple(range(1, len(keep)))
    listed = Field("$values", ArrayType(type_.nullable()))
    call = AggregateCall("ARRAY_AGG", (0,), listed.type, listed.name)
    grouped = Aggregate(Schema((*fields[1:], listed)), narrow, groups, (call,), site=written_text(node))
    only = Call(type_.nullable(), "ELEMENT", (Column(listed.type, len(keys)),), (("of", "query"),), written_text(node))
    single = Field("$value", type_.nullable())
    columns = tuple(Column(field.type, at) for at, field in enumerate(fields[1:]))
    made = Project(Schema((single, *fields[1:])), grouped, (only, *columns))
    return _marked(made), [_by_keys(each, keys, 1) for each in terms]


def _by_keys(term: RowExpression, keys: list[int], first: int) -> RowExpression:
    """Converts a condition over rows to one over their keys."""

    def moved_part(part: RowExpression) -> RowExpression:
        if not isinstance(part, Column) or part.index >= FIRST_OUTER:
            return part
        return replace(part, index=first + keys.index(part.index))

    return transform(term, moved_part)


def _is_single(relation: Relation) -> bool:
    """Whether a relation has at most one row."""
    if isinstance(relation, Project | Filter):
        return _is_single(relation.input)
    if isinstance(relation, Aggregate):
        return not relation.groups and relation.sets is None
    if isinstance(relation, Limit):
        return relation.count is not None and relation.count <= 1
    return isinstance(relation, Values) and len(relation.rows) <= 1
