"""Sweeping a Delta archive: files of lost attempts are removed; files that an epoch names, that were published, or that
belong to another writer stay.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable
from stores.archived_tables import KINDS, Changes, Watch, new_stores, random_changes, run_table

from millstream.checkpoint.job_record import read as read_job_record
from millstream.connectors.files.part_plan import job_mark, token_of
from millstream.storage.memory import MemoryStore
from millstream.testing import ManualClock


class ArchivedTableJob:
    """A table with a Delta archive, run for some epochs; the clock advances with its script."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kind = folder, KINDS["time in the key"]
        self.changes: Changes = random_changes(Random(3), self.kind, 14)
        self.store, self.clock = new_stores()[0], ManualClock()

    def run(self, epochs: int | None = None) -> None:
        folder, clock = str(self.folder), self.clock
        run_table(self.changes, self.kind, self.store, folder, clock, epochs=epochs, format="delta")

    @property
    def job(self) -> str:
        record = read_job_record(MemoryStore(self.store))
        assert record is not None
        return record.job_id

    def files(self) -> set[str]:
        return {path.name for path in self.folder.glob("*.parquet")}

    def leave_orphan(self, epoch: int, job: str | None = None) -> str:
        """A data file of a lost attempt."""
        name = f"part-{epoch:012d}-00000-{token_of(job or self.job, 'lost')}-00000.snappy.parquet"
        shutil.copy(self.folder / min(self.files()), self.folder / name)
        return name


@pytest.mark.slow
def test_only_the_file_of_a_lost_attempt_is_removed_at_the_next_start(tmp_path: Path) -> None:
    table_job = ArchivedTableJob(tmp_path / "archive")
    table_job.run(epochs=9)
    whole = table_job.files()
    assert whole
    lost, later, other = (
        table_job.leave_orphan(3),
        table_job.leave_orphan(10**6),
        table_job.leave_orphan(3, "another job"),
    )
    note = table_job.folder / f"notes-{job_mark(table_job.job)}.parquet"
    shutil.copy(table_job.folder / lost, note)
    table_job.run()
    assert {*whole, later, other, note.name} <= table_job.files() and lost not in table_job.files()
    watch = Watch(table_job.changes, table_job.store)
    watch.look_back()
    assert not watch.wrong and watch.files <= table_job.files()


@pytest.mark.slow
def test_a_file_outside_all_table_versions_is_retained_while_an_epoch_names_it(tmp_path: Path) -> None:
    table_job = ArchivedTableJob(tmp_path / "archive")
    table_job.run(epochs=10)
    before = table_job.files()
    assert len(before) > 1
    DeltaTable(table_job.folder).optimize.compact()  # as the page advises against
    table_job.run()
    assert before <= table_job.files()
    watch = Watch(table_job.changes, table_job.store)
    watch.look_back()
    assert not watch.wrong


@pytest.mark.parametrize("named", ["in the table", "nowhere"])
def test_a_published_file_of_rolled_back_epochs_is_retained(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after a rollback: no remaining epoch names the files, a fork may.
    table_job = ArchivedTableJob(tmp_path / "archive")
    table_job.run(epochs=10)
    before = table_job.files()
    monkeypatch.setattr("millstream.query.table_reads.TableReads.archived_files", [])
    if named == "nowhere":
        monkeypatch.setattr("millstream.connectors.delta.sink.DeltaTableSink.published_files", lambda self: set())
    table_job.run(epochs=11)
    assert (before <= table_job.files()) == (named == "in the table")
