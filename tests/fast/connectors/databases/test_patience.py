"""Waiting for a database that is away: by time, by number of tries, and not at all for what it refuses."""

from __future__ import annotations

import pytest

from millstream.connectors.databases.patience import DatabaseUnavailableError, Patience, retry
from millstream.errors import ProgramError


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s, self.pauses = 0.0, list[float]()

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s

    def patience(self, total_s: float = 30.0, retries_max: int | None = None, first_pause_s: float = 0.05) -> Patience:
        return Patience(total_s, retries_max, first_pause_s, self.sleep, lambda: self.now_s)


def away() -> None:
    raise OSError("nobody is there\nfor now")


def test_an_unavailable_database_is_retried() -> None:
    clock, answers = Clock(), iter([OSError(), OSError(), "here"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert retry(ask, clock.patience(), "Sink", lambda _: None) == "here"
    assert clock.pauses == [0.05, 0.1]


def test_patience_ends_by_time_or_by_tries() -> None:
    clock = Clock()
    with pytest.raises(
        DatabaseUnavailableError, match=r"Sink: no success in .* tries within 5 s.*nobody is there. Nothing"
    ):
        retry(away, clock.patience(5.0), "Sink", lambda _: None)
    assert 3 < clock.now_s <= 5 and max(clock.pauses) <= 2
    clock = Clock()
    with pytest.raises(DatabaseUnavailableError, match="no success in 4 tries"):
        retry(away, clock.patience(retries_max=3, first_pause_s=1.0), "Sink", lambda _: None)
    assert clock.pauses == [1.0, 2.0, 2.0]


def test_a_permanent_error_is_raised_at_once() -> None:
    clock = Clock()
    with pytest.raises(ProgramError, match="Sink: no such table"):
        retry(away, clock.patience(), "Sink", lambda _: "no such table")
    assert not clock.pauses
