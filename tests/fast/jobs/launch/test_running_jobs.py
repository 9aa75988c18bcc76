"""Operations on a running job: savepoint, stop, drain and rescale, from this process and from others."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs.running_totals import expected, numbers, totals

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import pins_of
from millstream.checkpoint.savepoints import find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import Configuration, JobStatus, Time, Types, WatermarkStrategy
from millstream.common.job_client import JobClient
from millstream.datastream import ExternalizedCheckpointRetention, StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import JobFailedError, ProgramError, StoreError
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.store import Store
from millstream.testing import Collect, ManualClock

_STORES = itertools.count()


def eighty_numbers(env: StreamExecutionEnvironment, out: Collect) -> None:
    totals(out, end=80)(env)


EXPECTED = expected(end=80)


def prepare_job(
    build: Callable[[StreamExecutionEnvironment, Collect], None],
    out: Collect,
    store: Store | None = None,
    settings: Configuration | None = None,
    parallelism: int = 1,
) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism).configure(settings or Configuration())
    build(env, out)
    store = store or MemoryStore(f"running-{next(_STORES)}")
    return Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("job"), env._job_settings())


def at_epoch(job: Job, epoch: int, act: Callable[[], object]) -> None:
    """Run an action once, between the commit of `epoch` and the next one."""
    done: list[bool] = []

    def check_epoch(progress: JobProgress) -> None:
        if progress.epoch == epoch and not done:
            done.append(True)
            act()

    job.board.listen(check_epoch)


def parallelisms(store: Store) -> list[int]:
    log = ManifestLog(store)
    programs: list[Any] = [log.read(epoch).program for epoch in log.epochs()]
    return [program["totals"]["parallelism"] for program in programs]


# --- another parallelism, live --------------------------------------------------------------------------------


def test_a_running_job_continues_at_another_parallelism_with_the_next_epoch() -> None:
    store, out = MemoryStore(f"running-{next(_STORES)}"), Collect()
    job = prepare_job(eighty_numbers, out, store, parallelism=2)
    at_epoch(job, 2, lambda: job.rescale(4))
    at_epoch(job, 5, lambda: job.rescale(1))
    job.start().result()
    assert sorted(out.values) == EXPECTED
    assert parallelisms(store)[:8] == [2, 2, 4, 4, 4, 1, 1, 1]


def test_an_invalid_parallelism_is_rejected_and_the_job_continues() -> None:
    out, refused = Collect(), []
    job = prepare_job(eighty_numbers, out)

    def ask() -> None:
        for wrong in (0, 129):
            with pytest.raises(ProgramError, match=f"rescale: found {wrong}, expected 1 to 128") as error:
                job.rescale(wrong)
            refused.append(error)

    at_epoch(job, 3, ask)
    job.start().result()
    assert len(refused) == 2 and sorted(out.values) == EXPECTED
    with pytest.raises(JobFailedError, match=r"has ended\. Start it again with -p 2"):
        job.rescale(2)


# --- savepoints of a running job ------------------------------------------------------------------------------


def run_with_savepoint(directory: str | None, settings: Configuration | None = None) -> tuple[Job, Collect, str]:
    """Run the job, trigger a savepoint when epoch 3 is committed, wait for both."""
    out = Collect()
    job = prepare_job(eighty_numbers, out, settings=settings)
    futures: list[Any] = []
    at_epoch(job, 3, lambda: futures.append(JobClient(job).trigger_savepoint(directory)))
    job.start().result()
    return job, out, futures[0].result()


def test_a_savepoint_by_reference_pins_an_epoch_of_the_running_job() -> None:
    _, out, path = run_with_savepoint(None)
    assert sorted(out.values) == EXPECTED
    snapshot = find_snapshot(parse_snapshot_name(path))
    assert snapshot.manifest.epoch >= 3 and not snapshot.is_savepoint
    (pin,) = pins_of(snapshot.store)
    assert (pin.reason, pin.epoch) == ("savepoint", snapshot.manifest.epoch)


@pytest.mark.parametrize("by_setting", [False, True])
def test_a_savepoint_in_a_folder_is_complete_and_self_contained(tmp_path: Path, by_setting: bool) -> None:
    settings = Configuration()
    if by_setting:
        settings.set_string("execution.checkpointing.savepoint-dir", str(tmp_path))
    _, out, path = run_with_savepoint(None if by_setting else str(tmp_path), settings)
    assert sorted(out.values) == EXPECTED
    snapshot = find_snapshot(parse_snapshot_name(path))
    assert snapshot.is_savepoint and Path(path).parent == tmp_path


def test_a_savepoint_that_cannot_be_written_fails_without_the_job(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = Collect()
    job = prepare_job(eighty_numbers, out)
    futures: list[Any] = []
    at_epoch(job, 3, lambda: futures.append(JobClient(job).trigger_savepoint(str(tmp_path / "file"))))
    job.start().result()
    assert sorted(out.values) == EXPECTED
    with pytest.raises(StoreError, match="is not a folder"):
        futures[0].result()


# --- stopping -------------------------------------------------------------------------------------------------


def windows(env: StreamExecutionEnvironment, out: Collect) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n * 10)
    read = env.from_source(numbers(80), strategy, "numbers").uid("numbers")
    keyed = read.key_by(lambda n: 0, Types.LONG()).window(TumblingEventTimeWindows.of(Time.milliseconds(10_000)))
    keyed.reduce(lambda a, b: a + b).uid("windows").sink_to(out).uid("out")


def test_stop_with_savepoint_leaves_windows_open_and_the_job_continues_from_it() -> None:
    out, store = Collect(), MemoryStore(f"running-{next(_STORES)}")
    job = prepare_job(windows, out, store)
    futures: list[Any] = []
    at_epoch(job, 3, lambda: futures.append(JobClient(job).stop_with_savepoint(False)))
    job.start().wait()
    path = futures[0].result()
    assert job.status() is JobStatus.SUSPENDED and not out.values
    again, elsewhere = Collect(), MemoryStore(f"running-{next(_STORES)}")
    settings = Configuration().set_string("execution.state-recovery.path", path)
    prepare_job(windows, again, elsewhere, settings).start().result()
    assert again.values == [sum(range(80))]


def test_stop_with_drain_ends_event_time_so_that_open_windows_fire() -> None:
    out = Collect()
    job = prepare_job(windows, out)
    futures: list[Any] = []
    at_epoch(job, 3, lambda: futures.append(JobClient(job).stop_with_savepoint(True)))
    job.start().wait()
    assert find_snapshot(parse_snapshot_name(futures[0].result())).manifest.status == "FINISHED"
    assert job.status() is JobStatus.FINISHED
    read = len(out.values) and out.values[0]
    assert read in {sum(range(ten * 10)) for ten in range(3, 8)}


def cancelled(retention: ExternalizedCheckpointRetention | None) -> MemoryStore:
    store, settings = MemoryStore(f"running-{next(_STORES)}"), Configuration()
    if retention is not None:
        settings.set_string("execution.checkpointing.externalized-checkpoint-retention", retention.name)
    job = prepare_job(lambda env, out: totals(out, end=10_000)(env), Collect(), store, settings)
    saving = threading.Thread(target=job.savepoint, args=(None, "kept"))
    at_epoch(job, 3, saving.start)

    def cancel_once_saved(progress: JobProgress) -> None:
        if progress.epoch >= 6 and not saving.is_alive():
            job.cancel()

    job.board.listen(cancel_once_saved)
    job.start().wait()
    saving.join()
    assert job.status() is JobStatus.CANCELED
    return store


def test_a_cancelled_job_retains_its_epochs_unless_configured_and_its_savepoints_always() -> None:
    for retention in (None, ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION):
        assert len(ManifestLog(cancelled(retention)).epochs()) >= 6
    left = cancelled(ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION)
    (pin,) = pins_of(left)
    assert ManifestLog(left).epochs() == [pin.epoch]
    snapshot = find_snapshot(parse_snapshot_name(f"{left.url}@kept"))
    assert all(left.exists(name) for name in left.list("segments")) and snapshot.manifest.epoch == pin.epoch
