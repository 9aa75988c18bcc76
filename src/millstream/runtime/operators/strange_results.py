"""Results that are hardly ever meant, and that no error would tell of: a text where records are expected gives its
letters, a filter without `return` drops everything, one that returns `'no'` drops nothing.

No record pays for it. A function's last result is at hand when a batch is done, and that one is looked at: who forgets
a `return`, or the brackets of a list, forgets them every time. It is said once, and the job goes on: as in Flink, all
these are results.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from millstream.graph.nodes import Node
from millstream.graph.notices import warn_once

__all__ = ["warn_of_nothing", "warn_of_parts", "warn_of_verdict"]

_PARTS: dict[type, tuple[str, str]] = {
    str: ("a text", "letters"),
    bytes: ("bytes", "numbers"),
    bytearray: ("bytes", "numbers"),
    dict: ("a dict", "keys"),
}
_SHOWN_MAX = 40


def warn_of_parts(results: Any, node: Node, method: str) -> None:
    """`results`: what a function returned where records are taken out one by one. Say it if its parts were."""
    kind = _PARTS.get(type(results))
    if kind is not None:
        warn_once(
            f"parts of results of {node.uid}",
            f"the {method} function of '{node.name}' returned {kind[0]}, and its {kind[1]} became records, one by one. "
            "For one record, yield it or return it in a list: [it]",
            node.site,
        )


def warn_of_nothing(results: list[Any], node: Node, method: str, meaning: str) -> None:
    """`results`: what a function returned for each record of a batch. Say it if that was nothing but None."""
    if results and results[-1] is None and all(result is None for result in results):
        warn_once(
            f"nothing from {node.uid}",
            f"the {method} function of '{node.name}' returned None for {_records(len(results))}, which {meaning}. "
            "Does it end with a return?",
            node.site,
        )


def warn_of_verdict(verdicts: list[Any], function: Any, node: Node) -> None:
    """`verdicts`: what a filter returned for each record of a batch. Texts and functions count as true whatever they
    say ('no', or `word.isdigit` without brackets). Other values that are no bool are Python's usual truth."""
    verdict = verdicts[-1] if verdicts else None
    if isinstance(verdict, str | bytes | bytearray):
        shown = repr(verdict)
        found = f"the text {shown}" if len(shown) <= _SHOWN_MAX else f"a text ({shown[:_SHOWN_MAX]}…)"
    elif callable(verdict):
        found = f"a function that nobody calls ({getattr(verdict, '__name__', type(verdict).__name__)})"
    elif inspect.isgenerator(verdict):
        found = "a generator"
    else:
        return
    effect = "which is true and keeps the record" if verdict else "which is false and drops the record"
    warn_once(
        f"verdict of {node.uid}",
        f"the filter function of '{node.name}', {_shown_function(function)}, returned {found}, {effect}. Return True "
        "or False",
        node.site,
    )


def _shown_function(function: Any) -> str:
    """A function by its name and place.

    >>> _shown_function(len)
    'len'
    """
    inner = inspect.unwrap(function) if callable(function) else function
    name = getattr(inner, "__qualname__", type(inner).__name__)
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _records(count: int) -> str:
    """How many records, in words.

    >>> _records(1), _records(3)
    ('a record', 'each of 3 records')
    """
    return "a record" if count == 1 else f"each of {count} records"
