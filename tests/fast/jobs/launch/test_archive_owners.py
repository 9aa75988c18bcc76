"""An archive belongs to one job for as long as that job exists."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from stores.archived_tables import KINDS, new_stores, random_changes, run_table

from millstream.errors import MillstreamError, ProgramError, StoreError
from millstream.jobs.launch.archive_owners import OWNER, release_archive
from millstream.query import open as open_job
from millstream.storage.memory import MemoryStore
from millstream.storage.store import Store, open_store
from millstream.testing import ManualClock

KIND = KINDS["time in the key"]
CHANGES = random_changes(Random(3), KIND, 6)


def job_with_archive() -> tuple[str, str, Store]:
    """A job that has written to its archive: its store, the archive's address, and the archive."""
    store, archive = new_stores()
    run_table(CHANGES, KIND, store, archive, ManualClock(), epochs=4)
    return store, archive, open_store(archive)


def run_another(archive: str) -> str:
    store = new_stores()[0]
    run_table(CHANGES, KIND, store, archive, ManualClock())
    return store


def test_another_job_is_rejected_before_it_writes_and_the_first_continues() -> None:
    store, archive, folder = job_with_archive()
    before, other = folder.list(""), new_stores()[0]
    with pytest.raises(ProgramError, match="which belongs to job"):
        run_table(CHANGES, KIND, other, archive, ManualClock())
    assert folder.list("") == before and MemoryStore(other).list("") == []
    run_table(CHANGES, KIND, store, archive, ManualClock())
    assert OWNER in folder.list("")


def test_another_job_may_own_the_archive_when_the_first_is_removed_or_releases_it() -> None:
    store, archive, _ = job_with_archive()
    place = MemoryStore(store)
    place.delete_many(place.list(""))
    second = open_job(f"memory://{run_another(archive)}")
    with pytest.raises(ProgramError, match="which belongs to job"):
        run_another(archive)
    release_archive(archive, "0" * 32)  # that job does not own it and cannot release it
    with pytest.raises(ProgramError, match="which belongs to job"):
        run_another(archive)
    release_archive(archive, second.job_id)
    run_another(archive)


def test_a_target_that_cannot_hold_an_archive_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"the archive of 'Table: kept' cannot be written to .*Set 'archive.path'"):
        run_another(str(tmp_path / "file"))


def test_an_unreadable_owner_is_reported_and_not_treated_as_none() -> None:
    store, archive, folder = job_with_archive()
    folder.put(OWNER, folder.get(OWNER)[:-9])
    with pytest.raises(MillstreamError, match=OWNER):
        run_table(CHANGES, KIND, store, archive, ManualClock())
