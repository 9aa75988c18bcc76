"""FIRST_VALUE and LAST_VALUE of rows that an operator before them computes: told when a job starts.

Which value is first goes by the order in which rows come. Of a source that is its own order. What an operator computes
comes when an epoch ends, and is what is net of it: a row that was there in between is not seen. So which value came
first is told by where epochs were cut, and the same input may have another answer. Of a column's order it has one.
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

__all__ = ["tell_arrival_order"]

_ROW_BY_ROW = (Correlate, Filter, FromChangelog, Project, ToChangelog, Unnest, WatermarkAssign, WindowAssign)


def tell_arrival_order(relation: Aggregate, session: PlannerSession) -> None:
    """Warn of an aggregate that goes by the order of rows which have none of their own."""
    names = sorted({call.function for call in relation.calls} & {"FIRST_VALUE", "LAST_VALUE"})
    if names and not session.is_batch and not _has_order(relation.input):
        warn_once(
            f"arrival order of {relation.uid}",
            f"{' and '.join(names)} of rows that another operator computes: they come when an epoch ends, as what is "
            "net of it, so which came first depends on where epochs are cut. Choose by a column instead, as "
            f"ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) = 1 does: {physical_line(relation)}",
            here(),
        )


def _has_order(relation: Relation) -> bool:
    """Whether rows come as their source gives them."""
    while isinstance(relation, _ROW_BY_ROW):
        relation = relation.input
    return isinstance(relation, Scan | Values)
