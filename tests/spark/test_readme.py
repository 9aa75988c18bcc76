"""The program in the README runs as printed and prints what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_program_in_the_readme_prints_what_the_readme_says(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(blocks("python")[0], encoding="utf-8")
    expected = blocks("text")[0].splitlines()

    run = subprocess.run(
        [sys.executable, str(job)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    # Other lines may stand between them (a console, Spark's own words), but these, once each and in this order.
    assert [line for line in run.stdout.splitlines() if line in expected] == expected, run.stdout
