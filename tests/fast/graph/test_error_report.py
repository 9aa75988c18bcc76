"""A Millstream error is shown the same way by the command line, by plain Python and by a test runner.

Each program runs as plain Python runs it: to the end of its main module, where Python itself prints the exception.
Millstream is imported once, by a process that forks for each program in turn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
{line}
"""

# A child leaves the loop, and the rest is its program: no frame of ours is between the program and Python.
STAGE = """
import json, os, sys
import millstream.datastream

for name in json.loads(sys.argv[1]):
    if (child := os.fork()) == 0:
        os.chdir(name)
        os.dup2(os.open("shown", os.O_WRONLY | os.O_CREAT), 2)
        break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(os.path.join(name, "code"), "w") as file:
        file.write(str(code))
else:
    os._exit(0)
__file__ = os.path.abspath("job.py")
with open(__file__) as file:
    program = compile(file.read(), __file__, "exec")
exec(program)
"""

LINES = {
    "ours": "env.set_parallelism(0)",
    "failed": (
        "from millstream.errors import JobFailedError; "
        "raise JobFailedError('it failed', report='REPORT', at='job.py:3')"
    ),
    "other": "1 / 0",
    "hooked": (
        "import sys; sys.excepthook = lambda *error: print('mine', file=sys.stderr); "
        "StreamExecutionEnvironment.get_execution_environment().set_parallelism(0)"
    ),
    "lower": "from millstream.common import Time; Time.seconds('5')",
    "forgotten": "env.from_collection([1]).print()",
    "planned": "env.from_collection([1]).print(); env.get_execution_plan()",
    "failing": "env.from_collection([1]).print(); 1 / 0",
    "misspelt": "from millstream.common import Types; Types.INTEGER()",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The exit code of each program, and its output."""
    folder = tmp_path_factory.mktemp("programs")
    for name, line in LINES.items():
        (folder / name).mkdir()
        (folder / name / "job.py").write_text(PROGRAM.format(line=line))
    (folder / "stage.py").write_text(STAGE)
    arguments = [sys.executable, "stage.py", json.dumps(list(LINES))]
    subprocess.run(arguments, cwd=folder, check=True, env=os.environ, timeout=120)
    return {name: (int(_read(folder / name / "code")), _read(folder / name / "shown")) for name in LINES}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


Outcomes = dict[str, tuple[int, str]]


@pytest.mark.slow
def test_plain_python_shows_a_millstream_error_in_one_sentence(outcomes: Outcomes) -> None:
    sentence = "millstream: set_parallelism: found 0, expected a whole number of at least 1 (job.py:5)\n"
    assert outcomes["ours"] == (1, sentence)


@pytest.mark.slow
def test_plain_python_shows_the_report_of_a_failed_job_before_the_sentence(outcomes: Outcomes) -> None:
    assert outcomes["failed"] == (1, "REPORT\n\nmillstream: it failed (job.py:3)\n")


@pytest.mark.slow
def test_plain_python_shows_other_errors_unchanged(outcomes: Outcomes) -> None:
    code, shown = outcomes["other"]
    assert code == 1
    assert shown.startswith("Traceback (most recent call last):\n") and "ZeroDivisionError" in shown


@pytest.mark.slow
def test_a_users_own_excepthook_stays_installed(outcomes: Outcomes) -> None:
    assert outcomes["hooked"] == (1, "mine\n")


@pytest.mark.slow
def test_an_error_of_the_lower_layers_is_shown_with_the_line_that_led_to_it(outcomes: Outcomes) -> None:
    code, shown = outcomes["lower"]
    assert code == 1 and shown.endswith("use a smaller unit (job.py:5)\n") and len(shown.splitlines()) == 1


@pytest.mark.slow
def test_a_missing_execute_is_reported_at_exit(outcomes: Outcomes) -> None:
    code, shown = outcomes["forgotten"]
    assert (code, shown.count("\n")) == (0, 1) and "ended without env.execute()" in shown and "(job.py:5)" in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", ["planned", "failing"])
def test_a_failed_or_explained_program_gets_no_notice_about_execute(outcomes: Outcomes, name: str) -> None:
    assert "env.execute()" not in outcomes[name][1].replace(LINES[name], "")


@pytest.mark.slow
def test_a_missing_attribute_of_a_millstream_class_is_shown_with_the_existing_ones(outcomes: Outcomes) -> None:
    code, shown = outcomes["misspelt"]
    assert code == 1 and shown.splitlines()[-1].startswith("millstream: Types has BASIC_ARRAY, ") and ", INT," in shown
