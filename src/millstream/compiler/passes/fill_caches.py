"""Read cached streams where there is a cache, and write one beside those that have none yet.

The environment says for each cached stream of a job where its records can be read, or else where they are to be kept
(`graph.nodes: Cache`). In the place of the first stands a source, and what was only there to compute them is no part of
the job; beside the second stands a sink. A cached stream has the parallelism of what it is made of, unless records move
on their way to it.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import ProgramError
from millstream.graph.nodes import Cache, Edge, Graph, LoopHead, LoopTail, Node, Partitioning, Read, Write

__all__ = ["fill_caches"]


def fill_caches(graph: Graph) -> Graph:
    """Every Cache that leaves this pass is filled by the job; nodes are numbered anew. Jobs that never end cannot
    fill one."""
    if not any(isinstance(node.operation, Cache) for node in graph.nodes):
        return graph
    nodes = _numbered(_still_needed(_placed(graph.nodes)))
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
    """Caches where their records are, if nothing was said of where these go."""
    placed: dict[int, Node] = {}
    for node in nodes:
        ways = [edge.partitioning for edge in node.inputs]
        if isinstance(node.operation, Cache) and ways == [Partitioning.UNSPECIFIED]:
            node = replace(node, parallelism=placed[node.inputs[0].source].parallelism)
        placed[node.id] = node
    return list(placed.values())


def _still_needed(nodes: list[Node]) -> list[Node]:
    """The nodes with sources in the place of what is cached, without those that nobody needs then."""
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
    """These nodes and all they take records from, around loops, too."""
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
    """The nodes numbered from 1, in their order."""
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
                f"cache: '{node.name}' ({node.site}) never ends, so the cached stream would never be whole. Cache only "
                "in jobs over bounded input, or write the stream to a sink",
                at=str(cache.site),
            )
