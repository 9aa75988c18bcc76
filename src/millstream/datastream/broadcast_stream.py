"""A stream whose records reach every subtask and are kept there as state. Comes with several streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import TypeInformation
from millstream.errors import NotYetError

if TYPE_CHECKING:
    from millstream.datastream.functions.process import BroadcastProcessFunction, KeyedBroadcastProcessFunction
    from millstream.datastream.state import MapStateDescriptor
    from millstream.datastream.stream import DataStream

__all__ = ["BroadcastConnectedStream", "BroadcastStream"]


class BroadcastStream:
    """What `DataStream.broadcast(state descriptors)` will return."""

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: list[MapStateDescriptor]) -> None:
        raise NotYetError.of("BroadcastStream", "several streams", "broadcast() without state")


class BroadcastConnectedStream:
    """What `DataStream.connect(broadcast stream)` will return."""

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: list[MapStateDescriptor],
    ) -> None:
        raise NotYetError.of("BroadcastConnectedStream", "several streams")

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        raise NotYetError.of("BroadcastConnectedStream.process", "several streams")
