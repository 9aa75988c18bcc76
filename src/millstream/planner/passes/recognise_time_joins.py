"""Recognises time-bounded joins by their condition: an interval between two rows' times, or one window for both.

Both tables must be append-only. The rows of such joins retain their time attributes; those of any other join do not.
Until this pass the columns of joins still carry time attributes. It removes the invalid ones, and rejects relations
that then lack a required one, with Flink's messages.
"""

from __future__ import annotations

from dataclasses import fields as fields_of
from dataclasses import replace

from millstream.expressions.row_expressions import Column
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.recognise_windows import in_windows
from millstream.planner.passes.rewriting import rewritten_knowing
from millstream.planner.relations import (
    Field,
    Join,
    JoinKind,
    Match,
    Project,
    Relation,
    Schema,
    SetOperation,
    Sink,
    TimeKind,
    WindowAggregate,
    WindowAssign,
)
from millstream.planner.session import PlannerSession
from millstream.planner.time_joins import IntervalJoin, TemporalJoin, WindowJoin
from millstream.planner.traits.intervals import interval_of, is_in_one_window
from millstream.planner.traits.same_columns import SAME_COLUMNS
from millstream.sql.places import problem

__all__ = ["recognise_time_joins"]

_SAME_COLUMNS = (*SAME_COLUMNS, Match, TemporalJoin)
"""Relations whose first columns are those of their input."""


def recognise_time_joins(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Recognises time-bounded joins, and removes the time attributes of all other joins."""

    from millstream.planner.passes.recognise_ranks import rank_in_windows  # imports changes, which imports passes

    def rule(old: Relation, new: Relation) -> Relation:
        if type(new) is Join:
            return _join(new, is_batch=session.is_batch)
        if isinstance(new, TemporalJoin):
            _check_temporal(new)
        timed = _retimed(old, new)
        _check_window(old, timed)
        return in_windows(rank_in_windows(timed, is_batch=session.is_batch))

    return rewritten_knowing(sinks, rule)


def _join(join: Join, *, is_batch: bool) -> Join:
    from millstream.planner.traits.changes import GROWS, changes_of  # imports lowering, which imports passes

    only_grow = all(changes_of(side) == GROWS for side in join.inputs)
    kind: type[Join] = Join
    if only_grow and is_in_one_window(join):
        kind = WindowJoin
    elif (only_grow or is_batch) and join.kind not in (JoinKind.SEMI, JoinKind.ANTI) and interval_of(join) is not None:
        kind = IntervalJoin
    inputs = (*join.left.schema.fields, *join.right.schema.fields)
    times = [each.time if kind is not Join else None for each in inputs]
    fields = tuple(
        replace(field, time=time if field.time is time else None)
        for field, time in zip(join.schema.fields, times, strict=False)
    )
    values = {each.name: getattr(join, each.name) for each in fields_of(join)}
    return kind(**{**values, "schema": Schema(fields)})


def _check_temporal(join: TemporalJoin) -> None:
    from millstream.planner.traits.changes import GROWS, changes_of

    if changes_of(join.left) != GROWS:
        raise not_yet("a temporal join whose left table changes", getattr(join.site, "span", None))


def _retimed(old: Relation, new: Relation) -> Relation:
    """The relation without the time attributes that its inputs have lost."""
    if old is new or not new.inputs:
        return new
    below = new.inputs[0].schema.fields
    previous = old.inputs[0].schema.fields
    if isinstance(new, Project):
        made = [
            _without(field, below[each.index].time if isinstance(each, Column) else field.time)
            for field, each in zip(new.schema.fields, new.expressions, strict=True)
        ]
    elif isinstance(new, SetOperation):
        made = [
            _without(field, field.time if all(each.schema.fields[at].time for each in new.inputs) else None)
            for at, field in enumerate(new.schema.fields)
        ]
    elif isinstance(new, _SAME_COLUMNS):
        first = [
            field if previous[at].time is below[at].time else replace(field, time=None)
            for at, field in enumerate(new.schema.fields[: len(below)])
        ]
        made = [*first, *new.schema.fields[len(below) :]]
    else:
        return new
    schema = Schema(tuple(made))
    return new if schema == new.schema else replace(new, schema=schema)


def _without(field: Field, time: TimeKind | None) -> Field:
    return field if field.time is None or time is not None else replace(field, time=None)


def _check_window(old: Relation, relation: Relation) -> None:
    """Rejects a window over a column that is no longer a time attribute."""
    if not isinstance(relation, WindowAssign | WindowAggregate) or old is relation:
        return
    field = relation.input.schema.fields[relation.window.time]
    if field.time is None and old.inputs[0].schema.fields[relation.window.time].time is not None:
        raise problem(
            f"The window function requires the timecol is a time attribute type, but is {field.type}: "
            f"'{field.name}' comes from a join that drops it. Bound the times of both tables in the join's condition "
            "(a BETWEEN b - INTERVAL … AND b + INTERVAL …), or join in windows",
            getattr(relation.site, "span", None),
        )
