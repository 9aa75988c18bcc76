"""Tracks live runs, so that worker processes close the functions of runs that have ended.

Python workers outlive jobs: the functions of an ended job would stay open in every worker that did not run its last
epoch. So the driver's process numbers its runs (`epoch_run` defines a run), and sends with each epoch how many have
begun and which of them are alive. A worker closes everything that belongs to begun runs that are not alive before its
next task.

Invariant: a live run is never mistaken for an ended one. A task may start long after its epoch was sent, so its notice
may be older than runs already open in this worker; their numbers had not begun then. Several processes may share an
application; each numbers its own runs, under a unique name.
"""

from __future__ import annotations

import json
import secrets
import threading
from dataclasses import asdict, dataclass

__all__ = ["LIVE_RUNS", "RUNS_PROPERTY", "LiveRuns", "RunNotice", "SeenRuns"]

RUNS_PROPERTY = "millstream.runs"
"""The local property of a Spark job that contains the notice."""


@dataclass(frozen=True)
class RunNotice:
    """The notice to a task: it belongs to run `number` of the process `driver`, in which runs 0 to `begun` - 1 have
    begun, and those in `living` have not ended."""

    driver: str
    number: int
    begun: int
    living: tuple[int, ...]

    def encode(self) -> str:
        """The notice as JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> RunNotice:
        """Parses the text of `encode`."""
        parts = json.loads(text)
        return cls(parts["driver"], parts["number"], parts["begun"], tuple(parts["living"]))


class LiveRuns:
    """The runs of this process.

    >>> runs = LiveRuns("driver")
    >>> first, second = runs.begin(), runs.begin()
    >>> runs.end(first)
    >>> runs.notice(second)
    RunNotice(driver='driver', number=1, begun=2, living=(1,))
    """

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._begun = 0
        self._living: set[int] = set()

    def begin(self) -> int:
        """Starts a run; returns its number."""
        with self._lock:
            number, self._begun = self._begun, self._begun + 1
            self._living.add(number)
        return number

    def end(self, number: int) -> None:
        """Ends a run: no more of its tasks will be sent."""
        with self._lock:
            self._living.discard(number)

    def notice(self, number: int) -> RunNotice:
        """The current notice for the tasks of a run."""
        with self._lock:
            return RunNotice(self._driver, number, self._begun, tuple(sorted(self._living)))


LIVE_RUNS = LiveRuns(secrets.token_hex(8))
"""The runs of this process: all its jobs in one application share the workers."""


class SeenRuns:
    """The runs whose tasks a worker process has executed and that are not known to have ended."""

    def __init__(self) -> None:
        self._numbers: dict[str, tuple[str, int]] = {}  # by name

    def pop_ended(self, run: str, notice: RunNotice) -> set[str]:
        """The names of runs that have ended, by the notice of a task of `run`. Each is returned once."""
        self._numbers[run] = (notice.driver, notice.number)
        ended = {
            name
            for name, (driver, number) in self._numbers.items()
            if driver == notice.driver and number < notice.begun and number not in notice.living
        }
        for name in ended:
            del self._numbers[name]
        return ended
