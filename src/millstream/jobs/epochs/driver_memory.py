"""What the driver has at hand: the events on their way to it, and what it knows right now. Nothing of it is stored."""

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
_FAILURES_KEPT = 16


class Inbox:
    """Events on their way to the driver, its own and those of other threads, and whether the job is asked to end."""

    def __init__(self) -> None:
        self.is_canceling = False
        self._from_others: queue.Queue[e.Event] = queue.Queue()
        self._from_driver: deque[e.Event] = deque()
        self._request = threading.Event()  # to stop or cancel: pauses are over
        self._closed = threading.Event()

    def report(self, event: e.Event) -> None:
        """What the driver itself did; from its own thread."""
        self._from_driver.append(event)

    def put(self, event: e.Event) -> None:
        """What others did; from any thread."""
        self._from_others.put(event)

    def request(self, event: e.StopRequested | e.CancelRequested, cancel: Callable[[], None]) -> None:
        """Ask the job to end; from any thread. `cancel` stops what is running, if it is to end now."""
        self.put(event)
        self._request.set()
        if isinstance(event, e.CancelRequested):
            self.is_canceling = True
            threading.Thread(target=self._cancel, args=(cancel,), name="millstream-cancel", daemon=True).start()

    def _cancel(self, cancel: Callable[[], None]) -> None:
        """Cancel until the driver has ended: an epoch may be starting at this very moment."""
        while not self._closed.wait(_CANCEL_AGAIN_S):
            cancel()

    def close(self) -> None:
        """The driver has ended."""
        self._closed.set()

    def next(self, poll_s: float | None) -> e.Event:
        """What others reported comes before what the driver did: a cancel must not wait for another epoch. If there is
        nothing, wait for others, at most `poll_s`."""
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
        """Wait, unless the job is asked to end, now or before; whether it was."""
        return self._request.wait(waiting_s(pause_ms / 1000))

    def allow_pauses(self) -> None:
        """A stop cuts one pause before a restart short, not all that follow: the world needs its time."""
        if not self.is_canceling:
            self._request.clear()


@dataclass
class DriverMemory:
    """What the driver knows right now: where the job stands, the epoch at hand, and the last failure.

    `ahead` is the newest manifest and what ran ahead of it. It is replaced as a whole, by the driver's loop alone,
    and read by every thread. `began_from` is the manifest that this driver went on from, until it has committed one
    itself. `attempted` is the manifest that it tried to commit last. `needs_room`: the store's disk was found full.
    `failures` are the last errors, each with the reason that the protocol was told: several threads may fail at the
    same time, and the job ends with one of them.
    """

    ahead: AcknowledgedEpochs = field(default_factory=AcknowledgedEpochs)
    began_from: Manifest | None = None
    input: InputPlan | None = None
    outcome: EpochOutcome | None = None
    attempted: Manifest | None = None
    needs_room: bool = False
    failures: deque[tuple[str, BaseException]] = field(default_factory=lambda: deque(maxlen=_FAILURES_KEPT))

    @property
    def newest(self) -> Manifest | None:
        """The newest manifest."""
        return self.ahead.newest

    @property
    def tip(self) -> Manifest | None:
        """What the next epoch follows: the newest acknowledged epoch, else the newest manifest."""
        return self.ahead.tip

    def failure_of(self, reason: str) -> BaseException | None:
        """The error that made the job end for `reason`; the last one, if none of them is in its words."""
        failures = list(self.failures)
        ours = [error for words, error in failures if words and words in reason]
        return next(reversed(ours or [error for _, error in failures]), None)

    def begin_from(self, newest: Manifest | None) -> None:
        """The job goes on from `newest`; what ran ahead never happened."""
        self.ahead = AcknowledgedEpochs(newest)

    def has_committed(self, manifest: Manifest) -> PendingCommit:
        """The oldest of what ran ahead stands, as `manifest`; returns what it was."""
        commit = self.ahead.pending[0]
        self.ahead = self.ahead.committed(manifest)
        return commit
