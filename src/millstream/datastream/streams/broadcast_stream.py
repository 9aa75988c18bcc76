"""A stream whose records reach every subtask and are stored there as state, for another stream to read.

Like a connection, neither class here is an operator: `process` creates one. The descriptors passed to `broadcast`
declare the states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.process import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.streams.argument_checks import checked_function, checked_output_type, refuse
from millstream.datastream.streams.connected_streams import connected_environment, second_input
from millstream.datastream.streams.keyed_stream import KeyedStream
from millstream.datastream.streams.missing_names import MissingNameHints
from millstream.datastream.streams.stream import DataStream
from millstream.datastream.time_domain import TimeDomain
from millstream.graph.nodes import BroadcastProcess, Edge, KeyedBroadcastProcess, Operation
from millstream.graph.site import here, refuse_type

if TYPE_CHECKING:
    from millstream.datastream.functions.function import Function

__all__ = ["BroadcastConnectedStream", "BroadcastStream"]


class BroadcastStream(MissingNameHints):
    """The result of `DataStream.broadcast(state descriptors)`; `connect` another stream to it."""

    _hints = (("KeyedStream", "Connect a stream to it first: stream.connect(broadcast).process(...)"),)

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor]) -> None:
        self.input_stream = input_stream
        self.broadcast_state_descriptors = _checked_descriptors(broadcast_state_descriptors)


def _checked_descriptors(descriptors: Sequence[Any]) -> list[MapStateDescriptor]:
    names: set[str] = set()
    if not descriptors:
        raise refuse("broadcast: there is no state descriptor. Name at least one MapStateDescriptor")
    for descriptor in descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            raise refuse_type(
                f"broadcast: found {descriptor!r}, expected a MapStateDescriptor(name, key type, value type)"
            )
        if descriptor.is_queryable():
            name = descriptor.get_name()
            raise refuse(f"broadcast: state '{name}' is queryable, and only keyed state can be. Remove set_queryable")
        name = descriptor.get_name()
        if name in names:
            raise refuse(f"broadcast: two descriptors are named '{name}'. Use a different name for each state")
        if descriptor._ttl_config is not None and descriptor._ttl_config.is_enabled():
            raise refuse(
                f"broadcast: state '{name}' has a time to live; only keyed state expires. Remove entries in "
                "process_broadcast_element instead"
            )
        names.add(name)
    return list(descriptors)


class BroadcastConnectedStream(MissingNameHints):
    """The result of `DataStream.connect(broadcast stream)`.

    Within an epoch all broadcast records are applied before the records of the other side. Their order is the same in
    every subtask, and when the epoch is repeated.
    """

    _hints = (("KeyedStream", "The two become one stream by process(...)"),)

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        self._environment = connected_environment(non_broadcast_stream, broadcast_stream.input_stream)
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = _checked_descriptors(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Adds a broadcast function; a keyed stream requires the keyed one, with keyed state and timers."""
        keyed = isinstance(self.non_broadcast_stream, KeyedStream)
        other: type[Function] = BroadcastProcessFunction if keyed else KeyedBroadcastProcessFunction
        if isinstance(func, other):
            raise refuse_type(
                f"connect(...).process: {type(func).__name__} is a {other.__name__}, and the stream has "
                + ("a key. Use a KeyedBroadcastProcessFunction" if keyed else "no key. Call key_by() before connect()")
            )
        kind: type[Function] = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        checked_function("connect(...).process", func, kind, callables=False)
        declared = checked_output_type("process", output_type)
        states = tuple(self.broadcast_state_descriptors)
        domains = (TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME)
        operation: Operation = (
            KeyedBroadcastProcess(func, time_domains=domains, states=states)
            if keyed
            else BroadcastProcess(func, states=states)
        )
        edges = self.non_broadcast_stream._edges + second_input(self.broadcast_stream.input_stream._edges)
        name = "Co-Process-Broadcast-Keyed" if keyed else "Co-Process-Broadcast"
        node = self._environment._builder.add(operation, name, inputs=edges, output_type=declared, site=here())
        return DataStream(environment=self._environment, edges=(Edge(node.id),))
