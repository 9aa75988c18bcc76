"""STATE_TTL('orders' = '1 day', …): how long rows of a join's tables are kept, by the clock since they came.

A hint names a table or its alias in FROM. One that names none of them is for another join of the query.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.common.options.quantities import parse_duration_ms
from millstream.errors import ConfigurationError
from millstream.planner.binding.scope import Scope
from millstream.sql.places import problem
from millstream.sql.query_syntax import Hint

__all__ = ["STATE_TTL", "state_hints"]

STATE_TTL = "STATE_TTL"


def state_hints(hints: Sequence[Hint], left: Scope, right: Scope) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What hints say of the two sides of a join: a length of time each, or nothing."""
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
    sides = tuple(_length(lengths, side) for side in (left, right))
    return ((STATE_TTL, sides),) if any(sides) else ()


def _length(lengths: dict[str, str], side: Scope) -> str:
    """The length for a side that is one table; "" where there is none."""
    if len(side.sources) != 1 or not side.sources[0].path:
        return ""
    return lengths.get(side.sources[0].path[-1], "")
