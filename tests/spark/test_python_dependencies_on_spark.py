"""A job whose functions need what Spark has not: a package from a folder, an archive, a module of another folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from inputs.wheels import wheel

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, sys
from millstream.common import Configuration, Encoder, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink

env = StreamExecutionEnvironment.get_execution_environment(
    Configuration().set_string("python.pythonpath", os.path.abspath("modules"))
)
env.set_parallelism(2)
env.set_python_requirements("requirements.txt", "packages")
env.add_python_archive("data.zip", "data")
env.add_python_archive("more.tar")


def look(number):
    import milltaste, nearby  # only where tasks run

    with open("data/words.txt") as words, open("more.tar/inner/more.txt") as more:
        return f"{number} {milltaste.VERSION} {nearby.NAME} {words.read()} {more.read()}"


numbers = env.from_collection([1, 2, 3], Types.LONG()).map(look, Types.STRING())
numbers.print()
numbers.sink_to(FileSink.for_row_format("out", Encoder.simple_string_encoder()).build())
env.execute("needs things")

again = StreamExecutionEnvironment.get_execution_environment()
again.from_collection([0], Types.LONG()).map(lambda n: os.path.basename(os.getcwd()), Types.STRING()).print()
again.execute("in the folder it was started in")
try:
    import milltaste
except ImportError:
    print("not here")
"""


@pytest.mark.slow
def test_functions_import_packages_and_open_files_of_archives_as_in_pyflink(tmp_path: Path) -> None:
    wheel(tmp_path / "packages", "milltaste")
    (tmp_path / "requirements.txt").write_text("milltaste\n")
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "nearby.py").write_text("NAME = 'near'\n")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("words.txt", "to be")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "more.txt").write_text("or not")
    subprocess.run(["tar", "-cf", "more.tar", "inner"], cwd=tmp_path, check=True)
    (tmp_path / "job.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "job.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = [f"{number} 1.0 near to be or not" for number in (1, 2, 3)]
    # Only what the program prints is on its output, and what its functions run in does not move its files.
    printed = [line.partition("> ")[2] or line for line in ended.stdout.splitlines()]
    assert sorted(printed) == sorted([*lines, tmp_path.name, "not here"]), json.dumps(printed)
    written = [line for file in (tmp_path / "out").rglob("part-*") for line in file.read_text().splitlines()]
    assert sorted(written) == lines
