"""What the progress board says after an epoch: rates, totals, event time, shares. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from millstream.checkpoint.manifest import Manifest
from millstream.compiler.stages import Plan
from millstream.jobs.outcome import EpochOutcome
from millstream.jobs.progress import OperatorProgress
from millstream.runtime.barrier import MAX_WATERMARK, MIN_WATERMARK

__all__ = ["progress_after"]


def progress_after(
    manifest: Manifest,
    outcome: EpochOutcome,
    plan: Plan,
    sources: Collection[str],
    sinks: Collection[str],
    took_s: float,
) -> dict[str, Any]:
    """The fields of `JobProgress` that a committed epoch changes. `took_s`: from its start to its commit."""
    took_s = max(took_s, 1e-9)
    counters: Any = manifest.counters
    totals: dict[str, dict[str, int]] = counters.get("operators", {})

    def total(uid: str | None, which: str) -> int:
        return totals.get(uid or "", {}).get(which, 0)

    def now(uid: str | None, which: str) -> int:
        return outcome.operators.get(uid or "", {}).get(which, 0)

    watermark = manifest.watermark
    return {
        "epoch": manifest.epoch,
        "epoch_ms": took_s * 1000,
        "records_in": sum(total(uid, "out") for uid in sources),
        "records_out": sum(total(uid, "in") for uid in sinks),
        "in_per_second": sum(now(uid, "out") for uid in sources) / took_s,
        "out_per_second": sum(now(uid, "in") for uid in sinks) / took_s,
        "watermark_ms": None if watermark in (None, MIN_WATERMARK, MAX_WATERMARK) else watermark,
        "metrics": counters.get("metrics", {}),
        "operators": {
            node.uid or "": OperatorProgress(
                node.name,
                total(node.uid, "in"),
                total(node.uid, "out"),
                now(node.uid, "busy_ns") / 1e9 / took_s / (node.parallelism or 1),
            )
            for node in plan.nodes()
        },
    }
