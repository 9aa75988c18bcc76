"""The history of the epochs that a store retains: one entry per epoch, and summaries. Pure.

An entry is made of two manifests: the epoch's own, and the next one, which holds the durations of the commit and of
publishing. Unknown values are None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoint.manifest import Manifest
from millstream.jobs.epochs.backlog import records_behind
from millstream.jobs.epochs.epoch_statistics import statistics_of

__all__ = ["SUMMARISED", "EpochEntry", "Summary", "history", "summary"]

SUMMARISED = ("duration_ms", "run_ms", "commit_ms", "publish_ms", "records_in", "records_out", "new_bytes", "requests")


@dataclass(frozen=True)
class EpochEntry:
    """One epoch. `duration_ms`: from its trigger to its commit. `status`: `published`, `committed` (not known to be
    published yet), or the status of the job in a closing manifest.

    Many fields: each is a column of the printed table, and a name in its JSON.
    """

    epoch: int
    status: str
    created_ms: int
    trigger_ms: int | None = None
    duration_ms: float | None = None
    run_ms: float | None = None
    commit_ms: float | None = None
    publish_ms: float | None = None
    records_in: int | None = None
    records_out: int | None = None
    new_rows: int | None = None
    new_bytes: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    failures: int | None = None
    rounds: int | None = None
    lags: bool | None = None
    behind: int | None = None
    requests: int | None = None
    tasks: int | None = None
    tasks_stayed: int | None = None


@dataclass(frozen=True)
class Summary:
    """One measure over all epochs for which it is known."""

    min: float
    avg: float
    p99: float
    max: float


def history(manifests: Iterable[Manifest]) -> list[EpochEntry]:
    """The entries of the manifests, oldest first; the manifests may be in any order."""
    entries: list[EpochEntry] = []
    afterwards: dict[int, Mapping[str, Any]] = {}
    published_through = 0
    for manifest in manifests:
        statistics = statistics_of(manifest) or {}
        entries.append(_entry(manifest, statistics))
        published_through = max(published_through, manifest.published_through)
        if (before := statistics.get("before")) is not None:
            afterwards[before["epoch"]] = before
    entries.sort(key=lambda entry: entry.epoch)
    return [_completed(entry, published_through, afterwards.get(entry.epoch, {})) for entry in entries]


def _completed(entry: EpochEntry, published_through: int, after: Mapping[str, Any]) -> EpochEntry:
    """The entry, completed by the statistics of the next epoch."""
    published = "published" if entry.epoch <= published_through else "committed"
    commit_ms, duration_ms = after.get("commit_ms"), entry.duration_ms
    return replace(
        entry,
        status=entry.status if entry.status in ("finished", "suspended") else published,
        duration_ms=None if duration_ms is None else duration_ms + (commit_ms or 0.0),
        commit_ms=commit_ms,
        publish_ms=after.get("publish_ms"),
    )


def _entry(manifest: Manifest, statistics: Mapping[str, Any]) -> EpochEntry:
    return EpochEntry(
        epoch=manifest.epoch,
        status=manifest.status.lower(),
        created_ms=manifest.created_ms,
        trigger_ms=statistics.get("trigger_ms"),
        duration_ms=statistics.get("duration_ms"),
        run_ms=statistics.get("run_ms"),
        records_in=statistics.get("in"),
        records_out=statistics.get("out"),
        new_rows=statistics.get("new_rows"),
        new_bytes=statistics.get("new_bytes"),
        state_rows=statistics.get("rows"),
        state_bytes=statistics.get("bytes"),
        failures=statistics.get("failures"),
        rounds=statistics.get("rounds"),
        lags=statistics.get("lags"),
        behind=records_behind(statistics),
        requests=sum(statistics["requests"].values()) if "requests" in statistics else None,
        tasks=statistics.get("tasks"),
        tasks_stayed=statistics.get("tasks_stayed"),
    )


def summary(entries: Sequence[EpochEntry]) -> dict[str, Summary]:
    """Smallest, mean, 99th percentile and largest of every measure, over the epochs that ran tasks.

    >>> entries = [EpochEntry(n, "published", 0, run_ms=float(n)) for n in range(1, 201)]
    >>> summary(entries)
    {'run_ms': Summary(min=1.0, avg=100.5, p99=198.0, max=200.0)}
    """
    entries_run = [entry for entry in entries if entry.run_ms is not None]
    summaries: dict[str, Summary] = {}
    for measure in SUMMARISED:
        values = sorted(value for entry in entries_run if (value := getattr(entry, measure)) is not None)
        if values:
            p99 = values[math.ceil(0.99 * len(values)) - 1]
            summaries[measure] = Summary(values[0], sum(values) / len(values), p99, values[-1])
    return summaries
