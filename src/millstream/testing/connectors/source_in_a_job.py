"""Tests a source in a real job that crashes, with the real engine in this process."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from millstream.common.restart_strategy import RestartStrategies
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.storage.store import Store
from millstream.testing.collecting import Collect
from millstream.testing.connectors.source_ranges import Walk
from millstream.testing.in_memory import run

__all__ = ["records_of_a_job"]

_CRASHES_LEFT: dict[str, int] = {}
"""Remaining crashes of this process's jobs by name, as tasks are copies and look them up."""


class PlannedCrash(RuntimeError):
    """The failure of the job that the kit runs."""


class _CrashingMap:
    """Forwards records, and fails after some of them, the planned number of times."""

    def __init__(self, job: str, after: int) -> None:
        self._job, self._after, self._seen = job, after, 0

    def __call__(self, value: Any) -> Any:
        self._seen += 1
        if self._seen > self._after and _CRASHES_LEFT[self._job]:
            _CRASHES_LEFT[self._job] -= 1
            raise PlannedCrash("the kit lets the job crash here")
        return value


def records_of_a_job(source: Source, walks: Sequence[Walk], parallelism: int) -> tuple[list[Any], int]:
    """The published output of a job that reads `source`, and its number of crashes."""
    job, count = secrets.token_hex(8), sum(len(walk.records) for walk in walks)
    _CRASHES_LEFT[job] = 2
    out = Collect()
    bounded = source if source.bounded and all(walk.ended for walk in walks) else UpToHere(source, walks)

    def build(env: StreamExecutionEnvironment) -> None:
        crashing = _CrashingMap(job, max(1, count // 3))
        env.add_source(bounded, "source").map(crashing, source.type_info).sink_to(out)

    try:
        restart = RestartStrategies.fixed_delay_restart(5, 0)
        result = run(build, parallelism=parallelism, epoch_records=3, restart=restart, timeout_s=120)
    finally:
        del _CRASHES_LEFT[job]
    return result[out], result.restarts


class UpToHere(Source):
    """A source limited to the ranges read in `walks`, and therefore bounded."""

    bounded = True

    def __init__(self, source: Source, walks: Sequence[Walk]) -> None:
        self._source = source
        self._splits = [walk.split for walk in walks]
        self._stops = {walk.split.name: [(range_.start, range_.stop) for range_ in walk.ranges] for walk in walks}
        self._ends = {walk.split.name: walk.positions[-1] for walk in walks}
        self.type_info = source.type_info
        self.replayable = source.replayable
        self.carries_timestamps = source.carries_timestamps
        self.single = source.single

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return self._splits

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return next((stop for start, stop in self._stops[split.name] if start == offset), offset)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset == self._ends[split.name])

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return self._source.read(split, start, stop)

    def opened(self, store: Store, session: Any) -> Source:
        self._source = self._source.opened(store, session) or self._source
        return self

    def committed(self, positions: dict[str, Offset]) -> None:
        self._source.committed(positions)

    def close(self) -> None:
        self._source.close()
