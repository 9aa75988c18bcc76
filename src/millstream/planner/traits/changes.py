"""Which changes a relation gives: here +I alone. Relations whose rows change, or need other rows, say which they are.

The second half of SQL makes this a trait of all kinds (+I -U +U -D); the question stays.
"""

from __future__ import annotations

from millstream.planner.relations import (
    Aggregate,
    AsOf,
    Join,
    JoinKind,
    Match,
    Over,
    Rank,
    Relation,
    SetOperation,
    Sort,
)

__all__ = ["what_changes"]


def what_changes(relation: Relation) -> str | None:
    """What SQL calls a relation that gives or needs changes; None where its rows are only added."""
    if isinstance(relation, Aggregate):
        return "SELECT DISTINCT" if not relation.calls else "GROUP BY without a window"
    if isinstance(relation, Join):
        word = "" if relation.kind is JoinKind.INNER else f"{relation.kind.value} "
        return f"{word}JOIN"
    if isinstance(relation, SetOperation) and not (relation.kind == "UNION" and relation.all):
        return f"{relation.kind}{' ALL' if relation.all else ''}"
    if isinstance(relation, Sort):
        return "ORDER BY"
    names = {Over: "OVER", Rank: "Top-N", Match: "MATCH_RECOGNIZE", AsOf: "FOR SYSTEM_TIME AS OF"}
    return names.get(type(relation))
