"""An archived table whose epochs run ahead of their commits: epochs that are acknowledged and lost archive nothing, and
epochs committed together archive each row once.
"""

from __future__ import annotations

import random
from random import Random

import pytest
from stores.archived_tables import KINDS, Changes, Kind, Watch, ahead_of_commits, new_stores, published, random_changes
from stores.lagging_store import Lag, LaggingStore
from waits.job_moments import killed_until_finished, when

from millstream.checkpoint.manifest import ManifestLog
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.storage.memory import MemoryStore
from millstream.testing import ManualClock


def check_archive(changes: Changes, store: str, archive: str) -> Watch:
    """Every epoch has the rows that it read, and readers see the files that the newest manifest names; lost attempts
    leave no files, except those of the last epoch.
    """
    watch = Watch(changes, store)
    watch.look_back()
    watch.look()
    if watch.files != set(published(archive)):
        watch.wrong.append(f"published {published(archive)}, and the state names {sorted(watch.files)}")
    return watch


@pytest.mark.slow
@pytest.mark.parametrize("name", ["time in the key", "time beside the key", "counted by time"])
def test_epochs_committed_together_archive_each_row_once(name: str) -> None:
    kind, (store, archive) = KINDS[name], new_stores()
    changes, lagging = random_changes(Random(3), kind, 16), LaggingStore(store)
    job = ahead_of_commits(changes, kind, lagging, archive, ManualClock(), parallelism=2)
    lagging.lag.holds_manifests.clear()
    when(job, lambda now: now.ahead >= 4, lagging.lag.holds_manifests.set)
    job.start().result()
    log = ManifestLog(lagging)
    steps = [(statistics_of(log.read(epoch)) or {}).get("steps", 1) for epoch in log.epochs()]
    assert max(steps) >= 2, "no epoch ran ahead, so the test shows nothing"
    watch = check_archive(changes, store, archive)
    assert not watch.wrong and watch.files and not lagging.lag.violations


def killed_while_ahead(kind: Kind, seed: int) -> tuple[Watch, list[str]]:
    """Repeatedly kill a job that is ahead of its commits; returns the staged files that remain."""
    (store, archive), draw, clock = new_stores(), random.Random(seed), ManualClock()
    changes, lagging = random_changes(Random(seed), kind, 16), LaggingStore(store, Lag(Random(seed)))
    killed_until_finished(
        lambda: ahead_of_commits(changes, kind, lagging, archive, clock, parallelism=1 + draw.randrange(2)),
        lagging.lag.lose,
        draw,
        60,
    )
    staged = [name for name in MemoryStore(archive.removeprefix("memory://")).list("") if name.startswith(".")]
    return check_archive(changes, store, archive), staged


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_job_killed_ahead_of_its_commits_archives_every_row_once(seed: int) -> None:
    watch, staged = killed_while_ahead(KINDS["time beside the key"], seed)
    assert not watch.wrong and watch.files
    assert len(staged) < 8, "files of lost attempts are swept"
