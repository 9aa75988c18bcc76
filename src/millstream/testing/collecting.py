"""A sink whose output the test reads.

Tasks stage their records, which appear here only when their epoch is published, so a test sees the same as a reader of
real output: no output of a failed epoch, and no duplicates. Only the test's object, which is used on the driver,
collects; its copies in tasks do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from millstream.connectors.contracts import CommitId, Json, Sink, SinkWriter, WriterContext
from millstream.connectors.staging import read_staged, stage_bytes
from millstream.records.batch import Batch
from millstream.records.unpickling import unpickled
from millstream.storage.store import Store

__all__ = ["Collect", "Collected"]


@dataclass(frozen=True)
class Collected:
    """One published record: its value, its event time (None without), its epoch and its sink subtask."""

    value: Any
    timestamp: int | None
    epoch: int
    subtask: int


class Collect(Sink):
    """Collects a stream for a test; `name` is for `Result` lookups by name.

    >>> from millstream.testing import Script, run
    >>> doubled = Collect()
    >>> result = run(lambda env: env.add_source(Script([1, 2])).map(lambda n: n * 2).sink_to(doubled))
    >>> result[doubled]
    [2, 4]
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._commits: dict[CommitId, list[Collected]] = {}
        self._published: list[int] = []

    @property
    def records(self) -> list[Collected]:
        """Everything published, in the order of epochs, then of subtasks."""
        return [record for records in self._commits.values() for record in records]

    @property
    def values(self) -> list[Any]:
        """The values of `records`."""
        return [record.value for record in self.records]

    @property
    def publications(self) -> list[int]:
        """The epochs in the order of publication; a repeated publication appears again."""
        return list(self._published)

    def clear(self) -> None:
        """Drop the collected records, before the sink is used in another run."""
        self._commits.clear()
        self._published.clear()

    def writer(self, context: WriterContext) -> SinkWriter:
        return _CollectWriter(context)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        staged = [unpickled(read_staged(payload, store)) for payload in publish]
        self._commits[commit] = [
            Collected(value, time, commit.epoch, subtask) for subtask, rows in staged for value, time in rows
        ]
        self._published.append(commit.epoch)

    def staged_records(self, staged: Json, store: Store) -> Sequence[Any]:
        _, rows = unpickled(read_staged(staged, store))
        return [value if time is None else (value, time) for value, time in rows]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_commits": {}, "_published": []}

    def describe(self) -> str:
        return "collect for a test" + (f" as '{self.name}'" if self.name else "")


class _CollectWriter(SinkWriter):
    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._rows: list[tuple[Any, int | None]] = []

    def write(self, batch: Batch) -> None:
        stamps = [None] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        self._rows.extend(zip(batch.values(), stamps, strict=True))

    def stage(self) -> Sequence[Json]:
        # By cloudpickle: a test's records may have classes defined in the test file.
        data = cloudpickle.dumps((self._context.subtask, self._rows))
        return (stage_bytes(self._context, data, len(self._rows), suffix=".pickle"),)
