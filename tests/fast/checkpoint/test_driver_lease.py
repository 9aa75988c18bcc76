"""The driver lease: which driver is rejected, which takes over the job, and how fast, for each kind of holder."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from inputs.fresh_names import fresh_name
from stores.watched_store import make_older

from millstream.checkpoint import driver_lease
from millstream.checkpoint.driver_lease import LASTS_S, DriverLease, Stopwatch, acquire_lease, read_driver_lease
from millstream.checkpoint.sealed import seal
from millstream.errors import FencedError, StoreError
from millstream.storage.json_records import to_json
from millstream.storage.memory import MemoryStore
from millstream.storage.process_identity import this_process
from millstream.storage.shared_names import driver_name
from millstream.storage.store import Store, open_store


def new_store() -> MemoryStore:
    return MemoryStore(fresh_name("lease"))


HERE = this_process()
OWN_LEASE = DriverLease("aa", 1, "clicks", HERE.host, HERE.kernel, HERE.pid, HERE.started, 0)
ELSEWHERE = replace(OWN_LEASE, host="db7.example", kernel="another boot")


def write(store: Store, lease: DriverLease) -> None:
    store.put(driver_name(), seal("driver", 1, to_json(lease)))


@dataclass
class Minutes:
    """A stopwatch whose pauses take no time; `at_pause` is called in each of them."""

    at_pause: Callable[[], object] = lambda: None
    now_s: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def pause(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s
        self.at_pause()

    @property
    def stopwatch(self) -> Stopwatch:
        return Stopwatch(lambda: self.now_s, self.pause)


def another_process(state: str) -> int:
    """The id of a process that is alive, or dead, or a zombie that its parent has not reaped."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    _PROCESSES.append(process)
    if state != "alive":
        process.kill()
        # A zombie exists until its parent waits for it.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if state == "dead":
        process.wait()
    return process.pid


_PROCESSES: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _ends_processes() -> object:
    yield
    for process in _PROCESSES:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
    _PROCESSES.clear()


def test_a_second_driver_in_one_process_is_rejected_and_the_holder_is_named() -> None:
    store = new_store()
    held = acquire_lease(store, "clicks")
    with pytest.raises(FencedError) as refusal:
        acquire_lease(store, "clicks")
    assert f"job 'clicks' is already running in store {store.url}: process {os.getpid()} on" in str(refusal.value)
    assert "which is this one, since 20" in str(refusal.value) and "--take-over" in str(refusal.value)
    held.close()
    acquire_lease(store, "clicks").close()
    assert not store.exists(driver_name())


def test_a_lease_left_behind_by_a_job_of_this_process_stops_no_driver() -> None:
    """The store was unavailable when the job ended, and the process continues, as a notebook does."""
    store, minutes = new_store(), Minutes()
    write(store, OWN_LEASE)
    acquire_lease(store, "clicks", stopwatch=minutes.stopwatch).close()
    assert minutes.pauses == []


@pytest.mark.parametrize("state", ["dead", "zombie"])
def test_a_driver_killed_on_this_machine_is_replaced_at_once(state: str) -> None:
    store, minutes = new_store(), Minutes()
    write(store, replace(OWN_LEASE, pid=another_process(state)))
    acquire_lease(store, "clicks", stopwatch=minutes.stopwatch).close()
    assert minutes.pauses == []


def test_a_process_with_the_reused_id_of_a_dead_driver_is_not_mistaken_for_it() -> None:
    store, minutes = new_store(), Minutes()
    write(store, replace(OWN_LEASE, pid=another_process("alive"), started="17"))
    acquire_lease(store, "clicks", stopwatch=minutes.stopwatch).close()
    assert minutes.pauses == []


def test_a_driver_alive_on_this_machine_is_reported_within_a_second() -> None:
    store, minutes = new_store(), Minutes()
    pid = another_process("alive")
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    write(store, replace(OWN_LEASE, pid=pid, started=started, since_ms=1_700_000_000_000))
    with pytest.raises(FencedError, match=f"process {pid} on {HERE.host}, since 2023-11-14 22:13:20 UTC"):
        acquire_lease(store, "clicks", stopwatch=minutes.stopwatch)
    assert minutes.now_s == 1
    minutes = Minutes()
    # A driver that has not renewed for long may hang, or have ended its job: it is watched.
    make_older(store, driver_name(), 3_600_000)
    acquire_lease(store, "clicks", stopwatch=minutes.stopwatch).close()
    assert minutes.now_s == LASTS_S


def test_a_driver_of_another_machine_that_renews_its_lease_is_not_replaced() -> None:
    store = new_store()
    lease = replace(ELSEWHERE, pid=4711)
    write(store, lease)

    def renew() -> None:
        if minutes.now_s >= 5:
            write(store, replace(lease, renewals=1))

    minutes = Minutes(renew)
    with pytest.raises(FencedError, match=r"process 4711 on db7\.example, since 1970-01-01 00:00:00 UTC\. Stop"):
        acquire_lease(store, "clicks", stopwatch=minutes.stopwatch)
    assert minutes.now_s == 5


@pytest.mark.parametrize("age_s", [0, 4, 14, 15, 86_400])
def test_a_driver_of_another_machine_is_replaced_after_its_lease_was_not_renewed_for_the_timeout(age_s: int) -> None:
    """Measured by the store's clock: the dead driver's clock does not matter."""
    store, minutes = new_store(), Minutes()
    write(store, replace(ELSEWHERE, since_ms=2**52))
    make_older(store, driver_name(), age_s * 1000)
    acquire_lease(store, "clicks", stopwatch=minutes.stopwatch).close()
    assert max(LASTS_S - age_s - 1, 0) <= minutes.now_s <= max(LASTS_S - age_s, 0) + 0.5


def test_a_driver_that_ends_while_watched_is_replaced_at_once() -> None:
    store = new_store()
    write(store, ELSEWHERE)
    minutes = Minutes(lambda: store.delete(driver_name()))
    acquire_lease(store, "clicks", stopwatch=minutes.stopwatch).close()
    assert len(minutes.pauses) == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"{}", b"[" * 100_000, seal("driver", 1, {"id": 7}), seal("driver", 9, {}), seal("pin", 1, {})],
    ids=["empty", "no text", "no fields", "deep", "wrong fields", "newer format", "another kind"],
)
def test_a_damaged_lease_stops_no_job(data: bytes) -> None:
    store, minutes = new_store(), Minutes()
    store.put(driver_name(), data)
    acquire_lease(store, "clicks", stopwatch=minutes.stopwatch).close()
    assert minutes.now_s <= LASTS_S
    assert not store.exists(driver_name())


def test_a_renewed_lease_of_a_newer_version_is_respected() -> None:
    store = new_store()
    data = seal("driver", 9, {})
    store.put(driver_name(), data)

    def renew() -> None:
        make_older(store, driver_name(), -1000)  # the same bytes, written later

    with pytest.raises(FencedError, match=r"of another Millstream version .* it was written by a newer Millstream\."):
        acquire_lease(store, "clicks", stopwatch=Minutes(renew).stopwatch)
    assert store.get(driver_name()) == data


def test_a_forced_takeover_does_not_wait_and_the_other_driver_detects_it() -> None:
    store = new_store()
    first = acquire_lease(store, "clicks")
    second = acquire_lease(store, "clicks", takes_over=True)
    assert isinstance(second.superseded, DriverLease)
    first.check()
    first.renew()
    with pytest.raises(FencedError, match="job 'clicks' was taken over by process"):
        first.check()
    first.close()
    second.renew()
    second.check()
    assert isinstance(read_driver_lease(store), DriverLease), "the end of the first driver leaves the second's lease"
    second.close()
    assert not store.exists(driver_name())


def test_a_late_renewal_does_not_reclaim_the_job() -> None:
    """The first driver has read its own lease, then the second takes over, then the first writes."""
    store = new_store()
    first = acquire_lease(store, "clicks")
    own = store.get(driver_name())
    second = acquire_lease(store, "clicks", takes_over=True)
    store.put(driver_name(), own)
    second.renew()
    second.check()
    first.renew()
    with pytest.raises(FencedError, match="was taken over"):
        first.check()
    for held in (first, second):
        held.close()


def test_replacing_a_dead_driver_is_not_a_takeover() -> None:
    store = new_store()
    write(store, replace(OWN_LEASE, pid=another_process("dead")))
    held = acquire_lease(store, "clicks", takes_over=True)
    assert held.superseded is None
    held.close()


def test_a_store_that_rejects_leases_runs_the_job_without(caplog: pytest.LogCaptureFixture) -> None:
    class Unleased(MemoryStore):
        def create(self, name: str, data: bytes) -> bool:
            raise StoreError(f"no permission to write {name}.")

    store = Unleased(fresh_name("lease"))
    held = acquire_lease(store, "clicks")
    held.check()
    held.close()
    assert "the job runs without a lease" in caplog.text and "no permission to write driver.json" in caplog.text


def test_a_lease_in_a_folder_is_removed_when_its_process_ends(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from millstream.checkpoint.driver_lease import acquire_lease\n"
        "from millstream.storage.store import open_store\n"
        "acquire_lease(open_store(sys.argv[1]), 'clicks')\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert open_store(str(tmp_path)).list("") == []


@pytest.mark.parametrize("pid", [2**31, 2**62])
def test_a_lease_with_an_impossible_process_id_stops_no_driver(pid: int) -> None:
    store, minutes = new_store(), Minutes()
    write(store, replace(OWN_LEASE, pid=pid))
    acquire_lease(store, "clicks", stopwatch=minutes.stopwatch).close()
    assert minutes.pauses == []


@pytest.mark.parametrize("kind", ["link to nowhere", "link to itself", "pipe", "folder"])
def test_a_lease_name_that_is_not_a_regular_file_stops_no_driver(tmp_path: Path, kind: str) -> None:
    place = tmp_path / driver_name()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(place if kind == "link to itself" else tmp_path / "nowhere")
    store = open_store(str(tmp_path))
    held = acquire_lease(store, "clicks")
    assert kind == "folder" or isinstance(read_driver_lease(store), DriverLease)
    held.close()
    assert kind == "folder" or not os.path.lexists(place)


def test_an_ending_driver_does_not_wait_for_a_slow_store(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(MemoryStore):
        is_slow = False

        def exists(self, name: str) -> bool:
            if self.is_slow and not answers.wait(10):
                abandoned.append(name)
            return super().exists(name)

    monkeypatch.setattr(driver_lease, "_END_S", 0.05)
    store, answers, abandoned = Slow(fresh_name("lease")), threading.Event(), list[str]()
    held = acquire_lease(store, "clicks")
    Slow.is_slow = True
    held.close()
    assert not abandoned
    Slow.is_slow = False
    assert store.exists(driver_name())
    minutes = Minutes()
    following = acquire_lease(store, "clicks", stopwatch=minutes.stopwatch)
    assert minutes.pauses == []
    answers.set()  # the lease now belongs to the other driver, and is not deleted
    assert held._thread is not None
    held._thread.join()
    assert isinstance(read_driver_lease(store), DriverLease)
    following.close()
