"""Rows with the session they are in: a session is known when it is over, so its rows are kept until then.

What is left of SESSION in FROM after `recognise_windows` wants the rows themselves. They are an aggregation in sessions
by the columns of PARTITION BY, of an array of all rows, which is unnested.
"""

from __future__ import annotations

from millstream.expressions.nested_types import ArrayType, RowType
from millstream.expressions.row_expressions import Call, Column
from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import (
    AggregateCall,
    Field,
    Project,
    Relation,
    Schema,
    Sink,
    TimeKind,
    Unnest,
    WindowAggregate,
    WindowAssign,
    WindowKind,
    WindowProperty,
    WindowShape,
)
from millstream.planner.session import PlannerSession

__all__ = ["expand_sessions"]


def expand_sessions(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Turn window functions of sessions into aggregations."""

    def rule(relation: Relation) -> Relation:
        is_session = isinstance(relation, WindowAssign) and relation.window.kind is WindowKind.SESSION
        return _of_rows(relation) if is_session and isinstance(relation, WindowAssign) else relation

    return rewritten(sinks, rule)


def _of_rows(relation: WindowAssign) -> Relation:
    below, window = relation.input, relation.window
    width, keys = len(below.schema), len(window.partition)
    names = [f"f{number}" for number in range(width)]
    row = RowType.of(names, list(below.schema.types), nullable=False)
    columns = tuple(Column(type_, at) for at, type_ in enumerate(below.schema.types))
    rows = Project(below.schema + Schema((Field("$row", row),)), below, (*columns, Call(row, "ROW", columns)))
    array = ArrayType(row, False)
    third = WindowProperty.TIME if window.time_kind is TimeKind.ROWTIME else WindowProperty.PROCTIME
    grouped = [below.schema.fields[at] for at in window.partition]
    bounds = relation.schema.fields[-3:]
    sessions = WindowAggregate(
        Schema((*(Field(field.name, field.type) for field in grouped), Field("$rows", array), *bounds)),
        rows,
        WindowShape(window.kind, window.time, window.size_ms, time_kind=window.time_kind),
        window.partition,
        (AggregateCall("ARRAY_AGG", (width,), array, "$rows"),),
        (WindowProperty.START, WindowProperty.END, third),
        site=relation.site,
    )
    elements = tuple(Field(name, type_) for name, type_ in zip(names, below.schema.types, strict=True))
    each = Unnest(sessions.schema + Schema(elements), sessions, Column(array, keys))
    first = len(sessions.schema)
    chosen = [*range(first, first + width), *range(keys + 1, keys + 4)]
    schema = Schema(
        (*(Field(field.name, field.type) for field in relation.schema.fields[:width]), *relation.schema.fields[width:])
    )
    return Project(schema, each, tuple(Column(each.schema.types[at], at) for at in chosen))
