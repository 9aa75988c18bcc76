"""Reads cached streams from their caches, and writes the caches that are still empty.

For each cached stream of a job the environment provides the location of its records, or the location to store them
(`graph.nodes: Cache`). A filled cache is replaced by a source, and nodes needed only to compute it are removed; an
empty one gets an additional sink. A cached stream has the parallelism of its input, unless records are repartitioned in
between.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import ProgramError
from millstream.graph.nodes import Cache, Edge, Graph, LoopHead, LoopTail, Node, Partitioning, Read, Write

__all__ = ["fill_caches"]


def fill_caches(graph: Graph) -> Graph:
    """Fills every Cache of the graph from the job, and renumbers the nodes. Rejects caches in unbounded jobs."""
    if not any(isinstance(node.operation, Cache) for node in graph.nodes):
        return graph
    nodes = _numbered(_reachable(_placed(graph.nodes)))
    caches = [node for node in nodes if isinstance(node.operation, Cache)]
    if caches:
        _check_it_ends(nodes, caches[0])
    sinks: list[Node] = []
    for node in caches:
        assert isinstance(node.operation, Cache)
        if node.operation.sink is not None:
            id, edge = len(nodes) + len(sinks) + 1, Edge(node.id)
            sink = Write(node.operation.sink)
            sinks.append(Node(id, sink, "Sink: Cache", inputs=(edge,), parallelism=node.parallelism, site=node.site))
    return replace(graph, nodes=(*nodes, *sinks))


def _placed(nodes: tuple[Node, ...]) -> list[Node]:
    """Runs caches in the tasks of their input, unless a partitioning was requested."""
    placed: dict[int, Node] = {}
    for node in nodes:
        ways = [edge.partitioning for edge in node.inputs]
        if isinstance(node.operation, Cache) and ways == [Partitioning.UNSPECIFIED]:
            node = replace(node, parallelism=placed[node.inputs[0].source].parallelism)
        placed[node.id] = node
    return list(placed.values())


def _reachable(nodes: list[Node]) -> list[Node]:
    """Replaces cached streams by sources, and removes nodes without consumers."""
    read: dict[int, Node] = {}
    replaced: set[int] = set()
    for node in nodes:
        if isinstance(node.operation, Cache) and node.operation.source is not None:
            replaced |= {edge.source for edge in node.inputs}
            node = replace(node, operation=Read(node.operation.source), inputs=(), name=f"Source: {node.name}")
        read[node.id] = node
    for_caches = _upstream({node.id: node for node in nodes}, replaced)
    needed = _upstream(read, read.keys() - for_caches)
    return [node for node in read.values() if node.id in needed]


def _upstream(nodes: dict[int, Node], ids: set[int]) -> set[int]:
    """These nodes and all upstream of them, including loops."""
    tails = {node.operation.loop: node.id for node in nodes.values() if isinstance(node.operation, LoopTail)}
    reached: set[int] = set()
    pending = list(ids)
    while pending:
        node = nodes[pending.pop()]
        if node.id not in reached:
            reached.add(node.id)
            pending += [edge.source for edge in node.inputs]
            if isinstance(node.operation, LoopHead) and node.operation.loop in tails:
                pending.append(tails[node.operation.loop])
    return reached


def _numbered(nodes: list[Node]) -> tuple[Node, ...]:
    """Renumbers the nodes from 1, in their order."""
    number = {node.id: at for at, node in enumerate(nodes, start=1)}
    return tuple(
        replace(
            node,
            id=number[node.id],
            inputs=tuple(replace(edge, source=number[edge.source]) for edge in node.inputs),
        )
        for node in nodes
    )


def _check_it_ends(nodes: tuple[Node, ...], cache: Node) -> None:
    for node in nodes:
        if isinstance(node.operation, Read) and not node.operation.source.bounded:
            raise ProgramError(
                f"cache: '{node.name}' ({node.site}) never ends, so the cached stream is never complete. Cache only "
                "in jobs over bounded input, or write the stream to a sink",
                at=str(cache.site),
            )
