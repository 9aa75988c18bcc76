"""How long a test waits for what it needs: nearly as long as it may run at all, for a machine may do much else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 240.0
"""Less than pytest's time limit of a test, so that a failure says what did not happen."""


def until(what: str, condition: Callable[[], Any]) -> Any:
    """What `condition` gives once it is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if answer := condition():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {PATIENCE_S:.0f} s")
