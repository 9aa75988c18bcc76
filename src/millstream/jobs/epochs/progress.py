"""The progress of a running job: a snapshot that changes with every epoch.

The driver writes it; the console, the command line and tests read it. Reading never waits for the job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["JobProgress", "OperatorProgress", "ProgressBoard"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class OperatorProgress:
    """One operator, over the job's life (`records_*`) and in its last epoch (`busy_share`, of the epoch's time)."""

    name: str
    records_in: int = 0
    records_out: int = 0
    busy_share: float = 0.0


@dataclass(frozen=True)
class JobProgress:
    """The state of a job at one point in time. Rates are of the last epoch.

    `watermark_ms` None: no watermark, or none yet; 2^63 - 1: all input has ended. `time_awaits`: the sources that hold
    event time back. The state's rows are those its segments hold: an overwritten or removed row counts until compaction
    drops it. `in_loops`: records in the program's loops when the epoch ended. `behind`: about how many records the
    sources have left, None: they cannot count them; `caught_up_in_ms`: until there are none, None: never at this rate.
    `stayed_share`: the share of the last epochs' tasks that ran in the same process as before, None: there is only one
    process. `query_url`: where the job answers queries; empty: nowhere. `ahead`: epochs that were run and are not
    committed yet; `acknowledged`: the number of the commit that will contain the last of them. `store_unreachable`: the
    store does not answer; `unpublished`: why the epoch after `published` could not be published, in `publish_tries`
    tries; `paused`: no epoch runs until both are resolved.

    Many fields: each is a figure that the console or the log shows.
    """

    job_name: str
    job_id: str
    store: str
    status: str = "CREATED"
    epoch: int = 0
    published: int = 0
    epoch_ms: float = 0.0
    records_in: int = 0
    records_out: int = 0
    in_per_second: float = 0.0
    out_per_second: float = 0.0
    watermark_ms: int | None = None
    time_awaits: tuple[str, ...] = ()
    state_bytes: int = 0
    state_rows: int = 0
    in_loops: int = 0
    behind: int | None = None
    caught_up_in_ms: int | None = None
    stayed_share: float | None = None
    ahead: int = 0
    acknowledged: int = 0
    store_unreachable: bool = False
    unpublished: str = ""
    publish_tries: int = 0
    paused: bool = False
    restarts: int = 0
    last_error: str = ""
    query_url: str = ""
    operators: Mapping[str, OperatorProgress] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)  # user metrics, by scope name, over the job's life


class ProgressBoard:
    """The current progress of one job, and the listeners notified of every change."""

    def __init__(self, first: JobProgress) -> None:
        self._now = first
        self._listeners: list[Callable[[JobProgress], None]] = []
        self._lock = threading.Lock()

    @property
    def now(self) -> JobProgress:
        """The newest snapshot."""
        return self._now

    def change(self, **changes: object) -> None:
        """Replace fields of the snapshot and notify the listeners. A listener that raises is logged, and has no other
        effect."""
        with self._lock:
            self._now = replace(self._now, **changes)  # type: ignore[arg-type]
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener(self._now)
            except Exception as error:
                _LOG.warning("a listener could not process the job's progress: %s", error)

    def listen(self, listener: Callable[[JobProgress], None]) -> None:
        """Call `listener` with every new snapshot, on the driver's thread: it must be quick."""
        with self._lock:
            self._listeners.append(listener)
