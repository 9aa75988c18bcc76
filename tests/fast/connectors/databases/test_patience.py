"""Retries of an unavailable database: bounded by time and by count, and none for permanent errors."""

from __future__ import annotations

import pytest

from millstream.connectors.databases.patience import DatabaseUnavailableError, Patience, retry
from millstream.errors import ProgramError


class Clock:
    """A clock that advances only when `sleep` is called."""

    def __init__(self) -> None:
        self.now_s, self.pauses = 0.0, list[float]()

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s

    def patience(self, total_s: float = 30.0, retries_max: int | None = None, first_pause_s: float = 0.05) -> Patience:
        return Patience(total_s, retries_max, first_pause_s, self.sleep, lambda: self.now_s)


def unavailable() -> None:
    raise OSError("nobody is there\nfor now")


def test_an_unavailable_database_is_retried() -> None:
    clock, outcomes = Clock(), iter([OSError(), OSError(), "here"])

    def ask() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    assert retry(ask, clock.patience(), "Sink", lambda _: None) == "here"
    assert clock.pauses == [0.05, 0.1]


def test_retries_end_by_time_or_by_count() -> None:
    clock = Clock()
    with pytest.raises(
        DatabaseUnavailableError, match=r"Sink: no success in .* tries within 5 s.*nobody is there. Nothing"
    ):
        retry(unavailable, clock.patience(5.0), "Sink", lambda _: None)
    assert 3 < clock.now_s <= 5 and max(clock.pauses) <= 2
    clock = Clock()
    with pytest.raises(DatabaseUnavailableError, match="no success in 4 tries"):
        retry(unavailable, clock.patience(retries_max=3, first_pause_s=1.0), "Sink", lambda _: None)
    assert clock.pauses == [1.0, 2.0, 2.0]


def test_a_permanent_error_is_raised_without_retry() -> None:
    clock = Clock()
    with pytest.raises(ProgramError, match="Sink: no such table"):
        retry(unavailable, clock.patience(), "Sink", lambda _: "no such table")
    assert not clock.pauses
