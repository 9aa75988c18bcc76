"""Notifies the user, once per process, of requests without effect: a PyFlink setting that is ignored here, windows that
use a slower path, or records that no operator reads.

Such settings tune Flink's own machinery (buffers, slots, state backends). Rejecting them would break programs that run
well without them, and ignoring them silently would mislead, so they are accepted and logged once. Lost records and
probable mistakes are logged as warnings (`warn_once`).
"""

from __future__ import annotations

import logging
import sys

__all__ = ["log_once", "relay_once", "warn_once"]

_LOG = logging.getLogger("millstream.datastream")
_LOGGED: set[str] = set()


def _is_new(subject: str) -> bool:
    """Whether nothing was logged about the subject yet; marks it as logged."""
    is_new = subject not in _LOGGED
    _LOGGED.add(subject)
    return is_new


def log_once(subject: str, sentence: str) -> None:
    """Logs `sentence` at INFO unless something was logged about `subject` before."""
    if _is_new(subject):
        _LOG.info("%s", sentence)


def warn_once(subject: str, sentence: str, at: object) -> None:
    """Logs `sentence` as a warning, with the user's line `at`, unless a warning about `subject` at that line was
    logged."""
    if _is_new(f"{subject} at {at}"):
        _log(logging.WARNING, f"{sentence} ({at})")


def relay_once(name: str, level: int, text: str) -> bool:
    """Logs a task's log line of logger `name` if it is a notice of this module and not yet logged here, because each
    worker logs it once. Returns whether it was a notice."""
    if name != _LOG.name:
        return False
    if _is_new(text):
        _log(level, text)
    return True


def _log(level: int, text: str) -> None:
    """Logs the message. If logging is not configured, prints it with a prefix, which Python would omit."""
    if level >= logging.WARNING and _LOG.isEnabledFor(level) and not _LOG.hasHandlers():
        print(f"millstream: {text}", file=sys.stderr, flush=True)
    else:
        _LOG.log(level, "%s", text)
