"""Dropping a job permanently removes its store, except for files that its forks and savepoints need."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from millstream.checkpoint.job_record import claim
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch, pins_of, unpin
from millstream.checkpoint.retention import RetentionPolicy, named_files
from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StoreError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.snapshots.dropping import drop_store
from millstream.state_reader.stored_jobs import DROPPED, jobs
from millstream.storage.names import manifest_name
from millstream.storage.shared_names import pin_name
from millstream.storage.store import Store, open_store
from millstream.testing import EPOCH, Collect, Script, run

NUMBERS = itertools.count()


def total(env: StreamExecutionEnvironment, out: Collect) -> None:
    env.configure(Configuration().set_integer("millstream.retention.epochs", 100))
    numbers = env.add_source(Script([1, 2, EPOCH, 3, EPOCH, 4, EPOCH], type_info=Types.LONG()), type_info=Types.LONG())
    numbers.key_by(lambda number: number % 2, Types.LONG()).reduce(lambda a, b: a + b).uid("total").sink_to(out)


def job() -> Store:
    """A store with some epochs of state."""
    name = f"dropped-{next(NUMBERS)}"
    run(lambda env: total(env, Collect()), store=name)
    return open_store(f"memory://{name}")


def fork_of(origin: Store, epoch: int, *bases: Store) -> Store:
    """A store that starts from an epoch of another; `bases`: the further stores below that one."""
    fork = open_store(f"memory://fork-{next(NUMBERS)}")
    for base in (origin, *bases):
        pin_epoch(base, Pin(f"fork-{next(NUMBERS)}", epoch, "fork", 0, by=fork.url))
    claim(fork, "fork", job_id=f"id-{next(NUMBERS)}", now_ms=0, bases=tuple(base.url for base in (origin, *bases)))
    return fork


def drop(store: Store) -> tuple[str, ...]:
    return drop_store(store.url, lambda: 0)


def is_whole(store: Store, epoch: int) -> bool:
    manifest = ManifestLog(store).read(epoch)
    return bool(named_files(manifest)) and all(store.exists(name) for name in named_files(manifest))


def test_an_unreferenced_store_is_removed(tmp_path: Path) -> None:
    store = job()
    assert drop(store) == () and store.list("") == []
    folder = open_store(str(tmp_path / "store"))
    claim(folder, "job", job_id="id", now_ms=0)
    assert drop(folder) == () and not (tmp_path / "store").exists()
    assert drop(folder) == ()  # again, as after a crash


def test_files_of_forks_and_savepoints_are_retained_and_the_job_cannot_continue() -> None:
    store = job()
    fork = fork_of(store, 2)
    pin_epoch(store, Pin("kept", 1, "savepoint", 0))
    files = set(store.list("segments"))
    assert drop(store) == (f"the fork in {fork.url}", "the savepoint kept")
    assert ManifestLog(store).epochs() == [1, 2] and is_whole(store, 1) and is_whole(store, 2)
    assert set(store.list("segments")) < files
    with pytest.raises(StoreError, match="holds the remains of job"):
        run(lambda env: total(env, Collect()), store=store.url.removeprefix("memory://"))
    [listed] = jobs(store.url)
    assert listed.status == DROPPED
    assert drop(store) == (f"the fork in {fork.url}", "the savepoint kept")  # again, as after a crash
    assert is_whole(store, 1) and is_whole(store, 2)


def test_dropping_the_last_fork_removes_the_files_retained_for_it() -> None:
    store = job()
    first, second = fork_of(store, 2), fork_of(store, 2)
    assert len(drop(store)) == 2
    assert drop(first) == () and is_whole(store, 2)
    assert drop(second) == () and store.list("") == []


def test_a_fork_of_a_fork_retains_both_origins() -> None:
    store = job()
    fork = fork_of(store, 2)
    middle = job()
    second = fork_of(middle, 2, store)
    drop(store)
    drop(fork)
    assert is_whole(store, 2), "the second fork has pinned it"
    drop(middle)
    assert is_whole(middle, 2)
    drop(second)
    assert store.list("") == middle.list("") == []


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_savepoint_of_a_fork_retains_the_epoch_the_fork_started_from(is_readable: bool) -> None:
    """The savepoint's manifest names files of the origin, which the fork's pin retains there."""
    store = job()
    fork = fork_of(store, 2)
    fork.put(manifest_name(2), store.get(manifest_name(2)))
    pin_epoch(fork, Pin("kept", 2, "savepoint", 0))
    whole_pin = fork.get(pin_name("kept"))
    if not is_readable:
        fork.put(pin_name("kept"), b"{")
    assert len(drop(fork)) == 1
    Sweeper(store, lambda: 0, RetentionPolicy(keep_last=1)).sweep(ManifestLog(store).newest())
    assert is_whole(store, 2), "the savepoint can no longer be restored"
    assert drop(store) == (f"the fork in {fork.url}",) and is_whole(store, 2)
    fork.put(pin_name("kept"), whole_pin)
    unpin(fork, "kept")
    assert drop(fork) == () and store.list("") == fork.list("") == []


def test_dropping_a_fork_does_not_remove_its_origin_in_use() -> None:
    store = job()
    drop(fork_of(store, 2))
    assert pins_of(store) == [] and is_whole(store, 2)
    record = read_job_record(store)
    assert record is not None and not record.is_dropped


def test_an_unreadable_pin_retains_everything_it_might_name() -> None:
    store = job()
    store.put(pin_name("broken"), b"{")
    assert drop(store) == ("a pin that cannot be read",)
    record = read_job_record(store)
    assert record is not None and record.is_dropped
