"""Removes files that lost attempts left in the archives of a job's tables (`connectors.archives.leftovers`).

A file is removed if all of these hold: this job wrote it before its newest epoch; no retained epoch names it, in its
state or its staged output, whether retention, a savepoint, a fork or a reader retains that epoch; and it was never
published. A fork can only name files of epochs that this job has published, or will publish before it continues.

Correctness does not depend on this: files that cannot be removed now are removed after the next start.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.connectors.archives.leftovers import candidate_leftovers, remove_leftovers
from millstream.graph.stored_table import KeptTable
from millstream.jobs.epochs.retained_epochs import RetainedHistory
from millstream.plan.stages import Plan
from millstream.query.epoch_opener import EpochOpener
from millstream.storage.store import Store

__all__ = ["ArchiveSweeper"]

_EVERY_MS = 3_600_000
"""An archive's folder may hold very many files: it is listed at a start, and then at this interval."""


class ArchiveSweeper:
    """Sweeps the archives of the tables of a plan; `job` is the job's id."""

    def __init__(self, plan: Plan, store: Store, job: str, now_ms: Callable[[], int]) -> None:
        self._store, self._job, self._now_ms = store, job, now_ms
        operations = [node.operation for node in plan.nodes() if isinstance(node.operation, KeptTable)]
        self._archives = [operation.archive for operation in operations if operation.archive is not None]
        self._swept_ms: int | None = None

    def release(self, history: RetainedHistory) -> None:
        """Sweeps if due; `history` holds all retained epochs."""
        now_ms = self._now_ms()
        if (
            not self._archives
            or not history.newest
            or (self._swept_ms is not None and now_ms < self._swept_ms + _EVERY_MS)
        ):
            return
        self._swept_ms = now_ms
        files = {archive: candidate_leftovers(archive, self._job, history.newest) for archive in self._archives}
        opener = EpochOpener(self._store, self._store.url, maps=False)
        for manifest in history.manifests():
            if not any(files.values()):
                return  # usually the newest epoch names every file
            with opener.view(manifest, opener.past_segments()) as view:
                named = {file.file for table in view.tables() for file in view.table(table).archived_files}
            files = {archive: names - named for archive, names in files.items()}
        for archive, names in files.items():
            remove_leftovers(archive, names)
