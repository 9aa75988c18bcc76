"""The operator of asynchronous calls: runs a user's `async def` function for many records concurrently.

Calls begin when their batch arrives and continue while the task reads the next one. Finished calls are emitted, and the
operator waits for the rest before event time advances. So calls belong to their epoch: a crash repeats only the calls
of uncommitted epochs, no result crosses a watermark, and pending calls are not stored. A slow service blocks the task
in `take`, which provides the back-pressure.

Results have the timestamp of their record. The function has no keyed state.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator

import numpy as np

from millstream.graph.nodes import AsyncCalls
from millstream.records.batch import Batch
from millstream.runtime.operators.epoch_calls import Call, EpochCalls
from millstream.runtime.operators.loop_thread import LoopThread, StepWatch
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.task.spec import EpochSpec

__all__ = ["AsyncCallsOperator"]

_LOG = logging.getLogger(__name__)


class AsyncCallsOperator(Operator):
    """An `AsyncFunction` in one subtask, with its own event loop."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(setting.node.operation, AsyncCalls)
        self._settings = setting.node.operation
        name = f"{type(self._settings.function).__name__}.async_invoke()"
        self._watch = StepWatch(name, self.node.name, str(self.node.site))
        self._thread: LoopThread | None = None
        self._calls: EpochCalls | None = None

    def open_functions(self) -> None:
        """Opens the function on the loop, where the clients it creates will be used."""
        self._thread = LoopThread(f"async calls of {self.node.name}")
        try:
            with self.call.running("open"):
                self._thread.run(lambda: self._settings.function.open(self.setting.context))
        except BaseException:
            self._thread.stop()  # close() is never called on an operator that failed to open
            raise

    def close(self) -> None:
        """Cancels pending calls, closes the function on the loop, and ends the loop."""
        assert self._thread is not None
        stuck = self._calls is not None and self._calls.stuck
        if not self._thread.running:
            return
        self._abandon()
        try:
            if stuck:
                _LOG.warning("close() of '%s' is not called: its event loop is blocked", self.node.name)
            else:
                with self.call.running("close"):
                    self._thread.run(self._settings.function.close)
        finally:
            self._thread.stop(patience_s=0.0 if stuck else 5.0)

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._abandon()
        assert self._thread is not None
        with self.call.running("retry strategy"):
            self._calls = EpochCalls(self._settings, self._thread, self._watch)

    def _abandon(self) -> None:
        """Cancels pending calls of an attempt that failed in another task."""
        if self._calls is not None and not self._calls.idle:
            self._calls.abandon()

    def take(self, batch: Batch) -> None:
        """Starts the calls of a batch and emits finished ones; returns when all calls have started."""
        assert self._calls is not None
        self.records_in += len(batch)
        self._calls.queue(batch.values(), None if batch.timestamps is None else batch.timestamps.tolist())
        self._emit_finished(all_done=False)

    def advance(self, watermark: int) -> int:
        """All input of the epoch has arrived: waits for pending calls."""
        self._emit_finished(all_done=True)
        return super().advance(watermark)

    def _emit_finished(self, *, all_done: bool) -> None:
        assert self._calls is not None
        over = False
        while not over:
            started = time.perf_counter_ns()
            calls, over = self._calls.finished(all_done=all_done)
            failure = self._calls.failure
            if failure is not None:
                raise self.call.failed(failure.error, failure.role, (failure.value,)) from failure.error
            batches = list(self._batches(calls))
            self.busy_ns += time.perf_counter_ns() - started
            for batch in batches:
                self.emit(batch)

    def _batches(self, calls: list[Call]) -> Iterator[Batch]:
        """The results of calls as batches; records with and without a timestamp are never in the same batch."""
        for untimed, alike in itertools.groupby(calls, key=lambda call: call.timestamp is None):
            values, stamps = [], []
            for call in alike:
                assert call.results is not None
                values += call.results
                stamps += [call.timestamp] * len(call.results)
            if values:
                timestamps = None if untimed else np.array(stamps, dtype=np.int64)
                yield self.typed(values, timestamps, self.node.output_type)
