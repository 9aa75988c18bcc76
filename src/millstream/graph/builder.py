"""Collects the nodes of a program while it runs, and creates the frozen graph of each job."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from millstream.graph.nodes import Graph, LoopHead, LoopTail, Node, Operation

__all__ = ["GraphBuilder", "abandon", "never_run"]


_LAST: list[GraphBuilder] = []  # the builder of the newest environment


def never_run() -> Node | None:
    """The last node of the newest environment's program, if it never created a job or a plan: `execute` is missing."""
    nodes = [node for builder in _LAST if not builder._was_used for node in builder.nodes.values()]
    return next(reversed(nodes), None)


def abandon() -> None:
    """Suppresses `never_run`: the program failed before it created a job, and reports that failure instead."""
    for builder in _LAST:
        builder._was_used = True


@dataclass
class GraphBuilder:
    """Collects nodes while the user's program runs. `amend` replaces a node's attributes (`name`, `uid`, …).

    A job consists of the nodes added since the last job was taken, and all nodes upstream of them: an environment
    can be used again after `execute`, and a stream of the first job can feed the second.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    _fresh: set[int] = field(default_factory=set)
    _was_used: bool = False  # a job or a plan was created from it

    def __post_init__(self) -> None:
        _LAST[:] = [self]

    def add(self, operation: Operation, name: str, **attributes: Any) -> Node:
        """Adds a node and returns it. Its id is its position in the order of calls, which makes plans stable."""
        node = Node(len(self.nodes) + 1, operation, name, **attributes)
        self.nodes[node.id] = node
        self._fresh.add(node.id)
        return node

    def amend(self, id: int, **changes: Any) -> Node:
        """Replaces attributes of node `id`; the dataclass raises TypeError for unknown names."""
        self.nodes[id] = replace(self.nodes[id], **changes)
        return self.nodes[id]

    def has_uid(self, uid: str) -> bool:
        """Whether a node of the next job has this uid."""
        return any(self.nodes[id].uid == uid for id in self._fresh)

    def graph(self, job_name: str, parallelism: int, max_parallelism: int, chaining: bool = True) -> Graph:
        """The frozen graph of the nodes added since `take`, with all nodes upstream of them, numbered from 1."""
        self._was_used = True
        reached: set[int] = set()
        pending = sorted(self._fresh)
        tails = {n.operation.loop: n.id for n in self.nodes.values() if isinstance(n.operation, LoopTail)}
        while pending:
            id = pending.pop()
            if id not in reached:
                reached.add(id)
                pending.extend(edge.source for edge in self.nodes[id].inputs)
                operation = self.nodes[id].operation
                if isinstance(operation, LoopHead) and operation.loop in tails:
                    pending.append(tails[operation.loop])
        number = {old: new for new, old in enumerate(sorted(reached), start=1)}
        nodes = tuple(
            replace(
                self.nodes[old],
                id=new,
                inputs=tuple(replace(edge, source=number[edge.source]) for edge in self.nodes[old].inputs),
            )
            for old, new in number.items()
        )
        return Graph(job_name, nodes, parallelism, max_parallelism, chaining)

    def separate_job(self) -> GraphBuilder:
        """A builder of another job, which may read from existing nodes but does not add nodes here."""
        last = list(_LAST)
        builder = GraphBuilder(dict(self.nodes))
        _LAST[:] = last
        self._was_used = True
        return builder

    def take(self) -> None:
        """Assigns the nodes so far to a started job; the next job starts with the nodes added afterwards."""
        self._fresh.clear()
