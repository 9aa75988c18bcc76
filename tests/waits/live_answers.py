"""Queries of jobs' tables, for tests of live SQL and of archives: an immediate answer, or one that is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from millstream.errors import MillstreamError
from millstream.table import TableEnvironment

__all__ = ["eventually", "rows"]

WAIT_S = 60
"""What must come is waited for so long, where a test does not say otherwise."""


def rows(env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    """The rows of an answer, sorted."""
    return sorted(tuple(row) for row in env.execute_sql(statement).collect())


def eventually(ask: Callable[[], Any], holds: Callable[[Any], bool], wait_s: float = WAIT_S) -> Any:
    """The first answer that satisfies `holds`; the last error is raised on a timeout."""
    ends = time.monotonic() + wait_s
    while True:
        try:
            answer = ask()
            if holds(answer):
                return answer
        except MillstreamError:
            if time.monotonic() > ends:
                raise
        assert time.monotonic() < ends
        time.sleep(0.02)
