"""Executes a sink's part in a job step by step: write and stage in tasks, decide, commit on the driver.

It is the engine's protocol without the engine, so that a scene can stop between any two steps, repeat a step, or run
two drivers. Manifest data goes through JSON, and task data is pickled.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.compiler.passes.check_functions import travelled
from millstream.connectors.contract_checks import new_writer, opened_sink, planned_commit, staged_items
from millstream.connectors.contracts import CommitId, Json, Sink, SinkWriter, WriterContext
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["Actor", "Rehearsal"]

_NOW_MS = 1_700_000_000_000
_EPOCH_MS = 1_000


@dataclass
class Actor:
    """One driver with its own copy of the sink, as another process would have."""

    sink: Sink
    opened: Sink

    @classmethod
    def of(cls, make: Callable[[], Sink], session: Any) -> Actor:
        sink = make()
        return cls(sink, opened_sink(sink, session))


@dataclass
class Rehearsal:
    """One job with one sink. `actor` is its current driver; `replace_driver` starts another.

    Many fields: one for each part of a manifest's or driver's state.
    """

    make: Callable[[], Sink]
    store: Store
    type_info: TypeInformation | None = None
    session: Any = None
    parallelism: int = 2
    job: str = field(default_factory=lambda: secrets.token_hex(16))
    uid: str = "sink"
    epoch: int = 0
    pending: Json = None
    written: list[Any] = field(default_factory=list)
    commits: list[tuple[CommitId, list[Json]]] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.actor = self._new_actor()

    def _new_actor(self) -> Actor:
        self.actors.append(Actor.of(self.make, self.session))
        return self.actors[-1]

    def close(self) -> None:
        """Close all drivers, including dead ones, which would otherwise leak in the test's process."""
        while self.actors:
            self.actors.pop().opened.close()

    # --- in tasks ---

    def context(self, subtask: int, epoch: int) -> WriterContext:
        return WriterContext(
            uid=self.uid,
            epoch=epoch,
            subtask=subtask,
            parallelism=self.parallelism,
            nonce=secrets.token_hex(8),
            store=self.store,
            now_ms=_NOW_MS + epoch * _EPOCH_MS,
            input_type=self.type_info,
            job=self.job,
        )

    def writers(self, records: Sequence[Any]) -> list[SinkWriter]:
        """An attempt of each task of the next epoch, after writing and before staging."""
        writers = []
        for subtask in range(self.parallelism):
            share = list(records[subtask :: self.parallelism])
            if not share:
                continue  # the engine creates a writer on the first record
            writer = new_writer(travelled(self.actor.sink), self.context(subtask, self.epoch + 1))
            for part in (share[: len(share) // 2], share[len(share) // 2 :]):
                if part:
                    writer.write(Batch.of_values(part, self.type_info))
            writers.append(writer)
        return writers

    def stage(self, records: Sequence[Any]) -> list[Json]:
        """Stage the next epoch in its tasks."""
        return [item for writer in self.writers(records) for item in staged_items(writer)]

    # --- on the driver ---

    def decide(self, staged: Sequence[Json], records: Sequence[Any], final: bool = False) -> None:
        """Write the manifest of the next epoch: from then on its records count as written."""
        self.epoch += 1
        now_ms = _NOW_MS + self.epoch * _EPOCH_MS
        through_manifest = json.loads(json.dumps(list(staged)))
        plan = planned_commit(self.actor.opened, through_manifest, self.pending, now_ms, final)
        again = planned_commit(self.actor.opened, through_manifest, self.pending, now_ms, final)
        assert _same_json(plan.publish, again.publish) and _same_json(plan.pending, again.pending), (
            "plan_commit decides differently when it is called again: after a crash the output would differ"
        )
        self.pending = json.loads(json.dumps(plan.pending))
        self.written.extend(records)
        self.commits.append((CommitId(self.job, self.uid, self.epoch), json.loads(json.dumps(list(plan.publish)))))

    def commit(self, number: int = -1, actor: Actor | None = None) -> None:
        """Publish the output in the manifest of the newest epoch, or of another one."""
        commit, publish = self.commits[number]
        (actor or self.actor).opened.commit(commit, publish, self.store)

    def run(self, records: Sequence[Any], final: bool = False) -> None:
        """One epoch without failures."""
        self.decide(self.stage(records), records, final)
        self.commit()

    def finish(self) -> None:
        """Run the last epoch, without records: deferred output is published."""
        self.run([], final=True)

    def replace_driver(self) -> Actor:
        """Start another driver; returns the previous one."""
        before, self.actor = self.actor, self._new_actor()
        return before


def _same_json(left: Any, right: Any) -> bool:
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
