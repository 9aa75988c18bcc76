"""All tests of this folder are marked as `fast`, so that `make test-golden` can take those of them that are `slow`.

None of them starts a Spark: whoever tries is told that there is no Java.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("fast")


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/fast/tests/start/no/Spark")
