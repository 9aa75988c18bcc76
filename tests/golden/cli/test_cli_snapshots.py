"""Snapshots from the command line: save, stop, rescale, restore an earlier one, fork, and the errors of each."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs.running_totals import Build, Total, expected, numbers, totals
from typer.testing import CliRunner

from millstream.checkpoint import job_record
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch, pins_of
from millstream.checkpoint.savepoints import find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.cli.job_argument import find_store
from millstream.cli.listing import list_jobs
from millstream.cli.main import app
from millstream.cli.run import RunRequest, run_program, settings_of, start_of
from millstream.common import Configuration, Encoder, JobStatus, Types
from millstream.connectors.contracts import RestorePoint
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSink, RollingPolicy
from millstream.errors import FencedError, JobFailedError, NotAvailableError, StoreError
from millstream.jobs.clock import SystemClock
from millstream.jobs.control.command import Command
from millstream.jobs.control.requests import Mailbox, RequestServer
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.jobs.snapshots.saving import save_newest
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.store import open_store
from millstream.testing import Collect, ManualClock, run

_STORES = itertools.count()


def new_store() -> str:
    return f"cli-snapshots-{next(_STORES)}"


class CommandResult:
    """A command's output and exit code."""

    def __init__(self, *arguments: str) -> None:
        done = CliRunner().invoke(app, list(arguments))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        self.code, self.out, self.err = done.exit_code, done.stdout.strip(), done.stderr.strip()


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Job]:
    """A job that runs forever in this process, with a store in a folder."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).configure(Configuration().set_string("millstream.epoch.min-interval", "20 ms"))
    source = DataGeneratorSource(lambda n: n, rate_per_second=2000, type_info=Types.LONG())
    numbers = env.add_source(source, "numbers").uid("numbers")
    numbers.key_by(lambda n: n % 3, Types.LONG()).process(Total()).uid("totals").sink_to(Collect()).uid("out")
    launch = Launch(SystemClock(), LocalRunner(), open_store(str(tmp_path / "store"), fsync=False))
    job = launch.start(env._graph("numbers"), env._job_settings())
    try:
        while job.board.now.published < 2 and not job.wait(0):
            time.sleep(0.01)
        yield job
    finally:
        job.cancel()
        job.wait(60)


# --- a running job --------------------------------------------------------------------------------------------


def test_a_running_job_is_saved_rescaled_and_stopped_through_its_store(endless: Job, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    saved = CommandResult("savepoint", store, "--name", "before")
    assert (saved.code, saved.out) == (0, f"{store}@before"), saved.err
    assert f"millstream run JOB.PY --from {store}@before" in saved.err
    kept = find_snapshot(parse_snapshot_name(saved.out)).manifest

    rescaled = CommandResult("rescale", store, "3")
    assert rescaled.code == 0 and "'numbers' continues at parallelism 3 with its next epoch" in rescaled.err
    at = endless.board.now.epoch
    while endless.board.now.epoch < at + 3 and not endless.wait(0):
        time.sleep(0.01)
    refused = CommandResult("rescale", store, "999")
    assert refused.code == 1 and "millstream: rescale: found 999, expected 1 to 128" in refused.err

    stopped = CommandResult("stop", store, "--to", str(tmp_path / "saved"))
    assert stopped.code == 0 and "'numbers' has stopped at epoch" in stopped.err, stopped.err
    assert endless.status() is JobStatus.SUSPENDED
    newest = ManifestLog(open_store(store)).newest()
    assert newest is not None and newest.status == "SUSPENDED" and newest.program["totals"]["parallelism"] == 3  # type: ignore[index,call-overload]
    copy = find_snapshot(parse_snapshot_name(stopped.out))
    assert copy.is_savepoint and copy.manifest.epoch == newest.epoch > kept.epoch
    assert not open_store(store).list("control")


def test_a_running_job_takes_a_savepoint_and_cancel_retains_committed_epochs(endless: Job, tmp_path: Path) -> None:
    mailbox = Mailbox(open_store(str(tmp_path / "store")))
    saved = mailbox.send("savepoint", {"to": None, "name": "asked"}, SystemClock().now_ms(), timeout_s=60)
    assert find_snapshot(parse_snapshot_name(saved)).manifest.epoch >= 2
    done = CommandResult("cancel", str(tmp_path / "store"))
    assert done.code == 0 and "'numbers' is cancelled; epochs committed until then" in done.err
    assert endless.status() is JobStatus.CANCELED and ManifestLog(open_store(str(tmp_path / "store"))).epochs()


def test_a_running_job_is_drained_and_finished(endless: Job, tmp_path: Path) -> None:
    done = CommandResult("stop", str(tmp_path / "store"), "--drain", "--savepoint")
    assert done.code == 0 and "'numbers' is finished at epoch" in done.err
    assert find_snapshot(parse_snapshot_name(done.out)).manifest.status == "FINISHED"


def test_a_cancel_does_not_wait_for_a_slow_stop() -> None:
    stopping: list[bool] = []

    def stop() -> str:
        stopping.append(True)
        while len(stopping) < 2:
            time.sleep(0.01)
        return "stopped"

    store = MemoryStore(new_store())
    cancel = Command(lambda: stopping.append(True) or "cancelled")
    server = RequestServer(store, {"stop": Command(stop), "cancel": cancel}).start()
    try:
        with pytest.raises(JobFailedError, match=r"accepted the request and has not completed it within 0\.5 s"):
            Mailbox(store).send("stop", {}, 1, timeout_s=60, patience_s=0.5)
        assert Mailbox(store).send("cancel", {}, 1, timeout_s=60) == "cancelled"
    finally:
        server.close()


# --- a job that does not run ----------------------------------------------------------------------------------


def test_a_request_to_a_job_that_does_not_run_is_rejected() -> None:
    name = new_store()
    run(totals(Collect()), store=name, epochs=2)
    for command in (["stop"], ["cancel"], ["rescale"]):
        done = CommandResult(
            *command, f"memory://{name}", *(["4"] if command == ["rescale"] else []), "--timeout", "0.1"
        )
        assert done.code == 1 and "no running job answered" in done.err and "Is it running?" in done.err
    assert not MemoryStore(name).list("control")


def test_a_savepoint_of_a_stopped_job_pins_its_last_epoch_until_released() -> None:
    name = new_store()
    run(totals(Collect()), store=name, epochs=2)
    done = CommandResult("savepoint", f"memory://{name}")
    assert done.code == 0 and done.out.startswith(f"memory://{name}@savepoint-3-")
    (pin,) = pins_of(MemoryStore(name))
    assert CommandResult("savepoint", f"memory://{name}", "--dispose", "nothing").code == 2
    assert CommandResult("savepoint", f"memory://{name}", "--dispose", pin.name).code == 0
    assert not pins_of(MemoryStore(name))


def killed_before_publishing(store: MemoryStore) -> None:
    """Make a job that stopped after its third epoch look killed before it closed and published."""
    for name in ("manifests/000000000004.json", "receipts/000000000003.json"):
        store.delete(name)


def test_a_savepoint_of_a_dead_job_saves_the_newest_published_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.cli.savepoint._ACCEPTED_WITHIN_S", 0.1)
    name = new_store()
    run(totals(Collect()), store=name, epochs=3)
    MemoryStore(name).delete("manifests/000000000004.json")  # as if it had been killed before closing
    done = CommandResult("savepoint", f"memory://{name}", "--name", "newest")
    assert done.code == 0 and find_snapshot(parse_snapshot_name(done.out)).manifest.epoch == 3
    killed_before_publishing(MemoryStore(name))
    done = CommandResult("savepoint", f"memory://{name}", "--name", "last")
    assert done.code == 0 and "epoch 3 is not known to be published: saving epoch 2" in done.err
    assert find_snapshot(parse_snapshot_name(done.out)).manifest.epoch == 2


def test_a_savepoint_retries_when_its_epoch_is_collected_meanwhile() -> None:
    name = new_store()
    run(totals(Collect()), store=name, epochs=3)
    asked = iter([7, 2])
    assert save_newest(MemoryStore(name), lambda: next(asked), lambda: 0, to=None, name="a").manifest.epoch == 2
    with pytest.raises(StoreError, match="has no epoch 7"):
        save_newest(MemoryStore(name), lambda: 7, lambda: 0, to=None, name="b")
    with pytest.raises(StoreError, match="already has a savepoint or fork named 'a'"):
        save_newest(MemoryStore(name), lambda: 2, lambda: 0, to=None, name="a")


def test_a_savepoint_warns_of_state_under_a_derived_uid() -> None:
    name = new_store()
    run(totals(Collect(), uid=None), store=name, epochs=2)
    said = CommandResult("savepoint", f"memory://{name}").err
    assert 'KEYED PROCESS: .uid("keyed-process-' in said
    run(totals(Collect()), store=(given := new_store()), epochs=2)
    assert ".uid(" not in CommandResult("savepoint", f"memory://{given}").err


# --- which job ------------------------------------------------------------------------------------------------


def test_jobs_are_found_by_store_name_and_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, job, id_ in (("a", "clicks", "1f00"), ("b", "orders", "2f00"), ("c", "orders", "2e00")):
        job_record.claim(open_store(f".millstream/{folder}"), job, job_id=id_, now_ms=0)
    assert find_store(".millstream/b") == ".millstream/b"
    assert find_store("clicks") == find_store("1f") == ".millstream/a"
    assert find_store("2e", root=".millstream") == ".millstream/c"
    with pytest.raises(StoreError, match=r"2 jobs are named 'orders'.*: \.millstream/b, \.millstream/c"):
        find_store("orders")
    with pytest.raises(StoreError, match=r"neither the store of a job nor a job below \.millstream. There are: clicks"):
        find_store("views")
    assert CommandResult("stop", "views").code == 2 and CommandResult("savepoint", "views").code == 2
    assert "memory://nobody holds no job" in CommandResult("cancel", "memory://nobody").err


def test_the_list_shows_epochs_savepoints_and_forks(tmp_path: Path) -> None:
    store = tmp_path / "a"
    copied(totals(Collect()), store, epochs=3)
    pin_epoch(open_store(str(store)), Pin("before", 2, "savepoint", created_ms=1_000))
    assert CommandResult("fork", f"{store}@1", "--as", "b", "--store", str(tmp_path / "b")).code == 0
    screen = io.StringIO()
    assert list_jobs(str(tmp_path), as_json=False, snapshots=True, screen=screen, now_ms=61_000) == 0
    shown = screen.getvalue()
    assert "epochs      1-4" in shown and f"savepoint   epoch 2, 1 min 0 s ago: --from {store}@before" in shown
    assert f": {tmp_path / 'b'}" in shown and f"began with  {store}@1" in shown and "NO EPOCH YET" in shown
    screen = io.StringIO()
    list_jobs(str(store), as_json=True, snapshots=True, screen=screen)
    (listed,) = map(json.loads, screen.getvalue().splitlines())
    assert listed["retained"] == [1, 2, 3, 4] and {pin["reason"] for pin in listed["kept"]} == {"savepoint", "fork"}


def copied(build: Build, folder: Path, epochs: int) -> None:
    """Run a job in memory and put its store into a folder."""
    name = new_store()
    run(build, store=name, epochs=epochs)
    target = open_store(str(folder), fsync=False)
    for file in MemoryStore(name).list(""):
        target.put(file, MemoryStore(name).get(file))


# --- run --from -----------------------------------------------------------------------------------------------


def started(text: str, store: str | None = None, drops: bool = False) -> dict[str, str]:
    request = RunRequest(Path("job.py"), store=store, resume=text, drops=drops)
    settings = settings_of(request, start_of(text), console_is_terminal=True)
    return {key: value for key, value in settings.items() if key != "millstream.console"}


def test_from_continues_in_the_jobs_store_unless_another_is_named(tmp_path: Path) -> None:
    store = tmp_path / "a"
    copied(totals(Collect()), store, epochs=3)
    path, where, drops = (
        "execution.state-recovery.path",
        "millstream.store",
        "execution.state-recovery.ignore-unclaimed-state",
    )
    assert started(str(store)) == {where: str(store), path: str(store)}
    assert started(f"{store}@2", drops=True) == {where: str(store), path: f"{store}@2", drops: "true"}
    assert started(f"{store}@2", store="elsewhere") == {where: "elsewhere", path: f"{store}@2"}
    savepoint = CommandResult("savepoint", str(store), "--to", str(tmp_path / "saved")).out
    assert started(savepoint) == {path: savepoint}, "a savepoint belongs to no store: a new one is made"


def test_from_an_absent_snapshot_lists_the_existing_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied(totals(Collect()), tmp_path / "a", epochs=3)
    script = tmp_path / "job.py"
    script.write_text("")
    for text, said in (
        (f"{tmp_path / 'a'}@77", "has no epoch 77; it retains 1-4"),
        (f"{tmp_path / 'a'}@before", "has no savepoint 'before'; it has none"),
        (str(tmp_path), "contains neither a job nor a savepoint"),
        (str(tmp_path / "nowhere"), "is neither the store of a job nor a job below"),
    ):
        assert run_program(RunRequest(script, resume=text)) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "flink").mkdir()
    (tmp_path / "flink" / "_metadata").touch()
    with pytest.raises(NotAvailableError, match="a Flink savepoint"):
        start_of(str(tmp_path / "flink"))


# --- forks ----------------------------------------------------------------------------------------------------


def forked(at: int = 2, epochs: int = 4) -> tuple[str, str]:
    """A job that ran, and a store that is ready to fork it."""
    old, new = new_store(), new_store()
    run(totals(Collect()), store=old, epochs=epochs, job_name="clicks")
    done = CommandResult("fork", f"memory://{old}@{at}", "--as", "clicks-b", "--store", f"memory://{new}")
    assert (done.code, done.out) == (0, f"memory://{new}") and "millstream run JOB.PY --store" in done.err
    return old, new


def test_a_fork_starts_at_its_epoch_under_its_own_name_and_leaves_the_original_unchanged() -> None:
    old, new = forked()
    before = {name: MemoryStore(old).get(name) for name in MemoryStore(old).list("")}
    out = Collect()
    # The program still has its original name.
    result = run(totals(out), store=new, job_name="clicks", parallelism=2)
    assert sorted(result[out]) == expected(20, 20)
    assert {manifest.job for manifest in result.manifests} == {"clicks-b"} and result.manifests[0].epoch == 3
    assert {name: MemoryStore(old).get(name) for name in MemoryStore(old).list("")} == before
    with pytest.raises(StoreError, match=r"belongs to job 'clicks-b', not to 'views'.*'clicks-b' or 'clicks'"):
        run(totals(out), store=new, job_name="views")


def test_a_fork_with_a_changed_program_is_checked_against_its_snapshot() -> None:
    _, new = forked()
    out = Collect()
    with pytest.raises(StoreError, match=r"has state of 'KEYED PROCESS' \(uid totals\).*--allow-non-restored-state"):
        run(totals(out, uid="sums"), store=new, job_name="clicks-b")
    result = run(totals(out, uid="sums", drops=True), store=new, job_name="clicks-b")
    assert sorted(result[out]) == expected(20, 0)


def test_a_fork_is_created_once_and_pins_its_epoch_while_it_exists() -> None:
    old, new = forked()
    again = CommandResult("fork", f"memory://{old}@2", "--as", "clicks-b", "--store", f"memory://{new}")
    assert again.code == 0
    (pin,) = pins_of(MemoryStore(old))
    other = CommandResult("fork", f"memory://{old}@3", "--as", "clicks-b", "--store", f"memory://{new}")
    assert other.code == 2 and f"begins with memory://{old}@2, so it cannot start from" in other.err
    held = CommandResult("savepoint", f"memory://{old}", "--dispose", pin.name)
    assert held.code == 2 and f"the fork in memory://{new} reads epoch 2" in held.err
    run(totals(Collect()), store=new, job_name="clicks", epochs=4)
    late = CommandResult("fork", f"memory://{old}@2", "--as", "clicks-b", "--store", f"memory://{new}")
    assert late.code == 2 and "already has epochs" in late.err
    gone = CommandResult("fork", f"memory://{old}@77", "--as", "c", "--store", f"memory://{new_store()}")
    assert gone.code == 2 and "has no epoch 77; it retains 1-5" in gone.err


def test_a_fork_of_a_fork_pins_its_files_in_both_stores() -> None:
    first, second = forked()
    run(totals(Collect()), store=second, job_name="clicks", epochs=4)
    third, out = new_store(), Collect()
    done = CommandResult("fork", f"memory://{second}@4", "--as", "clicks-c", "--store", f"memory://{third}")
    assert done.code == 0, done.err
    kept = {pin.by: (pin.name, pin.epoch) for pin in pins_of(MemoryStore(first))}
    assert kept[f"memory://{third}"][1] == kept[f"memory://{second}"][1] == 2
    assert [(pin.by, pin.epoch) for pin in pins_of(MemoryStore(second))] == [(f"memory://{third}", 4)]
    result = run(totals(out), store=third, job_name="clicks")
    assert sorted(result[out]) == expected(30, 30)


# --- starts that fail ----------------------------------------------------------------------------------------


class Failing(MemoryStore):
    """A store that accepts a number of files and then fails."""

    left = 0

    def create(self, name: str, data: bytes) -> bool:
        if not name.startswith(("probe", "driver")):
            if self.left == 0:
                raise StoreError("disk full")
            self.left -= 1
        return super().create(name, data)


def prepared(build: Build, store: MemoryStore, *, is_leased: bool = True) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env)
    return Launch(ManualClock(), LocalRunner(), store, is_leased=is_leased).prepare(
        env._graph("job"), env._job_settings()
    )


@pytest.mark.parametrize("files", [0, 1])
def test_a_restore_that_fails_half_way_restores_the_same_point_when_repeated(tmp_path: Path, files: int) -> None:
    old, new = new_store(), new_store()
    run(filed(tmp_path), store=old, epochs=3, job_name="job")
    store = Failing(new)
    store.left = files
    with pytest.raises(StoreError, match="disk full"):
        prepared(filed(tmp_path, f"memory://{old}@2"), store)
    assert not MemoryStore(new).list("manifests")
    # Once the store is claimed, it records its restore point itself.
    again = f"memory://{old}@2" if files == 0 else None
    result = run(filed(tmp_path, again), store=new, job_name="job")
    assert result.manifests[0].epoch == 3 and numbers_in(tmp_path) == list(range(60))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_two_drivers_restore_one_snapshot_and_one_of_them_stops(elsewhere: bool) -> None:
    old, out = new_store(), Collect()
    run(totals(Collect()), store=old, epochs=3, job_name="job")
    place = new_store() if elsewhere else old
    results: list[Any] = []

    class Interrupted(Collect):
        """Lets another driver complete the whole restore while this one prepares."""

        def after_restore(self, pending: Any, point: RestorePoint) -> tuple[Any, str]:
            results.append(run(totals(out, f"memory://{old}@2"), store=place, job_name="job"))
            return pending, ""

    with pytest.raises(FencedError, match="another driver started the job at the same moment"):
        prepared(totals(Interrupted(), f"memory://{old}@2"), MemoryStore(place), is_leased=False)
    assert sorted(results[0][out]) == expected(20, 20)
    assert len(pins_of(MemoryStore(old))) == elsewhere


# --- a changed program in its own store -----------------------------------------------------------------------


def test_a_removed_operators_state_is_dropped_only_when_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, out = new_store(), Collect()
    run(totals(Collect()), store=name, epochs=3)
    with pytest.raises(StoreError, match=r"epoch 4 .* has state of .*uid totals.*another --store"):
        run(totals(out, uid="sums"), store=name)
    result = run(totals(out, uid="sums", drops=True), store=name)
    assert sorted(result[out]) == expected(30, 0)
    assert "(uid sums): begins without state" in caplog.text and "(uid totals): its state is discarded" in caplog.text
    assert all("totals" not in manifest.states for manifest in result.manifests)


def test_a_sink_is_not_dropped_before_its_output_is_published() -> None:
    name, out = new_store(), Collect()

    def renamed(uid: str, drops: bool) -> Build:
        def build(env: StreamExecutionEnvironment) -> None:
            env.configure(Configuration().set_boolean("execution.state-recovery.ignore-unclaimed-state", drops))
            env.add_source(numbers()).uid("numbers").sink_to(out).uid(uid)

        return build

    run(renamed("out", drops=False), store=name, epochs=3)
    killed_before_publishing(MemoryStore(name))
    with pytest.raises(
        StoreError, match=r"epoch 3 .* has output for the sink with uid out .* Start the job once with it"
    ):
        run(renamed("other", drops=True), store=name)
    assert sorted(run(renamed("out", drops=False), store=name, epochs=4)[out]) == list(range(20, 40))
    assert sorted(run(renamed("other", drops=False), store=name)[out]) == list(range(40, 60))


def test_restoring_an_earlier_snapshot_after_a_crash_publishes_committed_output_first() -> None:
    name, out = new_store(), Collect()
    run(totals(Collect()), store=name, epochs=3)
    killed_before_publishing(MemoryStore(name))
    result = run(totals(out, f"memory://{name}@1"), store=name)
    third = [value for value in expected(20, 20) if value not in expected(30, 30)]
    assert sorted(result[out]) == sorted([*third, *expected(10, 10)])


def test_a_restore_warns_of_state_under_a_derived_uid(caplog: pytest.LogCaptureFixture) -> None:
    name = new_store()
    run(totals(Collect(), uid=None), store=name, epochs=2)
    run(totals(Collect(), f"memory://{name}@1", uid=None), store=name)
    assert caplog.text.count('KEYED PROCESS: .uid("keyed-process-') == 1


# --- files ----------------------------------------------------------------------------------------------------


def filed(base: Path, start: str | None = None, rolls: bool = False) -> Build:
    """Write the numbers into files: one per epoch, or one at the end."""

    def build(env: StreamExecutionEnvironment) -> None:
        if start is not None:
            env.configure(Configuration().set_string("execution.state-recovery.path", start))
        policy = RollingPolicy.on_checkpoint_rolling_policy() if rolls else RollingPolicy.default_rolling_policy()
        sink = FileSink.for_row_format(str(base), Encoder.simple_string_encoder()).with_rolling_policy(policy).build()
        env.add_source(numbers()).uid("numbers").map(str, Types.STRING()).sink_to(sink).uid("files")

    return build


def numbers_in(base: Path) -> list[int]:
    return sorted(int(line) for path in base.rglob("part-*") for line in path.read_text().splitlines())


def test_restoring_an_earlier_snapshot_drops_pending_files_published_since_and_lists_later_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = new_store()
    run(filed(tmp_path), store=name)
    assert numbers_in(tmp_path) == list(range(60))
    run(filed(tmp_path, f"memory://{name}@2"), store=name)
    assert numbers_in(tmp_path) == sorted([*range(60), *range(20, 60)])
    assert "1 part file there holds records of later epochs" in caplog.text and "which will be repeated" in caplog.text
    assert "the 20 records pending in that epoch have been published since" in caplog.text


def test_restoring_an_earlier_snapshot_retains_pending_files(tmp_path: Path) -> None:
    name = new_store()
    run(filed(tmp_path), store=name, epochs=4)
    assert numbers_in(tmp_path) == []
    run(filed(tmp_path, f"memory://{name}@2"), store=name)
    assert numbers_in(tmp_path) == list(range(60))


def test_a_fork_copies_pending_files_and_the_original_publishes_its_own(tmp_path: Path) -> None:
    old, new = new_store(), new_store()
    run(filed(tmp_path), store=old, epochs=3)
    run(filed(tmp_path, f"memory://{old}@2"), store=new)
    assert numbers_in(tmp_path) == list(range(60))
    run(filed(tmp_path), store=old)
    assert numbers_in(tmp_path) == sorted([*range(60), *range(60)])


def test_a_fork_with_another_sink_folder_leaves_pending_files_to_the_original(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = new_store(), new_store()
    run(filed(tmp_path / "a"), store=old, epochs=3)
    run(filed(tmp_path / "b", f"memory://{old}@2"), store=new)
    assert numbers_in(tmp_path / "b") == list(range(20, 60))
    assert "the 20 records pending in that epoch are left to the job it was forked from" in caplog.text
    run(filed(tmp_path / "a"), store=old)
    assert numbers_in(tmp_path / "a") == list(range(60))


def test_no_output_warning_when_nothing_was_published_after_the_snapshot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = new_store(), new_store()
    run(filed(tmp_path, rolls=True), store=old, epochs=3)
    run(filed(tmp_path, f"memory://{old}", rolls=True), store=new)
    assert numbers_in(tmp_path) == list(range(60))
    assert "not undone" not in caplog.text


@pytest.mark.parametrize("command", ["savepoint", "stop", "cancel"])
def test_an_empty_name_matches_no_job_even_if_only_one_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2], Types.LONG()).sink_to(Collect())
    store = open_store(".millstream/only", fsync=False)
    Launch(ManualClock(), LocalRunner(), store).start(env._graph("only"), env._job_settings()).result()
    assert find_store("only").endswith("only")
    refused = CommandResult(command, "")
    assert refused.code == 2 and "'' names no job" in refused.err
    assert not store.list("pins") and not store.list("control")
