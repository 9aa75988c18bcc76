"""Makes sink names unique, for the console, listings and logs.

Sinks of a DataStream program are all called `Sink: Writer` unless the program names them, as in Flink. Duplicates get
their target as a suffix, or a number if the target is the same. Uids are derived from the original names, so this pass
runs after `assign_uids` and does not affect stores.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from millstream.graph.nodes import Graph, Node, Write

__all__ = ["name_sinks"]

_DEFAULT_NAMES = ("Sink: Writer", "Sink: Unnamed", "Sink: Spark Writer")
"""The default names of sinks."""


def name_sinks(graph: Graph) -> Graph:
    """Makes the names of all sinks unique."""
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
    """The sink's target, for a default name."""
    operation = node.operation
    return f" to {operation.sink.describe()}" if isinstance(operation, Write) and node.name in _DEFAULT_NAMES else ""


def _number(node: Node, number: int) -> str:
    return f" ({number})" if number > 1 else ""
