"""Retries while a database is unavailable, and the classification of its errors.

A database that was killed, restarts, fails over or is unreachable answers again after a while. So an operation that
failed for this reason is repeated, on a new connection and from the start of the transaction, with growing pauses,
until the time limit is used up; then the restart strategy decides (`ConnectionError` is retryable). A permanent error
(a wrong password, a missing table, a value that does not fit) is raised at once, as an error of the program.

Callers of `retry` must make repetition safe: a second attempt must detect the effects of the first.
A sink does so by means of its committer's row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from millstream.errors import MillstreamError, ProgramError

__all__ = ["DatabaseUnavailableError", "Patience", "retry"]

_Answer = TypeVar("_Answer")
_LONGEST_PAUSE_S = 2.0


class DatabaseUnavailableError(ConnectionError):
    """The database does not answer, or refuses temporarily; a retry may succeed later."""


@dataclass(frozen=True)
class Patience:
    """How long a database may be unavailable, and the maximum number of retries if `retries_max` is set."""

    total_s: float = 30.0
    retries_max: int | None = None
    first_pause_s: float = 0.05
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


def retry(
    operation: Callable[[], _Answer],
    patience: Patience,
    subject: str,
    permanent_reason: Callable[[BaseException], str | None],
) -> _Answer:
    """The result of `operation`, retried while the database is unavailable.

    `permanent_reason(error)` is None for a transient error, else its reason. `subject` is the prefix of messages.
    """
    pause_s, tries = patience.first_pause_s, 0
    deadline_s = patience.monotonic() + patience.total_s
    while True:
        try:
            return operation()
        except MillstreamError:
            raise
        except Exception as error:
            refusal = permanent_reason(error)
            if refusal is not None:
                raise ProgramError(f"{subject}: {refusal}") from error
            tries += 1
            is_over = patience.monotonic() + pause_s > deadline_s
            if is_over or (patience.retries_max is not None and tries > patience.retries_max):
                raise DatabaseUnavailableError(
                    f"{subject}: no success in {tries} {'try' if tries == 1 else 'tries'} within "
                    f"{patience.total_s:g} s. The last error: {_one_line(error)}. Nothing is lost: the operation "
                    "is repeated when the job is restarted"
                ) from error
        patience.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__
