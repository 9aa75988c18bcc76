"""Collects the nodes of a program while it runs, and makes the frozen graph of each job of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from millstream.graph.nodes import Graph, LoopHead, LoopTail, Node, Operation

__all__ = ["GraphBuilder", "abandon", "never_run"]


_LAST: list[GraphBuilder] = []  # the builder of the environment that was made last


def never_run() -> Node | None:
    """The end of a program that was built by the last environment, where nobody made a job or a plan of it: `execute`
    was forgotten."""
    nodes = [node for builder in _LAST if not builder._is_looked_at for node in builder.nodes.values()]
    return next(reversed(nodes), None)


def abandon() -> None:
    """The program has failed before its job was made: that is what it ends with."""
    for builder in _LAST:
        builder._is_looked_at = True


@dataclass
class GraphBuilder:
    """Collects nodes while the user's program runs. `amend` replaces a node's attributes (`name`, `uid`, …).

    A job is made of the nodes added since the last job was taken, and of all they read from: an environment
    can be used again after `execute`, and a stream of the first job can feed the second.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    _fresh: set[int] = field(default_factory=set)
    _is_looked_at: bool = False  # a job was made of it, or a plan

    def __post_init__(self) -> None:
        _LAST[:] = [self]

    def add(self, operation: Operation, name: str, **attributes: Any) -> Node:
        """Add a node and return it. Its id is its place in the order of calls, which makes plans stable."""
        node = Node(len(self.nodes) + 1, operation, name, **attributes)
        self.nodes[node.id] = node
        self._fresh.add(node.id)
        return node

    def amend(self, id: int, **changes: Any) -> Node:
        """Replace attributes of node `id`; unknown names are a TypeError of the dataclass."""
        self.nodes[id] = replace(self.nodes[id], **changes)
        return self.nodes[id]

    def has_uid(self, uid: str) -> bool:
        """Whether a node of the next job has this uid."""
        return any(self.nodes[id].uid == uid for id in self._fresh)

    def graph(self, job_name: str, parallelism: int, max_parallelism: int, chaining: bool = True) -> Graph:
        """The frozen graph of what was added since `take`, with all it reads from, numbered from 1."""
        self._is_looked_at = True
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

    def beside(self) -> GraphBuilder:
        """A builder of another job, which may read from what is here and adds nothing to it."""
        last = list(_LAST)
        builder = GraphBuilder(dict(self.nodes))
        _LAST[:] = last
        self._is_looked_at = True
        return builder

    def take(self) -> None:
        """The nodes so far belong to a job that was started; the next job begins with what is added from now on."""
        self._fresh.clear()
