"""Command-line arguments after a program: ours, or the program's."""

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
def test_known_options_belong_to_millstream_at_any_position_and_the_rest_to_the_program(
    typed: str, expected: str
) -> None:
    assert " ".join(arranged(typed.split(), OPTIONS)) == expected


def test_a_command_with_two_named_arguments_passes_on_what_follows_both() -> None:
    words = arranged(["clicks@7", "job.py", "--x", "1", "-p", "2"], OPTIONS, named=2)
    assert " ".join(words) == "-p 2 clicks@7 job.py -- --x 1"


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.write_text("import sys\nprint(sys.argv[1:])\n", encoding="utf-8")
    return str(path)


def test_a_program_receives_its_options_without_a_double_dash(program: str) -> None:
    result = CliRunner().invoke(app, ["run", program, "--output", "x", "--plain", "-v"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "['--output', 'x', '-v']\n", "")


def test_an_almost_matching_option_is_passed_on_with_a_hint(program: str) -> None:
    result = CliRunner().invoke(app, ["run", program, "--paralelism", "4"])
    assert (result.exit_code, result.stdout) == (0, "['--paralelism', '4']\n")
    assert "--paralelism is passed to the program. Did you mean our option --parallelism" in result.stderr
    explicit = CliRunner().invoke(app, ["run", program, "--", "--paralelism", "4"])
    assert (explicit.stdout, explicit.stderr) == (result.stdout, "")


def test_an_unknown_option_before_the_program_is_rejected(program: str) -> None:
    result = CliRunner().invoke(app, ["run", "--paralelism", "4", program])
    assert result.exit_code == 2 and "--parallelism" in result.stderr


def test_version_is_also_an_option() -> None:
    runner = CliRunner()
    by_option = runner.invoke(app, ["--version"])
    assert by_option.exit_code == 0 and by_option.stdout == runner.invoke(app, ["version"]).stdout
