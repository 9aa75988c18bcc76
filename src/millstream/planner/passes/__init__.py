"""The optimiser's passes, in order: pure functions over the roots of a plan, one file each.

A root is a Sink; `share_subplans` merges equal relations below several roots. Schemas of roots never change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.errors import SqlError
from millstream.planner.passes.check_determinism import check_determinism
from millstream.planner.passes.check_sink import check_sink
from millstream.planner.passes.derive_expiry import derive_expiry
from millstream.planner.passes.drop_normalise import drop_normalise
from millstream.planner.passes.drop_watermarks import drop_watermarks
from millstream.planner.passes.expand_sessions import expand_sessions
from millstream.planner.passes.expand_sorts import expand_sorts
from millstream.planner.passes.fold_constants import fold_constants
from millstream.planner.passes.infer_changes import infer_changes
from millstream.planner.passes.merge_projections import merge_projections
from millstream.planner.passes.name_operators import name_operators
from millstream.planner.passes.prune_columns import prune_columns
from millstream.planner.passes.prune_fields import prune_fields
from millstream.planner.passes.push_filters import push_filters
from millstream.planner.passes.push_into_sources import push_into_sources
from millstream.planner.passes.recognise_ranks import recognise_ranks
from millstream.planner.passes.recognise_time_joins import recognise_time_joins
from millstream.planner.passes.recognise_windows import recognise_windows
from millstream.planner.passes.rewrite_sets import rewrite_sets
from millstream.planner.passes.share_subplans import share_subplans
from millstream.planner.passes.stamp_rows import stamp_rows
from millstream.planner.passes.validate_overs import validate_overs
from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession

__all__ = ["PASSES", "Pass", "optimised"]

Pass = Callable[[tuple[Sink, ...], PlannerSession], tuple[Sink, ...]]
PASSES: tuple[Pass, ...] = (
    rewrite_sets,
    share_subplans,
    fold_constants,
    push_filters,
    recognise_windows,
    recognise_ranks,  # before time-bounded joins, which depend on the inferred changes
    recognise_time_joins,
    drop_watermarks,
    push_filters,
    recognise_ranks,
    validate_overs,
    infer_changes,
    prune_columns,
    expand_sessions,
    expand_sorts,
    merge_projections,
    fold_constants,
    check_sink,
    check_determinism,
    drop_normalise,
    push_into_sources,
    prune_fields,
    share_subplans,
    stamp_rows,
    derive_expiry,
    name_operators,
)


def optimised(sinks: Sequence[Sink], session: PlannerSession) -> tuple[Sink, ...]:
    """The plan after all passes."""
    plan = tuple(sinks)
    try:
        for each in PASSES:
            plan = each(plan, session)
    except RecursionError:
        raise SqlError(
            "the plan is nested too deeply: write an intermediate result to a table, and read from that table"
        ) from None
    return plan
