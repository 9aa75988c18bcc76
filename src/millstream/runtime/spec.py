"""What the driver tells every task about an epoch, and about the job.

`JobFacts` never change while a driver runs and are sent once, with the plan. An `EpochSpec` changes every epoch
and reaches the tasks as a Spark local property: the Spark plan itself is built once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.connectors.contracts import Split
from millstream.runtime.barrier import MIN_WATERMARK
from millstream.runtime.event_time import restored_event_time
from millstream.storage.store import Store

__all__ = ["EpochSpec", "JobFacts", "ReadRange"]


@dataclass(frozen=True)
class JobFacts:
    """The job as its tasks know it. `run` is unique per driver start and restart: caches of another run are void."""

    job_name: str
    job_id: str
    run: str
    store: Store
    parameters: Mapping[str, str] = field(default_factory=dict)
    batch_records_max: int = 65_536
    block_bytes_max: int = 4 << 20
    cache_folder: Path | None = None  # where segments of a remote store are kept; None: in memory
    batch: bool = False  # bounded input, whole: aggregations give their final results only
    records_input: bool = False  # what sources read is kept beside the epoch, for a replay


@dataclass(frozen=True)
class ReadRange:
    """One split's part in an epoch: read `[start, stop)` in subtask `subtask`; `watermark` is where its time stands."""

    split: Split
    start: Any
    stop: Any
    subtask: int
    watermark: int


@dataclass(frozen=True)
class EpochSpec:
    """One epoch. `try_` counts the runs of this epoch by this driver, so that no two attempts share a name."""

    epoch: int
    try_: int
    now_ms: int
    final: bool
    reads: Mapping[str, tuple[ReadRange, ...]]
    # What holds a source's event time back besides the ranges read: its splits that are not read in this epoch.
    floors: Mapping[str, int]
    watermarks: Mapping[str, int]
    states: Mapping[str, Mapping[str, Any]]
    operator_states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # uid -> subtask -> its account
    # Where each subtask of the last epoch stood, of operators whose subtasks did not all stand at the watermark.
    event_times: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def event_time(self, uid: str, subtask: int, parallelism: int, max_parallelism: int | None) -> int:
        """Where the event time of a subtask of an operator stands; `max_parallelism` of keyed operators only."""
        watermark, times = self.watermarks.get(uid, MIN_WATERMARK), self.event_times.get(uid)
        return max(watermark, restored_event_time(times, subtask, parallelism, max_parallelism)) if times else watermark

    def encode(self) -> str:
        """As JSON text."""
        # Not `asdict`: it copies everything first, which takes milliseconds for a source of many splits.
        reads = {
            uid: [{**vars(range_), "split": vars(range_.split)} for range_ in ranges]
            for uid, ranges in self.reads.items()
        }
        return json.dumps({**vars(self), "reads": reads}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str, subtask: int | None = None) -> EpochSpec:
        """Read what `encode` wrote; with `subtask`, only the ranges that one is to read."""
        body = json.loads(text)
        reads = {
            uid: tuple(
                ReadRange(**{**r, "split": Split(**r["split"])})
                for r in ranges
                if subtask is None or r["subtask"] == subtask
            )
            for uid, ranges in body["reads"].items()
        }
        return cls(**{**body, "reads": reads})
