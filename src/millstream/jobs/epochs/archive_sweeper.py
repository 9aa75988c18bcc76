"""Removes what lost attempts have left in the archives of a job's tables (`connectors.archives.leftovers`).

A file goes if this job wrote it, before its newest epoch; if no epoch that is left names it, in its state or in what it
staged, be it kept by retention, a savepoint, a fork or a reader; and if it was never published. A fork that names a
file of this job has it from an epoch that this job has published, or publishes before it goes on.

Nothing here is needed for an answer to be right: what cannot be done now is done at the next start.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.connectors.archives.leftovers import may_be_left, remove_left
from millstream.graph.stored_table import KeptTable
from millstream.jobs.epochs.retained_epochs import RetainedHistory
from millstream.plan.stages import Plan
from millstream.query.epoch_opener import EpochOpener
from millstream.storage.store import Store

__all__ = ["ArchiveSweeper"]

_EVERY_MS = 3_600_000
"""A folder of an archive may hold very many files: it is listed at a start, and then so often."""


class ArchiveSweeper:
    """Sweeps the archives of the tables of a plan, of which `job` is the job's id."""

    def __init__(self, plan: Plan, store: Store, job: str, now_ms: Callable[[], int]) -> None:
        self._store, self._job, self._now_ms = store, job, now_ms
        kept = [node.operation for node in plan.nodes() if isinstance(node.operation, KeptTable)]
        self._archives = [operation.archive for operation in kept if operation.archive is not None]
        self._swept_ms: int | None = None

    def release(self, history: RetainedHistory) -> None:
        """These are all epochs that are left."""
        now_ms = self._now_ms()
        if (
            not self._archives
            or not history.newest
            or (self._swept_ms is not None and now_ms < self._swept_ms + _EVERY_MS)
        ):
            return
        self._swept_ms = now_ms
        files = {archive: may_be_left(archive, self._job, history.newest) for archive in self._archives}
        opener = EpochOpener(self._store, self._store.url, maps=False)
        for manifest in history.manifests():
            if not any(files.values()):
                return  # the newest epoch names all that is there, most often
            with opener.view(manifest, opener.past_segments()) as view:
                named = {file.file for table in view.tables() for file in view.table(table).archived_files}
            files = {archive: names - named for archive, names in files.items()}
        for archive, names in files.items():
            remove_left(archive, names)
