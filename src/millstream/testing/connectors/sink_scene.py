"""One scene: a sink that writes to a place of its own, and a reader who looks at it."""

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
    """A sink under trial: how it is made and read, what is written, and what it promises."""

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
        """A place that nobody has written to, and a job that will."""
        place = f"place{secrets.token_hex(6)}"
        return Scene(self, place, self.job(place))

    def job(self, place: str) -> Rehearsal:
        """Another job that writes there."""
        self.jobs.append(Rehearsal(lambda: self.make(place), self.store, self.type_info, self.session))
        return self.jobs[-1]

    def close(self) -> None:
        """Close what the jobs so far have opened."""
        while self.jobs:
            self.jobs.pop().close()

    def halves(self) -> tuple[list[Any], list[Any]]:
        middle = len(self.records) // 2
        return self.records[:middle], self.records[middle:]


@dataclass
class Scene:
    """`look` and `end` compare what a reader finds with what was written."""

    trial: SinkTrial
    place: str
    job: Rehearsal

    def look(self, *, so_far: bool = False, jobs: Sequence[Rehearsal] = ()) -> None:
        """Is all there that was written, and nothing else? `so_far`: something may still wait for a later epoch."""
        written = [record for job in (self.job, *jobs) for record in job.written]
        found = list(self.trial.read(self.place))
        difference = bag_difference(found, self.trial.expected(written), repeats_allowed=not self.trial.is_exact)
        if so_far and self.job.pending is not None:
            difference = "; ".join(part for part in difference.split("; ") if not part.startswith("lost: "))
        assert not difference, difference

    def end(self, *jobs: Rehearsal) -> None:
        """Every job comes to its end; then a reader looks."""
        for job in (self.job, *jobs):
            job.finish()
        self.look(jobs=jobs)

    def must_be_empty(self, when: str) -> None:
        found = list(self.trial.read(self.place))
        assert not found, f"{when}, a reader sees {len(found)} records"
