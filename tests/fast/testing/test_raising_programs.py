"""A program that raises under the test driver ends with its own exception, without a hint about `env.execute()`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import unittest
from millstream.testing import Collect, Script, run
from millstream.testing.local_jobs import jobs_in_memory
from millstream.datastream import StreamExecutionEnvironment

def build(env):
    env.add_source(Script([1])).sink_to(Collect())
    raise ValueError("my own mistake")

class Job(unittest.TestCase):
    def test_it(self):
        {how}

unittest.main()
"""
WAYS = {
    "run": "run(build)",
    "jobs_in_memory": "\n        with jobs_in_memory():\n            build(StreamExecutionEnvironment())",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_raises_under_the_test_driver_ends_with_its_own_exception(tmp_path: Path, way: str) -> None:
    program = tmp_path / "test_job.py"
    program.write_text(_PROGRAM.format(how=WAYS[way]))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert "ValueError: my own mistake" in done.stderr
    assert "env.execute()" not in done.stderr, done.stderr
