"""Give sinks of one name a name each: people see them side by side, in the console, in lists and in logs.

Sinks of a DataStream program are all called `Sink: Writer` unless the program names them, as in Flink. Of those
with one name it is said what they write to; where that is the same too, their number. A uid is derived from the name
that was there before, so this pass comes behind `assign_uids` and no store notices.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from millstream.graph.nodes import Graph, Node, Write

__all__ = ["name_sinks"]

_UNTOLD = ("Sink: Writer", "Sink: Unnamed", "Sink: Spark Writer")
"""The names of sinks that the program did not name."""


def name_sinks(graph: Graph) -> Graph:
    """No two sinks leave this pass with one name."""
    names = {node.id: node.name for node in graph.nodes if isinstance(node.operation, Write)}
    for suffix in (_target, _number):
        shared = {name for name, count in Counter(names.values()).items() if count > 1}
        twins: Counter[str] = Counter()
        for node in graph.nodes:
            name = names.get(node.id)
            if name is not None and name in shared:
                twins[name] += 1
                names[node.id] = name + suffix(node, twins[name])
    return replace(graph, nodes=tuple(replace(node, name=names.get(node.id, node.name)) for node in graph.nodes))


def _target(node: Node, number: int) -> str:
    """What it writes to, where the name is the one that every sink has."""
    operation = node.operation
    return f" to {operation.sink.describe()}" if isinstance(operation, Write) and node.name in _UNTOLD else ""


def _number(node: Node, number: int) -> str:
    return f" ({number})" if number > 1 else ""
