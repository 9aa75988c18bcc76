"""Warns at job start if FIRST_VALUE or LAST_VALUE depends on the arrival order of another operator's results.

The first value is the first to arrive. A source's rows arrive in its order. A stateful operator emits its net changes
at the end of an epoch, without intermediate rows. Which of its results arrives first therefore depends on epoch
boundaries, so the same input may yield different answers. Ordering by a column is deterministic.
"""

from __future__ import annotations

from millstream.graph.notices import warn_once
from millstream.graph.site import here
from millstream.planner.changing_relations import FromChangelog, ToChangelog
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import (
    Aggregate,
    Correlate,
    Filter,
    Project,
    Relation,
    Scan,
    Unnest,
    Values,
    WatermarkAssign,
    WindowAssign,
)
from millstream.planner.session import PlannerSession

__all__ = ["warn_about_arrival_order"]

_ROW_BY_ROW = (Correlate, Filter, FromChangelog, Project, ToChangelog, Unnest, WatermarkAssign, WindowAssign)


def warn_about_arrival_order(relation: Aggregate, session: PlannerSession) -> None:
    """Warns about an aggregate that depends on the order of rows without a defined order."""
    names = sorted({call.function for call in relation.calls} & {"FIRST_VALUE", "LAST_VALUE"})
    if names and not session.is_batch and not _has_order(relation.input):
        warn_once(
            f"arrival order of {relation.uid}",
            f"{' and '.join(names)} of another operator's results: they arrive as net changes at the end of an epoch, "
            "so the first to arrive depends on where epochs are cut. Order by a column instead, as "
            f"ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) = 1 does: {physical_line(relation)}",
            here(),
        )


def _has_order(relation: Relation) -> bool:
    """Whether rows arrive in the order of their source."""
    while isinstance(relation, _ROW_BY_ROW):
        relation = relation.input
    return isinstance(relation, Scan | Values)
