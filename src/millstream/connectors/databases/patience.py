"""Waiting for a database that is away, and what its errors mean.

A database that was killed, restarts, fails over or is cut off answers again after a while. So what failed because it
was away is done again, on a new connection and from the beginning of the transaction, after pauses that grow, until the
patience is used up; then the restart strategy decides (`ConnectionError` is retryable). What the database refuses for
good (a wrong password, a missing table, a value that does not fit) is told at once, as an error of the program.

Doing it again is safe for callers of `retry` alone: whatever they do there, the second time finds out what the first
one did. A sink does so by the row of its committer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from millstream.errors import MillstreamError, ProgramError

__all__ = ["DatabaseAwayError", "Patience", "retry"]

_Answer = TypeVar("_Answer")
_LONGEST_PAUSE_S = 2.0


class DatabaseAwayError(ConnectionError):
    """The database does not answer, or not now; the same may succeed later."""


@dataclass(frozen=True)
class Patience:
    """How long a database may be away, and how often it may be asked again if `retries_max` is given."""

    total_s: float = 30.0
    retries_max: int | None = None
    first_pause_s: float = 0.05
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


def retry(
    act: Callable[[], _Answer], patience: Patience, subject: str, what_it_means: Callable[[BaseException], str | None]
) -> _Answer:
    """What `act` gives, done again while the database is away.

    `what_it_means(error)` is None for an error that may pass, else why it does not. `subject` begins the messages.
    """
    pause_s, tries = patience.first_pause_s, 0
    deadline_s = patience.monotonic() + patience.total_s
    while True:
        try:
            return act()
        except MillstreamError:
            raise
        except Exception as error:
            refusal = what_it_means(error)
            if refusal is not None:
                raise ProgramError(f"{subject}: {refusal}") from error
            tries += 1
            is_over = patience.monotonic() + pause_s > deadline_s
            if is_over or (patience.retries_max is not None and tries > patience.retries_max):
                raise DatabaseAwayError(
                    f"{subject}: no success in {tries} {'try' if tries == 1 else 'tries'} within "
                    f"{patience.total_s:g} s. The last one ended with: {_one_line(error)}. Nothing is lost: the same "
                    "is done again when the job is restarted"
                ) from error
        patience.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__
