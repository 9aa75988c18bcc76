"""Assigns every node an identity that is stable between runs of the program.

State and source offsets are looked up by uid. A user's uid is used unchanged and must be unique. Other uids are derived
from the node's kind, name and inputs, not from line numbers or the order of calls, so unrelated edits do not change
them. They do not depend on parallelism, because this pass precedes the choice of partitioning for unspecified edges, so
a job finds its state after rescaling.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from millstream.errors import ProgramError
from millstream.graph.nodes import Edge, Graph, Node, Partitioning
from millstream.plan.operations import FoldedWindow, ProjectedIntervalJoin

__all__ = ["assign_uids"]

# The kind of an operation is its class name. In stores, these operations have the name of the logical operation.
_KINDS: dict[type, str] = {FoldedWindow: "Window", ProjectedIntervalJoin: "IntervalJoin"}


def assign_uids(graph: Graph) -> Graph:
    """Assigns every node a unique uid."""
    owner: dict[str, Node] = {}
    uid_of: dict[int, str] = {}
    nodes = []
    for node in graph.nodes:
        users_uid = node.uid or node.uid_hash
        uid = users_uid or _derive(node, uid_of, owner)
        if uid in owner:
            raise ProgramError(
                f"uid '{uid}' is set on both '{owner[uid].name}' ({owner[uid].site}) and '{node.name}'. "
                "A uid names one operator: change one of them",
                at=str(node.site),
            )
        owner[uid] = node
        uid_of[node.id] = uid
        nodes.append(replace(node, uid=uid, uid_is_derived=users_uid is None or node.uid_is_derived))
    return replace(graph, nodes=tuple(nodes))


def _derive(node: Node, uid_of: dict[int, str], owners: dict[str, Node]) -> str:
    kind = _KINDS.get(type(node.operation), type(node.operation).__name__)
    inputs = [_described(edge, uid_of[edge.source]) for edge in node.inputs]
    slug = re.sub(r"[^a-z0-9]+", "-", node.name.lower()).strip("-")[:32] or kind.lower()
    twin = 0
    while True:
        # Equal operators on one stream are distinguished by their order.
        text = "\n".join([kind, node.name, *inputs, str(twin)])
        uid = f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        if uid not in owners:
            return uid
        twin += 1


def _described(edge: Edge, source_uid: str) -> str:
    """An edge's contribution to the uid of its target."""
    is_unspecified = edge.partitioning is Partitioning.UNSPECIFIED
    partitioning = (
        Partitioning.FORWARD if is_unspecified else edge.partitioning
    )  # an explicit forward() changes nothing
    text = f"{source_uid}|{partitioning.value}|{edge.tag}"
    return text if edge.input == 1 else f"{text}|{edge.input}"
