"""The end of a stream: a sink that can still be named and placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.stream_edges import OperatorControls, no_java_object
from millstream.graph.nodes import Edge

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["DataStreamSink"]


class DataStreamSink(OperatorControls):
    """What `print`, `sink_to` and `add_sink` return: name it, give it a uid, a parallelism, a description."""

    def __init__(
        self,
        j_data_stream_sink: Any = None,
        *,
        environment: StreamExecutionEnvironment | None = None,
        edges: tuple[Edge, ...] = (),
    ) -> None:
        no_java_object(self, j_data_stream_sink)
        assert environment is not None, "a sink is made by a stream"
        self._environment = environment
        self._edges = edges
