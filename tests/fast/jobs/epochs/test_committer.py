"""The committing thread in isolation: what it waits for, what it reports, and when it fails."""

from __future__ import annotations

import itertools
import queue
import threading
from typing import Any

import pytest
from stores.lagging_store import Lag, LaggingStore

from millstream.checkpoint import events as e
from millstream.checkpoint.manifest import Manifest, ManifestLog, Staged
from millstream.errors import StoreAwayError, StoreError
from millstream.jobs.epochs import committer as committing
from millstream.jobs.epochs.committer import Committer, StoreSilence, UploadPatience
from millstream.storage.memory import MemoryStore
from millstream.storage.names import staged_name
from millstream.testing import ManualClock

_STORES = itertools.count()
FILE = staged_name("out", 1, 0, "a", 0)
FIRST = Manifest("job", "j1", 1, 0, 0, "r1", staged={"out": (Staged(-1, {"file": FILE}),)})


class ReportingCommitter:
    """A committer with its own store, and the events it reports."""

    def __init__(self, patience_s: float = 60.0) -> None:
        self.store = LaggingStore(f"committer-{next(_STORES)}", Lag())
        self.events: queue.Queue[Any] = queue.Queue()
        patience = UploadPatience(patience_s)
        self.committer = Committer(self.store, ManualClock(), lambda event, _: self.events.put(event), patience)

    def next(self) -> Any:
        return self.events.get(timeout=20)


def test_a_manifest_is_created_when_its_files_are_in_the_store() -> None:
    reporting = ReportingCommitter()
    reporting.committer.commit(FIRST, None, 0)
    with pytest.raises(queue.Empty):
        reporting.events.get(timeout=0.2)
    assert ManifestLog(reporting.store).newest() is None
    MemoryStore.put(reporting.store, FILE, b"1")
    assert reporting.next() == e.Committed()
    assert ManifestLog(reporting.store).newest() == FIRST
    reporting.committer.close()


def test_files_missing_from_a_responsive_store_are_lost() -> None:
    reporting = ReportingCommitter(patience_s=0.1)
    reporting.committer.commit(FIRST, None, 0)
    failed = reporting.next()
    assert isinstance(failed, e.CommitFailed)
    assert failed.excuse == "lost" and failed.retryable
    assert FILE in failed.reason
    reporting.committer.close()


def test_a_commit_that_waits_for_files_is_abandoned_when_the_job_fails() -> None:
    reporting = ReportingCommitter()
    reporting.committer.commit(FIRST, None, 0)
    reporting.committer.abandon()
    assert isinstance(reporting.next(), e.CommitFailed)
    assert ManifestLog(reporting.store).newest() is None
    reporting.committer.close()


def test_a_rivals_manifest_is_a_lost_race() -> None:
    reporting = ReportingCommitter()
    MemoryStore.put(reporting.store, FILE, b"1")
    assert ManifestLog(reporting.store).commit(Manifest("job", "j1", 1, 0, 5, "r2"))
    reporting.committer.commit(FIRST, None, 0)
    assert reporting.next() == e.CommitLost()
    reporting.committer.close()


def test_an_unreachable_store_is_reported_once_and_retried_until_it_responds() -> None:
    reporting = ReportingCommitter()
    MemoryStore.put(reporting.store, FILE, b"1")
    reporting.store.lag.present.clear()
    reporting.committer.commit(FIRST, None, 0)
    assert reporting.next() == e.StoreUnavailable()
    with pytest.raises(queue.Empty):
        reporting.events.get(timeout=0.2)
    reporting.store.lag.present.set()
    assert reporting.next() == e.StoreAvailable()
    assert reporting.next() == e.Committed()
    reporting.committer.close()


def test_a_silent_store_is_unreachable_and_its_first_response_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "_SILENT_S", 0.05)
    reporting = ReportingCommitter()
    MemoryStore.put(reporting.store, FILE, b"1")
    reporting.store.lag.holds_manifests.clear()
    reporting.committer.commit(FIRST, None, 0)
    pause = threading.Event()
    for _ in range(400):
        if reporting.committer.check_store(None):
            break
        pause.wait(0.01)
    else:
        raise AssertionError("a silent store is never considered unreachable")
    reporting.store.lag.holds_manifests.set()
    assert reporting.next() == e.StoreAvailable()
    assert reporting.next() == e.Committed()
    reporting.committer.close()


@pytest.mark.parametrize("is_refusal", [False, True])
def test_a_response_to_a_probe_reports_the_store_as_back(monkeypatch: pytest.MonkeyPatch, is_refusal: bool) -> None:
    def refuse(name: str) -> bool:
        raise StoreError(f"{name} is not for this user")

    reporting = ReportingCommitter()
    reporting.store.lag.present.clear()
    reporting.committer.check_store(FIRST)
    assert reporting.next() == e.StoreUnavailable()
    if is_refusal:
        monkeypatch.setattr(reporting.store, "exists", refuse)
    reporting.store.lag.present.set()
    pause = threading.Event()
    for _ in range(400):
        if not reporting.committer.check_store(FIRST):
            break
        pause.wait(0.01)
    assert reporting.next() == e.StoreAvailable()
    reporting.committer.close()


class SettableClock:
    """A clock that is set by hand, and a store's silence detector that uses it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.silence = StoreSilence(lambda: self.now_s)

    def answer(self, seconds: float) -> None:
        with self.silence.request():
            self.now_s += seconds

    def absent_after_s(self) -> float:
        """How long a request hangs, checked every half second, until its store is considered unreachable."""
        with self.silence.request():
            began_s = self.now_s
            while not self.silence.is_outage():
                self.now_s += 0.5
            return self.now_s - began_s


def test_a_quick_store_is_unreachable_after_two_seconds_of_silence() -> None:
    clock = SettableClock()
    clock.answer(0.05)
    assert clock.absent_after_s() == 2.5


def test_a_slow_store_gets_more_time_up_to_ten_seconds() -> None:
    clock = SettableClock()
    clock.answer(1.5)
    assert clock.absent_after_s() == 6.5
    clock.answer(60.0)
    assert clock.absent_after_s() == 10.5


def test_one_response_to_any_of_many_requests_ends_the_silence() -> None:
    clock = SettableClock()
    with clock.silence.request():
        for _ in range(20):
            assert not clock.silence.is_outage()
            clock.answer(1.0)
            clock.now_s += 0.9


def test_a_suspended_process_does_not_consider_the_store_unreachable() -> None:
    clock = SettableClock()
    with clock.silence.request():
        clock.now_s += 30.0  # the machine was suspended, or busy with other work
        assert not clock.silence.is_outage()
        clock.now_s += 1.0
        assert not clock.silence.is_outage()


def test_a_request_that_fails_with_no_response_is_not_a_response() -> None:
    clock = SettableClock()
    with pytest.raises(StoreAwayError), clock.silence.request():
        clock.now_s += 9.0
        raise StoreAwayError("nobody is there")
    assert clock.absent_after_s() == 2.5
