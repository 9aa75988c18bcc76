"""Failures in the job's log: each one once, at ERROR, with its traceback.

A failure passes several hands on its way: the epoch that failed, the restart strategy, the driver that gives up. Only
the first of them writes it. A failure that comes again, epoch after epoch or try after try, is a line with its number:
its traceback stands above. What failed in the user's own code is shown as the user sees it, with record, operator and
line; anything else with all frames, Java's included.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

from millstream.errors import JobFailedError
from millstream.jobs.epochs.failures import said_by
from millstream.runtime.operators.user_code import UserFailureError

__all__ = ["FailureNotes"]

_KINDS_MAX = 100


class FailureNotes:
    """What has failed in one job. `write` takes a text and its level."""

    def __init__(self, write: Callable[[str, int], None]) -> None:
        self._write = write
        self._times: dict[tuple[str, str], int] = {}
        self._last: tuple[BaseException, ...] = ()

    def note(self, what: str, error: BaseException, *same: BaseException) -> None:
        """Write that something failed. `same`: the failure under other names, as what the job raises for it."""
        self._last = (error, *same)
        key = (type(error).__name__, _words_of(error))
        if key not in self._times and len(self._times) >= _KINDS_MAX:
            self._times.clear()
        times = self._times[key] = self._times.get(key, 0) + 1
        if times > 1:
            self._write(f"{what} (the same failure, {times} times by now; its traceback stands above)", logging.ERROR)
        else:
            self._write(f"{what}\n{traceback_of(error)}", logging.ERROR)

    def is_noted(self, error: BaseException) -> bool:
        """Whether this is the failure that was noted last."""
        return any(error is one or error.__cause__ is one for one in self._last)


def _words_of(error: BaseException) -> str:
    report = _report_of(error)
    return report if report else said_by(error)


def _report_of(error: BaseException) -> str:
    if isinstance(error, UserFailureError):
        return error.report.text()
    return error.report if isinstance(error, JobFailedError) else ""


def traceback_of(error: BaseException) -> str:
    """How a failure came about, as text."""
    return _report_of(error) or "".join(traceback.format_exception(error)).rstrip("\n")
