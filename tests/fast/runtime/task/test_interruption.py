"""An epoch that was cancelled ends between two batches, where tasks run in this process."""

from __future__ import annotations

import threading

import pytest

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.runtime.operators.interruption import InterruptedEpoch, check_wanted, interrupted_by
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore

_BEGUN = threading.Event()


def passed(number: int) -> int:
    _BEGUN.set()
    return number


def test_a_cancelled_job_does_not_finish_its_epoch_first() -> None:
    env = StreamExecutionEnvironment().set_parallelism(1)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.configure(Configuration().set_string("millstream.epoch.max-records", str(1 << 40)))
    numbers = env.from_source(NumberSequenceSource(0, 1 << 40), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(passed).filter(lambda number: number < 0).print()
    launch = Launch(SystemClock(), LocalRunner(), MemoryStore("interrupted"))
    job = launch.prepare(env._graph("endless"), env._job_settings()).start()
    assert _BEGUN.wait(60)
    job.cancel()
    assert job.wait(60), "it goes on"
    assert job.status().name == "CANCELED"


def test_what_is_raised_is_of_the_thread_that_runs_the_epoch_and_of_its_time() -> None:
    cancelled = threading.Event()
    with interrupted_by(cancelled):
        check_wanted()
        cancelled.set()
        other = threading.Thread(target=check_wanted)  # raises nothing there
        other.start()
        other.join()
        with pytest.raises(InterruptedEpoch):
            check_wanted()
    check_wanted()
