"""Divides the output of an epoch into lanes, each of which is one transaction.

A transaction costs some round trips regardless of its size, and a Spark job costs more than a small transaction. So a
small epoch is one lane, which the driver publishes itself; larger output is divided by bytes, and each lane is
published in a task. All output of one task stays in one lane, which preserves the order of its records.

The division is a pure function of the staged output, computed before the manifest is written and stored in it:

    {"form": 1, "lane": "driver", "prefix": "millstream", "mark_topic": "out", "staged_ms": 1794800000000,
     "parts": [output staged by tasks]}

A driver that publishes the epoch again, perhaps at another parallelism or under other settings, uses the lanes of the
manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.connectors.contracts import Json

__all__ = ["DRIVER_LANE", "FORM", "divided"]

FORM = 1
DRIVER_LANE = "driver"
DRIVER_BYTES_MAX = 1024 * 1024
LANE_BYTES = 4 * 1024 * 1024


def divided(staged: Sequence[Json], prefix: str = "millstream") -> tuple[Json, ...]:
    """The lanes of an epoch, as even as whole tasks allow.

    >>> part = {"first_topic": "out", "bytes": 3_000_000, "staged_ms": 0}
    >>> [(lane["lane"], len(lane["parts"])) for lane in divided([part, part, part, part])]
    [('0', 2), ('1', 1), ('2', 1)]
    """
    if not staged:
        return ()
    total = sum(part["bytes"] for part in staged)
    if total <= DRIVER_BYTES_MAX:
        return (_lane(DRIVER_LANE, prefix, list(staged)),)
    count = min(len(staged), -(-total // LANE_BYTES))
    lanes: list[list[Any]] = [[] for _ in range(count)]
    filled = [0] * count
    # Largest first, each to the emptiest lane; ties in input order, so that the result is deterministic.
    for part in sorted(staged, key=lambda part: -int(part["bytes"])):
        emptiest = min(range(count), key=filled.__getitem__)
        lanes[emptiest].append(part)
        filled[emptiest] += part["bytes"]
    return tuple(_lane(str(number), prefix, parts) for number, parts in enumerate(lanes))


def _lane(name: str, prefix: str, parts: list[Json]) -> Json:
    mark_topic = min(part["first_topic"] for part in parts)
    staged_ms = max(part["staged_ms"] for part in parts)
    return {
        "form": FORM,
        "lane": name,
        "prefix": prefix,
        "mark_topic": mark_topic,
        "staged_ms": staged_ms,
        "parts": parts,
    }
