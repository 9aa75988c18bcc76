"""Job start-up: a status line on a terminal shows the current step; pipes and standard output get none of our text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from screens.terminal import Terminal

ROOT = Path(__file__).resolve().parents[4]

# Replaces Spark's job: it starts after a while, prints, and ends.
PROGRAM = """
import os, sys, time
from types import SimpleNamespace
from millstream.common.job_status import JobStatus
from millstream.jobs.console.foreground import run_in_foreground, start_in_sight
from millstream.jobs.epochs.progress import JobProgress, ProgressBoard

board = ProgressBoard(JobProgress("clicks", "j1", f"file://{os.getcwd()}/.millstream/clicks-1", status="RUNNING"))

def wait():
    time.sleep(0.3)
    print("1> (a,1)")
    input()

def launch(before_spark):
    before_spark()
    log = os.open("jvm.log", os.O_WRONLY | os.O_CREAT)
    screen = os.dup(1), os.dup(2)
    os.dup2(log, 1), os.dup2(log, 2)  # as while the JVM starts
    input()
    os.dup2(screen[0], 1), os.dup2(screen[1], 2)
    return SimpleNamespace(board=board, wait=wait, status=lambda: JobStatus.FINISHED, result=lambda: "done")

print(run_in_foreground(launch, dict(pair.split("=") for pair in sys.argv[1:])))
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def test_a_terminal_shows_spark_starting_then_the_job_starting_then_nothing(tmp_path: Path) -> None:
    terminal = Terminal([sys.executable, "-c", PROGRAM], cwd=tmp_path, echoes=False, environment=environment())
    try:
        terminal.read_until(r"^starting Spark … \d+ s$")
        terminal.type("")
        terminal.read_until(r"^1> \(a,1\)\nclicks RUNNING \d+ s  first epoch")
        terminal.type("")
        assert terminal.read_to_end() == 0
    finally:
        terminal.close()
    word = "millstream: the store of this run stays in .millstream/clicks-1 (millstream remove)"
    lines = "".join(terminal.screen.text.splitlines())  # the sentence may be longer than the screen is wide
    assert lines == f"1> (a,1){word}done"
    assert (tmp_path / "jvm.log").read_bytes() == b""


@pytest.mark.parametrize(
    ("arguments", "errors"),
    [
        ((), ""),
        (("millstream.console=plain", "millstream.store=x"), "starting Spark …\n"),
        (("millstream.console=off",), ""),
    ],
)
def test_in_a_pipe_standard_output_has_only_the_programs_text(
    tmp_path: Path, arguments: tuple[str, ...], errors: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=tmp_path, env=environment(), input="\n\n", text=True,
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "1> (a,1)\ndone\n"
    assert done.stderr.startswith(errors) and (bool(done.stderr) == bool(errors)), done.stderr


def test_a_missing_query_server_is_reported_before_spark_starts() -> None:
    program = """
import sys
sys.modules["uvicorn"] = None
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
settings = Configuration().set_string("millstream.query.listen", "127.0.0.1:0")
settings.set_string("millstream.console", "plain")
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.from_collection([1]).print()
env.execute()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1 and "the query server needs uvicorn. Install it with" in done.stderr
    assert "starting Spark" not in done.stderr and done.stdout == ""
