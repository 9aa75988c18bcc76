"""Cuts the graph at its exchanges into stages, and numbers the channels between operators."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.graph.nodes import Edge, Graph, Node, Partitioning
from millstream.plan.stages import Channel, Plan, Stage

__all__ = ["cut_stages"]


def cut_stages(graph: Graph) -> Plan:
    """The plan of a resolved graph. `plan.stages` defines stages."""
    by_id = {node.id: node for node in graph.nodes}
    level = _levels(graph, _late_sources(graph, _levels(graph, {})))
    channels = tuple(
        Channel(
            id=number,
            source=edge.source,
            target=node.id,
            edge=edge,
            senders=by_id[edge.source].parallelism or 1,
            receivers=node.parallelism or 1,
            key_groups=node.max_parallelism or graph.max_parallelism,
            source_stage=level[edge.source],
            target_stage=level[node.id],
        )
        for number, (node, edge) in enumerate((n, e) for n in graph.nodes for e in n.inputs)
    )
    stages = tuple(_stage(index, graph, level, channels) for index in range(max(level.values()) + 1))
    return Plan(graph.job_name, graph.max_parallelism, stages, channels)


def _levels(graph: Graph, sources: Mapping[int, int]) -> dict[int, int]:
    """Assigns every operator the earliest level that its inputs allow; sources get the requested level, or 0."""
    level: dict[int, int] = {}
    for node in graph.nodes:  # edges point backwards, so every input has its level already
        level[node.id] = max((level[e.source] + _crosses(e) for e in node.inputs), default=sources.get(node.id, 0))
    return level


def _late_sources(graph: Graph, level: Mapping[int, int]) -> dict[int, int]:
    """The last level at which each source can be read without delaying another operator.

    A stream that is joined with one from downstream of an exchange (such as events with broadcast rules) is then read
    at that level, and avoids the shuffle. Operators downstream of an exchange keep their level.
    """
    exchanged: set[int] = set()
    for node in graph.nodes:
        if any(_crosses(edge) or edge.source in exchanged for edge in node.inputs):
            exchanged.add(node.id)
    latest: dict[int, int] = {}
    for node in reversed(graph.nodes):
        at = level[node.id] if node.id in exchanged else latest.get(node.id, level[node.id])
        for edge in node.inputs:
            latest[edge.source] = min(latest.get(edge.source, at), at - _crosses(edge))
    return {node.id: latest.get(node.id, 0) for node in graph.nodes if not node.inputs}


def _crosses(edge: Edge) -> bool:
    return edge.partitioning is not Partitioning.FORWARD


def _stage(index: int, graph: Graph, level: dict[int, int], channels: tuple[Channel, ...]) -> Stage:
    operators = tuple(node for node in graph.nodes if level[node.id] == index)
    width = max(node.parallelism or 1 for node in operators)
    return Stage(index, width, operators, _chains(operators, channels, graph.chaining))


def _chains(operators: tuple[Node, ...], channels: tuple[Channel, ...], chaining: bool) -> tuple[tuple[int, ...], ...]:
    """Operators connected by direct calls, as lists: an operator joins the chain of its only local input."""
    chains: list[list[int]] = []
    home: dict[int, list[int]] = {}
    disabled = {node.id for node in operators if node.chaining_disabled}
    for node in operators:
        inputs = [channel for channel in channels if channel.target == node.id]
        joins = (
            chaining
            and len(inputs) == 1
            and inputs[0].local
            and not node.starts_chain
            and node.id not in disabled
            and inputs[0].source not in disabled
        )
        chain = home[inputs[0].source] if joins else []
        if not joins:
            chains.append(chain)
        chain.append(node.id)
        home[node.id] = chain
    return tuple(tuple(chain) for chain in chains)
