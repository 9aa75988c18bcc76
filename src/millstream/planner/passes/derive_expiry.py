"""Derives an expiry for join rows that no later row can match, which bounds the join's state.

Suppose that later values of a column of one side exceed the watermark (`traits.bounds`), and that the condition
requires the column to be at most an instant in the other side's row. Then nothing matches that row once the watermark
has passed the instant. Only rows proven unneeded expire: late rows match as in a join that retains everything.

A side whose rows may be deleted is retained, because a delete must find its row. The same holds for possible matches of
rows that are also emitted unmatched (outer joins, EXISTS): the retained rows determine whether a match exists.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.row_expressions import RowExpression, columns_of
from millstream.graph.table_nodes import Expiry
from millstream.planner.passes.rewriting import conjuncts, is_deterministic, moved, rewritten
from millstream.planner.relations import Join, JoinKind, Relation, Sink
from millstream.planner.session import PlannerSession
from millstream.planner.traits.bounds import Bounds, bounded_columns
from millstream.planner.traits.times import comparison_of, time_term

__all__ = ["derive_expiry"]

_COUNTED = {
    JoinKind.LEFT: (True, False),
    JoinKind.RIGHT: (False, True),
    JoinKind.FULL: (True, True),
    JoinKind.SEMI: (True, False),
    JoinKind.ANTI: (True, False),
}
"""The sides whose matches are counted."""


def derive_expiry(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Sets the expiry of every join's rows."""
    if session.is_batch:
        return sinks

    def rule(relation: Relation) -> Relation:
        return _with_expiry(relation, session.zone) if type(relation) is Join else relation

    return rewritten(sinks, rule)


def _with_expiry(join: Join, zone: str) -> Join:
    from millstream.planner.traits.changes import GROWS, changes_of  # imports lowering, which imports passes

    if join.condition is None:
        return join
    width = len(join.left.schema)
    counted = _COUNTED.get(join.kind, (False, False))
    sides = (join.left, join.right)
    bounds = bounded_columns(join.left, zone), bounded_columns(join.right, zone)
    over_both: tuple[Bounds, Bounds] = (bounds[0], {width + column: by for column, by in bounds[1].items()})
    expiries: list[tuple[Expiry, ...]] = []
    for number, side in enumerate(sides):
        if counted[1 - number] or changes_of(side) != GROWS:
            expiries.append(())
            continue
        columns = range(width) if number == 0 else range(width, width + len(join.right.schema))
        parts = (_expiry(part, columns, over_both[1 - number]) for part in conjuncts(join.condition))
        expiries.append(tuple(dict.fromkeys(each for each in parts if each is not None)))
    return join if expiries == [(), ()] else replace(join, expiries=(expiries[0], expiries[1]))


def _expiry(part: RowExpression, columns: range, bounds: Bounds) -> Expiry | None:
    """The expiry of a row of the side with these columns, if this conjunct implies one."""
    compared = comparison_of(part)
    if compared is None:
        return None
    for each in (compared, compared.mirrored):
        term = time_term(each.left)
        if term is None or term.column not in bounds or each.function not in ("<", "<=", "="):
            continue
        used = columns_of(each.right)
        if not used or not all(column in columns for column in used) or not is_deterministic(each.right):
            continue
        moment = moved(each.right, {column: column - columns.start for column in used})
        # A later value is at least W + bound; plus the term's offset, it must be at most the instant.
        return Expiry(moment, 1 - term.offset_ms - bounds[term.column])
    return None
