"""What a user of a wrong program sees: exit code and text, program by program.

The files of `wrong_programs` contain programs and their outcomes; a changed message is a changed file. After an
intended one, `MILLSTREAM_REWRITE=1 pytest tests/golden/test_wrong_programs.py` rewrites them: review the difference.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "wrong_programs"
PARTS = re.compile(r"^=== (.+)\n((?:.*\n)*?)--- (?=exit )((?:(?!===).*\n)*)", re.MULTILINE)


def stories(file: Path) -> list[tuple[str, str, str]]:
    """(title, program, outcome) of each program of a file."""
    matches = [match.groups() for match in PARTS.finditer(file.read_text())]
    assert len(matches) == file.read_text().count("\n=== ") + file.read_text().startswith("=== ")
    return [(title, program, seen.rstrip() + "\n") for title, program, seen in matches]


def outcomes(programs: list[str]) -> list[str]:
    command = [sys.executable, str(FOLDER / "running.py")]
    run = subprocess.run(
        command,
        input=json.dumps(programs),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=250,
        # The columns of the traceback marks differ between versions of Python; the words do not.
        env={**os.environ, "PYTHONNODEBUGRANGES": "1", "PYTHONHASHSEED": "0"},
    )
    return list(json.loads(run.stdout))


@pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.glob("*.txt")))
def test_a_wrong_program_has_the_recorded_outcome(name: str) -> None:
    file = FOLDER / name
    written = stories(file)
    seen = outcomes([program for _, program, _ in written])
    if os.environ.get("MILLSTREAM_REWRITE"):
        parts = [f"=== {title}\n{program}--- {text}" for (title, program, _), text in zip(written, seen, strict=True)]
        file.write_text("\n".join(parts))
    for (title, _, expected), text in zip(written, seen, strict=True):
        assert text == expected, f"{name}: {title}"


def test_no_wrong_program_shows_internal_frames() -> None:
    for file in FOLDER.glob("*.txt"):
        for title, _, seen in stories(file):
            assert "/millstream/" not in seen, f"{file.name}: {title}"


def test_the_titles_differ() -> None:
    titles = [title for file in FOLDER.glob("*.txt") for title, _, _ in stories(file)]
    assert len(titles) == len(set(titles)) >= 120
