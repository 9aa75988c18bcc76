"""What lost attempts leave in a Delta archive goes; what an epoch names, was published, or is another's stays."""

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


class Stage:
    """A table with a Delta archive, run for some epochs; the clock goes on with its script."""

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

    def left(self, epoch: int, job: str | None = None) -> str:
        """A data file as an attempt has left it that was lost."""
        name = f"part-{epoch:012d}-00000-{token_of(job or self.job, 'lost')}-00000.snappy.parquet"
        shutil.copy(self.folder / min(self.files()), self.folder / name)
        return name


@pytest.mark.slow
def test_a_file_that_a_lost_attempt_left_goes_at_the_next_start_and_no_other_does(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "archive")
    stage.run(epochs=9)
    whole = stage.files()
    assert whole
    lost, later, other = stage.left(3), stage.left(10**6), stage.left(3, "another job")
    note = stage.folder / f"notes-{job_mark(stage.job)}.parquet"
    shutil.copy(stage.folder / lost, note)
    stage.run()
    assert {*whole, later, other, note.name} <= stage.files() and lost not in stage.files()
    watch = Watch(stage.changes, stage.store)
    watch.look_back()
    assert not watch.wrong and watch.files <= stage.files()


@pytest.mark.slow
def test_a_file_that_is_in_no_version_of_the_table_any_more_stays_while_an_epoch_names_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "archive")
    stage.run(epochs=10)
    before = stage.files()
    assert len(before) > 1
    DeltaTable(stage.folder).optimize.compact()  # as the page asks nobody to do
    stage.run()
    assert before <= stage.files()
    watch = Watch(stage.changes, stage.store)
    watch.look_back()
    assert not watch.wrong


@pytest.mark.parametrize("named", ["in the table", "nowhere"])
def test_a_file_of_epochs_that_the_job_went_back_from_stays_because_it_was_published(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after going back: no epoch that is left names the files, a fork may.
    stage = Stage(tmp_path / "archive")
    stage.run(epochs=10)
    before = stage.files()
    monkeypatch.setattr("millstream.query.table_reads.TableReads.archived_files", [])
    if named == "nowhere":
        monkeypatch.setattr("millstream.connectors.delta.sink.DeltaTableSink.published_files", lambda self: set())
    stage.run(epochs=11)
    assert (before <= stage.files()) == (named == "in the table")
