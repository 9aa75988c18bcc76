"""The slow, obvious way to run an epoch: every task in this process, one after another, no Spark.

It is the reference the Spark way is held against, and what tests and the operator harness run on. Blocks pass
between stages exactly as they would through the shuffle, so everything but Spark itself is the real thing.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator

import pyarrow as pa

from millstream.runtime.exchange.messages import Envelope, open_envelopes, seal
from millstream.runtime.operators.interruption import InterruptedEpoch, check_wanted, interrupted_by
from millstream.runtime.task.garbage import fewer_collections
from millstream.runtime.task.residents import Residents
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import Assignment, EpochSpec
from millstream.runtime.task.task import run_task
from millstream.storage.tier.tiered_store import TieredStore

__all__ = ["LocalRunner"]


class LocalRunner:
    """Runs epochs in this process. `raises`: a failure of user code is raised, with its traceback, for a debugger."""

    def __init__(self, *, raises: bool = False) -> None:
        self._raises = raises
        self._job: ShippedJob | None = None
        self._residents = Residents()
        self._tasks = 0
        self._cancelled = threading.Event()

    def prepare(self, job: ShippedJob) -> None:
        """A job, or another run of it, is about to begin."""
        self._job = job

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        """One epoch; returns (kind, payload) of what the last stage sends. RuntimeError, if it was cancelled."""
        self._cancelled.clear()  # whoever cancelled the epoch before, and still wants to, cancels again
        try:
            with interrupted_by(self._cancelled):
                return self._run(spec)
        except InterruptedEpoch as error:
            raise RuntimeError(f"epoch {spec.epoch} was cancelled") from error

    def _run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        assert self._job is not None
        # Through text, as the Spark runner sends it: what does not survive JSON must fail here too.
        text = spec.encode()
        plan = self._job.plan()
        arriving: dict[int, list[pa.RecordBatch]] = {}
        for stage in plan.stages:
            leaving: dict[int, list[pa.RecordBatch]] = {}
            for subtask in range(stage.width):
                part = EpochSpec.decode(text, subtask)
                for envelope in self._task(stage.index, subtask, part, iter(arriving.get(subtask, []))):
                    leaving.setdefault(envelope.target, []).append(seal([envelope]))
            arriving = leaving
        return [
            (envelope.kind, envelope.payload.to_pybytes())
            for batches in arriving.values()
            for batch in batches
            for envelope in open_envelopes(batch)
        ]

    def _task(self, stage: int, subtask: int, spec: EpochSpec, rows: Iterator[pa.RecordBatch]) -> Iterator[Envelope]:
        assert self._job is not None
        check_wanted()
        self._tasks += 1
        nonce = f"{self._job.facts.run}t{spec.round}n{self._tasks}"
        assignment = Assignment(stage, subtask, attempt=0, nonce=nonce, capture=False, raises=self._raises)
        with fewer_collections():
            for batch in run_task(self._job, spec, assignment, rows, self._residents):
                yield from open_envelopes(batch)

    def ran_at(self, places: Collection[tuple[int, str]]) -> None:
        """All tasks run in this process."""

    def send_unsent(self) -> None:
        """What this process wrote it sends by itself; here it takes over what others left."""
        store = None if self._job is None else self._job.in_task().facts.store
        if isinstance(store, TieredStore):
            store.adopt()

    def cancel(self) -> None:
        """Stop the epoch that is running, from another thread: between two batches of it."""
        self._cancelled.set()

    def close(self) -> None:
        """Close the functions that are still open."""
        self._residents.close()
