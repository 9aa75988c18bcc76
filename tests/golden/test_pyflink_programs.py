"""Small programs in the style of PyFlink's documentation, with their recorded output.

`python pyflink_program_runner.py FILE`, run with PyFlink installed, prints the same for comparison. All programs of a
file run in one process, with `pyflink` served by Millstream and their jobs in memory.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("programs", sorted((HERE / "pyflink_programs").glob("*.programs")), ids=lambda file: file.stem)
def test_a_program_in_the_style_of_pyflinks_documentation_prints_the_same(programs: Path) -> None:
    pytest.importorskip("pandas")
    runner = [sys.executable, str(HERE / "pyflink_program_runner.py"), str(programs), "millstream"]
    ended = subprocess.run(runner, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == programs.with_suffix(".txt").read_text(encoding="utf-8"), ended.stderr
