"""A sink that throws records away and says how many there were.

It never asks a batch for its other form, so what a benchmark measures with it is the engine, not the sink.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.connectors.contracts import CommitId, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["DiscardingSink"]


class DiscardingSink(Sink):
    """Takes every record and keeps none; each task stages only its count."""

    def writer(self, context: WriterContext) -> SinkWriter:
        return _CountingWriter()

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        """Nothing is published, so there is nothing to repeat."""

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
