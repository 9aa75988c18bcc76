"""Tells the user, once per process, what his program asks for and does not get: a setting of PyFlink's that has no
effect here, windows that run slower than others would, or records that go where nobody looks.

Such settings tune Flink's own machinery (buffers, slots, state backends). Refusing them would break programs that
run fine without; ignoring them silently would be a lie. So they are accepted, and said once, as a log line. What loses
records, or is hardly ever meant, is a warning (`warn_once`): everybody sees it who has not turned warnings off.
"""

from __future__ import annotations

import logging
import sys

__all__ = ["relay_once", "say_once", "warn_once"]

_LOG = logging.getLogger("millstream.datastream")
_SAID: set[str] = set()


def _is_new(subject: str) -> bool:
    """Whether nothing was said about it before; from now on something was."""
    is_new = subject not in _SAID
    _SAID.add(subject)
    return is_new


def say_once(subject: str, sentence: str) -> None:
    """Log `sentence` at INFO unless something was said about `subject` before."""
    if _is_new(subject):
        _LOG.info("%s", sentence)


def warn_once(subject: str, sentence: str, at: object) -> None:
    """Log `sentence` as a warning, with the user's line `at`, unless one about `subject` at that line was logged."""
    if _is_new(f"{subject} at {at}"):
        _say(logging.WARNING, f"{sentence} ({at})")


def relay_once(name: str, level: int, text: str) -> bool:
    """Log what a task logged as `name`, if that is a notice of ours and new here: each worker says it once. Returns
    whether it was a notice."""
    if name != _LOG.name:
        return False
    if _is_new(text):
        _say(level, text)
    return True


def _say(level: int, text: str) -> None:
    """Log it. Where nobody set up logging Python would print the bare text: we then print it as ours."""
    if level >= logging.WARNING and _LOG.isEnabledFor(level) and not _LOG.hasHandlers():
        print(f"millstream: {text}", file=sys.stderr, flush=True)
    else:
        _LOG.log(level, "%s", text)
