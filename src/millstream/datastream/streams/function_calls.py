"""Checks, before anything runs, that a function can be called as its operator will call it.

The signature of the user's function is compared with the method of the function class. Errors are a wrong number of
arguments, the context in the record's position, `yield` where one result is expected (the generator would be that
result), and `async def` where it is not awaited. A callable without a signature, such as some built-ins, is accepted.

A function that never returns a value (a missing `return` or `yield`) is rarely intended, but can be called, so this is
only a warning.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from millstream.common.utils import arguments_misfit
from millstream.datastream.functions.asynchronous import AsyncFunction
from millstream.datastream.functions.function import Function
from millstream.datastream.streams.lost_changes import warn_of_lost_changes
from millstream.graph.notices import warn_once
from millstream.graph.site import here, refuse

__all__ = ["check_calls", "check_takes"]

_ONE_RESULT = frozenset(
    {"map", "map1", "map2", "filter", "reduce", "get_key", "partition", "create_accumulator", "add", "get_result"}
)
_SEVERAL_INSTEAD = {"map": "flat_map()", "map1": "connect(...).flat_map()", "map2": "connect(...).flat_map()"}
# It is enough if one of these emits records: the others may update state or set timers.
_SEVERAL_RESULTS = frozenset(
    {
        "flat_map", "flat_map1", "flat_map2", "process_element", "process_element1", "process_element2",
        "process_broadcast_element", "on_timer", "process", "apply",
    }
)  # fmt: skip
_CONTEXTS = ("ctx", "context")
_COLLECTORS = frozenset({"out", "collector"})  # names in Flink's Java functions


def check_calls(method: str, func: Any, function_class: type[Function]) -> None:
    """Raises ProgramError at the user's line if a method of the function cannot be called, or has an unsupported
    result."""
    for name, pattern, call in _calls(func, function_class):
        subject = f"{method}: {_shown_name(func, name)}"
        _check_arguments(subject, name, pattern, call)
        code = inspect.unwrap(call) if callable(call) else call
        # `open` and `close` of an asynchronous function may also be asynchronous: its operator awaits them.
        is_awaited = inspect.iscoroutinefunction(pattern) or issubclass(function_class, AsyncFunction)
        if inspect.iscoroutinefunction(code) and not is_awaited:
            raise refuse(f"{subject} is an async def, and would not be awaited. Use AsyncDataStream, or a plain def")
        takes_one = name in _ONE_RESULT or (name == "join" and function_class.__name__ == "JoinFunction")
        if takes_one and inspect.isgeneratorfunction(code):
            instead = f", or use {_SEVERAL_INSTEAD[name]}" if name in _SEVERAL_INSTEAD else ""
            raise refuse(f"{subject} yields, but must return exactly one result. Return the result{instead}")
        warn_of_lost_changes(method, _shown_name(func, name), call)
    _warn_if_no_results(method, func, function_class)


def _warn_if_no_results(method: str, func: Any, function_class: type[Function]) -> None:
    calls = {name: call for name, _, call in _calls(func, function_class)}
    silent = [name for name, call in calls.items() if _never_returns_value(call)]
    if "get_key" in silent:  # other single-result functions are reported when they return None
        subject = _shown_name(func, "get_key")
        warn_once(
            "no key",
            f"{method}: {subject} returns nothing, so the key of every record is None. Does it lack a return?",
            here(),
        )
    several = [name for name in calls if name in _SEVERAL_RESULTS]
    if several and all(name in silent for name in several):
        subject = _shown_name(func, several[0])
        sentence = f"{subject} neither yields nor returns anything, so it emits no records. Does it lack a yield?"
        warn_once("no results", f"{method}: {sentence}", here())


def _never_returns_value(call: Any) -> bool:
    """Whether every path through a function returns None, and it is not a generator. Lambdas are exempt, because there
    None is explicit.

    >>> def lacks_return(n): n + 1
    >>> calls = lacks_return, lambda n: n + 1, print, lambda n: None
    >>> [_never_returns_value(call) for call in calls]
    [True, False, False, False]
    """
    code = getattr(getattr(call, "__func__", call), "__code__", None)
    if (
        code is None
        or code.co_name == "<lambda>"
        or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
    ):
        return False
    steps = list(dis.get_instructions(code))
    ends = [number for number, step in enumerate(steps) if step.opname in ("RETURN_VALUE", "RETURN_CONST")]
    return bool(ends) and all(_returns_none(steps, number) for number in ends)


def _returns_none(steps: list[dis.Instruction], number: int) -> bool:
    """Whether the return at `number` returns the constant None. Python 3.12 has a separate opcode for constants."""
    step = steps[number]
    if step.opname == "RETURN_CONST":
        return step.argval is None
    before = steps[number - 1]
    return not step.is_jump_target and before.opname == "LOAD_CONST" and before.argval is None


def check_takes(method: str, func: Any, *expected: str) -> None:
    """Checks that a plain callable without a function class accepts these arguments."""
    misfit = arguments_misfit(func, expected)
    if misfit is not None:
        raise refuse(f"{method}: {_shown_name(func, '')} {misfit}")


def _calls(func: Any, function_class: type[Function]) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """(name, pattern, callable) of each method that an operator calls for records."""
    names = sorted(getattr(function_class, "__abstractmethods__", ()))
    if isinstance(func, function_class):
        for name in [*names, *_overridden(type(func), function_class)]:
            yield name, getattr(function_class, name), getattr(func, name)
    elif len(names) == 1:
        yield names[0], getattr(function_class, names[0]), func


def _overridden(kind: type, function_class: type[Function]) -> list[str]:
    """The optional methods that this function class overrides, such as `open` and `on_timer`."""
    optional = [
        name
        for name, method in inspect.getmembers(function_class, inspect.isfunction)
        if not name.startswith("_") and not getattr(method, "__isabstractmethod__", False)
    ]
    return [name for name in optional if getattr(kind, name) is not getattr(function_class, name)]


def _check_arguments(subject: str, name: str, pattern: Callable[..., Any], call: Any) -> None:
    expected = list(inspect.signature(pattern).parameters)[1:]
    misfit = arguments_misfit(call, expected)
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # some built-in callables have no signature
        return
    if misfit is not None:
        hint = ". Results are yielded" if not _COLLECTORS.isdisjoint(signature.parameters) else ""
        raise refuse(f"{subject} {misfit}{hint}")
    if _has_swapped_context(list(signature.parameters), expected):
        raise refuse(
            f"{subject} takes {signature}: the context parameter is misplaced, expected ({', '.join(expected)})"
        )


def _has_swapped_context(names: list[str], expected: list[str]) -> bool:
    """Whether the context and another argument of the pattern have swapped positions, judged by their names. Users may
    choose other parameter names, which are ignored.

    >>> _has_swapped_context(["ctx", "value"], ["value", "ctx"]), _has_swapped_context(["ctx"], ["runtime_context"])
    (True, False)
    """
    places = [(name, meant) for name, meant in zip(names, expected, strict=False) if name != meant]
    return any(meant in _CONTEXTS and name in expected for name, meant in places) and any(
        name in _CONTEXTS and meant not in _CONTEXTS for name, meant in places
    )


def _shown_name(func: Any, name: str) -> str:
    """The callable's name for messages.

    >>> _shown_name(len, "map")
    'the function len'
    """
    if isinstance(func, Function):
        return f"{type(func).__name__}.{name}()"
    own_name = getattr(func, "__name__", type(func).__name__)
    return "the lambda" if own_name == "<lambda>" else f"the function {own_name}"
