"""NOT IN over nullable values: a NULL on either side may equal anything, so rows cannot be partitioned by equal values,
and one task joins all of them."""

from __future__ import annotations

from millstream.expressions.row_expressions import Call, walk
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Join, JoinKind, Relation

__all__ = ["null_aware_note"]


def null_aware_note(relation: Relation) -> str | None:
    """The plan note about a NOT IN join without another equality to partition by; None for other relations."""
    if not isinstance(relation, Join) or relation.kind is not JoinKind.ANTI or relation.condition is None:
        return None
    if not {"OR", "IS NULL", "="} <= {part.function for part in walk(relation.condition) if isinstance(part, Call)}:
        return None
    return (
        "NOT IN of values that may be NULL: one task joins all rows. Write NOT EXISTS (SELECT 1 FROM ... WHERE ... = "
        f"...) where a NULL is to match nothing, or compare columns that are NOT NULL: {physical_line(relation)}"
    )
