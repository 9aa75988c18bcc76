"""Hints, `/*+ NAME(…) */`: their names, where each is allowed, and which tables they may name.

Unknown hints are rejected: if ignored, a misspelt OPTIONS would read another topic, and a misspelt STATE_TTL would
retain state without limit. Join hints (BROADCAST and similar) address Flink's batch planner; they are checked here but
have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millstream.errors import did_you_mean
from millstream.planner.binding.scope import Scope
from millstream.planner.entries import Options
from millstream.sql.places import problem
from millstream.sql.query_syntax import Hint

__all__ = ["LOOKUP", "STATE_TTL", "check_select_hints", "hinted_options"]

LOOKUP = "LOOKUP"
STATE_TTL = "STATE_TTL"
_OPTIONS = "OPTIONS"
_JOINS = ("BROADCAST", "MULTI_JOIN", "NEST_LOOP", "SHUFFLE_HASH", "SHUFFLE_MERGE")
_OF_SELECT = (*_JOINS, LOOKUP, STATE_TTL)


def hinted_options(hints: Sequence[Hint]) -> Options:
    """The options of OPTIONS hints after a table's name."""
    for hint in hints:
        name = hint.name.upper()
        if name in _OF_SELECT:
            raise problem(f"write the hint {name} after SELECT, not after a table: SELECT /*+ {name}(…) */ …", hint)
        _check_name(hint, (_OPTIONS,))
        if any(key is None for key, _ in hint.arguments):
            raise problem("OPTIONS takes 'key' = 'value' pairs", hint)
    return tuple((str(key), value) for hint in hints for key, value in hint.arguments)


def check_select_hints(hints: Sequence[Hint], scope: Scope) -> None:
    """Rejects unknown hints after SELECT, and hints that do not name a table of FROM."""
    names = [source.path[-1] for source in scope.sources if source.path]
    for hint in hints:
        if hint.name.upper() == _OPTIONS:
            raise problem(
                "write the hint OPTIONS after a table's name, not after SELECT: FROM t /*+ OPTIONS(…) */", hint
            )
        _check_name(hint, _OF_SELECT)
        for name in _tables(hint):
            if name not in names:
                there = f"there {'is' if len(names) == 1 else 'are'} {', '.join(names)}" if names else "it has no names"
                raise problem(
                    f"{hint.name.upper()} names '{name}', and FROM has no table or alias of that name: {there}."
                    f"{did_you_mean(name, names)} For a subquery, write the hint after its own SELECT",
                    hint,
                )


def _check_name(hint: Hint, known: Sequence[str]) -> None:
    if hint.name.upper() not in known:
        near = did_you_mean(hint.name.upper(), (*_OF_SELECT, _OPTIONS))
        raise problem(f"the hint '{hint.name}' does not exist here.{near} There {_listed(known)}", hint)


def _listed(names: Sequence[str]) -> str:
    return f"{'is' if len(names) == 1 else 'are'}: {', '.join(names)}"


def _tables(hint: Hint) -> Iterator[str]:
    """The table names or aliases in a hint after SELECT."""
    name = hint.name.upper()
    for key, value in hint.arguments:
        if name == STATE_TTL and key is not None:
            yield key
        elif name == LOOKUP and key is not None and key.lower() == "table":
            yield value
        elif name in _JOINS and key is None:
            yield value.rpartition(".")[2]
