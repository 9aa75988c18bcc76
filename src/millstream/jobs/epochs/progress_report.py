"""What the progress board says of a manifest and of the epoch that led to it: totals, rates, shares. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoint.manifest import Manifest
from millstream.jobs.epochs.manifests import subtask_accounts
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.progress import OperatorProgress
from millstream.jobs.epochs.rounds import records_in_loops
from millstream.plan.stages import Plan
from millstream.records.watermarks import MIN_WATERMARK

__all__ = ["StateSize", "epoch_progress", "progress_of", "state_size", "total_progress"]


@dataclass(frozen=True)
class StateSize:
    """How much keyed state, timers included, a manifest names: as stored, before compaction drops what is void."""

    rows: int
    bytes: int


def progress_of(
    manifest: Manifest,
    outcome: EpochOutcome | None,
    plan: Plan,
    sources: Collection[str],
    sinks: Collection[str],
    took_s: float,
) -> dict[str, Any]:
    """The fields of `JobProgress` that a manifest changes: just committed with this outcome, or just found."""
    if outcome is None or manifest.status in ("FINISHED", "SUSPENDED"):
        totals = total_progress(manifest, plan, sources, sinks)
        return {"published": manifest.published_through, **totals}
    return epoch_progress(manifest, outcome, plan, sources, sinks, took_s)


def total_progress(manifest: Manifest, plan: Plan, sources: Collection[str], sinks: Collection[str]) -> dict[str, Any]:
    """The fields of `JobProgress` that a manifest alone tells: where the job stands, over its whole life."""
    counters: Any = manifest.counters
    counted: Mapping[str, Mapping[str, int]] = counters.get("operators", {})

    def total(uid: str | None, which: str) -> int:
        return counted.get(uid or "", {}).get(which, 0)

    size = state_size(manifest)
    return {
        "epoch": manifest.epoch,
        "records_in": sum(total(uid, "out") for uid in sources),
        "records_out": sum(total(uid, "in") for uid in sinks),
        "watermark_ms": None if manifest.watermark == MIN_WATERMARK else manifest.watermark,
        "metrics": counters.get("metrics", {}),
        "state_bytes": size.bytes,
        "state_rows": size.rows,
        "in_loops": records_in_loops(plan, manifest),
        "operators": {
            node.uid or "": OperatorProgress(node.name, total(node.uid, "in"), total(node.uid, "out"))
            for node in plan.nodes()
        },
    }


def state_size(manifest: Manifest) -> StateSize:
    """The size of all segments of keyed state; one that several subtasks list is counted once."""
    tables = (refs for account in subtask_accounts(manifest) for refs in account.get("tables", {}).values())
    files = {ref["file"]: (ref["rows"], ref["file_bytes"]) for refs in tables for ref in refs}
    return StateSize(sum(rows for rows, _ in files.values()), sum(size for _, size in files.values()))


def epoch_progress(
    manifest: Manifest,
    outcome: EpochOutcome,
    plan: Plan,
    sources: Collection[str],
    sinks: Collection[str],
    took_s: float,
) -> dict[str, Any]:
    """The same, and the rates of the epoch just committed. `took_s`: from its start to its commit."""
    took_s = max(took_s, 1e-9)
    fields = total_progress(manifest, plan, sources, sinks)

    def now(uid: str, which: str) -> int:
        return outcome.operators.get(uid, {}).get(which, 0)

    subtasks = {node.uid or "": node.parallelism or 1 for node in plan.nodes()}
    return {
        **fields,
        "epoch_ms": took_s * 1000,
        "in_per_second": sum(now(uid, "out") for uid in sources) / took_s,
        "out_per_second": sum(now(uid, "in") for uid in sinks) / took_s,
        "operators": {
            uid: replace(operator, busy_share=now(uid, "busy_ns") / 1e9 / took_s / subtasks[uid])
            for uid, operator in fields["operators"].items()
        },
    }
