"""Converts a function, as passed to the harness, to the operation by which a job would run it.

A function class determines its kind and its number of inputs; a plain callable needs `kind`. The same combinations are
rejected as in a program: a keyed function without a key, a key on one of two inputs, a broadcast function without its
states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.asynchronous import AsyncFunction, AsyncRetryStrategy
from millstream.datastream.functions.function import (
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    MapFunction,
)
from millstream.datastream.functions.process import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from millstream.datastream.streams.argument_checks import refuse
from millstream.datastream.streams.key_selection import key_selection
from millstream.datastream.time_domain import TimeDomain
from millstream.errors import NotYetError
from millstream.graph.nodes import (
    AsyncCalls,
    BroadcastProcess,
    CoFlatMap,
    CoMap,
    CoProcess,
    Edge,
    Filter,
    FlatMap,
    KeyedBroadcastProcess,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedCoProcess,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    KeyedProcess,
    Map,
    MapBatches,
    Operation,
    Partitioning,
    Process,
)
from millstream.graph.tags import SideTag

__all__ = [
    "TAGGING",
    "TWO_INPUTS",
    "AsyncSettings",
    "Kind",
    "WatchedTags",
    "harness_edges",
    "harness_operation",
    "kind_of",
]

Kind = Literal[
    "map", "flat_map", "filter", "map_batches", "process", "async", "co_map", "co_flat_map", "co_process", "broadcast"
]
Make = Callable[[Any], Operation]

_KINDS: Mapping[type, Kind] = {
    MapFunction: "map",
    FlatMapFunction: "flat_map",
    FilterFunction: "filter",
    ProcessFunction: "process",
    KeyedProcessFunction: "process",
    AsyncFunction: "async",
    CoMapFunction: "co_map",
    CoFlatMapFunction: "co_flat_map",
    CoProcessFunction: "co_process",
    KeyedCoProcessFunction: "co_process",
    BroadcastProcessFunction: "broadcast",
    KeyedBroadcastProcessFunction: "broadcast",
}
_KEYED_FUNCTIONS = (KeyedProcessFunction, KeyedCoProcessFunction, KeyedBroadcastProcessFunction)
TWO_INPUTS: tuple[Kind, ...] = ("co_map", "co_flat_map", "co_process", "broadcast")
TAGGING: tuple[Kind, ...] = ("process", "co_process", "broadcast")
_DOMAINS = (TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME)
_OPERATIONS: Mapping[Kind, Make] = {
    "map": Map,
    "flat_map": FlatMap,
    "filter": Filter,
    "map_batches": MapBatches,
    "process": Process,
    "co_map": CoMap,
    "co_flat_map": CoFlatMap,
    "co_process": CoProcess,
}
_KEYED_OPERATIONS: Mapping[Kind, Make] = {
    "map": KeyedMap,
    "flat_map": KeyedFlatMap,
    "filter": KeyedFilter,
    "process": lambda function: KeyedProcess(function, time_domains=_DOMAINS),
    "co_map": KeyedCoMap,
    "co_flat_map": KeyedCoFlatMap,
    "co_process": lambda function: KeyedCoProcess(function, time_domains=_DOMAINS),
}


@dataclass(frozen=True)
class AsyncSettings:
    """How an `AsyncFunction` is called."""

    timeout_ms: int
    capacity: int
    ordered: bool
    retry: AsyncRetryStrategy[Any] | None


def kind_of(function: Any, kind: Kind | None) -> Kind:
    """The kind of a function: from its class, or as passed."""
    if kind is not None:
        return kind
    for function_class, function_kind in _KINDS.items():
        if isinstance(function, function_class):
            return function_kind
    if isinstance(function, Function):
        raise NotYetError.of(
            f"OperatorHarness for a {type(function).__name__}", "a later version", "test it in a job, by run()"
        )
    if callable(function):
        raise refuse("OperatorHarness: a plain callable does not say what it is; pass kind='map', 'filter', …")
    raise refuse(
        f"OperatorHarness: found {function!r}, expected a function object, such as a MapFunction, a "
        "KeyedProcessFunction or an AsyncFunction, or a callable with kind="
    )


def harness_edges(
    function: Any, kind: Kind, keys: tuple[Any, Any], key_type: Any, input_types: tuple[Any, Any]
) -> tuple[Edge, ...]:
    """The operator's keyed input edges, and the broadcast one."""
    _check_keys(function, kind, keys)
    edges = tuple(
        _keyed(key, key_type, input_type, number)
        for number, (key, input_type) in enumerate(zip(keys, input_types, strict=True), start=1)
        if key is not None
    )
    return (*edges, Edge(0, Partitioning.BROADCAST, input=2)) if edges and kind == "broadcast" else edges


def _keyed(key: Any, key_type: Any, input_type: TypeInformation | None, number: int) -> Edge:
    selector, declared = key_selection(key, key_type, input_type)
    return Edge(0, Partitioning.HASH, key_selector=selector, key_type=declared, input=number)


def _check_keys(function: Any, kind: Kind, keys: tuple[Any, Any]) -> None:
    first, second = (key is not None for key in keys)
    has_two = kind in TWO_INPUTS and kind != "broadcast"
    if not first and isinstance(function, _KEYED_FUNCTIONS):
        base = next(base.__name__ for base in _KEYED_FUNCTIONS if isinstance(function, base))
        options = "key_by= and key_by2=" if has_two else "key_by="
        raise refuse(f"OperatorHarness: {type(function).__name__} is a {base} and needs a key; pass {options}")
    if has_two and first != second:
        raise refuse("OperatorHarness: one of two inputs has a key. Pass both key_by= and key_by2=, or neither")
    if second and not has_two:
        raise refuse(f"OperatorHarness: key_by2= with {function!r}, which has no second input with a key. Leave it out")
    if first and isinstance(function, BroadcastProcessFunction):
        raise refuse(
            f"OperatorHarness: {type(function).__name__} is a BroadcastProcessFunction, which has no use for a key. "
            "Leave key_by= out, or make it a KeyedBroadcastProcessFunction"
        )
    if first and (kind in ("map_batches", "async") or not isinstance(function, Function)):
        raise refuse(
            f"OperatorHarness: key_by= with {function!r}, which has no open() to ask for state in, and so no use for "
            "a key. Leave it out, or pass a function object"
        )


def harness_operation(
    function: Any, kind: Kind, keyed: bool, broadcast_states: Sequence[Any], calls: AsyncSettings
) -> Operation:
    """The operation by which a job would run the function."""
    if broadcast_states and kind != "broadcast":
        raise refuse(f"OperatorHarness: broadcast_states= with {function!r}, which is no broadcast function")
    if kind == "broadcast":
        states = tuple(broadcast_states)
        if not states:
            raise refuse(
                "OperatorHarness: a broadcast function needs its states. Pass broadcast_states=[descriptor, …], what "
                "broadcast(...) gets in the program"
            )
        if keyed:
            return KeyedBroadcastProcess(function, time_domains=_DOMAINS, states=states)
        return BroadcastProcess(function, states=states)
    if kind == "async":
        retry = calls.retry or AsyncRetryStrategy.no_restart()
        return AsyncCalls(function, calls.timeout_ms, calls.capacity, calls.ordered, retry)
    return (_KEYED_OPERATIONS if keyed else _OPERATIONS)[kind](function)


class WatchedTags:
    """Wraps a process-like function and reports the side outputs it uses."""

    _YIELDING = frozenset(
        {"process_element", "process_element1", "process_element2", "process_broadcast_element", "on_timer"}
    )

    def __init__(self, function: Any, new_tag: Callable[[SideTag], None]) -> None:
        self._function, self._new_tag = function, new_tag

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._function, name)
        if name not in self._YIELDING:
            return attribute
        return lambda *arguments: self._watched(attribute(*arguments))

    def _watched(self, results: Iterable[Any] | None) -> list[Any]:
        items = list(results or ())
        for item in items:
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], SideTag):
                self._new_tag(item[0])
        return items
