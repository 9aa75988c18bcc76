"""Whose is what is typed behind a program: ours, or the program's."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.cli.main import app
from millstream.cli.program_arguments import arranged

OPTIONS = {"--store": True, "-p": True, "-D": True, "-n": False, "--plain": False}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("job.py", "job.py"),
        ("job.py --output x", "job.py -- --output x"),
        ("job.py --output x --store s y", "--store s job.py -- --output x y"),
        ("--store s job.py --output=x --store=t", "--store s --store=t job.py -- --output=x"),
        ("job.py -p4 -Da.b=c -input -n", "-p4 -Da.b=c -n job.py -- -input"),
        ("job.py -port -Debug", "job.py -- -port -Debug"),
        ("job.py --plain --plain=x", "--plain job.py -- --plain=x"),
        ("job.py --output x -- --store y", "job.py -- --output x --store y"),
        ("job.py - -5", "job.py -- - -5"),
        ("--paralelism 4 job.py", "--paralelism 4 -- job.py"),
        ("job.py --store", "--store job.py"),
    ],
)
def test_known_options_are_ours_wherever_they_stand_and_the_rest_is_the_programs(typed: str, expected: str) -> None:
    assert " ".join(arranged(typed.split(), OPTIONS)) == expected


def test_a_command_with_two_named_arguments_has_the_programs_behind_both() -> None:
    words = arranged(["clicks@7", "job.py", "--x", "1", "-p", "2"], OPTIONS, named=2)
    assert " ".join(words) == "-p 2 clicks@7 job.py -- --x 1"


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.write_text("import sys\nprint(sys.argv[1:])\n", encoding="utf-8")
    return str(path)


def test_a_program_gets_its_own_options_without_dashes_before_them(program: str) -> None:
    done = CliRunner().invoke(app, ["run", program, "--output", "x", "--plain", "-v"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "['--output', 'x', '-v']\n", "")


def test_an_option_that_is_all_but_ours_is_handed_over_and_said(program: str) -> None:
    done = CliRunner().invoke(app, ["run", program, "--paralelism", "4"])
    assert (done.exit_code, done.stdout) == (0, "['--paralelism', '4']\n")
    assert "--paralelism is passed to the program. Did you mean our option --parallelism" in done.stderr
    meant = CliRunner().invoke(app, ["run", program, "--", "--paralelism", "4"])
    assert (meant.stdout, meant.stderr) == (done.stdout, "")


def test_an_unknown_option_before_the_program_is_refused(program: str) -> None:
    done = CliRunner().invoke(app, ["run", "--paralelism", "4", program])
    assert done.exit_code == 2 and "--parallelism" in done.stderr


def test_the_version_is_an_option_too() -> None:
    runner = CliRunner()
    asked = runner.invoke(app, ["--version"])
    assert asked.exit_code == 0 and asked.stdout == runner.invoke(app, ["version"]).stdout
