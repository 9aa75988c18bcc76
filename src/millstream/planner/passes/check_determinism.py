"""Rejects nondeterministic functions whose rows may be deleted later: a delete must equal the inserted row.

Follows Flink's analysis of non-deterministic updates, with its option: IGNORE runs the query regardless.
"""

from __future__ import annotations

from millstream.common.options import read
from millstream.common.options.table_options import UNSTEADY_UPDATES
from millstream.errors import SqlError
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Correlate, Filter, Limit, Project, Relation, SetOperation, Sink, Unnest
from millstream.planner.session import PlannerSession
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.traits.determinism import changing_columns, is_unsteady
from millstream.sql.places import problem

__all__ = ["check_determinism", "check_steady"]

_ROW_BY_ROW = (Project, Limit, SetOperation, Correlate, Unnest, Sink)


def check_determinism(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Rejects plans in which a delete may differ from the inserted row."""
    for relation in relations_of(sinks):
        if not isinstance(relation, _ROW_BY_ROW):
            check_steady(relation, session)
    return sinks


def check_steady(relation: Relation, session: PlannerSession) -> None:
    """Rejects a relation that stores, counts or chooses rows whose deletes may differ from their inserts."""
    if read(UNSTEADY_UPDATES, session.config) == "ignore" or session.is_batch:
        return
    for below in relation.inputs:
        columns = changing_columns(below)
        if isinstance(relation, Filter):
            if changes_of(below) != GROWS and is_unsteady(relation.condition, columns):
                raise _refusal("The condition", relation, below)
        elif columns:
            names = ", ".join(below.schema.names[at] for at in sorted(columns))
            raise _refusal(f"The column(s): {names}", relation, below)


def _refusal(subject: str, relation: Relation, below: Relation) -> SqlError:
    return problem(
        f"{subject} can not satisfy the determinism requirement for correctly processing update message('UB'/'UA'/'D' "
        f"in changelogMode) of {physical_line(relation)}: a delete would not equal the inserted row. "
        "Compute it before the rows change, or after the last operator that stores rows; or, if a wrong result "
        f"is acceptable, SET '{UNSTEADY_UPDATES.key}' = 'IGNORE'",
        getattr(relation.site or below.site, "span", None),
    )
