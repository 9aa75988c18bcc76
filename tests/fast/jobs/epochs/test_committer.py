"""The committing thread by itself: what it waits for, what it tells, and when it gives up."""

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


class Told:
    """A committer on a store of its own, and what it reports."""

    def __init__(self, patience_s: float = 60.0) -> None:
        self.store = LaggingStore(f"committer-{next(_STORES)}", Lag())
        self.events: queue.Queue[Any] = queue.Queue()
        patience = UploadPatience(patience_s)
        self.committer = Committer(self.store, ManualClock(), lambda event, _: self.events.put(event), patience)

    def next(self) -> Any:
        return self.events.get(timeout=20)


def test_a_manifest_is_created_when_its_files_are_in_the_store() -> None:
    told = Told()
    told.committer.commit(FIRST, None, 0)
    with pytest.raises(queue.Empty):
        told.events.get(timeout=0.2)
    assert ManifestLog(told.store).newest() is None
    MemoryStore.put(told.store, FILE, b"1")
    assert told.next() == e.Committed()
    assert ManifestLog(told.store).newest() == FIRST
    told.committer.close()


def test_files_that_do_not_come_though_the_store_answers_are_lost() -> None:
    told = Told(patience_s=0.1)
    told.committer.commit(FIRST, None, 0)
    failed = told.next()
    assert isinstance(failed, e.CommitFailed)
    assert failed.excuse == "lost" and failed.retryable
    assert FILE in failed.reason
    told.committer.close()


def test_a_commit_that_waits_for_files_is_given_up_when_the_job_fails() -> None:
    told = Told()
    told.committer.commit(FIRST, None, 0)
    told.committer.abandon()
    assert isinstance(told.next(), e.CommitFailed)
    assert ManifestLog(told.store).newest() is None
    told.committer.close()


def test_a_rivals_manifest_is_a_lost_race() -> None:
    told = Told()
    MemoryStore.put(told.store, FILE, b"1")
    assert ManifestLog(told.store).commit(Manifest("job", "j1", 1, 0, 5, "r2"))
    told.committer.commit(FIRST, None, 0)
    assert told.next() == e.CommitLost()
    told.committer.close()


def test_an_absent_store_is_told_once_and_asked_until_it_answers() -> None:
    told = Told()
    MemoryStore.put(told.store, FILE, b"1")
    told.store.lag.present.clear()
    told.committer.commit(FIRST, None, 0)
    assert told.next() == e.StoreUnavailable()
    with pytest.raises(queue.Empty):
        told.events.get(timeout=0.2)
    told.store.lag.present.set()
    assert told.next() == e.StoreAvailable()
    assert told.next() == e.Committed()
    told.committer.close()


def test_a_store_that_is_silent_is_away_and_its_first_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "_SILENT_S", 0.05)
    told = Told()
    MemoryStore.put(told.store, FILE, b"1")
    told.store.lag.holds_manifests.clear()
    told.committer.commit(FIRST, None, 0)
    pause = threading.Event()
    for _ in range(400):
        if told.committer.check_store(None):
            break
        pause.wait(0.01)
    else:
        raise AssertionError("a silent store is never found to be away")
    told.store.lag.holds_manifests.set()
    assert told.next() == e.StoreAvailable()
    assert told.next() == e.Committed()
    told.committer.close()


@pytest.mark.parametrize("is_refusal", [False, True])
def test_an_answer_to_a_probe_tells_that_the_store_is_back(monkeypatch: pytest.MonkeyPatch, is_refusal: bool) -> None:
    def refuse(name: str) -> bool:
        raise StoreError(f"{name} is not for this user")

    told = Told()
    told.store.lag.present.clear()
    told.committer.check_store(FIRST)
    assert told.next() == e.StoreUnavailable()
    if is_refusal:
        monkeypatch.setattr(told.store, "exists", refuse)
    told.store.lag.present.set()
    pause = threading.Event()
    for _ in range(400):
        if not told.committer.check_store(FIRST):
            break
        pause.wait(0.01)
    assert told.next() == e.StoreAvailable()
    told.committer.close()


class Watch:
    """A clock that is set by hand, and the silence of a store that is judged by it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.silence = StoreSilence(lambda: self.now_s)

    def answer(self, took_s: float) -> None:
        with self.silence.request():
            self.now_s += took_s

    def absent_after_s(self) -> float:
        """How long a request hangs, looked at every half second, until its store is found to be away."""
        with self.silence.request():
            began_s = self.now_s
            while not self.silence.is_outage():
                self.now_s += 0.5
            return self.now_s - began_s


def test_a_store_that_answers_quickly_is_away_after_two_seconds_of_silence() -> None:
    watch = Watch()
    watch.answer(0.05)
    assert watch.absent_after_s() == 2.5


def test_a_store_that_has_been_slow_is_given_more_time_but_never_more_than_ten_seconds() -> None:
    watch = Watch()
    watch.answer(1.5)
    assert watch.absent_after_s() == 6.5
    watch.answer(60.0)
    assert watch.absent_after_s() == 10.5


def test_one_of_many_requests_that_is_answered_ends_the_silence() -> None:
    watch = Watch()
    with watch.silence.request():
        for _ in range(20):
            assert not watch.silence.is_outage()
            watch.answer(1.0)
            watch.now_s += 0.9


def test_a_process_that_did_not_run_takes_nobody_for_absent() -> None:
    watch = Watch()
    with watch.silence.request():
        watch.now_s += 30.0  # the machine was asleep, or busy with others
        assert not watch.silence.is_outage()
        watch.now_s += 1.0
        assert not watch.silence.is_outage()


def test_a_request_that_says_that_nobody_answers_is_no_answer() -> None:
    watch = Watch()
    with pytest.raises(StoreAwayError), watch.silence.request():
        watch.now_s += 9.0
        raise StoreAwayError("nobody is there")
    assert watch.absent_after_s() == 2.5
