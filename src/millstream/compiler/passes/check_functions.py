"""Rejects functions that cannot be pickled, and names the object that they captured.

Functions are sent to tasks with cloudpickle. Its error names a nested type ("cannot pickle '_thread.lock' object"), not
the variable that holds it. This pass therefore tries the captured variables, defaults and attributes of the function
one by one, and names the first that fails.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import cloudpickle

from millstream.errors import ProgramError
from millstream.graph.nodes import AsyncCalls, Graph, Node, Read, Window, Write

__all__ = ["check_functions", "packed", "travelled", "unpacked"]

_DEPTH_MAX = 4


def check_functions(graph: Graph) -> Graph:
    """Returns the graph unchanged, or raises a ProgramError that names the operator and the captured object."""
    for node in graph.nodes:
        for part in _parts(node):
            if not _is_picklable(part):
                raise ProgramError(_sentence(node, part), at=str(node.site))
    return graph


def travelled(value: Any) -> Any:
    """The copy of `value` that a task would receive; raises a ProgramError that names the part that cannot be pickled.

    >>> travelled([1, 2])
    [1, 2]
    """
    return unpacked(packed(value))


def unpacked(data: bytes) -> Any:
    """Deserialises a value that another process of this program serialised with `packed`."""
    return cloudpickle.loads(data)


def packed(value: Any) -> bytes:
    """Serialises `value` for tasks; raises a ProgramError that names the part that cannot be pickled."""
    try:
        data: bytes = cloudpickle.dumps(value)
        return data
    except Exception as error:
        path, culprit = _culprit(value, "", 0)
        kind = f"{type(culprit).__module__}.{type(culprit).__qualname__}"
        raise ProgramError(
            f"{type(value).__name__} cannot be sent to a task: {path or 'it'} ({kind}) cannot be pickled ({error}). "
            "Store settings in it, and open connections in tasks"
        ) from error


def _parts(node: Node) -> Iterator[Any]:
    """A node's user code. Built-in sources and sinks are included, since they hold users' values."""
    operation = node.operation
    if isinstance(operation, Read):
        yield operation.source
        yield operation.watermarks
    elif isinstance(operation, Write):
        yield operation.sink
    else:
        yield getattr(operation, "function", operation)
    if isinstance(operation, Window):
        yield from (operation.assigner, operation.trigger, operation.evictor, operation.reduce, operation.aggregate)
    if isinstance(operation, AsyncCalls):
        yield operation.retry
    for edge in node.inputs:
        yield edge.key_selector
        yield edge.partitioner


def _is_picklable(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _sentence(node: Node, part: Any) -> str:
    path, culprit = _culprit(part, "", 0)
    what = f"{path} ({type(culprit).__module__}.{type(culprit).__qualname__})" if path else repr(part)
    return (
        f"the function of '{node.name}' cannot be sent to a task: it holds {what}, which cannot be pickled. "
        "Create it in open() of a function class, so that every task makes its own"
    )


def _culprit(value: Any, path: str, depth: int) -> tuple[str, Any]:
    """The innermost named object inside `value` that cannot be pickled."""
    if depth < _DEPTH_MAX:
        for name, inner in _members(value):
            if not _is_picklable(inner):
                return _culprit(inner, f"{path}.{name}" if path else f"'{name}'", depth + 1)
    return path, value


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """Named objects that are pickled together with `value`."""
    if isinstance(value, functools.partial):
        yield "func", value.func
        yield from ((f"args[{i}]", item) for i, item in enumerate(value.args))
        yield from value.keywords.items()
    elif inspect.ismethod(value):
        yield "self", value.__self__
    elif inspect.isfunction(value):
        captured = inspect.getclosurevars(value)
        yield from captured.nonlocals.items()
        yield from captured.globals.items()
        yield from ((f"default {i}", item) for i, item in enumerate(value.__defaults__ or ()))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    else:
        yield from getattr(value, "__dict__", {}).items()
