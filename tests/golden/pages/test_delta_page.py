"""The programs of docs/connectors/delta.md run as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.testing import run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "connectors" / "delta.md"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The definitions of the page."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


def test_a_table_is_readable_by_other_engines_and_a_second_run_appends(page: dict[str, Any]) -> None:
    run(page["write_sales"])
    assert page["total_of_each_shop"]() == {"north": 125, "river": 40}
    assert page["total_by_duckdb"]() == [(165,)]
    run(page["write_sales"])
    assert page["total_of_each_shop"]() == {"north": 250, "river": 80}
