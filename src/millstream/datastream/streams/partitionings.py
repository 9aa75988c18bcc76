"""How the records of a stream are dealt out to the subtasks of the next operator.

A partitioning is a property of the edge into the next operator, so these calls add no node: they give the same
stream with other edges. The last one before an operator counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from millstream.datastream.functions.function import KeySelector, Partitioner
from millstream.datastream.streams.argument_checks import checked_function
from millstream.datastream.streams.stream_edges import StreamEdges
from millstream.graph.nodes import Edge, Partitioning
from millstream.graph.site import here

if TYPE_CHECKING:
    from millstream.datastream.state import MapStateDescriptor
    from millstream.datastream.streams.broadcast_stream import BroadcastStream
    from millstream.datastream.streams.stream import DataStream

__all__ = ["Partitionings"]


class Partitionings(StreamEdges):
    """The partitioning calls of a `DataStream`."""

    def _partitioned(self, partitioning: Partitioning, **attributes: Any) -> DataStream:
        from millstream.datastream.streams.stream import DataStream

        edges = (
            replace(Edge(edge.source, tag=edge.tag), partitioning=partitioning, **attributes) for edge in self._edges
        )
        return DataStream(environment=self._environment, edges=tuple(edges))

    def shuffle(self) -> DataStream:
        """Every record to a subtask chosen at random, and to the same one when its epoch is repeated."""
        return self._partitioned(Partitioning.SHUFFLE)

    def rescale(self) -> DataStream:
        """Evenly, but each subtask deals only to its share of the next ones: less travels."""
        return self._partitioned(Partitioning.RESCALE)

    def rebalance(self) -> DataStream:
        """Evenly to all subtasks, in turn."""
        return self._partitioned(Partitioning.REBALANCE)

    def forward(self) -> DataStream:
        """Every record stays with its subtask; both operators must have the same parallelism."""
        return self._partitioned(Partitioning.FORWARD)

    def global_(self) -> DataStream:
        """Every record to the first subtask. (Flink's Java API calls it `global`, which Python cannot.)"""
        return self._partitioned(Partitioning.GLOBAL)

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Every record to every subtask. With state descriptors: the broadcast side of a connection."""
        from millstream.datastream.streams.broadcast_stream import BroadcastStream

        everywhere = self._partitioned(Partitioning.BROADCAST)
        if broadcast_state_descriptor is None and not other_broadcast_state_descriptors:
            return everywhere
        descriptors = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
        return BroadcastStream(everywhere, descriptors)  # type: ignore[arg-type]

    def partition_custom(
        self, partitioner: Callable[[Any, int], int] | Partitioner, key_selector: Callable[[Any], Any] | KeySelector
    ) -> DataStream:
        """Every record to the subtask `partitioner(key, number of subtasks)` names."""
        chosen = checked_function("partition_custom", partitioner, Partitioner)
        key = checked_function("partition_custom, key selector", key_selector, KeySelector)
        return self._partitioned(Partitioning.CUSTOM, partitioner=chosen, key_selector=key, site=here())
