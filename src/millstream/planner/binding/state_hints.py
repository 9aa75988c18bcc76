"""STATE_TTL('orders' = '1 day', …): the lifetime of a table's state since its last write, by processing time.

A hint names a table or its alias in FROM. In a join it applies to the rows of that table; in a SELECT from one table to
its groups, its distinct rows, and the state of `OVER` and Top-N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.common.options.quantities import parse_duration_ms
from millstream.errors import ConfigurationError
from millstream.planner.binding.hints import STATE_TTL
from millstream.planner.binding.scope import Scope
from millstream.planner.relations import Aggregate, Filter, Over, Project, Relation, StateHints
from millstream.sql.places import problem
from millstream.sql.query_syntax import Hint

__all__ = ["hinted_select", "state_hints"]


def state_hints(hints: Sequence[Hint], *sides: Scope) -> StateHints:
    """The durations that hints set for the inputs of a relation, "" for inputs without one."""
    lengths: dict[str, str] = {}
    for hint in hints:
        if hint.name.upper() != STATE_TTL:
            continue
        for name, length in hint.arguments:
            if name is None:
                raise problem("STATE_TTL takes 'table' = 'duration' pairs, as in STATE_TTL('t' = '1 day')", hint)
            try:
                parse_duration_ms(length)
            except ConfigurationError as error:
                raise problem(f"STATE_TTL of '{name}' is '{length}': {error.message}", hint) from None
            lengths[name] = length
    durations = tuple(_length(lengths, side) for side in sides)
    return ((STATE_TTL, durations),) if any(durations) else ()


def _length(lengths: dict[str, str], side: Scope) -> str:
    """The hinted duration for a side that is a single table; otherwise ""."""
    if len(side.sources) != 1 or not side.sources[0].path:
        return ""
    return lengths.get(side.sources[0].path[-1], "")


def hinted_select(relation: Relation, source: Relation, hints: StateHints) -> Relation:
    """Applies a SELECT's hints for the one table in FROM, `source`, to its groups and OVER calls."""
    between = _between(relation, source) if hints else None
    if between is None:
        return relation
    relation = source
    for each in reversed(between):
        changed = each.with_inputs(relation)
        relation = replace(changed, hints=hints) if isinstance(changed, Aggregate | Over) else changed
    return relation


def _between(relation: Relation, source: Relation) -> list[Relation] | None:
    """The SELECT's relations above its source, outermost first; None if other relations are among them."""
    between: list[Relation] = []
    while relation is not source:
        if not isinstance(relation, Project | Filter | Aggregate | Over):
            return None
        between.append(relation)
        relation = relation.input
    return between
