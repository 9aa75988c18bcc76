"""One scene: a sink that writes to its own target, and a reader that checks it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Sink
from millstream.storage.store import Store
from millstream.testing.connectors.records import bag_difference
from millstream.testing.connectors.rehearsal import Rehearsal

__all__ = ["Scene", "SinkTrial"]


@dataclass(frozen=True)
class SinkTrial:
    """A sink under test: how to create and read it, the records to write, and its promise."""

    make: Callable[[str], Sink]
    read: Callable[[str], Sequence[Any]]
    records: list[Any]
    type_info: TypeInformation | None
    expected: Callable[[Sequence[Any]], Sequence[Any]]
    is_exact: bool
    store: Store
    session: Any
    crash_points: int
    jobs: list[Rehearsal] = field(default_factory=list)

    def scene(self) -> Scene:
        """A new target, and a job that writes to it."""
        place = f"place{secrets.token_hex(6)}"
        return Scene(self, place, self.job(place))

    def job(self, place: str) -> Rehearsal:
        """Another job that writes to the target."""
        self.jobs.append(Rehearsal(lambda: self.make(place), self.store, self.type_info, self.session))
        return self.jobs[-1]

    def close(self) -> None:
        """Close everything the jobs have opened."""
        while self.jobs:
            self.jobs.pop().close()

    def halves(self) -> tuple[list[Any], list[Any]]:
        middle = len(self.records) // 2
        return self.records[:middle], self.records[middle:]


@dataclass
class Scene:
    """`check` and `end` compare a reader's records with the written ones."""

    trial: SinkTrial
    place: str
    job: Rehearsal

    def check(self, *, so_far: bool = False, jobs: Sequence[Rehearsal] = ()) -> None:
        """Check that exactly the written records are visible. `so_far`: some may be deferred to a later epoch."""
        written = [record for job in (self.job, *jobs) for record in job.written]
        visible = list(self.trial.read(self.place))
        difference = bag_difference(visible, self.trial.expected(written), repeats_allowed=not self.trial.is_exact)
        if so_far and self.job.pending is not None:
            difference = "; ".join(part for part in difference.split("; ") if not part.startswith("lost: "))
        assert not difference, difference

    def end(self, *jobs: Rehearsal) -> None:
        """End every job, then check."""
        for job in (self.job, *jobs):
            job.finish()
        self.check(jobs=jobs)

    def must_be_empty(self, when: str) -> None:
        visible = list(self.trial.read(self.place))
        assert not visible, f"{when}, a reader sees {len(visible)} records"
