"""Give every node an identity that stays the same when the program is run again.

State and source offsets are found by uid. A uid the user gave is taken as it is and must be unique. Others are
derived from what the node is and what feeds it (kind, name, inputs), not from line numbers or the order of
calls, so unrelated edits leave them alone. Nor does the parallelism matter: this pass comes before the one that decides
how records travel where the user did not say, so a job finds its state again when it goes on at another parallelism.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from millstream.errors import ProgramError
from millstream.graph.nodes import Edge, Graph, Node, Partitioning
from millstream.plan.operations import FoldedWindow, ProjectedIntervalJoin

__all__ = ["assign_uids"]

# The kind of an operation is the name of its class. Stores know these under the name of what they stand for.
_KINDS: dict[type, str] = {FoldedWindow: "Window", ProjectedIntervalJoin: "IntervalJoin"}


def assign_uids(graph: Graph) -> Graph:
    """Every node leaves this pass with a unique uid."""
    owner: dict[str, Node] = {}
    uid_of: dict[int, str] = {}
    nodes = []
    for node in graph.nodes:
        users_uid = node.uid or node.uid_hash
        uid = users_uid or _derive(node, uid_of, owner)
        if uid in owner:
            raise ProgramError(
                f"uid '{uid}' is given to both '{owner[uid].name}' ({owner[uid].site}) and '{node.name}'. "
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
        # Twins (two equal operators on one stream) are told apart by their order among themselves.
        text = "\n".join([kind, node.name, *inputs, str(twin)])
        uid = f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        if uid not in owners:
            return uid
        twin += 1


def _described(edge: Edge, source_uid: str) -> str:
    """What an edge adds to the identity of the node it leads into."""
    unsaid = edge.partitioning is Partitioning.UNSPECIFIED
    way = Partitioning.FORWARD if unsaid else edge.partitioning  # saying forward() changes nothing
    text = f"{source_uid}|{way.value}|{edge.tag}"
    return text if edge.input == 1 else f"{text}|{edge.input}"
