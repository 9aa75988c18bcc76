"""Files missing from the store because the process that was to upload them has ended: other processes upload them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from millstream.jobs.epochs import committer
from millstream.jobs.epochs.committer import Committer
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import JobFacts
from millstream.storage.memory import MemoryStore
from millstream.storage.tier.local_tier import LocalTier
from millstream.storage.tier.tiered_store import TieredStore, TierSettings
from millstream.testing import ManualClock

_STORES = itertools.count()
NAME = "segments/count/total/7-a.arrow"


def new_store() -> MemoryStore:
    return MemoryStore(f"unsent-{next(_STORES)}")


def awaited(store: MemoryStore, send_unsent: Any) -> None:
    committing = Committer(store, ManualClock(), lambda event, error: None, send_unsent=send_unsent)
    try:
        committing._await_files([NAME], 60.0)
    finally:
        committing.close()


def test_a_commit_that_waits_for_files_requests_their_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "_UNSENT_S", 0.0)
    store = new_store()
    awaited(store, lambda: store.put(NAME, b"abc"))
    assert store.exists(NAME)


def test_a_commit_whose_files_arrive_requests_no_upload() -> None:
    store, questions = new_store(), []
    store.put(NAME, b"abc")
    awaited(store, lambda: questions.append(1))
    assert not questions


def test_files_left_by_a_dead_process_are_uploaded_when_no_task_runs(tmp_path: Path) -> None:
    store, dead = new_store(), LocalTier(tmp_path, 1 << 20)
    dead.keep_unsent(store.url, NAME, b"abc")
    dead.close()
    runner = LocalRunner()
    runner.send_unsent()  # without a prepared job no files are known
    job = ShippedJob(b"", JobFacts("job", "id", "run", store, tier=TierSettings(str(tmp_path))))
    runner.prepare(job)
    runner.send_unsent()
    tiered = job.in_task().facts.store
    assert isinstance(tiered, TieredStore)
    tiered.flush()
    assert store.get(NAME) == b"abc"
