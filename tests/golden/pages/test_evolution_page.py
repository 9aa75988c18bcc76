"""The examples of docs/datastream/state-evolution.md run as printed."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "datastream" / "state-evolution.md"


def test_the_examples_of_the_evolution_page_have_the_documented_results() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 10 and result.failed == 0
