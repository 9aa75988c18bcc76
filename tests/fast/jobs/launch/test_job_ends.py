"""How a job's end is reported: in its log, in its store, in `millstream list` and `millstream logs`."""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from inputs.fresh_names import fresh_name

from millstream.checkpoint.driver_lease import acquire_lease
from millstream.checkpoint.run_end import RunEnd, read_run_end
from millstream.cli.checkpoints import show_checkpoints
from millstream.cli.listing import list_jobs
from millstream.cli.logs import _logs, show_logs
from millstream.common import RestartStrategies, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import MapFunction, RuntimeContext
from millstream.errors import JobFailedError
from millstream.jobs.clock import SystemClock
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.job_log import attach_log
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.store import open_store
from millstream.testing import EPOCH, Collect, Script

RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (\w+) +(\S+): (.*)$", re.MULTILINE)


class Parse(MapFunction):
    """Counts; `fails_at`: a number that it rejects."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen, self.bad = group.counter("seen"), group.counter("bad_lines")
        self.sizes = group.add_group("sizes").distribution("length")

    def map(self, value: int) -> int:
        self.seen.inc()
        self.sizes.update(value)
        return value // (value - self.fails_at) if self.fails_at is not None else value


def job(folder: Path, numbers: list[Any], fails_at: int | None = None, restarts: int = 0) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 0))
    script = Script(numbers, type_info=Types.LONG())
    stream = env.add_source(script, "numbers").uid("numbers").map(Parse(fails_at), output_type=Types.LONG())
    stream.uid("parse").name("Parse").sink_to(Collect()).uid("out")
    return Launch(SystemClock(), LocalRunner(), open_store(str(folder))).prepare(
        env._graph("clicks"), env._job_settings()
    )


def log_of(folder: Path) -> str:
    [log] = (folder / "logs").iterdir()
    return log.read_text()


def print_screen(show: Callable[..., int], *arguments: Any, code: int = 0, **named: Any) -> str:
    screen = io.StringIO()
    assert show(*arguments, **named, screen=screen) == code
    return screen.getvalue()


def test_a_failure_is_in_the_log_once_at_error_with_the_users_traceback(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError):
        job(tmp_path, [1, 2, EPOCH, 3], fails_at=3).start().result()
    log = log_of(tmp_path)
    assert log.count("Traceback (most recent call last):") == 1
    assert log.count("return value // (value - self.fails_at)") == 1
    errors = [text for level, _, text in RECORD.findall(log) if level == "ERROR"]
    assert errors[0].startswith("an epoch failed: ZeroDivisionError")
    assert errors[1].startswith("the job ended as FAILED after ") and len(errors) == 2
    assert re.search(r"at epoch 1, published up to 1: 'Parse' failed: ZeroDivisionError: .*\(\w+\.py:\d+\)$", errors[1])
    assert log.rstrip().endswith(errors[1])


def test_a_repeated_failure_is_logged_as_one_line_with_its_count(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError):
        job(tmp_path, [3], fails_at=3, restarts=2).start().result()
    log = log_of(tmp_path)
    assert log.count("Traceback (most recent call last):") == 1
    assert "as before, for the 2th time" not in log and "the same failure, 3 times by now" in log


def test_a_failure_before_the_first_epoch_is_in_the_log_with_its_traceback(tmp_path: Path) -> None:
    class Broken(Script):
        def opened(self, store: Any, session: Any) -> Any:
            raise ValueError("no such server")

    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_source(Broken([1])).sink_to(Collect())
    started = Launch(SystemClock(), LocalRunner(), open_store(str(tmp_path))).prepare(
        env._graph("clicks"), env._job_settings()
    )
    with pytest.raises(Exception, match="no such server"):
        started.start().result()
    errors = [text for level, _, text in RECORD.findall(log_of(tmp_path)) if level == "ERROR"]
    assert len(errors) == 2 and errors[0] == "the job failed" and "ended as FAILED" in errors[1]
    assert log_of(tmp_path).count("raise ValueError") == 1


def test_a_failed_job_is_listed_as_failed_and_a_killed_one_as_interrupted(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError):
        job(tmp_path / "a", [1, EPOCH, 3], fails_at=3).start().result()
    with pytest.raises(JobFailedError):
        job(tmp_path / "b", [3], fails_at=3).start().result()
    shown = print_screen(list_jobs, str(tmp_path), as_json=False)
    assert shown.count(" FAILED: 'Parse' failed: ZeroDivisionError: ") == 2 and "INTERRUPTED" not in shown
    assert [
        json.loads(line)["status"] for line in print_screen(list_jobs, str(tmp_path), as_json=True).splitlines()
    ] == [
        "FAILED",
        "FAILED",
    ]
    # A driver that dies does not record its end; the next one has removed that of the previous run.
    (tmp_path / "a" / "ended.json").unlink()
    assert " INTERRUPTED " in print_screen(list_jobs, str(tmp_path / "a"), as_json=False)


def test_a_run_removes_the_end_of_the_previous_one(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    with pytest.raises(JobFailedError):
        job(tmp_path, [1, EPOCH, 3], fails_at=3).start().result()
    end = read_run_end(store)
    assert end is not None and (end.status, end.epoch) == ("FAILED", 1) and Path(end.log).is_file()
    again = job(tmp_path, [1, EPOCH, 3])
    seen: list[object] = []
    again.board.listen(lambda _: seen.append(read_run_end(store)))
    again.start().result()
    assert seen[0] is None
    assert {end.status for end in seen if isinstance(end, RunEnd)} <= {"FINISHED"}
    end = read_run_end(store)
    assert end is not None and end.status == "FINISHED"
    assert " FINISHED " in print_screen(list_jobs, str(tmp_path), as_json=False)


def test_a_cancelled_job_is_listed_as_cancelled(tmp_path: Path) -> None:
    cancelled = job(tmp_path, [1, EPOCH, 2, EPOCH, 3])

    def cancel(progress: JobProgress) -> None:
        if progress.epoch == 1:
            cancelled.cancel()

    cancelled.board.listen(cancel)
    cancelled.start().wait()
    assert " CANCELED " in print_screen(list_jobs, str(tmp_path), as_json=False)
    assert "the job ended as CANCELED after" in log_of(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff"])
def test_a_damaged_record_of_an_end_is_ignored(tmp_path: Path, data: bytes) -> None:
    job(tmp_path, [1]).start().result()
    (tmp_path / "ended.json").write_bytes(data)
    assert " FINISHED " in print_screen(list_jobs, str(tmp_path), as_json=False)
    job(tmp_path, [1]).start().result()


def test_logs_prints_the_newest_run_and_its_failures(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError):
        job(tmp_path, [3], fails_at=3).start().result()
    whole, store = log_of(tmp_path), str(tmp_path)
    assert print_screen(show_logs, store) == whole
    assert print_screen(show_logs, store, lines=1).startswith(whole.splitlines()[-1])
    errors = print_screen(show_logs, store, errors=True)
    assert errors.startswith(whole[: whole.index("ERROR")].splitlines()[-1])
    assert "Traceback" in errors and "the job ended as FAILED" in errors and "INFO" not in errors
    job(tmp_path, [1]).start().result()
    assert "FAILED" not in print_screen(show_logs, store) and "the job ended as FINISHED" in print_screen(
        show_logs, store
    )
    assert print_screen(show_logs, store, all_runs=True).startswith(whole)
    assert print_screen(show_logs, store, follows=True) == print_screen(show_logs, store)


def test_other_files_among_the_logs_are_skipped(tmp_path: Path) -> None:
    job(tmp_path, [1]).start().result()
    whole = log_of(tmp_path)
    odd = tmp_path / "logs" / "zz.log"
    links = [partial(odd.symlink_to, "nowhere"), partial(odd.symlink_to, __file__)]
    for make in (odd.mkdir, partial(os.mkfifo, odd), *links):
        make()
        assert print_screen(show_logs, str(tmp_path), all_runs=True) == whole
        odd.rmdir() if odd.is_dir() else odd.unlink()
    (tmp_path / "logs" / "notes.txt").write_text("of a person")
    assert print_screen(show_logs, str(tmp_path)) == whole


def test_a_log_of_odd_bytes_is_shown_line_by_line(tmp_path: Path) -> None:
    job(tmp_path, [1]).start().result()
    [log] = (tmp_path / "logs").iterdir()
    with log.open("ab") as file:
        file.write(b"\xff caf\xc3\xa9 \xe2\x80\xa8 \x0b one line\nlast")
    assert print_screen(show_logs, str(tmp_path), lines=2) == "\ufffd café \u2028 \x0b one line\nlast\n"
    for encoding, word in (("ascii", b"caf\\xe9"), ("utf-8", "café".encode())):
        shown = io.BytesIO()
        screen = io.TextIOWrapper(shown, encoding=encoding)
        assert show_logs(str(tmp_path), lines=2, screen=screen) == 0
        screen.flush()
        assert word in shown.getvalue()


def test_following_can_show_only_failures_and_ends_with_the_run(tmp_path: Path) -> None:
    job(tmp_path, [1]).start().result()
    [log] = (tmp_path / "logs").iterdir()
    whole, seen = log.read_text(), list[str]()

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            seen.append(text)
            if len(seen) == 2:  # the first line, and its end: a line appended before all was read is no exception
                with log.open("a") as file:
                    file.write("2026-01-01 00:00:00,000 INFO    a: b\n2026-01-01 00:00:00,001 ERROR   a: c\n")
            return len(text)

    assert show_logs(str(tmp_path), errors=True, follows=True, screen=Screen()) == 0
    assert "".join(seen) == whole.splitlines(keepends=True)[-1] + "2026-01-01 00:00:00,001 ERROR   a: c\n"


def test_the_log_of_a_running_job_is_not_that_of_another_job_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stores = [Remote(fresh_name("remote")) for _ in range(2)]
    logs = [attach_log(store, run) for store, run in zip(stores, ("a1", "b2"), strict=True)]
    stores[0].put("logs/00.log", b"of an earlier run\n")
    held = acquire_lease(stores[0], "clicks")
    for log in logs:
        log.write("progress")
    assert len({*tmp_path.iterdir()}) == 2
    [earlier, now] = _logs(stores[0])
    assert (earlier, now) == ("logs/00.log", logs[0].path)
    stores[0].put("logs/a1.log", b"")
    assert _logs(stores[0]) == ["logs/00.log", "logs/a1.log"]
    held.close()
    for log in logs:
        log.close()


class Remote(MemoryStore):
    """A store that is not a folder."""

    def local_path(self, name: str) -> None:
        return None


def test_logs_of_a_missing_job_and_of_one_that_never_ran_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_screen(show_logs, str(tmp_path / "nowhere"), code=1)
    assert "is neither the store of a job" in capsys.readouterr().err


def test_user_counters_are_in_the_log_the_progress_and_the_checkpoints(tmp_path: Path) -> None:
    counted = job(tmp_path, [3, 5, EPOCH, 10])
    counted.start().result()
    assert "metrics: Parse: bad_lines 0, seen 3, sizes.length 3 (3 to 10, mean 6)" in log_of(tmp_path)
    document = json.loads(print_screen(show_checkpoints, str(tmp_path), as_json=True))
    assert document["metrics"]["Parse"] == {
        "bad_lines": {"counter": 0},
        "seen": {"counter": 3},
        "sizes.length": {"distribution": [3, 18, 3, 10]},
    }
    of_epoch = json.loads(print_screen(show_checkpoints, str(tmp_path), epoch=1, as_json=True))
    assert of_epoch["metrics"]["Parse"]["seen"] == {"counter": 2}
    assert "metrics of Parse: bad_lines 0, seen 3" in print_screen(show_checkpoints, str(tmp_path))
