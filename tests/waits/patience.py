"""Timeouts for conditions in tests: nearly the test's own time limit, because a machine may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 240.0
"""Less than pytest's time limit of a test, so that a failure says what did not happen."""


def until(what: str, condition: Callable[[], Any]) -> Any:
    """The result of `condition` once it is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if answer := condition():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {PATIENCE_S:.0f} s")
