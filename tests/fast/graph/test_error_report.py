"""An error of ours is shown the same way by the command line, by plain Python and by a test runner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
{line}
"""


def shown_by_python(folder: Path, line: str) -> tuple[int, str]:
    (folder / "job.py").write_text(PROGRAM.format(line=line))
    run = subprocess.run(
        [sys.executable, "job.py"], cwd=folder, capture_output=True, text=True, env=os.environ, timeout=120
    )
    return run.returncode, run.stderr


def test_plain_python_shows_an_error_of_ours_in_one_sentence(tmp_path: Path) -> None:
    code, shown = shown_by_python(tmp_path, "env.set_parallelism(0)")
    assert code == 1
    assert shown == "millstream: set_parallelism: found 0, expected a whole number of at least 1 (job.py:5)\n"


def test_plain_python_shows_the_report_of_a_failed_job_before_the_sentence(tmp_path: Path) -> None:
    error = "JobFailedError('it failed', report='REPORT', at='job.py:3')"
    line = f"from millstream.errors import JobFailedError; raise {error}"
    assert shown_by_python(tmp_path, line) == (1, "REPORT\n\nmillstream: it failed (job.py:3)\n")


def test_plain_python_shows_other_errors_as_ever(tmp_path: Path) -> None:
    code, shown = shown_by_python(tmp_path, "1 / 0")
    assert code == 1
    assert shown.startswith("Traceback (most recent call last):\n") and "ZeroDivisionError" in shown


def test_a_hook_of_the_users_own_stays_in_place(tmp_path: Path) -> None:
    line = (
        "import sys; sys.excepthook = lambda *error: print('mine', file=sys.stderr); "
        "StreamExecutionEnvironment.get_execution_environment().set_parallelism(0)"
    )
    assert shown_by_python(tmp_path, line) == (1, "mine\n")


def test_an_error_of_the_lower_layers_is_shown_with_the_line_that_led_to_it(tmp_path: Path) -> None:
    line = "from millstream.common import Time; Time.seconds('5')"
    code, shown = shown_by_python(tmp_path, line)
    assert code == 1 and shown.endswith("use a smaller unit (job.py:5)\n") and len(shown.splitlines()) == 1


def test_a_forgotten_execute_is_said_at_the_end(tmp_path: Path) -> None:
    code, shown = shown_by_python(tmp_path, "env.from_collection([1]).print()")
    assert (code, shown.count("\n")) == (0, 1) and "ended without env.execute()" in shown and "(job.py:5)" in shown


def test_a_program_that_failed_or_asked_for_its_plan_is_not_told_of_execute(tmp_path: Path) -> None:
    for line in (
        "env.from_collection([1]).print(); env.get_execution_plan()",
        "env.from_collection([1]).print(); 1 / 0",
    ):
        assert "env.execute()" not in shown_by_python(tmp_path, line)[1].replace(line, "")


def test_a_name_that_one_of_our_classes_does_not_have_is_shown_with_those_it_has(tmp_path: Path) -> None:
    code, shown = shown_by_python(tmp_path, "from millstream.common import Types; Types.INTEGER()")
    assert code == 1 and shown.splitlines()[-1].startswith("millstream: Types has BASIC_ARRAY, ") and ", INT," in shown
