"""Base class for user-defined sinks: write and stage in the task, commit on the driver.

A subclass is one plain object with five methods. The engine passes every task attempt of every epoch a copy of it, so
fields that `open`, `write` and `stage` set on `self` belong to that attempt alone; the copy on the driver sees only
the values that `stage` returned. They are stored in the manifest (JSON, small: store large data elsewhere and return
its name). `commit` is called after the manifest is written, and again after a crash: it must be idempotent. Use the
commit's own name for that (`CommitId`): it is never reused, not even when the job is restored into another store,
forked, or started anew.
"""

from __future__ import annotations

import builtins
import copy
import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import cloudpickle

from millstream import errors
from millstream.connectors.contract_checks import check_commit
from millstream.connectors.contracts import CommitId, CommitPlan, Json, Sink, SinkWriter, WriterContext
from millstream.errors import MillstreamError, ProgramError
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["TwoPhaseSink", "commit_in_tasks"]

P = TypeVar("P")


class TwoPhaseSink(Sink):
    """A user-defined sink.

    >>> class Ledger(TwoPhaseSink):
    ...     pages = {}
    ...     def open(self, context): self.values = []
    ...     def write(self, values): self.values.extend(values)
    ...     def stage(self): return self.values or None
    ...     def commit(self, commit, staged): self.pages[str(commit)] = [v for values in staged for v in values]
    >>> Ledger().guarantee
    'exactly-once'

    `commit_in = "tasks"` runs `commit(commit, [one staged value])` for each staged value in a Spark task instead of
    on the driver, each under its own name; use it when publishing is expensive.
    """

    commit_in: Literal["driver", "tasks"] = "driver"

    def open(self, context: WriterContext) -> None:
        """A task attempt begins an epoch."""

    @abstractmethod
    def write(self, values: list[Any]) -> None:
        """Write records. Nothing may become visible yet."""

    @abstractmethod
    def stage(self) -> Json | None:
        """End the epoch: make all output durable and return the value that `commit` needs, or None."""

    def abort(self) -> None:
        """The task failed: remove staged output if that is cheap."""

    @abstractmethod
    def commit(self, commit: CommitId, staged: Sequence[Json]) -> None:  # type: ignore[override]
        """Publish the values that the tasks staged in `commit.epoch`. Must be idempotent."""

    def writer(self, context: WriterContext) -> SinkWriter:
        # A worker process caches the unpickled plan; a copy isolates the fields of one attempt from the next.
        return _TwoPhaseWriter(copy.copy(self), context)

    def opened(self, session: Any) -> Sink:
        """Wraps this sink for the engine: the same writer, and a `commit` that needs no store."""
        if self.commit_in not in ("driver", "tasks"):
            raise ProgramError(f"{type(self).__name__}.commit_in is {self.commit_in!r}. Set it to 'driver' or 'tasks'.")
        check_commit(self, "commit, staged")
        return _TwoPhaseCommitter(self, session)


class _TwoPhaseWriter(SinkWriter):
    def __init__(self, sink: TwoPhaseSink, context: WriterContext) -> None:
        self._sink = sink
        self._opening_context: WriterContext | None = context
        # A sink with operator state receives it before it is opened.
        if not callable(getattr(sink, "initialize_state", None)):
            self._open()

    def stateful(self) -> Any:
        return self._sink

    def _open(self) -> None:
        if self._opening_context is not None:
            self._sink.open(self._opening_context)
            self._opening_context = None

    def write(self, batch: Batch) -> None:
        self._open()
        if batch.length:
            self._sink.write(list(batch.values()))

    def stage(self) -> Sequence[Json]:
        self._open()
        staged = self._sink.stage()
        return () if staged is None else (staged,)

    def abort(self) -> None:
        if self._opening_context is None:
            self._sink.abort()


class _TwoPhaseCommitter(Sink):
    """A two-phase sink on the driver. Delegates every decision to the user's sink."""

    def __init__(self, sink: TwoPhaseSink, session: Any) -> None:
        self._sink = sink
        self._session = session
        self.guarantee = sink.guarantee

    def __getstate__(self) -> dict[str, Any]:
        # A session cannot leave the driver.
        return {**self.__dict__, "_session": None}

    def writer(self, context: WriterContext) -> SinkWriter:
        return self._sink.writer(context)

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        return self._sink.plan_commit(staged, pending, now_ms, final)

    def plan_timed_commit(
        self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool, watermark_ms: int
    ) -> CommitPlan:
        return self._sink.plan_timed_commit(staged, pending, now_ms, final, watermark_ms)

    def merges(self, staged: Sequence[Json]) -> bool:
        return self._sink.commit_in == "driver" and self._sink.merges(staged)

    def due_ms(self, pending: Json) -> int | None:
        return self._sink.due_ms(pending)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        if not publish:
            return
        if self._sink.commit_in == "driver":
            self._sink.commit(commit, list(publish))
            return
        # Each part has its own name: a target that remembers names must not mistake the second for the first.
        parts = [(replace(commit, part=part), staged) for part, staged in enumerate(publish)]
        commit_in_tasks(self._session, partial(_commit_part, self._sink), parts)

    def close(self) -> None:
        self._sink.close()

    def describe(self) -> str:
        return self._sink.describe()


def _commit_part(sink: TwoPhaseSink, part: tuple[CommitId, Json]) -> None:
    """In a task: publish the output staged by one writer."""
    commit, staged = part
    sink.commit(commit, [staged])


# --- publishing from tasks ------------------------------------------------------------------------------------


def commit_in_tasks(session: Any, publish: Callable[[P], None], parts: Sequence[P]) -> None:
    """Call `publish` with each part, each in its own task; raise the first failure.

    The calling sink keeps the session passed to `opened`. A run without Spark has none: the parts are then
    published here, one after another. A task may run twice, even concurrently with its other attempt, so `publish`
    must be idempotent, as every commit.
    """
    if session is None:
        for part in parts:
            publish(part)
        return
    rows = session.sparkContext.parallelize(parts, len(parts))
    # Pickled like the plan: Spark's own copy of cloudpickle lacks the modules that the user registered.
    failures = rows.mapPartitions(partial(_publish_rows, cloudpickle.dumps(publish))).collect()
    for kind, message in failures:
        raise _error_of(kind, message)


def _publish_rows(pickled_publish: bytes, parts: Iterator[P]) -> Iterator[tuple[str, str]]:
    """In a task: publish the parts, and yield each failure: the kind of the error, and its message.

    External failures and wrong settings are returned as data. If they were raised, Spark would retry the task at once
    and wrap the message in a page of its own. Any other error is a bug, and is raised with its traceback.
    """
    publish: Callable[[P], None] = pickle.loads(pickled_publish)
    for part in parts:
        try:
            publish(part)
        except MillstreamError as error:
            yield type(error).__name__, error.message
        except (ConnectionError, TimeoutError) as error:
            yield type(error).__name__, str(error)


def _error_of(kind: str, message: str) -> Exception:
    """Rebuilds the error that a task reported.

    >>> _error_of("ConnectionError", "no answer"), _error_of("StoreAwayError", "no disk")
    (ConnectionError('no answer'), StoreAwayError('no disk'))
    """
    error_class: Any = getattr(errors, kind, getattr(builtins, kind, OSError))
    error: Exception = error_class(message)
    return error
