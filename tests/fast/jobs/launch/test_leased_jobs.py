"""A second driver of a running job: rejected before it changes anything, unless it is started to take the job over."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from inputs.fresh_names import fresh_name
from programs.running_totals import numbers, totals
from waits.patience import until

from millstream.checkpoint import driver_lease
from millstream.checkpoint.driver_lease import DriverLease, read_driver_lease
from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, JobStatus, RestartStrategies, Types
from millstream.connectors.program_sources import DataGeneratorSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, FencedError, JobFailedError, StoreError
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.state_reader.stored_jobs import jobs
from millstream.storage.log_lock import is_anybody_running
from millstream.storage.memory import MemoryStore
from millstream.storage.shared_names import driver_name
from millstream.storage.store import Store, open_store
from millstream.testing import CRASH, Collect, Script

TAKE_OVER = {"millstream.take-over": "true"}


def endless(store: Store, out: Collect, settings: dict[str, str] | None = None, rate: float = 2000) -> Job:
    """A job that counts forever."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    configuration = Configuration()
    for key, value in (settings or {}).items():
        configuration.set_string(key, value)
    env.configure(configuration)
    source = DataGeneratorSource(lambda n: n, rate_per_second=rate, type_info=Types.LONG())
    env.add_source(source, "numbers").uid("numbers").sink_to(out).uid("out")
    return Launch(SystemClock(), LocalRunner(), store).prepare(env._graph("numbers"), env._job_settings())


def running(store: Store, out: Collect, settings: dict[str, str] | None = None, rate: float = 2000) -> Job:
    job = endless(store, out, settings, rate).start()
    at = job.board.now.published
    until("an epoch", lambda: job.board.now.published > at)
    return job


def stopped(job: Job) -> None:
    job.stop()
    job.result()


def names(store: Store) -> set[str]:
    return {name for name in store.list("") if name.startswith(("manifests/", "pins/", "job.json", "logs/"))}


@pytest.mark.parametrize("start", ["", "@1"], ids=["goes on", "goes back"])
def test_a_second_driver_is_refused_and_the_first_one_is_not_disturbed(start: str) -> None:
    store, out = MemoryStore(fresh_name("leased")), Collect()
    first = running(store, out)
    settings = {"execution.state-recovery.path": f"{store.url}{start}"} if start else {}
    with pytest.raises(FencedError, match=r"job 'numbers' is already running in store memory://\S+: process"):
        endless(store, Collect(), settings)
    at = first.board.now.published
    until("another epoch", lambda: first.board.now.published > at)
    assert not any(
        manifest.run.startswith("restore")
        for epoch in ManifestLog(store).epochs()
        if (manifest := ManifestLog(store).read_if_present(epoch)) is not None
    )
    stopped(first)
    assert sorted(out.values) == list(range(len(out.values)))
    assert not store.exists(driver_name())


def test_a_driver_that_takes_over_continues_and_the_other_one_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_lease, "RENEW_S", 0.05)
    store, outs = MemoryStore(fresh_name("leased")), [Collect(), Collect()]
    first = running(store, outs[0])
    second = running(store, outs[1], TAKE_OVER)
    until("the first driver's end", lambda: first.wait(0.05))
    with pytest.raises(FencedError, match=r"was taken over by process|another driver committed epoch"):
        first.result()
    assert second.status() is JobStatus.RUNNING
    stopped(second)
    # Epochs that the first one committed and perhaps did not publish are published by the second one: the same, one by
    # one.
    published = {record.epoch: set[int]() for out in outs for record in out.records}
    for record in (record for out in outs for record in out.records):
        published[record.epoch].add(record.value)
    values = [value for values in published.values() for value in values]
    newest = ManifestLog(store).newest()
    assert newest is not None
    read = sum(position.offset for position in newest.sources["numbers"].values())  # type: ignore[misc]
    assert len(values) == len(set(values)) == read
    assert not store.exists(driver_name())


def test_an_idle_driver_notices_that_its_job_was_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing to commit, so no manifest would ever stop it."""
    monkeypatch.setattr(driver_lease, "RENEW_S", 0.05)
    store = MemoryStore(fresh_name("leased"))
    first = endless(store, Collect(), rate=0.001).start()
    until("its start", lambda: first.status() is JobStatus.RUNNING)
    second = endless(store, Collect(), TAKE_OVER)
    until("the first driver's end", lambda: first.wait(0.05))
    with pytest.raises(FencedError, match=r"job 'numbers' was taken over by process"):
        first.result()
    stopped(second.start())


def test_a_replaced_driver_never_commits_again() -> None:
    """Without any check of the lease: the new driver has committed a manifest before its first epoch."""
    store, outs = MemoryStore(fresh_name("leased")), [Collect(), Collect()]
    first = running(store, outs[0])
    second = endless(store, outs[1], TAKE_OVER)  # Spark would take many seconds to start now
    until("the first driver's end", lambda: first.wait(0.05))
    with pytest.raises(FencedError, match="another driver"):
        first.result()
    stopped(second.start())


def test_a_lease_is_released_however_the_job_ends() -> None:
    def finished(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script([1, 2])).sink_to(Collect())

    def failed(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script([0])).map(lambda n: 1 // n).sink_to(Collect())

    for build, error in ((finished, None), (failed, JobFailedError)):
        store = MemoryStore(fresh_name("leased"))
        env = StreamExecutionEnvironment.get_execution_environment()
        build(env)
        job = Launch(SystemClock(), LocalRunner(), store).prepare(env._graph("job"), env._job_settings())
        assert isinstance(read_driver_lease(store), DriverLease)
        job.start()
        if error is None:
            job.result()
        else:
            with pytest.raises(error):
                job.result()
        assert not store.exists(driver_name())
    store = MemoryStore(fresh_name("leased"))
    job = running(store, Collect())
    job.cancel()
    job.wait()
    assert not store.exists(driver_name())


def test_a_rejected_program_leaves_no_lease_and_does_not_touch_another_jobs_lease() -> None:
    store = MemoryStore(fresh_name("leased"))
    job = running(store, Collect())
    lease = store.get(driver_name())
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(Configuration().set_string("millstream.take-over", "true"))
    totals(Collect())(env)
    with pytest.raises(StoreError, match="belongs to job 'numbers', not to 'another'"):
        Launch(SystemClock(), LocalRunner(), store).prepare(env._graph("another"), env._job_settings())
    held = read_driver_lease(store)
    assert isinstance(held, DriverLease) and f'"id": "{held.id}"'.encode() in lease
    stopped(job)


def test_a_program_that_does_not_fit_the_store_leaves_no_lease() -> None:
    store = MemoryStore(fresh_name("leased"))
    for build in (totals(Collect()), lambda env: env.add_source(numbers()).sink_to(Collect())):
        env = StreamExecutionEnvironment.get_execution_environment()
        build(env)
        launch = Launch(SystemClock(), LocalRunner(), store)
        graph, settings = env._graph("job"), env._job_settings()
        if ManifestLog(store).epochs():
            with pytest.raises(StoreError, match="which this program does not have"):
                launch.prepare(graph, settings)
        else:
            launch.prepare(graph, settings).start().result()
    assert not store.exists(driver_name())


def test_a_job_whose_settings_are_refused_leaves_no_lease_and_no_open_log(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for key, value in {"millstream.retention.epochs": "-1", "execution.checkpointing.timeout": "0"}.items():
        with pytest.raises(ConfigurationError, match=key):
            endless(store, Collect(), {key: value})
        assert not store.exists(driver_name()) and not is_anybody_running(store)
        assert not [handler for handler in logging.getLogger().handlers if str(tmp_path) in str(handler)]


def test_a_job_whose_threads_cannot_start_has_failed_and_leaves_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path))
    job = endless(store, Collect())

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(job._thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        job.start()
    assert job.wait() and job.status() is JobStatus.FAILED
    assert not store.exists(driver_name()) and not is_anybody_running(store)
    assert [listed.status for listed in jobs(str(tmp_path))] == ["FAILED"]


def test_an_error_whose_text_raises_ends_the_job(tmp_path: Path) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError

    class Broken(Script):
        def opened(self, store: object, session: object) -> Script:
            raise MuteError

    store = open_store(str(tmp_path))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_source(Broken([1])).sink_to(Collect())
    job = Launch(SystemClock(), LocalRunner(), store).prepare(env._graph("job"), env._job_settings()).start()
    with pytest.raises(MuteError):
        job.result()
    assert job.status() is JobStatus.FAILED and not store.exists(driver_name()) and not is_anybody_running(store)


def test_a_restarting_job_holds_its_lease() -> None:
    store, out, seen = MemoryStore(fresh_name("leased")), Collect(), set()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    env.add_source(Script([1, CRASH, 2, CRASH, 3])).sink_to(out)
    job = Launch(SystemClock(), LocalRunner(), store).prepare(env._graph("job"), env._job_settings())
    job.board.listen(lambda _: seen.add(getattr(read_driver_lease(store), "id", None)))
    job.start().result()
    assert job.board.now.restarts == 2 and sorted(out.values) == [1, 2, 3]
    assert len(seen - {None}) == 1


_PROGRAM = """
import sys
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.connectors.program_sources import DataGeneratorSource
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.store import open_store
from millstream.testing import Collect

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
source = DataGeneratorSource(lambda n: n, rate_per_second=2000, type_info=Types.LONG())
env.add_source(source, "numbers").uid("numbers").sink_to(Collect()).uid("out")
job = Launch(SystemClock(), LocalRunner(), open_store(sys.argv[1])).prepare(env._graph("numbers"), env._job_settings())
job.board.listen(lambda progress: print(progress.epoch, flush=True))
job.start().wait()
"""


@pytest.mark.slow
def test_a_job_that_was_killed_is_started_again_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        while process.stdout.readline().strip() in ("", "0"):
            assert process.poll() is None
        store = open_store(str(tmp_path))
        with pytest.raises(FencedError, match=f"process {process.pid} on"):
            endless(store, Collect())
        process.kill()
        lease = read_driver_lease(store)
        assert isinstance(lease, DriverLease) and lease.pid == process.pid
        job = endless(store, Collect())  # the dead process has not been waited for and is still a zombie
        stopped(job.start())
        process.wait()
