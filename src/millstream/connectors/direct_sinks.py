"""Sinks that process records directly and stage only a count.

`ForeachSink` calls the user's function with every record, in the task, while the epoch runs. The function's effects are
visible at once and cannot be undone: a repeated epoch calls it again with the same records. That is
at-least-once, which the plan shows. For exactly-once, write a `TwoPhaseSink`.

`DiscardingSink` drops records. It never converts a batch to its other form, so that a benchmark with it measures
the engine, not the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.connectors.contracts import CommitId, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["DiscardingSink", "ForeachSink"]


class ForeachSink(Sink):
    """Calls `function(value)`, or `function.invoke(value)`, for every record.

    An object may also have `open(context)` and `close()`: they are called around each epoch of each task, with the
    `WriterContext`.

    >>> ForeachSink(print).guarantee
    'at-least-once'
    """

    guarantee = "at-least-once"

    def __init__(self, function: Any) -> None:
        if isinstance(function, type) or not (callable(function) or callable(getattr(function, "invoke", None))):
            raise ProgramError(
                f"ForeachSink: {function!r} can neither be called nor has a method invoke(value). "
                f"Pass a function of one value, or such an object."
            )
        if callable(getattr(function, "snapshot_state", None)) or callable(getattr(function, "initialize_state", None)):
            raise ProgramError(
                f"ForeachSink: {type(function).__name__} has methods for operator state, which is stored exactly once "
                f"and needs a sink that commits. Derive it from TwoPhaseSink."
            )
        self.function = function

    def writer(self, context: WriterContext) -> SinkWriter:
        return _CallingWriter(self.function, context)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        """Nothing to publish: the function has already processed every record."""

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return pending, "the function is called again with the records after that epoch"

    def describe(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"call {name} for each record (at-least-once)"


class _CallingWriter(SinkWriter):
    def __init__(self, function: Any, context: WriterContext) -> None:
        self._function = function
        invoke = getattr(function, "invoke", None)
        self._call: Callable[[Any], Any] = invoke if callable(invoke) else function
        self._records = 0
        if callable(getattr(function, "open", None)):
            function.open(context)

    def write(self, batch: Batch) -> None:
        call = self._call
        values = batch.values()
        remaining = iter(values)
        for value in remaining:  # the name by which the failing record is located
            call(value)
        self._records += batch.length

    def stage(self) -> Sequence[Json]:
        self._close()
        return ({"records": self._records},) if self._records else ()

    def abort(self) -> None:
        self._close()

    def _close(self) -> None:
        if callable(getattr(self._function, "close", None)):
            self._function.close()


class DiscardingSink(Sink):
    """Drops every record; each task stages only its count."""

    def writer(self, context: WriterContext) -> SinkWriter:
        return _CountingWriter()

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        """Nothing to publish."""

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return pending, ""

    def describe(self) -> str:
        return "discard"


class _CountingWriter(SinkWriter):
    def __init__(self) -> None:
        self._records = 0

    def write(self, batch: Batch) -> None:
        self._records += batch.length

    def stage(self) -> Sequence[Json]:
        return ({"records": self._records},) if self._records else ()
