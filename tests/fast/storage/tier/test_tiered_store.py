"""The local tier: tasks see exactly what a store without a tier would show, despite crashes, full disks and damage."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores.watched_store import Absence, AwayStore

from millstream.errors import StoreAwayError, StoreDamagedError, StoreError, UnsentFileError
from millstream.jobs.settings.driver_settings import tier_settings
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import JobFacts
from millstream.runtime.task.store_use import StoreUse
from millstream.storage.local import LocalStore
from millstream.storage.memory import MemoryStore
from millstream.storage.patience import Patience
from millstream.storage.request_counts import REQUESTS
from millstream.storage.store import Store
from millstream.storage.tier import local_tier, sealed_files, uploads
from millstream.storage.tier import tiered_store as tiered_store_module
from millstream.storage.tier.local_tier import LocalTier, TierAbsentError
from millstream.storage.tier.tiered_store import TieredStore, TierSettings, tiered_store

_NAMES = itertools.count()
SEGMENT, STAGED, MANIFEST = "segments/count/total/7-a.arrow", "staged/out/7-a-0", "manifests/7.json"
COMPATIBILITY = Path(__file__).resolve().parents[3] / "compatibility"


def new_store() -> MemoryStore:
    return MemoryStore(f"tier-{next(_NAMES)}")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., TieredStore]]:
    """Opens the store as another process of the machine; all are closed at teardown."""
    tiers: list[LocalTier] = []

    def new(store: Store, bytes_max: int = 1 << 20) -> TieredStore:
        tiers.append(LocalTier(tmp_path / "tier", bytes_max))
        return TieredStore(store, tiers[-1])

    yield new
    for tier in tiers:
        tier.close()


Process = Callable[..., TieredStore]


def files_in(folder: Path, part: str) -> list[Path]:
    return [path for path in (folder / "tier").glob(part) if path.is_file()]


def copies(folder: Path) -> list[Path]:
    return files_in(folder, "stores/*/*/**/*")


class BlockedStore(MemoryStore):
    """Puts wait until the test opens the gate."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.gate, self.arrivals = threading.Event(), threading.Semaphore(0)

    def put(self, name: str, data: bytes) -> None:
        self.arrivals.release()
        assert self.gate.wait(60)
        super().put(name, data)


class RefusingStore(MemoryStore):
    """Rejects the file of a process that died."""

    def put(self, name: str, data: bytes) -> None:
        if name == SEGMENT:
            raise StoreError("this name is refused.")
        super().put(name, data)


# --- which files pass through the tier --------------------------------------------------------------------------------


def test_coordination_files_bypass_the_tier(process: Process, tmp_path: Path) -> None:
    below = new_store()
    store = process(below)
    assert store.create(MANIFEST, b"1") and not store.create(MANIFEST, b"2")
    store.put("job.json", b"3")
    assert below.get(MANIFEST) == b"1" and below.get("job.json") == b"3" and not copies(tmp_path)
    below.put("job.json", b"4")
    assert store.get("job.json") == b"4"


def test_a_file_read_once_is_not_fetched_again_by_any_process(process: Process) -> None:
    below = new_store()
    below.put(SEGMENT, b"abc")
    assert process(below).get(SEGMENT) == b"abc"
    below.delete(SEGMENT)
    assert process(below).get(SEGMENT) == b"abc"


def test_a_new_file_is_visible_to_all_processes_before_the_store_has_it(process: Process) -> None:
    below = BlockedStore(f"tier-{next(_NAMES)}")
    writer, reader = process(below), process(below)
    writer.put(SEGMENT, b"abc")
    assert below.arrivals.acquire(timeout=60) and not below.exists(SEGMENT)
    assert reader.get(SEGMENT) == b"abc" and reader.exists(SEGMENT) and reader.list("segments") == [SEGMENT]
    assert [file.name for file in writer.tier.unsent(below.url)] == [SEGMENT] and reader.tier.unsent_bytes() > 0
    below.gate.set()
    writer.flush()
    assert below.get(SEGMENT) == b"abc" and reader.tier.unsent_bytes() == 0 and reader.get(SEGMENT) == b"abc"


def test_uploads_run_in_parallel(process: Process) -> None:
    below = BlockedStore(f"tier-{next(_NAMES)}")
    store = process(below)
    for number in range(4):
        store.put(f"segments/u/s/{number}", b"abc")
    for _ in range(4):
        assert below.arrivals.acquire(timeout=60)  # none waits for another
    below.gate.set()
    store.flush()
    assert len(below.list("segments")) == 4


def test_idle_upload_threads_end_and_are_started_again(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a worker that serves many jobs, each with its own store, would add eight threads per job."""
    monkeypatch.setattr(uploads, "_IDLE_S", 0.05)
    below = new_store()
    store = process(below)
    for turn in range(2):
        for number in range(20):
            store.put(f"segments/u/s/{turn}-{number}", b"abc")
        store.flush()
        deadline_s = time.monotonic() + 60
        while store.uploads._threads and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert not store.uploads._threads
    assert len(below.list("segments")) == 40


def test_downloads_run_in_parallel_and_are_counted_for_the_task(process: Process) -> None:
    barrier = threading.Barrier(3, timeout=60)

    class Slow(MemoryStore):
        def get(self, name: str) -> bytes:
            REQUESTS.add()
            barrier.wait()  # opens when three are in progress
            return super().get(name)

    below = Slow(f"tier-{next(_NAMES)}")
    names = [f"segments/u/s/{number}" for number in range(3)]
    for name in names:
        MemoryStore.put(below, name, name.encode())
    store, before = process(below), REQUESTS.of_thread()
    store.fetch_all(names)
    assert REQUESTS.of_thread() - before == 3
    REQUESTS.claim(3)
    assert [store.get(name) for name in names] == [name.encode() for name in names]


def test_staged_output_is_evicted_once_it_is_uploaded(process: Process, tmp_path: Path) -> None:
    below = new_store()
    store = process(below)
    store.put(STAGED, b"abc")
    store.flush()
    assert below.get(STAGED) == b"abc" and not copies(tmp_path) and store.get(STAGED) == b"abc"


def test_parts_read_of_a_large_file_are_cached_separately(process: Process) -> None:
    below = new_store()
    below.put(SEGMENT, bytes(range(200)))
    assert process(below).get_range(SEGMENT, 10, 20) == bytes(range(10, 20))
    below.delete(SEGMENT)
    again = process(below)
    assert again.get_range(SEGMENT, 10, 20) == bytes(range(10, 20))
    with pytest.raises(StoreDamagedError):
        again.get_range(SEGMENT, 20, 30)


def test_a_truncated_part_is_not_cached_as_complete(process: Process, tmp_path: Path) -> None:
    below = new_store()
    below.put(SEGMENT, b"abc")
    assert process(below).get_range(SEGMENT, 1, 9) == b"bc" and not copies(tmp_path)


def test_a_deleted_file_disappears_everywhere_even_before_its_upload(process: Process) -> None:
    below = AwayStore(f"tier-{next(_NAMES)}", Absence(first=1, calls=1))
    store = process(below)
    store.put(SEGMENT, b"abc")
    with suppress(StoreAwayError):
        store.flush()
    store.delete(SEGMENT)
    store.flush()
    assert not below.exists(SEGMENT) and not store.exists(SEGMENT)
    with pytest.raises(StoreDamagedError):
        store.get(SEGMENT)


def test_a_local_store_has_no_tier(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    facts = JobFacts("job", "id", "run", store, tier=TierSettings(str(tmp_path / "tier")))
    job = ShippedJob(b"", facts)
    assert job.in_task() is job and job.in_task().facts.store is store and not (tmp_path / "tier").exists()
    assert tier_settings({}, store.url) is None


def test_the_tier_is_pickled_with_the_store(tmp_path: Path) -> None:
    store = tiered_store(new_store(), TierSettings(str(tmp_path / "tier")))
    again = pickle.loads(pickle.dumps(store))
    assert isinstance(again, TieredStore) and again.tier.folder == tmp_path / "tier" and again.url == store.url


# --- a task's end -----------------------------------------------------------------------------------------------------


def test_stores_of_ended_jobs_do_not_accumulate_in_a_process(tmp_path: Path) -> None:
    stores, tier = tiered_store_module._Stores(recent_max=2), LocalTier(tmp_path / "tier", 1 << 20)
    running = stores.of(new_store(), tier)
    for _ in range(20):
        stores.of(new_store(), tier)
        assert len(stores) <= 3
    assert stores.of(running.below, tier) is running
    tier.close()


def test_a_reopened_store_waits_for_its_earlier_uploads(tmp_path: Path) -> None:
    stores, tier = tiered_store_module._Stores(recent_max=1), LocalTier(tmp_path / "tier", 1 << 20)
    below = BlockedStore(f"tier-{next(_NAMES)}")
    stores.of(below, tier).put(SEGMENT, b"1")
    stores.of(new_store(), tier)
    assert len(stores) == 1
    again = stores.of(below, tier)
    assert again.unsent_bytes(0) == 1
    below.gate.set()
    again.flush()
    assert below.get(SEGMENT) == b"1"
    tier.close()


def test_a_task_waits_for_its_uploads_and_reports_their_requests(process: Process) -> None:
    class Counted(MemoryStore):
        def put(self, name: str, data: bytes) -> None:
            REQUESTS.add()
            super().put(name, data)

    below = Counted(f"tier-{next(_NAMES)}")
    store = process(below)
    use = StoreUse(store)
    store.put(SEGMENT, b"abc")
    assert use.end() == {"requests": 1, "unsent_bytes": 0} and below.exists(SEGMENT)


def test_a_task_running_ahead_does_not_wait_and_reports_unsent_files(process: Process) -> None:
    below = BlockedStore(f"tier-{next(_NAMES)}")
    store = process(below)
    first = StoreUse(store, deferred_uploads=True)
    store.put(SEGMENT, b"abc")
    assert first.end()["unsent_bytes"] == 3
    second = StoreUse(store, deferred_uploads=True)
    store.put(STAGED, b"defg")
    assert second.end()["unsent_bytes"] == 4  # only its own: sums over tasks are sums of bytes
    below.gate.set()
    store.flush()
    assert below.list("") == [SEGMENT, STAGED]


def test_a_failed_upload_fails_the_task_and_is_still_completed_later(process: Process) -> None:
    absence = Absence(first=1, calls=1 << 30)
    below = AwayStore(f"tier-{next(_NAMES)}", absence)
    store = process(below)
    store.put(SEGMENT, b"abc")
    with pytest.raises(StoreAwayError, match=r"no answer.*1 new files of this machine are not in the store.*tier"):
        store.flush()
    assert store.get(SEGMENT) == b"abc"
    absence.calls = 0
    store.flush()
    assert below.get(SEGMENT) == b"abc"


@pytest.mark.parametrize(
    ("held_bytes_max", "absences", "reads"), [(10, 0, 0), (4, 0, 1), (10, 3, 3)], ids=["new", "too many", "failed"]
)
def test_recent_writes_are_uploaded_from_memory_and_others_are_read_and_checked(
    process: Process, monkeypatch: pytest.MonkeyPatch, held_bytes_max: int, absences: int, reads: int
) -> None:
    monkeypatch.setattr(uploads, "_HELD_BYTES_MAX", held_bytes_max)
    read: list[Path] = []

    def counted(path: Path) -> bytes:
        read.append(path)
        return sealed_files.read_content(path)

    monkeypatch.setattr(uploads, "read_content", counted)
    below = AwayStore(f"tier-{next(_NAMES)}", Absence(first=1, calls=absences))
    store = process(below)
    store.put(SEGMENT, b"abcde")
    while store.put_count and store.unsent_bytes(0):
        with suppress(StoreAwayError):
            store.flush()
    assert below.get(SEGMENT) == b"abcde" and len(read) == reads


@pytest.mark.parametrize("kind", [StoreError, StoreAwayError])
def test_a_task_running_ahead_fails_if_its_files_are_rejected_but_not_while_the_store_is_unavailable(
    process: Process, kind: type[StoreError]
) -> None:
    upload_attempted = threading.Semaphore(0)

    class Refusing(MemoryStore):
        def put(self, name: str, data: bytes) -> None:
            upload_attempted.release()
            raise kind("this user may not write there.")

    store = process(Refusing(f"tier-{next(_NAMES)}"))
    use = StoreUse(store, deferred_uploads=True)
    store.put(SEGMENT, b"abc")
    # Once a second attempt starts, the first is known to have failed.
    assert upload_attempted.acquire(timeout=60) and upload_attempted.acquire(timeout=60)
    if kind is StoreAwayError:
        assert use.end()["unsent_bytes"] == 3
    else:
        with pytest.raises(StoreError, match="may not write there"):
            use.end()
    store.delete(SEGMENT)


def test_an_unexpected_upload_error_does_not_leave_the_task_waiting(process: Process) -> None:
    class Broken(MemoryStore):
        def put(self, name: str, data: bytes) -> None:
            raise RuntimeError("a bug")

    store = process(Broken(f"tier-{next(_NAMES)}"))
    store.put(SEGMENT, b"abc")
    with pytest.raises(StoreError, match="a bug"):
        store.flush()
    store.delete(SEGMENT)


def test_a_task_running_ahead_waits_for_a_file_not_yet_sent_by_another_machine(process: Process) -> None:
    below = new_store()
    store = process(below)
    use = StoreUse(store, deferred_uploads=True, is_ahead=True)
    assert store.patience.total_s > 0
    pauses = []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            below.put(SEGMENT, b"abc")

    store.patience = Patience(10.0, sleep, lambda: sum(pauses))
    assert store.get(SEGMENT) == b"abc" and store.get_range(SEGMENT, 0, 2) == b"ab"
    with pytest.raises(StoreAwayError, match=r"has no file 'segments/never'.*may not have sent it yet, or be gone"):
        store.get("segments/never")
    assert use.end()["unsent_bytes"] == 0
    StoreUse(store, deferred_uploads=True)
    with pytest.raises(StoreDamagedError):  # it follows a committed epoch: a missing file is lost
        store.get("segments/never")


# --- crashes at every point of a write --------------------------------------------------------------------------------


def test_a_partially_written_file_is_removed_and_never_visible(process: Process, tmp_path: Path) -> None:
    below = new_store()
    dead = process(below)
    (dead.tier._process.path / "new" / "0").write_bytes(b"ab")
    dead.tier.close()
    process(below).adopt()
    assert files_in(tmp_path, "processes/*/new/*") == [] and not dead.tier._process.path.exists()


def test_an_unnamed_folder_of_a_dead_process_is_removed_soon(process: Process, tmp_path: Path) -> None:
    store = process(new_store())
    hidden = tmp_path / "tier" / "processes" / ".1-a"
    (hidden / "unsent").mkdir(parents=True)
    store.adopt()
    assert hidden.exists()  # its process may be about to name it
    os.utime(hidden, (0, 0))
    process(new_store()).adopt()
    assert not hidden.exists()


@pytest.mark.parametrize("is_uploaded", [False, True])
def test_unsent_files_of_a_dead_process_are_sent_by_another(process: Process, is_uploaded: bool) -> None:
    """Killed after the file had its name, and killed after the store had it."""
    below = new_store()
    dead = process(below)
    dead.tier.keep_unsent(below.url, SEGMENT, b"abc")
    dead.tier.close()
    if is_uploaded:
        below.put(SEGMENT, b"abc")
    other = process(below)
    assert other.get(SEGMENT) == b"abc"  # at once, before any process has sent it
    other.adopt()
    other.flush()
    assert below.get(SEGMENT) == b"abc" and other.get(SEGMENT) == b"abc" and other.tier.unsent_bytes() == 0
    assert not dead.tier._process.path.exists()


def test_unsent_files_of_a_living_process_are_left_to_it(process: Process) -> None:
    below = new_store()
    alive = process(below)
    alive.tier.keep_unsent(below.url, SEGMENT, b"abc")
    other = process(below)
    other.adopt()
    other.flush()
    assert not below.exists(SEGMENT) and [file.name for file in alive.tier.unsent(below.url)] == [SEGMENT]


def test_unsent_files_for_another_store_wait_for_a_process_that_uses_it(process: Process) -> None:
    first, second = new_store(), new_store()
    dead = process(first)
    dead.tier.keep_unsent(first.url, SEGMENT, b"abc")
    dead.tier.close()
    other = process(second)
    other.adopt()
    other.flush()
    assert second.list("") == [] and dead.tier._process.path.exists()
    later = process(first)
    later.adopt()
    later.flush()
    assert first.get(SEGMENT) == b"abc"


def test_files_unsent_for_days_are_abandoned(process: Process) -> None:
    below = new_store()
    dead = process(below)
    file = dead.tier.keep_unsent(below.url, SEGMENT, b"abc")
    assert file is not None
    dead.tier.close()
    os.utime(file.path, (0, 0))
    process(new_store()).adopt()
    assert not dead.tier._process.path.exists()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-3],
    "zeros": lambda data: b"\0" * len(data),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("is_in_store", [False, True], ids=["not sent", "sent"])
def test_a_damaged_file_of_a_dead_process_is_removed_without_failing_any_task(
    process: Process, damage: str, is_in_store: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """After a power loss, a file may retain its name and lose its bytes. A file that no manifest references is no
    loss; a referenced one is in the store.
    """
    below, other_file = new_store(), "segments/count/total/7-b.arrow"
    dead = process(below)
    file = dead.tier.keep_unsent(below.url, SEGMENT, b"abc" * 10)
    dead.tier.keep_unsent(below.url, other_file, b"whole")
    assert file is not None
    file.path.write_bytes(DAMAGE[damage](file.path.read_bytes()))
    dead.tier.close()
    if is_in_store:
        below.put(SEGMENT, b"abc" * 10)
    other = process(below)
    use = StoreUse(other, deferred_uploads=True)
    other.flush()
    assert use.end()["unsent_bytes"] == 0
    assert other.tier.unsent_bytes() == 0 and "was left by a process that ended, and cannot be read" in caplog.text
    assert below.get(other_file) == b"whole" and below.exists(SEGMENT) == is_in_store
    if is_in_store:
        assert other.get(SEGMENT) == b"abc" * 10


@pytest.mark.parametrize("ask", [TieredStore.flush, TieredStore.check])
def test_an_unreadable_own_file_is_never_sent_and_its_epoch_is_repeated(
    process: Process, monkeypatch: pytest.MonkeyPatch, ask: Callable[[TieredStore], None]
) -> None:
    monkeypatch.setattr(uploads, "_HELD_BYTES_MAX", 0)
    below = BlockedStore(f"tier-{next(_NAMES)}")
    store = process(below)
    for number in range(9):  # one more than there are threads
        store.put(f"segments/u/s/{number}", b"abc")
    for _ in range(8):
        assert below.arrivals.acquire(timeout=60)
    last = max(store.tier.unsent(below.url), key=lambda file: file.name)
    last.path.write_bytes(b"")
    below.gate.set()
    while store.uploads.pending and ask is TieredStore.check:
        time.sleep(0.001)
    with pytest.raises(UnsentFileError, match=r"cannot be read there any more.* is run again"):
        ask(store)
    store.flush()  # logged once
    assert not below.exists(last.name)


def test_a_rejected_file_of_a_dead_process_fails_no_task(process: Process) -> None:
    below = RefusingStore(f"tier-{next(_NAMES)}")
    dead = process(below)
    dead.tier.keep_unsent(below.url, SEGMENT, b"abc")
    dead.tier.close()
    store = process(below)
    use = StoreUse(store)
    store.put("segments/count/total/8-a.arrow", b"abc")
    use.end()
    store.check()
    assert below.get("segments/count/total/8-a.arrow") == b"abc" and not below.exists(SEGMENT)


def test_a_process_whose_lock_was_lost_with_the_power_counts_as_dead(process: Process) -> None:
    below = new_store()
    dead = process(below)
    dead.tier.keep_unsent(below.url, SEGMENT, b"abc")
    dead.tier.close()
    (dead.tier._process.path / "lock").unlink()
    other = process(below)
    other.adopt()
    other.flush()
    assert below.get(SEGMENT) == b"abc" and not dead.tier._process.path.exists()


@pytest.mark.parametrize("lost", [b"", b"\0" * 13], ids=["empty", "zeros"])
def test_a_tier_whose_version_was_lost_with_the_power_is_used_again(
    process: Process, tmp_path: Path, lost: bytes
) -> None:
    below = new_store()
    process(below).tier.keep(below.url, SEGMENT, b"abc")
    (tmp_path / "tier" / "tier.json").write_bytes(lost)
    (tmp_path / "tier" / "size").write_bytes(lost)
    assert process(below).tier.read(below.url, SEGMENT) == b"abc"
    assert (tmp_path / "tier" / "tier.json").read_text() == '{"format": 1}'


def test_a_file_that_temporarily_cannot_be_opened_is_not_abandoned(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with too many open files cannot judge the one it fails to open, and there is no other copy."""
    failures = [OSError(errno.EMFILE, "Too many open files")]

    def read(path: Path) -> bytes:
        if failures:
            raise failures.pop()
        return sealed_files.read_content(path)

    monkeypatch.setattr(uploads, "_HELD_BYTES_MAX", 0)
    monkeypatch.setattr(uploads, "read_content", read)
    below = new_store()
    store = process(below)
    store.put(SEGMENT, b"abc")
    while store.unsent_bytes(0):
        with suppress(StoreAwayError):
            store.flush()
    assert below.get(SEGMENT) == b"abc" and not failures


# --- damage, space, disks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other"])
def test_a_damaged_copy_is_fetched_again_and_logged(
    process: Process, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    below = new_store()
    below.put(SEGMENT, b"abc" * 100)
    process(below).get(SEGMENT)
    process(below).get_range(SEGMENT, 0, 5)
    for copy in copies(tmp_path):
        data = copy.read_bytes()
        copy.write_bytes(
            {"cut": data[:-1], "bit": b"x" + data[1:], "empty": b"", "other": b"not a file of the tier" * 9}[damage]
        )
    again = process(below)
    assert again.get_range(SEGMENT, 0, 5) == b"abcab" and again.get(SEGMENT) == b"abc" * 100
    assert "is damaged" in caplog.text
    below.delete(SEGMENT)
    assert again.get(SEGMENT) == b"abc" * 100


def test_a_reader_leaves_a_damaged_file_to_its_sender(process: Process) -> None:
    below = new_store()
    writer, reader = process(below), process(below)
    file = writer.tier.keep_unsent(below.url, SEGMENT, b"abc")
    assert file is not None
    file.path.write_bytes(b"")
    with pytest.raises(StoreDamagedError):
        reader.get(SEGMENT)
    assert reader.hold(SEGMENT, 3) is None and file.path.exists()


def test_a_file_fetched_by_two_processes_at_once_is_counted_once(process: Process, tmp_path: Path) -> None:
    below = new_store()
    for store in (process(below), process(below)):
        assert store.tier.keep(below.url, SEGMENT, b"abc")
    assert (tmp_path / "tier" / "size").read_text() == str(sum(copy.stat().st_size for copy in copies(tmp_path)))


def test_the_least_recently_used_file_is_evicted_first(process: Process, tmp_path: Path) -> None:
    below = new_store()
    store = process(below, bytes_max=8_000)
    for number in range(3):
        below.put(f"segments/u/s/{number}", bytes(2_000))
        store.get(f"segments/u/s/{number}")
    for number, age_s in ((0, 300), (1, 200), (2, 100)):
        (path,) = [copy for copy in copies(tmp_path) if copy.name == str(number)]
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    store.get("segments/u/s/0")  # used now
    below.put("segments/u/s/3", bytes(2_500))
    store.get("segments/u/s/3")
    assert sorted(copy.name for copy in copies(tmp_path)) == ["0", "2", "3"]


def test_the_size_limit_is_respected_for_any_reads(process: Process, tmp_path: Path) -> None:
    below = new_store()
    stores = [process(below, bytes_max=10_000) for _ in range(3)]
    for number in range(60):
        name = f"segments/u/s/{number}"
        below.put(name, bytes(500 + 13 * number))
        assert len(stores[number % 3].get(name)) == 500 + 13 * number
        assert sum(copy.stat().st_size for copy in copies(tmp_path)) <= 10_000


def test_the_tier_shrinks_when_its_disk_fills_up(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below, other_bytes = new_store(), 0

    def statvfs(path: Path) -> os.statvfs_result:
        used = other_bytes + sum(copy.stat().st_size for copy in copies(tmp_path))
        return os.statvfs_result((1, 1, 20_000, 20_000 - used, 20_000 - used, 0, 0, 0, 0, 255))

    monkeypatch.setattr(os, "statvfs", statvfs)
    store = process(below, bytes_max=1 << 30)

    def read(numbers: range) -> int:
        for number in numbers:
            below.put(f"segments/u/s/{number}", bytes(900))
            assert len(store.get(f"segments/u/s/{number}")) == 900
        return sum(copy.stat().st_size for copy in copies(tmp_path))

    assert 15_000 < read(range(30)) <= 19_000
    other_bytes = 10_000
    assert 6_000 < read(range(30, 40)) <= 9_000
    other_bytes = 20_000
    store.get("segments/u/s/0")
    assert read(range(40, 41)) == 0


def test_open_and_unsent_files_are_not_evicted_and_without_space_the_store_is_used(
    process: Process, tmp_path: Path
) -> None:
    below = BlockedStore(f"tier-{next(_NAMES)}")
    store = process(below, bytes_max=5_000)
    MemoryStore.put(below, "segments/u/s/open", bytes(2_000))
    store.get("segments/u/s/open")
    held = store.hold("segments/u/s/open", 2_000)
    assert held is not None
    store.put("segments/u/s/unsent", bytes(2_000))
    MemoryStore.put(below, "segments/u/s/more", bytes(2_000))
    assert len(store.get("segments/u/s/more")) == 2_000
    assert [copy.name for copy in copies(tmp_path)] == ["open"] and store.hold("segments/u/s/more", 2_000) is None
    below.gate.set()
    store.put("segments/u/s/direct", bytes(2_000))  # no space: written when this returns
    assert below.exists("segments/u/s/direct")
    store.flush()
    store.release(held)
    store.tier._room._full_until_s = 0.0
    store.get("segments/u/s/more")
    assert "more" in [copy.name for copy in copies(tmp_path)]


def test_a_file_removed_while_open_is_readable_to_its_end(process: Process, tmp_path: Path) -> None:
    below = new_store()
    below.put(SEGMENT, b"abc")
    store = process(below)
    store.get(SEGMENT)
    held = store.hold(SEGMENT, 3)
    assert held is not None
    shutil.rmtree(tmp_path / "tier" / "stores")  # by hand, or by another process just before it was opened
    assert held.read_bytes()[:3] == b"abc" and store.get(SEGMENT) == b"abc"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_a_failing_disk_is_logged_once_and_nothing_is_lost(
    process: Process, monkeypatch: pytest.MonkeyPatch, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    below = new_store()
    store = process(below)

    def refuse(path: Path, data: bytes) -> None:
        path.write_bytes(data[:1])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(local_tier, "write_sealed", refuse)
    for name in ("a", "b"):
        store.put(f"segments/u/s/{name}", b"abc")
        assert below.get(f"segments/u/s/{name}") == b"abc"
    below.put(SEGMENT, b"abc")
    assert store.get(SEGMENT) == b"abc" and store.get_range(SEGMENT, 0, 1) == b"a"
    warnings = [record for record in caplog.records if "local tier" in record.message]
    assert (
        len(warnings) == 1
        and os.strerror(number) in warnings[0].message
        and "millstream.tier.folder" in warnings[0].message
    )
    monkeypatch.undo()
    store.put("segments/u/s/c", b"abc")
    store.flush()
    assert store.tier._room.claim(0) and below.exists("segments/u/s/c")


def test_a_folder_that_cannot_be_created_disables_the_tier_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    store, place = new_store(), TierSettings(str(tmp_path / "file" / "tier"))
    assert tiered_store(store, place) is store and tiered_store(store, place) is store
    assert len([record for record in caplog.records if "no local tier" in record.message]) == 1


def test_a_folder_writable_by_others_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    (tmp_path / "tier").chmod(0o770)
    with pytest.raises(StoreError, match="written by others than this user"):
        tiered_store(new_store(), TierSettings(str(tmp_path / "tier")))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make links for others")
def test_a_link_created_by_another_user_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    LocalTier(tmp_path / "link", 1000).close()
    os.lchown(tmp_path / "link", 12345, 12345)
    with pytest.raises(StoreError, match="written by others than this user"):
        LocalTier(tmp_path / "link", 1000)


@pytest.mark.parametrize("text", ['{"format": 2}', "nonsense", "[]"])
def test_a_tier_of_another_version_is_untouched(tmp_path: Path, text: str) -> None:
    LocalTier(tmp_path / "tier", 1000).close()
    (tmp_path / "tier" / "tier.json").write_text(text)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TierAbsentError):
        LocalTier(tmp_path / "tier", 1000)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_of_an_older_version_is_readable() -> None:
    """Written by the first version of the format; it is never written again, only read."""
    path = COMPATIBILITY / "tier-1.sealed"
    assert sealed_files.read_content(path) == b"A file of the local tier.\n" and sealed_files.content_length(path) == 26


# --- equivalence to a store without a tier ----------------------------------------------------------------------------

_FILES = st.sampled_from(["segments/u/s/a", "segments/u/s/b", "staged/o/c", "manifests/d"])
_ACTS = st.one_of(
    st.tuples(st.sampled_from(["put", "get", "exists", "delete", "flush", "range", "die", "lose"]), _FILES),
    st.tuples(st.just("list"), st.sampled_from(["", "segments", "segments/u", "staged"])),
)


def content(name: str) -> bytes:
    return name.encode() * 40


class Faulty(MemoryStore):
    """Rejects the configured calls."""

    def __init__(self, name: str, refusals: Iterator[bool]) -> None:
        super().__init__(name)
        self.refusals = refusals

    def put(self, name: str, data: bytes) -> None:
        if next(self.refusals, False):
            raise StoreAwayError("no answer.")
        super().put(name, data)


@given(
    st.lists(st.tuples(st.integers(0, 2), _ACTS), max_size=30),
    st.lists(st.booleans(), max_size=8),
    st.sampled_from([150, 400, 1 << 20]),
)
def test_many_processes_see_exactly_what_a_store_without_a_tier_would_show(
    acts: list[tuple[int, tuple[str, str]]], refusals: list[bool], bytes_max: int
) -> None:
    logging.disable(logging.CRITICAL)
    below, reference = Faulty(f"tier-{next(_NAMES)}", iter(refusals)), new_store()
    with tempfile.TemporaryDirectory() as folder:
        stores = [TieredStore(below, LocalTier(Path(folder), bytes_max)) for _ in range(3)]
        try:
            for number, (act, name) in acts:
                perform(act, name, stores, number, below, reference)
            for number in range(3):
                adopt(stores[number])
                flush(stores[number])
            assert {name: below.get(name) for name in below.list("")} == {
                name: reference.get(name) for name in reference.list("")
            }
        finally:
            for store in stores:
                store.tier.close()
            logging.disable(logging.NOTSET)


def adopt(store: TieredStore) -> None:
    store.uploads._next_adoption_s = 0.0
    store.adopt()


def flush(store: TieredStore) -> None:
    while True:
        with suppress(StoreAwayError):
            return store.flush()


def perform(
    act: str, name: str, stores: list[TieredStore], number: int, below: MemoryStore, reference: MemoryStore
) -> None:
    store = stores[number]
    if act == "put":
        try:
            store.put(name, content(name))
        except StoreAwayError:
            return  # directly at the store, which was unavailable
        reference.put(name, content(name))
    elif act == "delete":
        for other in stores:  # nobody deletes a file that another process is sending, or that a dead one was sending
            adopt(other)
            flush(other)
        store.delete(name)
        for other in stores:
            other.tier.discard(below.url, name)
        reference.delete(name)
    elif act == "flush":
        flush(store)
    elif act == "die":
        for file in store.uploads.pending:
            store.uploads.withdraw(file)  # killed at any moment: some files are sent and some are not
        store.tier.close()
        stores[number] = TieredStore(below, LocalTier(store.tier.folder, store.tier.bytes_max))
    elif act == "lose":
        shutil.rmtree(store.tier.folder / "stores", ignore_errors=True)
    else:
        ask: Callable[[Store], object] = {
            "get": lambda s: s.get(name),
            "exists": lambda s: s.exists(name),
            "range": lambda s: s.get_range(name, 3, 20),
            "list": lambda s: s.list(name),
        }[act]
        assert result_or_error(ask, store) == result_or_error(ask, reference)


def result_or_error(ask: Callable[[Store], object], store: Store) -> object:
    try:
        return ask(store)
    except StoreDamagedError:
        return "missing"
