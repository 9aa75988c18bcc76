"""Lowers time-bounded joins. Both sides are partitioned by key, as in regular joins."""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.row_expressions import Call
from millstream.graph.join_nodes import IntervalPairs, StampRows, TemporalPairs, WindowPairs
from millstream.planner.lowering.context import Lowered, Lowering
from millstream.planner.lowering.joins import JoinKeys, join_keys, lower_two_sides
from millstream.planner.passes.rewriting import conjunction, conjuncts
from millstream.planner.relations import TimeKind
from millstream.planner.time_joins import IntervalJoin, Stamp, TemporalJoin, WindowJoin
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.traits.intervals import interval_of, version_of
from millstream.sql.places import problem

__all__ = ["lower_interval_join", "lower_stamp", "lower_temporal_join", "lower_window_join"]


def lower_interval_join(relation: IntervalJoin, context: Lowering) -> Lowered:
    interval = interval_of(relation)
    assert interval is not None, "the condition of an interval join no longer bounds times"
    parts = conjuncts(relation.condition) if relation.condition is not None else []
    keys = join_keys(replace(relation, condition=conjunction([part for part in parts if part not in interval.parts])))
    return lower_two_sides(
        relation,
        keys,
        "IntervalJoin",
        lambda rows: IntervalPairs(
            relation.kind.value,
            rows,
            keys.rest,
            session=context.table_session,
            times=interval.times if interval.kind is TimeKind.ROWTIME else None,
            lower_ms=interval.lower_ms,
            upper_ms=interval.upper_ms,
        ),
        context,
    )


def lower_window_join(relation: WindowJoin, context: Lowering) -> Lowered:
    keys = join_keys(relation)
    return lower_two_sides(
        relation,
        keys,
        "WindowJoin",
        lambda rows: WindowPairs(relation.kind.value, rows, keys.rest, session=context.table_session),
        context,
    )


def lower_temporal_join(relation: TemporalJoin, context: Lowering) -> Lowered:
    times, version_part = version_of(relation)
    parts = conjuncts(relation.condition) if relation.condition is not None else []
    keys = join_keys(replace(relation, condition=conjunction([part for part in parts if part is not version_part])))
    _check_keys(keys, relation)
    is_batch = context.session.is_batch
    return lower_two_sides(
        relation,
        keys,
        "TemporalJoin",
        lambda rows: TemporalPairs(
            relation.kind.value,
            rows,
            keys.rest,
            (False, changes_of(relation.right, is_batch=is_batch) != GROWS),
            context.table_session,
            times,
        ),
        context,
    )


def _check_keys(keys: JoinKeys, relation: TemporalJoin) -> None:
    """Rejects a join without the whole version key: versions of different keys would replace each other."""
    for part in conjuncts(keys.rest) if keys.rest is not None else ():
        if isinstance(part, Call) and part.function == "=":
            left, right = part.arguments
            raise problem(
                f"A temporal join looks versions up by key, which {left.type} = {right.type} does not allow. Compare "
                "columns of one groupable type",
                getattr(relation.site, "span", None),
            )


def lower_stamp(relation: Stamp, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    return context.added(StampRows(relation.column), "StampRows", rows.nodes, rows.row_type)
