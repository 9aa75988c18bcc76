"""Which runs are alive, as the tasks of every epoch are told, so that worker processes close what has ended.

Python workers outlive jobs: the functions of a job that has ended would stay open in every worker that is not asked
for its last epoch. So the driver's process numbers the runs that it begins (`epoch_run` says what a run is), and sends
with each epoch how many have begun and which of these live. What a worker has open of a run that has begun and does
not live is closed before its next task.

Invariant: a run that lives is never taken for one that has ended. A task may start long after its epoch was sent, so
its notice may be older than runs that this worker has open: those have numbers that had not begun then. Several
processes may share an application; each counts for itself, under a name of its own.
"""

from __future__ import annotations

import json
import secrets
import threading
from dataclasses import asdict, dataclass

__all__ = ["LIVE_RUNS", "RUNS_PROPERTY", "LiveRuns", "RunNotice", "SeenRuns"]

RUNS_PROPERTY = "millstream.runs"
"""The local property of a Spark job that holds the notice."""


@dataclass(frozen=True)
class RunNotice:
    """What a task is told: it is of run `number` of the process `driver`, where runs 0 to `begun` - 1 have begun, of
    which those in `living` have not ended."""

    driver: str
    number: int
    begun: int
    living: tuple[int, ...]

    def encode(self) -> str:
        """As text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> RunNotice:
        """What `encode` wrote."""
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
        """A run begins; returns its number."""
        with self._lock:
            number, self._begun = self._begun, self._begun + 1
            self._living.add(number)
        return number

    def end(self, number: int) -> None:
        """A run has ended: none of its tasks is sent any more."""
        with self._lock:
            self._living.discard(number)

    def notice(self, number: int) -> RunNotice:
        """What the tasks of a run are told now."""
        with self._lock:
            return RunNotice(self._driver, number, self._begun, tuple(sorted(self._living)))


LIVE_RUNS = LiveRuns(secrets.token_hex(8))
"""Those of this process: all its jobs in one application share the workers."""


class SeenRuns:
    """The runs of which a worker process has run tasks, until they are known to have ended."""

    def __init__(self) -> None:
        self._numbers: dict[str, tuple[str, int]] = {}  # by name

    def ended(self, run: str, notice: RunNotice) -> set[str]:
        """The names of those that have ended, by what a task of `run` is told. Each is named once."""
        self._numbers[run] = (notice.driver, notice.number)
        ended = {
            name
            for name, (driver, number) in self._numbers.items()
            if driver == notice.driver and number < notice.begun and number not in notice.living
        }
        for name in ended:
            del self._numbers[name]
        return ended
