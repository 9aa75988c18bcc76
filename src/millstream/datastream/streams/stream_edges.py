"""The base of every stream object: an environment, and the edges along which its records are sent.

A stream has several edges after `union`, and an edge with a partitioning after `rebalance`, `key_by` and similar calls.
It *owns* a node only if it has exactly one plain edge: only then can it be named or have a parallelism. Streams are
values: a transformation adds a node to the environment's graph and returns a new stream.

The distribution of records to the subtasks of the next operator is a property of the edge into it, so `Partitionings`
add no node: they return the same stream with different edges. The last one before an operator applies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.function import KeySelector, Partitioner
from millstream.datastream.streams.argument_checks import checked_count, checked_function, checked_text, refuse
from millstream.datastream.streams.missing_names import MissingNameHints
from millstream.errors import NotAvailableError
from millstream.graph.nodes import Edge, Node, Operation, Partitioning, Process, Read, Write
from millstream.graph.notices import log_once
from millstream.graph.site import here

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.slot_sharing_group import SlotSharingGroup
    from millstream.datastream.state import MapStateDescriptor
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.datastream.streams.broadcast_stream import BroadcastStream
    from millstream.datastream.streams.stream import DataStream

__all__ = ["OperatorControls", "Partitionings", "StreamEdges", "no_java_object"]


def no_java_object(owner: object, j_object: Any) -> None:
    """Rejects a JVM object where PyFlink's constructors take one."""
    if j_object is not None:
        raise NotAvailableError(
            f"{type(owner).__name__} received {j_object!r}: Millstream has no Flink JVM and wraps no Java objects. "
            "Create it as a program does, from a StreamExecutionEnvironment or a builder."
        )


class StreamEdges(MissingNameHints):
    """The environment and the edges; the only class through which the façade accesses the graph."""

    _environment: StreamExecutionEnvironment
    _edges: tuple[Edge, ...]

    def _node(self, id: int) -> Node:
        return self._environment._builder.nodes[id]

    def _edge_type(self, edge: Edge) -> TypeInformation | None:
        node = self._node(edge.source)
        if edge.tag is None:
            return node.output_type
        assert isinstance(node.operation, (Process, Read))
        return dict(node.operation.tags)[edge.tag]

    def _stream_type(self) -> TypeInformation | None:
        """The type of the records, None if untyped. All edges of a union have the same type."""
        return self._edge_type(self._edges[0])

    def _add(self, operation: Operation, name: str, output_type: TypeInformation | None = None) -> Node:
        """Adds a node that reads this stream, at the user's line."""
        return self._environment._builder.add(operation, name, inputs=self._edges, output_type=output_type, site=here())


_PREFIXES = {Read: "Source: ", Write: "Sink: "}


class OperatorControls(StreamEdges):
    """Naming, placement and chaining of the operator that a stream or sink represents."""

    def _own_node(self, method: str) -> Node:
        """The node that this object represents, or raises a ProgramError that states why none exists."""
        if len(self._edges) != 1:
            raise refuse(f"{method}: a union is not an operator. Call it on the streams before or after union()")
        edge = self._edges[0]
        if edge.partitioning is not Partitioning.UNSPECIFIED:
            raise refuse(
                f"{method}: a stream partitioned by {edge.partitioning.value} is not an operator. "
                "Call it before the partitioning, or on the next operator"
            )
        if edge.tag is not None:
            raise refuse(
                f"{method}: side output '{edge.tag}' is not an operator. Call it on the process() that emits it"
            )
        return self._node(edge.source)

    def _amend(self, method: str, **changes: Any) -> Self:
        self._environment._builder.amend(self._own_node(method).id, **changes)
        return self

    def name(self, name: str) -> Self:
        """Sets the operator's name, for plans, the console and metrics."""
        node = self._own_node("name")
        prefix = _PREFIXES.get(type(node.operation), "")
        return self._amend("name", name=prefix + checked_text("name", name).removeprefix(prefix))

    def uid(self, uid: str) -> Self:
        """Sets the operator's identity, under which its state and offsets are stored, regardless of other changes."""
        checked_text("uid", uid)
        own_id = self._own_node("uid").id
        for node in self._environment._builder.nodes.values():
            if node.uid == uid and node.id != own_id:
                raise refuse(f"uid: '{uid}' is used by '{node.name}' ({node.site}). Every operator needs its own")
        return self._amend("uid", uid=uid)

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Sets the operator's identity by the 32 hexadecimal digits shown in an older plan or log."""
        if not isinstance(uid_hash, str) or len(uid_hash) != 32 or set(uid_hash) - set("0123456789abcdef"):
            raise refuse(f"set_uid_hash: found {uid_hash!r}, expected 32 lower-case hexadecimal digits")
        return self._amend("set_uid_hash", uid_hash=uid_hash)

    def set_parallelism(self, parallelism: int) -> Self:
        """Sets the number of subtasks."""
        node = self._own_node("set_parallelism")
        checked_count("set_parallelism", parallelism)
        single = isinstance(node.operation, Read) and node.operation.source.single
        if (single or node.max_parallelism == 1) and parallelism != 1:
            raise refuse(f"set_parallelism: '{node.name}' is not parallel; found {parallelism}, expected 1")
        maximum = node.max_parallelism or self._environment._max_parallelism_setting()
        if maximum is not None and parallelism > maximum:
            raise refuse(
                f"set_parallelism: found {parallelism} for '{node.name}', whose maximum is {maximum}. "
                "Lower it, or raise set_max_parallelism before the job first runs"
            )
        return self._amend("set_parallelism", parallelism=parallelism)

    def set_description(self, description: str) -> Self:
        """Describes the operator in plans; it has no other effect."""
        return self._amend("set_description", description=checked_text("set_description", description))

    def disable_chaining(self) -> Self:
        """Disables chaining of this operator with others."""
        return self._amend("disable_chaining", chaining_disabled=True)

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Sets the slot sharing group. It is only shown in plans, because Spark places the tasks."""
        from millstream.datastream.slot_sharing_group import SlotSharingGroup

        group = slot_sharing_group
        if isinstance(group, SlotSharingGroup):
            self._environment.register_slot_sharing_group(group)
            group = group.get_name()
        log_once("slot_sharing_group", "slot sharing groups have no effect here: Spark places the tasks")
        name = checked_text("slot_sharing_group", group)
        return self._amend("slot_sharing_group", slot_sharing_group=name)


class Partitionings(StreamEdges):
    """The partitioning calls of a `DataStream`."""

    def _partitioned(self, partitioning: Partitioning, **attributes: Any) -> DataStream:
        from millstream.datastream.streams.stream import DataStream

        edges = (
            replace(Edge(edge.source, tag=edge.tag), partitioning=partitioning, **attributes) for edge in self._edges
        )
        return DataStream(environment=self._environment, edges=tuple(edges))

    def shuffle(self) -> DataStream:
        """Sends every record to a random subtask, which is the same when its epoch is repeated."""
        return self._partitioned(Partitioning.SHUFFLE)

    def rescale(self) -> DataStream:
        """Distributes records evenly, each subtask only to its share of downstream subtasks, which transfers less
        data."""
        return self._partitioned(Partitioning.RESCALE)

    def rebalance(self) -> DataStream:
        """Distributes records evenly to all subtasks, in turn."""
        return self._partitioned(Partitioning.REBALANCE)

    def forward(self) -> DataStream:
        """Keeps every record in its subtask; both operators must have the same parallelism."""
        return self._partitioned(Partitioning.FORWARD)

    def global_(self) -> DataStream:
        """Sends every record to the first subtask. (Flink's Java API calls it `global`, a keyword in Python.)"""
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
        """Sends every record to every subtask. With state descriptors: the broadcast side of a connection."""
        from millstream.datastream.streams.broadcast_stream import BroadcastStream

        broadcast = self._partitioned(Partitioning.BROADCAST)
        if broadcast_state_descriptor is None and not other_broadcast_state_descriptors:
            return broadcast
        descriptors = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
        return BroadcastStream(broadcast, descriptors)  # type: ignore[arg-type]

    def partition_custom(
        self, partitioner: Callable[[Any, int], int] | Partitioner, key_selector: Callable[[Any], Any] | KeySelector
    ) -> DataStream:
        """Sends every record to the subtask returned by `partitioner(key, number of subtasks)`."""
        chosen = checked_function("partition_custom", partitioner, Partitioner)
        key = checked_function("partition_custom, key selector", key_selector, KeySelector)
        return self._partitioned(Partitioning.CUSTOM, partitioner=chosen, key_selector=key, site=here())
