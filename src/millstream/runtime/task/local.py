"""Runs an epoch in the simplest way: every task in this process, one after another, without Spark.

It is the reference for the Spark runner, and tests and the operator harness run on it. Blocks pass between stages as
they do through the shuffle; only Spark itself is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator

import pyarrow as pa

from millstream.runtime.exchange.messages import Envelope, open_envelopes, seal
from millstream.runtime.operators.interruption import InterruptedEpoch, check_cancelled, interrupted_by
from millstream.runtime.task.garbage import fewer_collections
from millstream.runtime.task.residents import Residents
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import Assignment, EpochSpec
from millstream.runtime.task.task import run_task
from millstream.storage.tier.tiered_store import TieredStore

__all__ = ["LocalRunner"]


class LocalRunner:
    """Runs epochs in this process. With `raises`, a failure of user code is raised with its traceback, for
    debugging."""

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
        """Runs one epoch; returns (kind, payload) of the last stage's envelopes. RuntimeError if it was cancelled."""
        self._cancelled.clear()  # clear a cancellation of the previous epoch; callers that still want one repeat it
        try:
            with interrupted_by(self._cancelled):
                return self._run(spec)
        except InterruptedEpoch as error:
            raise RuntimeError(f"epoch {spec.epoch} was cancelled") from error

    def _run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        assert self._job is not None
        # Encoded and decoded as in the Spark runner: a value that does not survive JSON must fail here too.
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
        check_cancelled()
        self._tasks += 1
        nonce = f"{self._job.facts.run}t{spec.round}n{self._tasks}"
        assignment = Assignment(stage, subtask, attempt=0, nonce=nonce, capture=False, raises=self._raises)
        with fewer_collections():
            for batch in run_task(self._job, spec, assignment, rows, self._residents):
                yield from open_envelopes(batch)

    def record_places(self, places: Collection[tuple[int, str]]) -> None:
        """Nothing to record: all tasks run in this process."""

    def send_unsent(self) -> None:
        """This process sends its own files; here it also adopts files of processes that died."""
        store = None if self._job is None else self._job.in_task().facts.store
        if isinstance(store, TieredStore):
            store.adopt()

    def cancel(self) -> None:
        """Stops the running epoch between two batches; called from another thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Closes the functions that are still open."""
        self._residents.close()
