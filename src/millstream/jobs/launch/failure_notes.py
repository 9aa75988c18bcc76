"""Logs failures to the job's log: each one once, at ERROR, with its traceback.

Several components handle a failure: the epoch that failed, the restart strategy, the driver that ends. Only the first
of them logs it. A failure that repeats, epoch after epoch or try after try, is logged as one line with its count; its
traceback is above. A failure in the user's own code is shown as the user sees it, with record, operator and line; any
other with all frames, including Java's.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

from millstream.errors import JobFailedError
from millstream.jobs.epochs.failures import message_of
from millstream.runtime.operators.user_code import UserFailureError

__all__ = ["FailureNotes"]

_KINDS_MAX = 100


class FailureNotes:
    """The failures of one job. `write` takes a string and its level."""

    def __init__(self, write: Callable[[str, int], None]) -> None:
        self._write = write
        self._times: dict[tuple[str, str], int] = {}
        self._last: tuple[BaseException, ...] = ()

    def note(self, what: str, error: BaseException, *same: BaseException) -> None:
        """Log a failure of `what`. `same`: other exceptions for the same failure, such as the one that the job
        raises."""
        self._last = (error, *same)
        key = (type(error).__name__, _words_of(error))
        if key not in self._times and len(self._times) >= _KINDS_MAX:
            self._times.clear()
        times = self._times[key] = self._times.get(key, 0) + 1
        if times > 1:
            self._write(f"{what} (the same failure, {times} times by now; its traceback is above)", logging.ERROR)
        else:
            self._write(f"{what}\n{traceback_of(error)}", logging.ERROR)

    def is_noted(self, error: BaseException) -> bool:
        """Whether this is the failure that was noted last."""
        return any(error is one or error.__cause__ is one for one in self._last)


def _words_of(error: BaseException) -> str:
    report = _report_of(error)
    return report if report else message_of(error)


def _report_of(error: BaseException) -> str:
    if isinstance(error, UserFailureError):
        return error.report.text()
    return error.report if isinstance(error, JobFailedError) else ""


def traceback_of(error: BaseException) -> str:
    """The traceback of a failure, as text."""
    return _report_of(error) or "".join(traceback.format_exception(error)).rstrip("\n")
