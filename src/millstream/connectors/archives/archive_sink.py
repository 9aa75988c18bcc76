"""Publishes files of an archive that the table's operator has staged.

The operator writes the file itself, with a writer of `sink`, because its state must list the file. The writer's staged
entry arrives here as a string in a row, and is stored in the manifest like any staged entry; `sink` itself plans and
publishes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from millstream.connectors.contracts import CommitId, CommitPlan, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import VarCharType
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["STAGED_TYPE", "ArchiveSink"]

STAGED_TYPE = RowType.of(["staged"], [VarCharType(0x7FFFFFFF, False)], nullable=False)
"""Rows with the staged entry of a file."""


class ArchiveSink(Sink):
    """Publishes through `sink` the files that a writer of that sink has staged elsewhere in the task."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def writer(self, context: WriterContext) -> SinkWriter:
        return _StagedFiles()

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        return self._sink.plan_commit(staged, pending, now_ms, final)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        self._sink.commit(commit, publish, store)

    def opened(self, session: Any) -> Sink:
        return ArchiveSink(self._sink.opened(session))

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return self._sink.after_restore(pending, point)

    def close(self) -> None:
        self._sink.close()

    def describe(self) -> str:
        return f"archive: {self._sink.describe()}"


class _StagedFiles(SinkWriter):
    """The files of one task attempt."""

    def __init__(self) -> None:
        self._staged: list[Json] = []

    def write(self, batch: Batch) -> None:
        self._staged += [json.loads(text) for text in batch.columns().column(0).to_pylist()]

    def stage(self) -> Sequence[Json]:
        return self._staged
