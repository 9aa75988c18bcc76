"""Drops watermarks without a consumer: their column need not be read, and filters can be pushed to the source.

Consumers of event time are windows over it, CURRENT_WATERMARK, streams of the program, tables that store the rowtime,
and tables archived by time.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.connectors.tables.state_table import ARCHIVE_BY
from millstream.expressions.row_expressions import Call, RowExpression, walk
from millstream.planner.entries import TableEntry
from millstream.planner.passes.rewriting import relations_of, rewritten_knowing
from millstream.planner.relations import (
    Correlate,
    Filter,
    Limit,
    Project,
    Relation,
    Scan,
    Schema,
    SetOperation,
    Sink,
    TimeKind,
    Unnest,
    Values,
    WatermarkAssign,
    WindowAggregate,
    WindowAssign,
)
from millstream.planner.session import PlannerSession

__all__ = ["drop_watermarks"]

_PASSING_ON = (Project, Filter, WatermarkAssign, Unnest, Correlate, Limit, SetOperation, Scan, Values)
"""Relations that pass event time on without using it; any other is assumed to use it."""


def drop_watermarks(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Drops unused watermarks."""
    needed: set[int] = set()
    for relation in reversed(list(relations_of(sinks))):
        if _uses_event_time(relation) or (id(relation) in needed):
            needed |= {id(each) for each in relation.inputs}

    def rule(old: Relation, new: Relation) -> Relation:
        if isinstance(new, WatermarkAssign):
            return new if id(old) in needed else new.input
        return _plain(new)

    return rewritten_knowing(sinks, rule)


def _uses_event_time(relation: Relation) -> bool:
    if isinstance(relation, Sink):
        has_rowtime = any(field.time is TimeKind.ROWTIME for field in relation.input.schema.fields)
        is_table = isinstance(relation.target, TableEntry) or getattr(relation.target, "kind", "") == "collect"
        return has_rowtime or not is_table or _is_archived_by_time(relation.target)
    if isinstance(relation, WindowAggregate | WindowAssign):
        return relation.window.time_kind is TimeKind.ROWTIME
    if not isinstance(relation, _PASSING_ON):
        return True
    return any(_reads_watermark(each) for each in _expressions(relation))


def _is_archived_by_time(target: object) -> bool:
    """Whether a table's rows are moved out of the state once event time has passed them."""
    return isinstance(target, TableEntry) and ARCHIVE_BY in dict(target.options)


def _expressions(relation: Relation) -> tuple[RowExpression, ...]:
    if isinstance(relation, Project):
        return relation.expressions
    return (relation.condition,) if isinstance(relation, Filter) else ()


def _reads_watermark(expression: RowExpression) -> bool:
    return any(isinstance(part, Call) and part.function == "CURRENT_WATERMARK" for part in walk(expression))


def _plain(relation: Relation) -> Relation:
    """The relation without the time attributes that its input lost."""
    if not isinstance(relation, _PASSING_ON) or isinstance(relation, WatermarkAssign) or not relation.inputs:
        return relation
    if any(field.time is TimeKind.ROWTIME for each in relation.inputs for field in each.schema.fields):
        return relation
    fields = tuple(
        replace(field, time=None) if field.time is TimeKind.ROWTIME else field for field in relation.schema.fields
    )
    return relation if fields == relation.schema.fields else replace(relation, schema=Schema(fields))
