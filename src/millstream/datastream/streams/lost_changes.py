"""Detects functions that change a variable of the program without effect. Functions run in task processes on copies, so
a counter at the top of the program remains 0 where the program reads it.

The analysis reads bytecode. It reports only changes that cannot be intended for the tasks themselves: adding to a
variable (`counter += 1`, `counts[word] += 1`), or adding to a collection that the function does not read
(`seen.append(word)`). A variable that is filled once and read afterwards is a cache, and is ignored. Variables of
imported modules are also ignored, because they are more likely caches than results.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any

from millstream.graph.notices import warn_once
from millstream.graph.site import here

__all__ = ["lost_changes", "warn_of_lost_changes"]

_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"})
_STORES = frozenset({"STORE_GLOBAL", "STORE_DEREF"})
_ADDING_METHODS = frozenset({"append", "extend", "add", "update", "insert", "appendleft"})
_METHOD_READS = frozenset({"LOAD_METHOD", "LOAD_ATTR"})


def warn_of_lost_changes(method: str, subject: str, call: Any) -> None:
    """Warns once if a function changes variables of the program without effect."""
    names = lost_changes(call)
    if not names:
        return
    listed = ", ".join(repr(name) for name in names)
    warn_once(
        f"lost changes of {listed}",
        f"{method}: {subject} changes {listed}, and functions run on copies in the processes of tasks: the program's "
        f"own {listed} remains unchanged. Count with a metric (runtime_context.get_metrics_group().counter(...)), use "
        "state, or read results from execute_and_collect()",
        here(),
    )


def lost_changes(call: Any) -> list[str]:
    """The outer variables to which a function adds, in copies that are invisible to the program.

    >>> def counter():
    ...     seen = []
    ...     return lambda word: seen.append(word)
    >>> lost_changes(counter()), lost_changes(len)
    (['seen'], [])
    """
    function = inspect.unwrap(getattr(call, "__func__", call)) if callable(call) else call
    if not isinstance(function, FunctionType):
        return []
    outer = set(function.__code__.co_freevars)
    if function.__globals__.get("__name__") == "__main__":
        outer |= {name for name in function.__globals__ if not name.startswith("__")}
    return [name for name in dict.fromkeys(_changed(function.__code__)) if name in outer]


def _changed(code: CodeType) -> Iterator[str]:
    """The names to which code, or code nested in it, adds."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG")]
    yield from _reassigned(steps)
    yield from _elements_changed(steps)
    yield from _only_filled(steps)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _changed(constant)


def _is_operation(step: dis.Instruction) -> bool:
    is_subscript = step.opname in ("BINARY_SUBSCR", "BINARY_SLICE") or step.argrepr == "[]"  # as in Python 3.14
    return step.opname.startswith(("BINARY_", "INPLACE_")) and not is_subscript


def _reassigned(steps: list[dis.Instruction]) -> Iterator[str]:
    """Detects `counter += 1`, `counter = counter + 1`: an operation's result is stored in a name that the code also
    reads."""
    read = {step.argval for step in steps if step.opname in _READS}
    for before, step in pairwise(steps):
        if step.opname in _STORES and _is_operation(before) and step.argval in read:
            yield step.argval


def _elements_changed(steps: list[dis.Instruction]) -> Iterator[str]:
    """Detects `counts[word] += 1`: container and key are copied twice, the element is read, changed and stored."""
    for place, step in enumerate(steps):
        if step.opname != "STORE_SUBSCR" or not any(map(_is_operation, steps[max(0, place - 3) : place])):
            continue
        copied = [at for at in range(place) if steps[at].opname in ("COPY", "DUP_TOP_TWO")]
        if copied:
            loads = [each for each in steps[: copied[-1]] if each.opname.startswith("LOAD_")]
            line = [each for each in loads if each.opname in _READS and each.positions.lineno == step.positions.lineno]  # type: ignore[union-attr]
            yield from (each.argval for each in line[:1])


def _only_filled(steps: list[dis.Instruction]) -> Iterator[str]:
    """Detects `seen.append(word)`, if the collection is not used otherwise."""
    filled: dict[str, bool] = {}
    for step, after in pairwise(steps):
        if step.opname in _READS:
            is_filling = after.opname in _METHOD_READS and after.argval in _ADDING_METHODS
            filled[step.argval] = filled.get(step.argval, True) and is_filling
    yield from (name for name, only in filled.items() if only)
