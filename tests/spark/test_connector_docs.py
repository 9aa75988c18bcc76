"""The examples in docs/extend run as they are printed."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs" / "extend"


@pytest.mark.parametrize("page", ["write-a-source.md", "write-a-sink.md"])
def test_the_examples_of_a_page_run(page: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL))
    assert "assert" in program
    # As a user's program: a module of its own, whose classes tasks cannot import.
    module = types.ModuleType("printed_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    cloudpickle.register_pickle_by_value(module)
    try:
        for _ in range(2):  # the second run is another job, and must find all of its own output
            exec(compile(program, page, "exec"), vars(module))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
