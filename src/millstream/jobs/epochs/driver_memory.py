"""The driver's memory: its inbox of events and the current state of the job. None of it is stored."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.checkpoint import events as e
from millstream.checkpoint.manifest import Manifest
from millstream.common.time import waiting_s
from millstream.jobs.epochs.acknowledged import AcknowledgedEpochs, PendingCommit
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.outcome import EpochOutcome

__all__ = ["DriverMemory", "Inbox"]

_CANCEL_AGAIN_S = 0.2
_FAILURES_MAX = 16


class Inbox:
    """Events for the driver, from itself and from other threads, and whether the end of the job was requested."""

    def __init__(self) -> None:
        self.is_canceling = False
        self._from_others: queue.Queue[e.Event] = queue.Queue()
        self._from_driver: deque[e.Event] = deque()
        self._request = threading.Event()  # to stop or cancel: ends pauses
        self._closed = threading.Event()

    def report(self, event: e.Event) -> None:
        """Report an action of the driver itself; from its own thread."""
        self._from_driver.append(event)

    def put(self, event: e.Event) -> None:
        """Report an event; from any thread."""
        self._from_others.put(event)

    def request(self, event: e.StopRequested | e.CancelRequested, cancel: Callable[[], None]) -> None:
        """Request the end of the job; from any thread. `cancel` stops the running epoch, if the job is to end now."""
        self.put(event)
        self._request.set()
        if isinstance(event, e.CancelRequested):
            self.is_canceling = True
            threading.Thread(target=self._cancel, args=(cancel,), name="millstream-cancel", daemon=True).start()

    def _cancel(self, cancel: Callable[[], None]) -> None:
        """Cancel until the driver has ended: an epoch may just be starting."""
        while not self._closed.wait(_CANCEL_AGAIN_S):
            cancel()

    def close(self) -> None:
        """The driver has ended."""
        self._closed.set()

    def next(self, poll_s: float | None) -> e.Event:
        """The next event. Events of other threads have priority: a cancel must not wait for another epoch. Without
        events, waits for other threads, at most `poll_s`."""
        try:
            return self._from_others.get_nowait()
        except queue.Empty:
            if self._from_driver:
                return self._from_driver.popleft()
        try:
            return self._from_others.get(timeout=None if poll_s is None else waiting_s(poll_s))
        except queue.Empty:
            return e.Woken()

    def pause(self, pause_ms: float) -> bool:
        """Wait, unless the end of the job is or was requested; returns whether it was."""
        return self._request.wait(waiting_s(pause_ms / 1000))

    def allow_pauses(self) -> None:
        """A stop shortens one pause before a restart, not all that follow: the failed system needs time to recover."""
        if not self.is_canceling:
            self._request.clear()


@dataclass
class DriverMemory:
    """The driver's current knowledge of the job: its manifests, the current epoch, and the last failures.

    `ahead` is the newest manifest and the epochs that ran ahead of it. The driver's loop alone replaces it, as a whole;
    every thread reads it. `began_from` is the manifest that this driver continued from, until it has committed one
    itself. `attempted` is the manifest that it tried to commit last. `needs_room`: the store's disk was full.
    `failures` are the last errors, each with the reason that the protocol received: several threads may fail at the
    same time, and the job ends with one of the errors.
    """

    ahead: AcknowledgedEpochs = field(default_factory=AcknowledgedEpochs)
    began_from: Manifest | None = None
    input: InputPlan | None = None
    outcome: EpochOutcome | None = None
    attempted: Manifest | None = None
    needs_room: bool = False
    failures: deque[tuple[str, BaseException]] = field(default_factory=lambda: deque(maxlen=_FAILURES_MAX))

    @property
    def newest(self) -> Manifest | None:
        """The newest manifest."""
        return self.ahead.newest

    @property
    def tip(self) -> Manifest | None:
        """The epoch that the next one follows: the newest acknowledged one, else the newest manifest."""
        return self.ahead.tip

    def failure_of(self, reason: str) -> BaseException | None:
        """The error that made the job end for `reason`; the last error, if none matches."""
        failures = list(self.failures)
        matching = [error for words, error in failures if words and words in reason]
        return next(reversed(matching or [error for _, error in failures]), None)

    def begin_from(self, newest: Manifest | None) -> None:
        """The job continues from `newest`; epochs that ran ahead are discarded."""
        self.ahead = AcknowledgedEpochs(newest)

    def has_committed(self, manifest: Manifest) -> PendingCommit:
        """Records that the oldest pending commit was committed as `manifest`; returns that commit."""
        commit = self.ahead.pending[0]
        self.ahead = self.ahead.committed(manifest)
        return commit
