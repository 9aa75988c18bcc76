"""The programs of docs/connectors/formats.md run as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import JobFailedError
from millstream.testing import Collect, run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "connectors" / "formats.md"
MESSAGES = [b'{"id": 1, "price": 2.5}', b'{"id": "x"}', b'{"id": 3}']


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The definitions of the page; its examples contain assertions."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


def test_bad_messages_fail_the_job_with_their_position_and_bytes(page: dict[str, Any]) -> None:
    with pytest.raises(JobFailedError, match=r"message 1: .* The message is b'\{\"id\": \"x\"\}'"):
        run(lambda env: env.add_source(page["ListOfMessages"](page["from_json"], MESSAGES)).sink_to(Collect()))


def test_bad_messages_go_to_the_side_output(page: dict[str, Any]) -> None:
    good, bad = Collect("good"), Collect("bad")
    source = page["ListOfMessages"](page["from_json"].with_dead_letters(page["BAD"]), MESSAGES)
    result = run(lambda env: page["read_orders"](env, source, good, bad))
    assert [row.id for row in result[good]] == [1, 3]
    assert [(row.place, row.value) for row in result[bad]] == [("message 1", MESSAGES[1])]


def test_registry_credentials_are_not_shown(page: dict[str, Any]) -> None:
    assert "secret" not in repr(page["registry"])
