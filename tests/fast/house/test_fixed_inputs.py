"""`make test` is deterministic: random tests have the same inputs in every run, on every machine and in every
process.

`make explore` draws new inputs (tests/inputs/random_inputs.py).
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests"

SEEDED = {"random.Random", "random.seed", "numpy.random.default_rng"}
"""Generators that draw the same from the same seed; without a seed they are not reproducible."""
DRAWN = ("random.", "secrets.", "numpy.random.", "uuid.uuid1", "uuid.uuid4", "os.urandom", "os.getrandom")
EXEMPT = {"servers/server_process.py", "inputs/random_inputs.py"}
"""Concurrent processes must choose different ports; and the module that makes tests draw new inputs."""
FROM_THE_PROFILE = {"derandomize", "database", "print_blob"}


def names_of(tree: ast.Module) -> dict[str, str]:
    """The modules that a module imports, by the names it uses for them."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {name.asname or name.name.split(".")[0]: name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return names


def calls_of(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Calls of imported functions, with their full names."""
    names = names_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, dot, rest = ast.unparse(node.func).partition(".")
            if first in names:
                yield node, f"{names[first]}{dot}{rest}"


def unseeded_draws(source: str) -> list[int]:
    """Lines that draw random values that the next run would not draw again."""
    lines = []
    for call, name in calls_of(ast.parse(source)):
        if name in SEEDED:
            drawn = not call.args
        elif name == "hypothesis.settings":
            drawn = any(option.arg in FROM_THE_PROFILE for option in call.keywords)
            drawn |= any(option.arg == "deadline" and ast.unparse(option.value) != "None" for option in call.keywords)
        else:
            # A seeded generator is judged as one call with its seed.
            drawn = name.startswith(DRAWN) and not any(name.startswith(f"{seeded}(") for seeded in SEEDED)
        if drawn:
            lines.append(call.lineno)
    return lines


@pytest.mark.parametrize(
    ("source", "guilty"),
    [
        ("import random\nrandom.Random(5).random()", False),
        ("import random\nrandom.Random().random()", True),
        ("import random\nrandom.random()", True),
        ("from random import choice\nchoice('ab')", True),
        ("import random\ndef test(random):\n    pass", False),
        ("import numpy as np\nnp.random.default_rng(1).integers(5)", False),
        ("import numpy as np\nnp.random.default_rng()", True),
        ("import numpy as np\nnp.random.rand(3)", True),
        ("import os\nos.urandom(8)", True),
        ("from uuid import UUID, uuid4\nUUID(int=5)", False),
        ("from uuid import UUID, uuid4\nuuid4()", True),
        ("import secrets\nsecrets.token_hex(4)", True),
        ("from hypothesis import settings\nsettings(max_examples=5, deadline=None)", False),
        ("from hypothesis import settings\nsettings(derandomize=False)", True),
        ("from hypothesis import settings\nsettings(deadline=200)", True),
    ],
)
def test_unseeded_draws_are_distinguished_from_seeded_generators(source: str, guilty: bool) -> None:
    assert bool(unseeded_draws(source)) == guilty


@pytest.mark.slow
def test_no_test_draws_unseeded_random_values() -> None:
    paths = [path for path in sorted(TESTS.rglob("*.py")) if path.relative_to(TESTS).as_posix() not in EXEMPT]
    draws = [f"{path.relative_to(ROOT)}:{line}" for path in paths for line in unseeded_draws(path.read_text())]
    assert not draws, "tests draw from a generator with a seed, and names from fresh_name"


def test_random_tests_have_fixed_inputs() -> None:
    profile = settings()
    assert (profile.derandomize, profile.database, profile.deadline) == (True, None, None)
    assert HealthCheck.too_slow in profile.suppress_health_check, "a busy machine is not a defect"


RANDOM_TESTS = """
from hypothesis import example, given, settings, strategies as st

@settings(max_examples=5)
@given(st.integers())
@example(-1)
def test_a_number(n):
    print("drawn", n)

@given(st.integers(0, 1_000))
def test_a_rare_number(n):
    assert n not in range(700, 800)

def test_nothing_random():
    print("drawn nothing")
"""


TIME_IS_UP = """
import math

from inputs import random_inputs
from hypothesis import given, strategies as st

examples = []

@given(data=st.data())
def test_that_draws_as_it_goes(data):
    examples.append(data.draw(st.lists(st.integers())))
    if len(examples) == 5:
        random_inputs.time.time = lambda: math.inf
"""


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., str]:
    """Runs a Python command in a folder of tests, as the project's tests are run; returns the output."""
    (tmp_path / "test_drawn.py").write_text(RANDOM_TESTS)
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['inputs.random_inputs']")

    def run(*command: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(TESTS), "HYPOTHESIS_PROFILE": "fast"}
        completed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return completed.stdout + completed.stderr

    return run


def drawn(output: str) -> list[str]:
    return re.findall(r"drawn (-?\w+)$", output, re.MULTILINE)


@pytest.mark.slow
def test_every_process_draws_the_same(run_python: Callable[..., str]) -> None:
    command = (sys.executable, "-m", "pytest", "-s", "test_drawn.py")
    first, second = drawn(run_python("env", "PYTHONHASHSEED=1", *command)), drawn(run_python("env", "CI=1", *command))
    assert first == second
    assert first[-1] == "nothing"


@pytest.mark.slow
def test_exploring_draws_new_inputs_and_prints_how_to_repeat_a_failure(run_python: Callable[..., str]) -> None:
    explore = (sys.executable, str(ROOT / "scripts" / "explore.py"), "-n0", "-s", "test_drawn.py", "--times=3")
    first, again, other = (
        run_python(*explore, *options) for options in (("--seed=5",), ("--seed=5",), ("--seed=6", "--times=1"))
    )
    assert drawn(first) == drawn(again) != drawn(other)
    assert len(drawn(first)) == 3 * 5 + 2, "two rounds, each with the pinned example"
    assert "nothing" not in drawn(first)
    [command] = re.findall(r"^    (env .*)$", first, re.MULTILINE)
    assert "1 random tests failed" in first
    assert len(re.findall(r"\b1 failed\b", first)) == 1, "it is not run again"
    assert re.findall(r"n=\d+", run_python(*command.split())) == re.findall(r"n=\d+", first)


@pytest.mark.slow
def test_exploring_stops_between_two_examples_without_a_failure(run_python: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "test_time.py").write_text(TIME_IS_UP)
    output = run_python(sys.executable, "-m", "pytest", "test_time.py", "--explore=5", "--until=9e12")
    assert "1 skipped" in output and "failed" not in output
