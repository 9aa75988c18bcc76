"""The plan as JSON, in the shape Flink's plan visualiser reads: nodes with predecessors and ship strategies."""

from __future__ import annotations

import json
from typing import Any

from millstream.compiler.passes import compile_graph
from millstream.graph.nodes import Graph, Node, Read, Write

__all__ = ["plan_json"]


def plan_json(graph: Graph) -> str:
    """What `StreamExecutionEnvironment.get_execution_plan()` returns."""
    plan = compile_graph(graph)
    nodes = sorted(plan.nodes(), key=lambda node: node.id)
    return json.dumps({"nodes": [_node(node) for node in nodes]}, indent=2)


def _node(node: Node) -> dict[str, Any]:
    pact = "Operator"
    if isinstance(node.operation, Read):
        pact = "Data Source"
    elif isinstance(node.operation, Write):
        pact = "Data Sink"
    entry: dict[str, Any] = {
        "id": node.id,
        "type": node.name,
        "pact": pact,
        "contents": node.description or node.name,
        "parallelism": node.parallelism,
        "uid": node.uid,
    }
    if node.inputs:
        entry["predecessors"] = [
            {"id": edge.source, "ship_strategy": edge.partitioning.name, "side": "second"} for edge in node.inputs
        ]
    return entry
