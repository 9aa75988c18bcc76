"""NOT IN of values that may be NULL: a NULL on either side might be equal to anything, so rows cannot be brought
together by what is equal, and one task joins them all."""

from __future__ import annotations

from millstream.expressions.row_expressions import Call, walk
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Join, JoinKind, Relation

__all__ = ["null_aware_note"]


def null_aware_note(relation: Relation) -> str | None:
    """What is reported of such a join, where nothing else brings its rows together; None for other relations."""
    if not isinstance(relation, Join) or relation.kind is not JoinKind.ANTI or relation.condition is None:
        return None
    if not {"OR", "IS NULL", "="} <= {part.function for part in walk(relation.condition) if isinstance(part, Call)}:
        return None
    return (
        "NOT IN of values that may be NULL: one task joins all rows. Write NOT EXISTS (SELECT 1 FROM ... WHERE ... = "
        f"...) where a NULL is to match nothing, or compare columns that are NOT NULL: {physical_line(relation)}"
    )
