"""Jobs whose epochs run ahead of commits: their results are the same, whatever is late, unreachable or lost."""

from __future__ import annotations

import itertools
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from programs.running_totals import expected, numbers, totals
from stores.lagging_store import Lag, LaggingStore
from waits.job_moments import killed_until_finished, when

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.pins import pins_of
from millstream.checkpoint.program import program_of
from millstream.checkpoint.retention import RetentionPolicy, epoch_of_file, named_files
from millstream.checkpoint.savepoints import copy_savepoint, find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import Configuration, JobStatus, Types, WatermarkStrategy
from millstream.common.restart_strategy import RestartStrategies
from millstream.connectors.contracts import RestorePoint
from millstream.connectors.files.part_plan import published_parts
from millstream.connectors.files.parts import TextParts
from millstream.connectors.files.publishing import later_parts
from millstream.connectors.files.sink import FileSink as FileParts
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import JobFailedError, StoreAwayError, StoreError, UnsentFileError
from millstream.jobs.epochs import input_planner
from millstream.jobs.epochs.epoch_run import Deployment
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.launch import launch as launching
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.jobs.replay.replay import past_epoch
from millstream.runtime.task import store_use, task
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.store import open_store
from millstream.storage.tier.tiered_store import TierSettings
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()
END = 120


def prepare_job(
    store: MemoryStore, out: Any, *, epochs: int = 3, restarts: int = 0, build: Any = None, **settings: str
) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    configuration = Configuration().set_string("millstream.ahead.max-epochs", str(epochs))
    for key, value in settings.items():
        configuration.set_string(f"millstream.{key.replace('_', '.', 1).replace('_', '-')}", value)
    env.configure(configuration)
    if restarts:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 0))
    (build or totals(out, end=END))(env)
    return Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("job"), env._job_settings())


def lagging_store(lag: Lag | None = None) -> LaggingStore:
    return LaggingStore(f"ahead-{next(_STORES)}", lag)


def check(store: LaggingStore, out: Collect, end: int = END) -> None:
    """All output was published once, and every manifest named files that were in the store."""
    assert sorted(out.values) == expected(end=end)
    assert store.lag.violations == []
    newest = ManifestLog(store).newest()
    assert newest is not None and newest.status == "FINISHED"
    epochs = store.lag.manifests
    assert epochs == sorted(set(epochs)), "numbers are consecutive, each once"
    assert epochs == list(range(1, epochs[-1] + 1))
    published = [epoch for epoch, _ in itertools.groupby(out.publications)]
    assert published == sorted(published)


def test_epochs_continue_while_uploads_are_pending_and_are_committed_together() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out)
    store.lag.holds_manifests.clear()
    when(job, lambda now: now.ahead >= 3, store.lag.holds_manifests.set)
    job.start().result()
    check(store, out)
    log = ManifestLog(store)
    steps = [(statistics_of(log.read(epoch)) or {}).get("steps", 1) for epoch in log.epochs()]
    assert max(steps) >= 2


def test_counts_of_epochs_committed_together_are_summed() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out, retention_epochs="1000")
    store.lag.holds_manifests.clear()
    when(job, lambda now: now.ahead >= 3, store.lag.holds_manifests.set)
    job.start().result()
    log = ManifestLog(store)
    statistics = [statistics_of(log.read(epoch)) or {} for epoch in log.epochs()]
    assert sum(one.get("in", 0) for one in statistics) == END
    assert sum(one.get("out", 0) for one in statistics) == END
    newest: Any = log.newest()
    assert newest.counters["operators"]["numbers"]["out"] == END
    assert job.board.now.records_in == END


@pytest.mark.parametrize("seed", range(2))
def test_the_output_is_independent_of_the_upload_order(seed: int) -> None:
    store, out = lagging_store(Lag(random.Random(seed))), Collect()
    prepare_job(store, out, epochs=1 + seed).start().result()
    check(store, out)


@pytest.mark.parametrize("seed", range(2))
def test_a_job_killed_while_ahead_continues_from_its_newest_manifest(seed: int) -> None:
    """Killed repeatedly without notice, with pending uploads."""
    draw = random.Random(seed)
    store, out = lagging_store(Lag(random.Random(seed))), Collect()
    killed_until_finished(lambda: prepare_job(store, out, epochs=4), store.lag.lose, draw, 100)
    check(store, out)


def test_a_stop_while_ahead_commits_everything_that_was_acknowledged() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out)
    store.lag.holds_manifests.clear()

    def stop() -> None:
        job.stop()
        store.lag.holds_manifests.set()

    when(job, lambda now: now.ahead >= 3, stop)
    job.start().result()
    assert job.status() is JobStatus.SUSPENDED
    assert len(out.values) >= 30
    prepare_job(store, out).start().result()
    check(store, out)


def test_a_savepoint_includes_all_epochs_acknowledged_at_its_request() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out, retention_epochs="1000")
    requested: list[JobProgress] = []
    saved: list[str] = []
    too_early: list[str] = []
    savers: list[threading.Thread] = []

    def ask() -> None:
        requested.append(job.board.now)
        saver = threading.Thread(target=lambda: saved.append(job.savepoint(name="kept")))
        saver.start()
        saver.join(0.2)
        too_early.extend(saved)
        store.lag.holds_manifests.set()
        savers.append(saver)

    when(job, lambda now: now.published >= 2, store.lag.holds_manifests.clear)
    when(job, lambda now: now.ahead >= 3, ask)
    job.start().result()
    savers[0].join()
    assert not too_early, "what is acknowledged is not committed yet"
    [pin] = [pin for pin in pins_of(store) if pin.name == "kept"]
    assert pin.epoch >= requested[0].acknowledged > requested[0].epoch


def test_a_savepoint_of_a_job_cancelled_while_ahead_has_its_committed_epochs() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out, retention_epochs="1000")

    def cancel() -> None:
        job.cancel()
        store.lag.holds_manifests.set()

    when(job, lambda now: now.published >= 2, store.lag.holds_manifests.clear)
    when(job, lambda now: now.ahead >= 3, cancel)
    job.start().wait()
    assert job.status() is JobStatus.CANCELED
    job.savepoint(name="kept")
    [pin] = [pin for pin in pins_of(store) if pin.name == "kept"]
    assert pin.epoch == job.board.now.epoch >= 2


def test_while_the_store_is_unreachable_the_job_continues_and_publishes_in_order_afterwards() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out, epochs=2)
    when(job, lambda now: now.published >= 2, store.lag.present.clear)
    seen: list[int] = []

    def is_far(now: JobProgress) -> bool:
        seen.append(now.ahead)
        return now.ahead >= 8

    when(job, is_far, store.lag.present.set)
    job.start().result()
    check(store, out)
    assert max(seen) >= 8, "the number of epochs ahead is unbounded while the store is unreachable"
    assert job.board.now.restarts == 0
    assert not job.board.now.store_unreachable


def test_a_job_pauses_at_its_byte_bound_and_continues_when_the_store_is_back() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out, epochs=2, ahead_max_bytes="2000")
    when(job, lambda now: now.published >= 2, store.lag.present.clear)
    when(job, lambda now: now.paused, store.lag.present.set)
    job.start().result()
    check(store, out)
    assert job.board.now.restarts == 0
    assert not job.board.now.paused


def test_files_lost_with_a_machine_roll_back_uncommitted_epochs_without_a_restart() -> None:
    store, out = lagging_store(Lag(random.Random(1))), Collect()
    job = prepare_job(store, out, epochs=4)
    store.lag.holds_manifests.clear()

    def lose() -> None:
        store.lag.lose()
        store.lag.holds_manifests.set()

    when(job, lambda now: now.ahead >= 3, lose)
    job.start().result()
    check(store, out)
    assert job.board.now.restarts == 0


class SlowToAcknowledge(Script):
    """Takes its time to process a commit notification; records each, and whether two overlap or the source is closed
    during one.
    """

    def committed(self, positions: Any) -> None:
        if NOTIFYING.locked():
            OVERLAPS.append(positions)
        with NOTIFYING:
            time.sleep(0.03)
            NOTIFIED.append(positions)

    def close(self) -> None:
        if NOTIFYING.locked():
            OVERLAPS.append("the end")


NOTIFYING, NOTIFIED, OVERLAPS = threading.Lock(), [], []  # type: ignore[var-annotated]


def test_sources_are_notified_of_commits_one_at_a_time_in_order_and_of_the_last_before_the_end() -> None:
    """Notifications run concurrently with the current epoch; those at a start, after a failure, and at the end run on
    another thread.
    """
    NOTIFIED.clear(), OVERLAPS.clear()
    store, out, failures = lagging_store(), Collect(), iter(range(2))

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(1)
        items = [n for ten in range(0, END, 10) for n in (*range(ten, ten + 10), EPOCH)]
        env.add_source(SlowToAcknowledge(items, type_info=Types.LONG()), "numbers").uid("numbers").sink_to(out).uid(
            "out"
        )

    job = prepare_job(store, out, restarts=5, build=build)
    run = LocalRunner.run

    def fails_now_and_then(runner: LocalRunner, spec: Any) -> Any:
        if spec.epoch in (4, 7) and next(failures, None) is not None:
            raise OSError("a machine failed")
        return run(runner, spec)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalRunner, "run", fails_now_and_then)
        job.start().result()
    newest: Any = ManifestLog(store).newest()
    assert not OVERLAPS
    assert NOTIFIED[-1] == {split: at.offset for split, at in newest.sources["numbers"].items()}
    notified_offsets = [max(positions.values(), default=0) for positions in NOTIFIED]
    assert notified_offsets == sorted(notified_offsets)


class DelayedFiles(random.Random):
    """A file arrives when it is requested the third time."""

    requested = 0

    def random(self) -> float:
        self.requested += 1
        return 0.0 if self.requested % 3 == 0 else 1.0


@pytest.mark.parametrize("kind", [UnsentFileError, StoreAwayError])
def test_a_job_makes_progress_although_epochs_fail_whenever_they_are_ahead(
    kind: type[StoreAwayError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with subtasks that move while uploads are slow: they miss files that have not arrived yet."""

    class Missing(store_use.StoreUse):
        def __init__(self, store: Any, *, is_ahead: bool, **how: Any) -> None:
            super().__init__(store, is_ahead=is_ahead, **how)
            self.is_ahead = is_ahead

        def end(self) -> dict[str, int]:
            if self.is_ahead:
                raise kind("A file is missing. The machine that wrote it may not have sent it yet.")
            return super().end()

    monkeypatch.setattr(task, "StoreUse", Missing)
    monkeypatch.setattr("millstream.checkpoint.failing.UNAVAILABLE_PAUSE_MS", 0)
    store, out = lagging_store(Lag(DelayedFiles())), Collect()
    job = prepare_job(store, out, epochs=4)
    job.start()
    try:
        assert job.wait(60), f"no epoch was committed: {job.board.now}"
    finally:
        job.cancel()
    check(store, out)
    assert job.board.now.restarts == 0


def test_a_replay_of_epochs_committed_together_is_reported() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out, retention_epochs="1000")
    store.lag.holds_manifests.clear()
    when(job, lambda now: now.ahead >= 3, store.lag.holds_manifests.set)
    job.start().result()
    log = ManifestLog(store)
    merged = [epoch for epoch in log.epochs() if (statistics_of(log.read(epoch)) or {}).get("steps", 1) > 1]
    with pytest.raises(StoreError, match=r"was run as \d epochs, one after the other, and committed as one"):
        past_epoch(f"{store.url}@{merged[0]}")


def test_a_job_that_records_its_input_commits_each_epoch_separately() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out, record="true", retention_epochs="1000")
    store.lag.holds_manifests.clear()
    when(job, lambda now: now.ahead >= 3, store.lag.holds_manifests.set)
    job.start().result()
    check(store, out)
    log = ManifestLog(store)
    assert all("steps" not in (statistics_of(log.read(epoch)) or {}) for epoch in log.epochs())


def test_files_read_by_lost_epochs_are_read_again(tmp_path: Path) -> None:
    """A source that skips finished files must not skip files finished only by lost epochs."""
    names = [f"{number:03d}" for number in range(40)]
    (tmp_path / "in").mkdir()
    for name in names:
        (tmp_path / "in" / name).write_text(f"{name}\n")
    store, out, failed = lagging_store(), Collect(), str(tmp_path / "failed")

    def fail_once(line: str) -> str:
        if line == "030" and not Path(failed).exists():
            Path(failed).touch()
            raise ValueError("once")
        return line

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(1)
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "in")).build()
        lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
        lines.map(fail_once, Types.STRING()).uid("map").sink_to(out).uid("out")

    job = prepare_job(store, out, epochs=50, restarts=3, build=build, epoch_max_records="1")
    store.lag.holds_manifests.clear()
    when(job, lambda now: now.last_error != "", store.lag.holds_manifests.set)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_planner, "SPLITS_AT_ONCE", 1)
        job.start().result()
    assert Path(failed).exists()
    assert out.values == names


def test_a_job_ahead_of_its_commits_commits_everything_before_a_drain_or_rescale() -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out)
    store.lag.holds_manifests.clear()

    def rescale() -> None:
        job.rescale(2)
        store.lag.holds_manifests.set()

    when(job, lambda now: now.ahead >= 3, rescale)
    when(job, lambda now: now.epoch >= 6, lambda: job.stop(drain=True))
    job.start().result()
    assert job.status() is JobStatus.FINISHED
    assert store.lag.violations == []
    newest: Any = ManifestLog(store).newest()
    assert sorted(out.values) == expected(end=newest.counters["operators"]["numbers"]["out"])
    assert program_of(newest)["totals"].parallelism == 2


def test_a_rescale_requested_during_planning_waits_for_epochs_that_are_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, out = lagging_store(), Collect()
    job = prepare_job(store, out)
    store.lag.holds_manifests.clear()
    ahead: list[int] = []
    original_is_replaced, original_send_plan = Deployment.is_replaced.fget, Deployment.send_plan  # type: ignore[attr-defined]

    def is_replaced(deployment: Deployment) -> bool:
        answer: bool = original_is_replaced(deployment)
        if job.board.now.ahead >= 2 and not store.lag.holds_manifests.is_set():
            deployment.rescale(2)  # by another thread, right after this check
            store.lag.holds_manifests.set()
        return answer

    def send_plan(deployment: Deployment) -> None:
        ahead.append(job.board.now.ahead)
        original_send_plan(deployment)

    monkeypatch.setattr(Deployment, "is_replaced", property(is_replaced))
    monkeypatch.setattr(Deployment, "send_plan", send_plan)
    job.start().result()
    check(store, out)
    assert ahead == [0]


@pytest.mark.parametrize("seed", range(2))
def test_sweeping_retains_files_of_epochs_ahead_and_removes_those_of_lost_ones(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sweeper, "is_due", lambda self, manifest: True)
    store, out = lagging_store(Lag(random.Random(seed))), Collect()
    for kills in (True, True, False):
        job = prepare_job(store, out, epochs=4, retention_epochs="1")
        if kills:
            reached = job.board.now.epoch
            when(job, lambda now, r=reached: now.ahead >= 3 and now.epoch > r + 1, job.cancel)  # type: ignore[misc]
        job.start().wait()
        # The pending upload completes after all, too late.
        for name in sorted(store.lag.unsent):
            MemoryStore.put(store, name, store.lag.tier[name])
        store.lag.unsent.clear()
    check(store, out)
    newest: Any = ManifestLog(store).newest()
    Sweeper(store, lambda: 0, RetentionPolicy(keep_last=1)).sweep(newest)
    left = {name for prefix in ("segments", "staged") for name in store.list(prefix)}
    old = {name for name in left - named_files(newest) if epoch_of_file(name) < newest.epoch}
    assert old == set()


class Sum(KeyedProcessFunction):
    """Running totals, stored as the given type."""

    def __init__(self, state_type: Any) -> None:
        self.state_type = state_type

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", self.state_type))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value)
        yield ctx.get_current_key(), self.total.value()


def test_a_state_type_changes_after_a_kill_of_a_job_with_epochs_committed_together() -> None:
    """The last of these epochs wrote under the number that the first epoch of the changed program would have."""
    store, out = lagging_store(), Collect()

    def program_with(kind: Any) -> Any:
        def build(env: StreamExecutionEnvironment) -> None:
            env.set_parallelism(1)
            read = env.add_source(numbers(END), "numbers").uid("numbers").key_by(lambda n: n % 3, Types.LONG())
            read.process(Sum(kind)).uid("totals").sink_to(out).uid("out")

        return build

    def names_a_later_number(now: JobProgress) -> bool:
        newest = ManifestLog(store).newest()
        return newest is not None and max(map(epoch_of_file, named_files(newest))) > newest.epoch

    job = prepare_job(store, out, build=program_with(Types.INT()))
    store.lag.holds_manifests.clear()
    when(job, lambda now: now.ahead >= 3, store.lag.holds_manifests.set)
    when(job, names_a_later_number, job.cancel)
    job.start().wait()
    assert job.status() is JobStatus.CANCELED and names_a_later_number(job.board.now)
    prepare_job(store, out, build=program_with(Types.LONG())).start().result()
    check(store, out)


def test_a_rollback_does_not_mistake_published_output_for_that_of_a_later_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Part files have the numbers of the epochs that ran. Of epochs committed together, the last has the number of the
    next one, and a rollback that deletes later output must not delete it.
    """
    store, parts = lagging_store(), FileParts(str(tmp_path), TextParts())

    def build(env: StreamExecutionEnvironment, start: str | None = None) -> None:
        if start is not None:
            env.configure(Configuration().set_string("execution.state-recovery.path", start))
        env.set_parallelism(1)
        env.add_source(numbers(END), "numbers").uid("numbers").sink_to(parts).uid("out")

    job = prepare_job(store, None, build=build, retention_epochs="1000")
    store.lag.holds_manifests.clear()
    when(job, lambda now: now.ahead >= 3, store.lag.holds_manifests.set)
    job.start().result()
    log = ManifestLog(store)
    by_epoch = {epoch: [part.file for part in published_parts(_staged(log.read(epoch)))] for epoch in log.epochs()}
    epoch = next(at for at, names in by_epoch.items() if any(int(name.split("-")[3]) > at for name in names))
    later = sorted(name for at, names in by_epoch.items() if at > epoch for name in names)
    copy = lagging_store()
    copy_savepoint(find_snapshot(parse_snapshot_name(f"{store.url}@{epoch}")), copy)
    for start in (f"{store.url}@{epoch}", copy.url):
        caplog.clear()
        snapshot = find_snapshot(parse_snapshot_name(start))
        point = RestorePoint(epoch, "out", store, snapshot.manifest.job_id, snapshot.manifest.job_id)
        assert len(later_parts(open_store(str(tmp_path)), point, "part", "")) > len(later), "the case did not occur"
        prepare_job(lagging_store(), None, build=lambda env, start=start: build(env, start))  # type: ignore[misc]
        [notified_offsets] = [
            record.getMessage() for record in caplog.records if "records of later epochs" in record.getMessage()
        ]
        assert f"{len(later)} part files there" in notified_offsets and not any(
            name in notified_offsets for name in by_epoch[epoch]
        )


def _staged(manifest: Manifest) -> list[Any]:
    return [staged.payload for staged in manifest.staged.get("out", ())]


def test_a_missing_file_of_a_committed_epoch_is_reported_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of acknowledged epochs may still be uploading. Files that a manifest names were in the store when it was
    written.
    """
    monkeypatch.setattr(launching, "tier_settings", lambda *_: TierSettings(str(tmp_path / "tier")))
    monkeypatch.setattr(store_use, "PATIENCE_S", 0.05)
    store, out = MemoryStore(f"ahead-{next(_STORES)}"), Collect()
    job = prepare_job(store, out)
    when(job, lambda now: now.published >= 2, job.cancel)
    job.start().wait()
    newest: Any = ManifestLog(store).newest()
    lost = min(name for name in named_files(newest) if name.startswith("segments/"))
    store.delete(lost)
    for copy in (tmp_path / "tier").rglob(Path(lost).name):
        copy.unlink()
    job = prepare_job(store, out)
    job.start()
    try:
        assert job.wait(60), "the job waits forever"
        with pytest.raises(JobFailedError, match="is missing, though the manifest names it"):
            job.result()
    finally:
        job.cancel()
