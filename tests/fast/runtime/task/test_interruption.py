"""A cancelled epoch ends between two batches where tasks run in this process."""

from __future__ import annotations

import threading

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.runtime.operators.interruption import InterruptedEpoch, check_cancelled, interrupted_by
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore

_BEGUN, _CANCELLED, _SEEN = threading.Event(), threading.Event(), list[int]()


def block_in_first_record(number: int) -> int:
    if not _SEEN:
        _BEGUN.set()
        assert _CANCELLED.wait(60)
    _SEEN.append(number)
    return number


def test_a_cancelled_job_does_not_complete_its_epoch() -> None:
    runner = LocalRunner()
    env = StreamExecutionEnvironment().set_parallelism(1)
    env.configure(Configuration().set_string("millstream.batch.max-records", "10"))
    env.from_collection(list(range(1_000))).map(block_in_first_record).print()
    launch = Launch(SystemClock(), runner, MemoryStore("interrupted"))
    job = launch.prepare(env._graph("long"), env._job_settings()).start()
    assert _BEGUN.wait(60)
    job.cancel()
    assert runner._cancelled.wait(60)
    _CANCELLED.set()
    assert job.wait(60) and job.status().name == "CANCELED"
    assert len(_SEEN) <= 10, "the task continued with the next batch"


def test_an_interruption_is_raised_only_in_the_thread_and_epoch_it_is_for() -> None:
    cancelled = threading.Event()
    with interrupted_by(cancelled):
        check_cancelled()
        cancelled.set()
        other = threading.Thread(target=check_cancelled)  # raises nothing there
        other.start()
        other.join()
        with pytest.raises(InterruptedEpoch):
            check_cancelled()
    check_cancelled()
