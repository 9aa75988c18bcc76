"""A store outage: the job waits or restarts, and its output stays exact."""

from __future__ import annotations

import errno
import itertools
import logging
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.running_totals import expected, totals
from stores.watched_store import Absence, AwayStore

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, JobStatus
from millstream.common.restart_strategy import RestartStrategies
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import JobFailedError, StoreAwayError, StoreDamagedError, StoreError
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.version import SegmentRef
from millstream.storage import patience
from millstream.storage.local import LocalStore
from millstream.storage.memory import MemoryStore
from millstream.storage.names import manifest_name
from millstream.storage.objects import ObjectStore
from millstream.storage.patience import Patience, PatientStore
from millstream.storage.store import Store
from millstream.testing import EPOCH, Collect, ManualClock, Script, run

_STORES = itertools.count()
END, BEGAN = 60, 30


def new_name() -> str:
    return f"away-{next(_STORES)}"


def prepared(store: Store, out: Collect, *, patience_ms: int, restarts: int) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    settings = Configuration().set_string("millstream.store.patience", f"{patience_ms} ms")
    env.configure(settings.set_string("millstream.retention.epochs", "1"))
    if restarts:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 0))
    totals(out, end=END)(env)
    return Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("job"), env._job_settings())


def begun() -> str:
    """The store of a job that was stopped half-way, with some epochs to be collected."""
    name = new_name()
    run(totals(Collect(), end=END), store=name, epochs=BEGAN // 10, job_name="job")
    return name


@cache
def calm_calls() -> tuple[int, list[str]]:
    """The number of calls a job makes before it runs, and in total."""
    absence = Absence()
    job = prepared(AwayStore(begun(), absence), Collect(), patience_ms=0, restarts=0)
    before = len(absence.made)
    job.start().result()
    return before, absence.made


def check_moment(first: int, moment: int, calls: int, answers_lost: bool, **how: int) -> None:
    """Make the store unavailable at call `moment`, counted from `first`, modulo the number of calls."""
    _, made = calm_calls()
    assert len(made) > 40
    call = first + 1 + moment % (len(made) - first)
    out, name = Collect(), begun()
    prepared(AwayStore(name, Absence(call, calls, answers_lost)), out, **how).start().result()
    assert sorted(out.values) == expected(BEGAN, BEGAN, END), f"away at call {call}, {made[call - 1]}"
    assert ManifestLog(MemoryStore(name)).newest().status == "FINISHED"  # type: ignore[union-attr]


# Thorough runs cover every call several times.
MOMENTS = st.integers(0, 79)


@settings(deadline=None)
@given(MOMENTS, st.booleans())
def test_a_short_outage_at_any_call_is_waited_out_without_a_restart(moment: int, answers_lost: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patience, "_FIRST_PAUSE_S", 1e-6)
        patch.setattr(patience, "_LONGEST_PAUSE_S", 1e-6)
        check_moment(0, moment, 5, answers_lost, patience_ms=10_000, restarts=0)


@settings(deadline=None)
@given(MOMENTS, st.integers(1, 4), st.booleans())
def test_an_outage_longer_than_the_patience_fails_and_a_restart_recovers(
    moment: int, calls: int, answers_lost: bool
) -> None:
    first, _ = calm_calls()
    check_moment(first, moment, calls, answers_lost, patience_ms=0, restarts=20)


def test_a_permanent_outage_fails_the_job_with_the_stores_error() -> None:
    first, _ = calm_calls()
    job = prepared(AwayStore(new_name(), Absence(first + 5, 10**6)), Collect(), patience_ms=0, restarts=2)
    # The driver's error or a task's: whichever called the store last.
    with pytest.raises((StoreAwayError, JobFailedError), match="no answer"):
        job.start().result()


def test_a_permanently_rejected_manifest_ends_the_job_under_any_restart_strategy() -> None:
    class Refusing(MemoryStore):
        def create(self, name: str, data: bytes) -> bool:
            if name == manifest_name(2):
                raise StoreError("not writable: permission denied")
            return super().create(name, data)

    out = Collect()
    job = prepared(Refusing(new_name()), out, patience_ms=0, restarts=1000)
    with pytest.raises(StoreError, match="permission denied"):
        job.start().result()
    assert job.board.now.restarts == 0 and len(out.values) == 10


class Broken(Script):
    """A source whose discovery fails, and which stops the job on the first call."""

    asked: list[float]

    def splits(self, context: Any) -> Any:
        self.asked.append(time.monotonic())
        self.stop()
        raise OSError("the broker is away")

    def opened(self, store: Store, session: Any) -> Any:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "stop": None}


def test_a_stop_during_an_outage_does_not_use_up_all_restarts() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(4, 60))
    source = Broken([1])
    source.asked, source.stop = [], lambda: None
    env.add_source(source).sink_to(Collect())
    job = Launch(ManualClock(), LocalRunner(), MemoryStore(new_name())).prepare(env._graph("job"), env._job_settings())
    source.stop = lambda: job.stop(drain=True) if len(source.asked) == 1 else None
    with pytest.raises(JobFailedError, match="the broker is away"):
        job.start().result()
    # Of four pauses of 60 ms, the first may be cut short.
    assert len(source.asked) == 5 and source.asked[-1] - source.asked[0] >= 0.18


# --- after a commit -------------------------------------------------------------------------------------------


class FailsAfterCommit(Script):
    """A source whose `committed` and `close` fail."""

    def committed(self, positions: dict[str, Any]) -> None:
        raise OSError("the broker is away")

    def close(self) -> None:
        raise RuntimeError("cannot be closed")


class Unclosable(DiscardingSink):
    def close(self) -> None:
        raise RuntimeError("cannot be closed either")


def test_a_failing_commit_notification_does_not_undo_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    out, store = Collect(), MemoryStore(new_name())
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.add_source(FailsAfterCommit([1, 2, EPOCH, 3]))
    numbers.sink_to(out)
    numbers.sink_to(Unclosable())
    job = Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("job"), env._job_settings())

    def watch(progress: Any) -> None:
        raise ValueError("a watcher that cannot see")

    job.board.listen(watch)
    with caplog.at_level(logging.WARNING):
        job.start().result()
    assert job.status() is JobStatus.FINISHED and out.values == [1, 2, 3]
    for words in ("the broker is away", "cannot be closed", "cannot be closed either", "a watcher that cannot see"):
        assert words in caplog.text


# --- transient and permanent errors ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["EIO", "ESTALE", "ETIMEDOUT", "ENETUNREACH", "ECONNREFUSED", "ENOSPC"])
def test_an_unresponsive_file_system_counts_as_unavailable(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"1")

    def fails(*_: object, **__: object) -> None:
        raise OSError(getattr(errno, name), name)

    monkeypatch.setattr(Path, "open", fails)
    monkeypatch.setattr(Path, "stat", fails)
    monkeypatch.setattr("os.rename", fails)
    for call in (lambda: store.get("a"), lambda: store.exists("a"), lambda: store.put("a", b"2")):
        with pytest.raises(StoreAwayError):
            call()


def test_a_segment_on_an_unresponsive_file_system_is_not_reported_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = SegmentRef("segments/op/s/000000000001-00000-a.arrow", 1, 0, 128, 0, 128, 1, 10, 0)
    store = LocalStore(tmp_path)
    store.put(ref.file, b"0123456789")
    segments = OpenSegments(store)
    for number, kind in ((errno.ESTALE, StoreAwayError), (errno.EACCES, StoreDamagedError)):

        def fails(_: str, number: int = number) -> None:
            raise OSError(number, "of this kind")

        monkeypatch.setattr("pyarrow.memory_map", fails)
        with pytest.raises(kind):
            segments.stored_layout(ref, "s")


def test_a_missing_or_forbidden_file_is_not_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(StoreDamagedError):
        store.get("a")

    def fails(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.rename", fails)
    with pytest.raises(StoreError) as refused:
        store.put("a", b"2")
    assert not isinstance(refused.value, StoreAwayError)


@pytest.mark.parametrize(("kind", "away"), [("GenericError", True), ("PermissionDeniedError", False)])
def test_a_rejection_by_a_service_is_distinguished_from_an_outage(kind: str, away: bool) -> None:
    from obstore import exceptions

    class Service:
        def put(self, *_: object, **__: object) -> None:
            raise getattr(exceptions, kind)("503 Service Unavailable")

    with pytest.raises(StoreError) as refused:
        ObjectStore("s3://unused", Service()).put("a", b"")  # type: ignore[arg-type]
    assert isinstance(refused.value, StoreAwayError) is away


def test_retries_end_in_time_and_back_off() -> None:
    clock, pauses = [0.0], []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        clock[0] += pause_s

    store = PatientStore(AwayStore(new_name(), Absence(1, 10**6)), Patience(5.0, sleep, lambda: clock[0]))
    with pytest.raises(StoreAwayError):
        store.get("a")
    assert 3.5 < sum(pauses) <= 5.0 and pauses == sorted(pauses) and len(pauses) < 20


def test_a_name_created_concurrently_by_another_writer_is_not_ours() -> None:
    name = new_name()
    store = PatientStore(AwayStore(name, Absence(1)), Patience(sleep=lambda _: MemoryStore(name).put("a", b"theirs")))
    assert not store.create("a", b"ours")
