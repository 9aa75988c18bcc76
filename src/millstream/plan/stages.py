"""The physical plan: stages of operators, and the channels between them. Frozen data, no Spark.

The logical graph is cut at its exchanges into *levels*: an operator's level is the maximum number of exchanges between
it and a source. All operators of one level form a **stage**, whatever branch of the program they belong to. A stage is
one Spark stage, and its tasks are the subtasks of all its operators. A source is read at the last level that its
consumers allow: a stream that is joined with one from downstream of an exchange is read there. The Spark plan of any
program, however branched, is therefore linear, no branch is computed twice, and one barrier per task ends the epoch for
all branches.

A **channel** is an edge of the plan. It is *local* if its ends share a stage and a subtask; otherwise its records are
sent through the shuffle as blocks. A channel that spans several stages is relayed by the stages in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.graph.nodes import Edge, Node, Partitioning

__all__ = ["Channel", "Plan", "Stage"]


@dataclass(frozen=True)
class Channel:
    """The path of records from operator `source` to operator `target` (node ids)."""

    id: int
    source: int
    target: int
    edge: Edge
    senders: int
    receivers: int
    key_groups: int  # the number of key groups: the receiver's maximum parallelism
    source_stage: int
    target_stage: int

    @property
    def local(self) -> bool:
        return self.source_stage == self.target_stage and self.edge.partitioning is Partitioning.FORWARD


@dataclass(frozen=True)
class Stage:
    """Operators (in topological order) that run in the same tasks. `width` is the number of tasks."""

    index: int
    width: int
    operators: tuple[Node, ...]
    chains: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Plan:
    """A job ready to run: every node has a uid and a parallelism, every edge a partitioning."""

    job_name: str
    max_parallelism: int
    stages: tuple[Stage, ...]
    channels: tuple[Channel, ...]

    def nodes(self) -> tuple[Node, ...]:
        """All operators, stage by stage."""
        return tuple(node for stage in self.stages for node in stage.operators)

    def into(self, node: int) -> tuple[Channel, ...]:
        """The channels into `node`."""
        return tuple(channel for channel in self.channels if channel.target == node)

    def out_of(self, node: int) -> tuple[Channel, ...]:
        """The channels out of `node`."""
        return tuple(channel for channel in self.channels if channel.source == node)
