"""What can be typed: settings from options, refusals with exit code 2, quick help, and the list of jobs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.checkpoint.job_record import claim
from millstream.checkpoint.manifest import Manifest, ManifestLog, SplitPosition
from millstream.checkpoint.refused_output import ListedRow, RefusedList, write_refused
from millstream.cli.listing import list_jobs, table_text
from millstream.cli.refused import set_refused_aside, show_refused
from millstream.cli.run import RunRequest, run_program, settings_of
from millstream.errors import ConfigurationError
from millstream.jobs.launch.job_log import attach_log
from millstream.state_reader.stored_jobs import ListedJob
from millstream.storage.store import open_store

ROOT = Path(__file__).resolve().parents[3]


def python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def script(folder: Path, text: str, name: str = "job.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- help -----------------------------------------------------------------------------------------------------


def test_help_loads_neither_pyspark_nor_pyarrow() -> None:
    heavy = "{m.partition('.')[0] for m in sys.modules} & {'pyspark', 'pyarrow', 'pandas', 'numpy', 'py4j'}"
    done = python(
        "-c",
        "import sys\n"
        "from millstream.cli.main import app\n"
        "try:\n    app(['--help'], prog_name='millstream')\n"
        f"except SystemExit:\n    print('loaded', sorted({heavy}))\n",
    )
    assert done.returncode == 0, done.stderr
    assert "run" in done.stdout and "list" in done.stdout and "version" in done.stdout
    assert done.stdout.rstrip().endswith("loaded []")


def test_version_names_what_a_bug_report_needs() -> None:
    done = python("-m", "millstream.cli", "version")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["millstream", "pyspark", "pyarrow", "python"]


# --- options --------------------------------------------------------------------------------------------------


def test_options_become_settings() -> None:
    request = RunRequest(
        Path("job.py"),
        parallelism=3,
        definitions=("millstream.epoch.max-records=10", "user.name = a=b"),
        store="jobs/x",
    )
    assert settings_of(request, console_is_terminal=True) == {
        "millstream.epoch.max-records": "10",
        "user.name": "a=b",
        "parallelism.default": "3",
        "millstream.store": "jobs/x",
        "millstream.console": "rich",
    }


@pytest.mark.parametrize(
    ("plain", "terminal", "expected"), [(True, True, "plain"), (False, False, "plain"), (False, True, "rich")]
)
def test_the_console_is_a_panel_but_plain_when_asked_or_without_a_terminal(
    plain: bool, terminal: bool, expected: str
) -> None:
    settings = settings_of(RunRequest(Path("job.py"), plain=plain), console_is_terminal=terminal)
    assert settings["millstream.console"] == expected


def test_a_console_given_by_definition_is_kept() -> None:
    request = RunRequest(Path("job.py"), definitions=("millstream.console=off",))
    assert settings_of(request, console_is_terminal=False)["millstream.console"] == "off"


def test_a_misspelt_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigurationError, match=r"Did you mean 'millstream\.epoch\.max-records'"):
        settings_of(
            RunRequest(Path("job.py"), definitions=("millstream.epoch.max-record=1",)), console_is_terminal=True
        )


@pytest.mark.parametrize("text", ["parallelism.default", "=4", ""])
def test_a_definition_without_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected KEY=VALUE"):
        settings_of(RunRequest(Path("job.py"), definitions=(text,)), console_is_terminal=True)


def refused(request: RunRequest, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_program(request) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "Traceback" not in shown.err
    return shown.err


def test_a_program_that_is_not_there_is_refused_and_its_neighbours_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(tmp_path, "", "job.py")
    message = refused(RunRequest(tmp_path / "jop.py"), capsys)
    assert (
        message == f"millstream: the program {tmp_path / 'jop.py'} does not exist; the folder contains job.py. "
        "Use the path of a Python file\n"
    )


def test_a_folder_is_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is a folder" in refused(RunRequest(tmp_path), capsys)


def test_parallelism_zero_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "-p: found 0" in refused(RunRequest(script(tmp_path, ""), parallelism=0), capsys)


# --- running a script (no job in it) --------------------------------------------------------------------------


def test_the_program_runs_as_python_would_run_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script(tmp_path, "VALUE = 7\n", "beside.py")
    path = script(tmp_path, "import sys, beside\nprint(__name__, __file__, sys.argv[1:], beside.VALUE)\n")
    before = list(sys.path), list(sys.argv), dict(os.environ)

    assert run_program(RunRequest(path, arguments=("--input", "x"))) == 0

    assert capfd.readouterr().out == f"__main__ {path} ['--input', 'x'] 7\n"
    assert (list(sys.path), list(sys.argv), dict(os.environ)) == before
    sys.modules.pop("beside")


def test_workers_find_the_modules_beside_the_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = script(tmp_path, "import os\nprint(os.environ['PYTHONPATH'].split(os.pathsep)[0])\n")
    assert run_program(RunRequest(path)) == 0
    assert capfd.readouterr().out == f"{tmp_path}\n"


def test_environments_start_from_the_options(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = script(
        tmp_path,
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "print(StreamExecutionEnvironment.get_execution_environment().get_parallelism())\n",
    )
    assert run_program(RunRequest(path, parallelism=5)) == 0
    assert capfd.readouterr().out == "5\n"


def test_a_programs_own_error_is_shown_from_its_first_line_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(tmp_path, "def f():\n    raise ValueError('broken')\n\nf()\n")
    assert run_program(RunRequest(path)) == 1
    shown = capfd.readouterr().err
    assert shown.startswith(f'Traceback (most recent call last):\n  File "{path}", line 4, in <module>')
    assert shown.rstrip().endswith("ValueError: broken") and "runpy" not in shown


def test_a_program_that_does_not_compile_shows_the_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = script(tmp_path, "x = (\n")
    assert run_program(RunRequest(path)) == 1
    shown = capfd.readouterr().err
    assert "SyntaxError" in shown and f'"{path}", line 1' in shown and "runpy" not in shown


def test_an_error_of_ours_is_its_message_and_debug_adds_the_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(
        tmp_path,
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "StreamExecutionEnvironment.get_execution_environment().set_parallelism(0)\n",
    )
    assert run_program(RunRequest(path)) == 1
    shown = capfd.readouterr().err
    assert shown.startswith("millstream: set_parallelism") and "(job.py:2)" in shown and "Traceback" not in shown
    assert run_program(RunRequest(path, debug=True)) == 1
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.slow
def test_a_programs_exit_code_is_ours(tmp_path: Path) -> None:
    path = script(tmp_path, "import sys\nsys.exit(3)\n")
    assert python("-m", "millstream.cli", "run", str(path)).returncode == 3


# --- refused --------------------------------------------------------------------------------------------------


def test_a_job_without_refused_rows_says_so_and_sets_nothing_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_of(tmp_path / "clicks", "clicks", epoch=7)
    job, screen = str(tmp_path / "clicks"), io.StringIO()
    assert show_refused(job, None, screen=screen) == 0 and screen.getvalue() == "nothing is refused\n"
    assert set_refused_aside(job, None, str(tmp_path / "letters")) == 2
    assert "has no pending refused rows" in capsys.readouterr().err
    assert show_refused(str(tmp_path), None) == 2


def test_refused_rows_are_shown_by_sink_and_epoch_and_set_aside_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_of(tmp_path / "clicks", "clicks", epoch=7)
    job, store = str(tmp_path / "clicks"), open_store(str(tmp_path / "clicks"))
    for sink, count in (("ledger", 1), ("totals", 30)):
        rows = tuple(ListedRow(0, at, "too large", f'{{"n": {at}}}') for at in range(count))
        write_refused(store, RefusedList("id-of-clicks", sink, 7, sink.title(), "a database", rows, 0))
    screen = io.StringIO()
    assert show_refused(job, None, sink="Totals", screen=screen) == 0
    assert "30 rows refused, and the epoch is not published" in screen.getvalue()
    assert "… and 10 more" in screen.getvalue() and "Ledger" not in screen.getvalue()
    assert set_refused_aside(job, None, str(tmp_path / "letters"), sink="ledger") == 0
    assert "epoch 7, sink 'Ledger': 1 row will be written to" in capsys.readouterr().err
    screen = io.StringIO()
    assert show_refused(job, None, as_json=True, screen=screen) == 0
    states = {each["sink"]: each["state"] for each in map(json.loads, screen.getvalue().splitlines())}
    assert "to be written to" in states["ledger"] and "--set-aside FOLDER" in states["totals"]
    assert set_refused_aside(job, None, "s3://key:secret@letters/x") == 2
    assert "secret" not in capsys.readouterr().err


def test_a_terminal_obeys_nothing_in_a_refused_row(tmp_path: Path) -> None:
    store_of(tmp_path / "clicks", "clicks", epoch=7)
    text = "a\x1b[2J\x9b2J\u202e\u2028\nb"
    rows = (ListedRow(0, 0, text, text),)
    write_refused(
        open_store(str(tmp_path / "clicks")), RefusedList("id-of-clicks", "out", 7, "Out", "a database", rows, 0)
    )
    screen = io.StringIO()
    assert show_refused(str(tmp_path / "clicks"), None, screen=screen) == 0
    [line] = [line for line in screen.getvalue().split("\n") if line.startswith("   0")]
    assert line.isprintable() and line.count(r"a\x1b[2J\x9b2J\u202e\u2028\nb") == 2


def test_a_damaged_list_is_named_and_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_of(tmp_path / "clicks", "clicks", epoch=7)
    job, rows = str(tmp_path / "clicks"), (ListedRow(0, 0, "too large", "{}"),)
    write_refused(open_store(job), RefusedList("id-of-clicks", "out", 7, "Out", "a database", rows, 0))
    open_store(job).put("refused/out/000000000003.json", b"{")
    screen = io.StringIO()
    assert show_refused(job, None, screen=screen) == 0 and "epoch 7, sink 'Out'" in screen.getvalue()
    assert set_refused_aside(job, None, str(tmp_path / "letters")) == 0
    assert capsys.readouterr().err.count("refused/out/000000000003.json") == 2


def test_another_folder_may_be_named_while_rows_are_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_of(tmp_path / "clicks", "clicks", epoch=7)
    job, rows = str(tmp_path / "clicks"), (ListedRow(0, 0, "too large", "{}"),)
    write_refused(open_store(job), RefusedList("id-of-clicks", "out", 7, "Out", "a database", rows, 0, "file:///gone"))
    for folder in ("first", "second", "second"):
        assert set_refused_aside(job, None, str(tmp_path / folder)) == 0
        assert str(tmp_path / folder) in capsys.readouterr().err
    screen = io.StringIO()
    assert show_refused(job, None, screen=screen) == 0
    assert f"to be written to {tmp_path / 'second'}" in screen.getvalue()


# --- list -----------------------------------------------------------------------------------------------------


def store_of(folder: Path, name: str, *, epoch: int = 0, created_ms: int = 0, status: str = "RUNNING") -> None:
    store = open_store(str(folder))
    claim(store, name, job_id=f"id-of-{name}", now_ms=0)
    if epoch:
        manifest = Manifest(
            job=name,
            job_id=f"id-of-{name}",
            epoch=epoch,
            parent=epoch - 1,
            created_ms=created_ms,
            run="a1",
            status=status,  # type: ignore[arg-type]
            sources={"in": {"0": SplitPosition(1200)}},
            counters={"operators": {"in": {"in": 0, "out": 1200}, "out": {"in": 1200, "out": 0}}},
        )
        assert ManifestLog(store).commit(manifest)


def listed(root: Path, *, as_json: bool = False) -> str:
    screen = io.StringIO()
    assert list_jobs(str(root), as_json=as_json, screen=screen, now_ms=100_000) == 0
    return screen.getvalue()


def test_jobs_are_listed_newest_work_first(tmp_path: Path) -> None:
    store_of(tmp_path / "a", "clicks", epoch=7, created_ms=88_000)
    store_of(tmp_path / "b", "orders", epoch=3, created_ms=97_500, status="FINISHED")
    store_of(tmp_path / "c", "new")
    (tmp_path / "not-a-store").mkdir()
    lines = [line.split(maxsplit=7) for line in listed(tmp_path).splitlines()[1:]]
    assert [(row[0], row[2], row[3], row[4]) for row in lines] == [
        ("orders", "FINISHED", "3", "1,200"),
        ("clicks", "INTERRUPTED", "7", "1,200"),
        ("new", "NO", "EPOCH", "YET"),
    ]
    assert "2.5 s ago" in listed(tmp_path) and "12 s ago" in listed(tmp_path)


def test_one_store_is_a_list_of_one_job(tmp_path: Path) -> None:
    store_of(tmp_path, "clicks", epoch=7, created_ms=88_000)
    (job,) = map(json.loads, listed(tmp_path, as_json=True).splitlines())
    assert job == {
        "name": "clicks",
        "id": "id-of-clicks",
        "status": "INTERRUPTED",
        "epoch": 7,
        "records": 1200,
        "last_epoch_ms": 88_000,
        "store": str(tmp_path),
        "problem": "",
        "is_alive": False,
        "driver": "",
        "time_awaits": [],
    }


DRIVER = """
import sys, time
from millstream.jobs.launch.job_log import attach_log
from millstream.storage.store import open_store
log = attach_log(open_store(sys.argv[1]), "a1")
print("runs", flush=True)
time.sleep(60)
"""


def test_a_job_is_running_until_its_driver_dies_however_it_dies(tmp_path: Path) -> None:
    store_of(tmp_path, "clicks", epoch=7, created_ms=88_000)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert driver.stdout is not None and driver.stdout.readline() == "runs\n"
        assert " RUNNING " in listed(tmp_path)
    finally:
        driver.kill()
        driver.communicate()
    assert " INTERRUPTED " in listed(tmp_path)


def test_a_job_without_an_epoch_is_starting_while_it_runs_and_interrupted_when_it_was_killed(tmp_path: Path) -> None:
    store_of(tmp_path, "clicks")
    assert " NO EPOCH YET " in listed(tmp_path)
    log = attach_log(open_store(str(tmp_path)), "a1")
    assert " STARTING " in listed(tmp_path)
    log.close()
    assert " INTERRUPTED " in listed(tmp_path)


def test_a_stopped_job_that_is_run_again_is_starting_until_its_next_epoch(tmp_path: Path) -> None:
    store_of(tmp_path, "clicks", epoch=7, created_ms=88_000, status="SUSPENDED")
    assert " SUSPENDED " in listed(tmp_path)
    log = attach_log(open_store(str(tmp_path)), "a2")
    assert " STARTING " in listed(tmp_path)
    log.close()
    assert " SUSPENDED " in listed(tmp_path)


def test_where_nobody_can_tell_a_job_was_running_when_last_heard_of() -> None:
    job = ListedJob("clicks", "j1", "RUNNING", 7, 1, 1_000, "s3://bucket/clicks")
    assert "RUNNING when last seen" in table_text([job], now_ms=2_000)


def test_a_damaged_store_does_not_hide_the_others(tmp_path: Path) -> None:
    store_of(tmp_path / "a", "clicks", epoch=7, created_ms=88_000)
    store_of(tmp_path / "b", "orders", epoch=1, created_ms=1)
    (tmp_path / "b" / "manifests" / "000000000001.json").write_bytes(b"{}")
    shown = listed(tmp_path)
    assert "clicks" in shown and "DAMAGED: manifests/000000000001.json is damaged" in shown


def test_no_jobs_is_said_and_a_missing_root_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert list_jobs(None, as_json=False) == 0
    assert capsys.readouterr().out == "no jobs under .millstream\n"
    assert list_jobs("nowhere", as_json=False) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err
