"""Modules that are edited between two jobs of one process, as in a notebook: each job runs what it was given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import importlib, logging, os, sys, zipfile
from pathlib import Path
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="LOG %(name)s %(message)s")


def write(folder, answer):
    os.makedirs(folder, exist_ok=True)
    Path(folder, "added.py").write_text(f"def answer(n):\\n    return {answer!r}\\n")
    with zipfile.ZipFile(Path(folder, "data.zip"), "w") as archive:
        archive.writestr("word.txt", answer)
    return folder


def run(folder, function):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.add_python_file(f"{folder}/added.py")
    env.add_python_archive(f"{folder}/data.zip", "data")
    print(*env.from_collection([1], Types.LONG()).map(function, Types.STRING()).execute_and_collect())


def imports(n):
    import added  # only where tasks run

    return f"{added.answer(n)} {open('data/word.txt').read()}"


run(write("one", "first"), imports)
run(write("two", "second"), imports)
run(write("two", "third"), imports)
run("one", imports)

import beside

run("one", beside.answer)
Path("beside.py").write_text("def answer(n):\\n    return 'beside, edited'\\n")
os.utime("beside.py", (1, 1))
run("one", importlib.reload(beside).answer)
"""


@pytest.mark.slow
def test_each_job_runs_the_files_it_was_given_though_an_earlier_one_had_others_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    (tmp_path / "beside.py").write_text("def answer(n):\n    return 'beside'\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "job.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    expected = ["first first", "second second", "third third", "first first", "beside", "beside, edited"]
    lines = ended.stdout.splitlines()
    assert [line for line in lines if not line.startswith("LOG ")] == expected
    assert not [line for line in lines if line.startswith("LOG py4j")], "of its connections nobody asked to hear"
