"""STATE_TTL('orders' = '1 day', …): how long state of a table's rows is kept, by the clock since it was last written.

A hint names a table or its alias in FROM. Of a join it is about the rows of that table; of a SELECT from one table it
is about its groups, its distinct rows, and what `OVER` and Top-N keep.
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
    """What hints say of the inputs of a relation: a length of time each, or nothing."""
    lengths: dict[str, str] = {}
    for hint in hints:
        if hint.name.upper() != STATE_TTL:
            continue
        for name, length in hint.arguments:
            if name is None:
                raise problem("STATE_TTL takes 'table' = 'length of time' pairs, as in STATE_TTL('t' = '1 day')", hint)
            try:
                parse_duration_ms(length)
            except ConfigurationError as error:
                raise problem(f"STATE_TTL of '{name}' is '{length}': {error.message}", hint) from None
            lengths[name] = length
    found = tuple(_length(lengths, side) for side in sides)
    return ((STATE_TTL, found),) if any(found) else ()


def _length(lengths: dict[str, str], side: Scope) -> str:
    """The length for a side that is one table; "" where there is none."""
    if len(side.sources) != 1 or not side.sources[0].path:
        return ""
    return lengths.get(side.sources[0].path[-1], "")


def hinted_select(relation: Relation, source: Relation, hints: StateHints) -> Relation:
    """The rows of a SELECT with what its hints say of the one table in FROM, `source`: of groups and of OVER."""
    between = _between(relation, source) if hints else None
    if between is None:
        return relation
    relation = source
    for each in reversed(between):
        changed = each.with_inputs(relation)
        relation = replace(changed, hints=hints) if isinstance(changed, Aggregate | Over) else changed
    return relation


def _between(relation: Relation, source: Relation) -> list[Relation] | None:
    """What a SELECT put over its source, outermost first; None where something else is among it."""
    found: list[Relation] = []
    while relation is not source:
        if not isinstance(relation, Project | Filter | Aggregate | Over):
            return None
        found.append(relation)
        relation = relation.input
    return found
