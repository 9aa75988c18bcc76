"""Programs in the style of PyFlink's table examples (files `.program`), with their recorded output.

Each runs in a process of its own, with `pyflink` served by Millstream and its jobs in memory. MILLSTREAM_REWRITE=1
writes the expected output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "table_programs"
PROGRAMS = sorted(FOLDER.glob("*.program"))
RUNNER = """
import runpy, sys
from millstream.cli.pyflink_import import serve_pyflink
from millstream.testing.local_jobs import jobs_in_memory
serve_pyflink()
with jobs_in_memory():
    runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.stem for program in PROGRAMS])
def test_a_program_written_for_pyflink_prints_the_recorded_output(program: Path) -> None:
    pytest.importorskip("pandas")
    ended = subprocess.run(
        [sys.executable, "-c", RUNNER, str(program)], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    expected = program.with_suffix(".txt")
    if os.environ.get("MILLSTREAM_REWRITE"):
        expected.write_text(ended.stdout, encoding="utf-8")
    assert ended.stdout == expected.read_text(encoding="utf-8")
