"""Publishing: once, in order, by the driver that owns the job, and never again output that a consumer may have
removed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from programs.running_totals import totals

from millstream.checkpoint.job_record import JobRecord, renew
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.manifest import ManifestLog, SplitPosition
from millstream.checkpoint.pins import Pin, pin_epoch
from millstream.checkpoint.receipts import Receipt, known_published, newest_receipt
from millstream.checkpoint.retention import RetentionPolicy
from millstream.common import JobStatus, RestartStrategies, Types
from millstream.connectors.files.parts import TextParts
from millstream.connectors.files.sink import FileSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import FencedError, StoreDamagedError
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.state_reader.verifying import verify
from millstream.storage.memory import MemoryStore
from millstream.storage.names import job_name, manifest_name, receipt_name
from millstream.testing import EPOCH, Collect, ManualClock, Script, run

_STORES = itertools.count()


def new_store() -> MemoryStore:
    return MemoryStore(f"publishing-{next(_STORES)}")


def prepare_job(store: MemoryStore, *sinks: Any, items: Sequence[Any] = ("a", EPOCH, "b", EPOCH, "c")) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    lines = env.add_source(Script(list(items), type_info=Types.STRING())).uid("in")
    for number, sink in enumerate(sinks):
        lines.sink_to(sink).uid(f"out-{number}")
    return Launch(ManualClock(), LocalRunner(), store, is_leased=False).prepare(
        env._graph("lines"), env._job_settings()
    )


def killed_when(job: Job, is_time: Callable[[JobProgress], bool]) -> None:
    """Run the job and kill it, leaving nothing in its store, when the condition holds."""
    job.board.listen(lambda progress: job.cancel() if is_time(progress) else None)
    job.start().wait()
    assert job.status() is JobStatus.CANCELED


def receipt_of(store: MemoryStore) -> Receipt | None:
    record = read_job_record(store)
    assert record is not None
    return newest_receipt(store, record.job_id)


def published(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.glob("part-*"))


# --- receipts -------------------------------------------------------------------------------------------------


def test_a_consumer_that_removes_published_files_does_not_prevent_a_restart(tmp_path: Path) -> None:
    store = new_store()
    killed_when(prepare_job(store, FileSink(str(tmp_path), TextParts())), lambda progress: progress.published >= 1)
    newest = ManifestLog(store).newest()
    assert newest is not None and newest.published_through < newest.epoch
    consumed = published(tmp_path)
    for path in tmp_path.glob("part-*"):
        path.unlink()
    prepare_job(store, FileSink(str(tmp_path), TextParts())).start().result()
    assert sorted([*consumed, *published(tmp_path)]) == ["a\n", "b\n", "c\n"]


def test_only_an_epoch_without_a_receipt_is_published_again() -> None:
    for loses_receipt in (False, True):
        store, out = new_store(), Collect()
        killed_when(prepare_job(store, out), lambda progress: progress.published >= 2)
        newest, receipt = ManifestLog(store).newest(), receipt_of(store)
        assert newest is not None and receipt is not None and receipt.epoch == newest.epoch >= 2
        before = list(out.publications)
        if loses_receipt:
            store.delete(receipt_name(receipt.epoch))
        prepare_job(store, out).start().result()
        assert list(out.publications).count(newest.epoch) if loses_receipt else newest.epoch in before
        assert out.values == ["a", "b", "c"]


def test_an_unreadable_receipt_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    store, out = new_store(), Collect()
    killed_when(prepare_job(store, out), lambda progress: progress.published >= 1)
    for name in store.list("receipts"):
        store.put(name, b"{")
    store.put("receipts/notes.txt", b"mine")
    prepare_job(store, out).start().result()
    assert out.values == ["a", "b", "c"] and "is not a complete receipt" in caplog.text


def test_a_receipt_under_the_name_of_another_epoch_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    store, out = new_store(), Collect()
    killed_when(prepare_job(store, out), lambda progress: progress.published >= 1)
    newest, [name] = ManifestLog(store).newest(), store.list("receipts")[-1:]
    assert newest is not None
    store.put(receipt_name(newest.epoch + 5), store.get(name))
    store.delete(name)
    assert known_published(store, newest, newest.job_id) == newest.published_through
    assert "Was it copied or renamed?" in caplog.text
    prepare_job(store, out).start().result()
    assert out.values == ["a", "b", "c"]


def test_a_start_from_a_savepoint_of_a_removed_job_does_not_require_consumed_output(tmp_path: Path) -> None:
    store = new_store()
    prepare_job(store, FileSink(str(tmp_path), TextParts())).start().result()
    pin_epoch(store, Pin("before", 2, "savepoint", 0))
    Sweeper(store, lambda: 0).clear()
    newest = ManifestLog(store).newest()
    assert newest is not None and newest.epoch == 2 and newest.published_through == 1
    for path in tmp_path.glob("part-*"):
        path.unlink()
    prepare_job(store, FileSink(str(tmp_path), TextParts())).start().result()
    assert published(tmp_path) == ["c\n"] and verify(store.url).is_whole


def test_a_partially_removed_job_still_has_its_receipts() -> None:
    store, out = new_store(), Collect()
    prepare_job(store, out).start().result()
    for epoch in ManifestLog(store).epochs()[2:]:
        store.delete(manifest_name(epoch))
    renew(store, "another-id")  # and there the removal died, with receipts of removed epochs remaining
    newest = ManifestLog(store).newest()
    assert newest is not None and known_published(store, newest, "another-id") == newest.epoch == 2


def test_all_receipts_but_the_newest_are_swept() -> None:
    store = new_store()
    items = [item for n in range(12) for item in (str(n), EPOCH)]
    prepare_job(store, Collect(), items=items).start().result()
    newest = ManifestLog(store).newest()
    Sweeper(store, lambda: 0, RetentionPolicy(2)).sweep(newest)
    assert len(store.list("receipts")) == 1 and verify(store.url).is_whole


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_missing_newest_manifest_is_detected(all_of_them: bool) -> None:
    store, out = new_store(), Collect()
    killed_when(prepare_job(store, out), lambda progress: progress.published >= 2)
    log = ManifestLog(store)
    epochs = log.epochs()
    saved = {name: store.get(name) for name in store.list("manifests")}
    for epoch in epochs if all_of_them else epochs[-1:]:
        store.delete(manifest_name(epoch))
    with pytest.raises(StoreDamagedError, match=f"{manifest_name(epochs[-1])} is missing"):
        prepare_job(store, out).start().result()
    report = verify(store.url)
    assert not report.is_whole and f"{manifest_name(epochs[-1])} is missing" in report.text()
    for name, data in saved.items():
        store.put(name, data)
    prepare_job(store, out).start().result()
    assert out.values == ["a", "b", "c"]


def test_a_job_that_continues_during_an_inspection_is_not_reported_as_damaged() -> None:
    store = new_store()
    prepare_job(store, Collect()).start().result()
    first = ManifestLog(store).read(1)
    assert known_published(store, first, first.job_id) == 1


# --- a driver that was replaced -------------------------------------------------------------------------------


class StallingSink(Collect):
    """A sink whose first driver sleeps in the middle of publishing."""

    def __init__(self, asleep: threading.Event, wakes: threading.Event) -> None:
        super().__init__()
        self._asleep, self._wakes = asleep, wakes

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_asleep": None, "_wakes": None}

    def commit(self, *what: Any) -> None:
        if not self._asleep.is_set():
            self._asleep.set()
            self._wakes.wait(30)
        super().commit(*what)


class UpsertTable(Collect):
    """An upsert: readers see the newest written value."""

    shown: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.shown = []

    def commit(self, *what: Any) -> None:
        super().commit(*what)
        self.shown.append(what[0])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "shown": []}


def test_a_driver_that_resumes_after_its_successor_publishes_nothing_more() -> None:
    store, asleep, wakes = new_store(), threading.Event(), threading.Event()
    table = UpsertTable()
    first = prepare_job(store, StallingSink(asleep, wakes), table).start()
    assert asleep.wait(30)
    prepare_job(store, Collect(), table).start().result()
    seen = list(table.shown)
    assert len(seen) == 3
    wakes.set()
    with pytest.raises(FencedError, match="owns the job now"):
        first.result()
    assert table.shown == seen


def test_a_manifest_that_another_driver_committed_stops_the_publishing_between_two_sinks() -> None:
    store, table = new_store(), UpsertTable()

    class ReplacedSink(Collect):
        def commit(self, *what: Any) -> None:
            super().commit(*what)
            newest = ManifestLog(store).newest()
            assert newest is not None
            other = type(newest)(
                **{
                    **vars(newest),
                    "epoch": newest.epoch + 1,
                    "parent": newest.epoch,
                    "run": "other",
                    "staged": {},
                    "sources": {"in": {"script-0": SplitPosition(0)}},
                }
            )
            ManifestLog(store).commit(other)

        def __getstate__(self) -> dict[str, Any]:
            return self.__dict__

    with pytest.raises(FencedError, match="another driver committed epoch 2 first"):
        prepare_job(store, ReplacedSink(), table).start().result()
    assert table.shown == []


def test_a_driver_whose_state_was_swept_by_its_successor_reports_replacement_and_not_damage() -> None:
    name, asleep = f"publishing-{next(_STORES)}", threading.Event()

    class SlowRunner(LocalRunner):
        """Its first epoch begins after another driver has done all the work."""

        def run(self, *what: Any) -> Any:
            if not asleep.is_set():
                asleep.set()
                run(totals(Collect()), store=name)
                store = MemoryStore(name)
                Sweeper(store, lambda: 0, RetentionPolicy(1)).sweep(ManifestLog(store).newest())
            return super().run(*what)

    run(totals(Collect()), store=name, epochs=2)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    totals(Collect())(env)
    settings = env._job_settings()
    job = Launch(ManualClock(), SlowRunner(), MemoryStore(name), is_leased=False).prepare(env._graph(None), settings)
    with pytest.raises(FencedError, match="owns the job now"):
        job.start().result()


def removed_by_another_driver(store: MemoryStore, sinks: int = 1) -> None:
    """Another driver runs the job to its end, and its epochs are removed."""
    prepare_job(store, *(Collect() for _ in range(sinks))).start().result()
    Sweeper(store, lambda: 0).clear()


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_driver_that_resumes_its_commit_after_the_job_was_removed_publishes_and_leaves_nothing(
    epoch: int,
) -> None:
    class SleepingStore(MemoryStore):
        is_removed = False

        def create(self, name: str, data: bytes) -> bool:
            if name == manifest_name(epoch) and not self.is_removed:
                self.is_removed = True
                removed_by_another_driver(MemoryStore(self._name))
            return super().create(name, data)

    store, table = SleepingStore(f"publishing-{next(_STORES)}"), UpsertTable()
    with pytest.raises(FencedError, match="owns the job now"):
        prepare_job(store, table).start().result()
    assert [commit.epoch for commit in table.shown] == list(range(1, epoch)) and not ManifestLog(store).epochs()
    out = Collect()
    prepare_job(store, out).start().result()  # the next start of the job begins from scratch
    assert out.values == ["a", "b", "c"]


def test_a_driver_that_resumes_publishing_after_the_job_was_removed_publishes_nothing() -> None:
    store, asleep, wakes, table = new_store(), threading.Event(), threading.Event(), UpsertTable()
    first = prepare_job(store, StallingSink(asleep, wakes), table).start()
    assert asleep.wait(30)
    removed_by_another_driver(store, sinks=2)
    wakes.set()
    with pytest.raises(FencedError, match="owns the job now"):
        first.result()
    assert table.shown == []


# --- formats --------------------------------------------------------------------------------------------------


def test_receipts_and_job_records_of_older_versions_are_read() -> None:
    folder, store = Path(__file__).parents[3] / "compatibility", new_store()
    store.put(receipt_name(7), (folder / "receipt-1.json").read_bytes())
    store.put(job_name(), (folder / "job-2.json").read_bytes())
    job_id = "0bd54aef6e32ba62dc436ae6e8874cd7"
    assert newest_receipt(store, job_id) == Receipt(job_id, 7, "a1b2c3d4")
    began = JobRecord("clicks", job_id, 1_700_000_000_000, ("file:///jobs/a",), "file:///jobs/a@3", past_ids=("11",))
    assert read_job_record(store) == began


# --- commits that fail in unusual ways --------------------------------------------------------------------------


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class FailingCommitSink(Collect):
    """Its first commit raises `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.errors = [error]

    def commit(self, *what: Any) -> None:
        if self.errors:
            raise self.errors.pop()
        super().commit(*what)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "errors": []}


class FailingSource(Script):
    """Fails on the first commit notification: it raises `error`."""

    errors: list[BaseException]

    def committed(self, positions: dict[str, Any]) -> None:
        if self.errors:
            raise self.errors.pop()

    def opened(self, store: Any, session: Any) -> Any:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "errors": []}


@pytest.mark.parametrize("error", [OSError("away"), SystemExit(1), Speechless()], ids=["away", "exit", "speechless"])
def test_any_error_in_a_commit_is_reported_and_retried(error: BaseException) -> None:
    out = FailingCommitSink(error)
    restart = RestartStrategies.fixed_delay_restart(3, 0)
    result = run(lambda env: env.add_source(Script([1, EPOCH, 2])).sink_to(out), restart=restart, timeout_s=20)
    assert (result.status, out.values) == ("FINISHED", [1, 2])


@pytest.mark.parametrize("error", [SystemExit(1), Speechless()], ids=["exit", "speechless"])
def test_any_error_of_a_source_in_a_commit_notification_is_ignored(error: BaseException) -> None:
    out, source = Collect(), FailingSource([1, EPOCH, 2])
    source.errors = [error]
    result = run(lambda env: env.add_source(source).sink_to(out), timeout_s=20)
    assert (result.status, out.values, result.restarts, source.errors) == ("FINISHED", [1, 2], 0, [])
