"""The pages on custom connectors show the kit: their programs run without Spark, and print the documented output."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import cloudpickle
import pytest

PAGES = Path(__file__).resolve().parents[3] / "docs" / "extend"


@pytest.mark.parametrize(("page", "program_lines", "kit_lines"), [("write-a-source", 50, 10), ("write-a-sink", 50, 14)])
def test_a_connector_of_fifty_lines_is_checked_by_ten(
    page: str,
    program_lines: int,
    kit_lines: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (PAGES / f"{page}.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    programs = [block for language, block in blocks if language == "python"]
    [check] = [program for program in programs if "millstream.testing.connectors" in program]
    assert programs[0].count("\n") <= program_lines and check.count("\n") <= kit_lines
    # Like a user's program: a module of its own, whose classes tasks cannot import.
    module = types.ModuleType("printed_connector")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    cloudpickle.register_pickle_by_value(module)
    try:
        for part in (programs[0], check):
            exec(compile(part, f"{page}.py", "exec"), vars(module))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    printed = _uncounted(capsys.readouterr().out)
    [shown] = [block for language, block in blocks if not language and "✓" in block]
    for line in _uncounted(shown).splitlines():
        assert line.strip() in ("…", "") or line in printed.splitlines(), f"{line!r} is not in\n{printed}"


def _uncounted(text: str) -> str:
    """The number of crash points of a program depends on Python's version."""
    return re.sub(r"\d+ moments", "some moments", text)
