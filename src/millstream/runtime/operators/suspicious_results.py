"""Warns of results that are rarely intended and raise no error: a string where records are expected (its letters become
records), a filter without `return` (drops everything), a filter that returns `'no'` (drops nothing).

The checks cost nothing per record: only a function's last result in a batch is checked, since a missing `return` or
missing brackets affect every result. Each warning is logged once, and the job continues: as in Flink, all these are
valid results.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from millstream.graph.nodes import Node
from millstream.graph.notices import warn_once

__all__ = ["warn_if_all_none", "warn_if_iterated", "warn_if_not_bool"]

_PARTS: dict[type, tuple[str, str]] = {
    str: ("a string", "letters"),
    bytes: ("bytes", "numbers"),
    bytearray: ("bytes", "numbers"),
    dict: ("a dict", "keys"),
}
_SHOWN_MAX = 40


def warn_if_iterated(results: Any, node: Node, method: str) -> None:
    """Warns if `results`, returned where records are expected, is a value whose parts became records."""
    kind = _PARTS.get(type(results))
    if kind is not None:
        warn_once(
            f"parts of results of {node.uid}",
            f"the {method} function of '{node.name}' returned {kind[0]}, and its {kind[1]} became records, one by one. "
            "For one record, yield it or return it in a list: [it]",
            node.site,
        )


def warn_if_all_none(results: list[Any], node: Node, method: str, meaning: str) -> None:
    """Warns if a function returned None for every record of a batch."""
    if results and results[-1] is None and all(result is None for result in results):
        warn_once(
            f"nothing from {node.uid}",
            f"the {method} function of '{node.name}' returned None for {_records(len(results))}, which {meaning}. "
            "Does it end with a return?",
            node.site,
        )


def warn_if_not_bool(verdicts: list[Any], function: Any, node: Node) -> None:
    """Warns if a filter returned strings or functions, which count as true whatever they mean ('no', or `word.isdigit`
    without brackets). For other types Python's usual truth value applies."""
    verdict = verdicts[-1] if verdicts else None
    if isinstance(verdict, str | bytes | bytearray):
        shown = repr(verdict)
        description = f"the string {shown}" if len(shown) <= _SHOWN_MAX else f"a string ({shown[:_SHOWN_MAX]}…)"
    elif callable(verdict):
        description = f"a function that is not called ({getattr(verdict, '__name__', type(verdict).__name__)})"
    elif inspect.isgenerator(verdict):
        description = "a generator"
    else:
        return
    effect = "which is true and keeps the record" if verdict else "which is false and drops the record"
    warn_once(
        f"verdict of {node.uid}",
        f"the filter function of '{node.name}', {_shown_function(function)}, returned {description}, {effect}. Return "
        "True or False",
        node.site,
    )


def _shown_function(function: Any) -> str:
    """A function's name and source location.

    >>> _shown_function(len)
    'len'
    """
    inner = inspect.unwrap(function) if callable(function) else function
    name = getattr(inner, "__qualname__", type(inner).__name__)
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _records(count: int) -> str:
    """The record count in words.

    >>> _records(1), _records(3)
    ('a record', 'each of 3 records')
    """
    return "a record" if count == 1 else f"each of {count} records"
