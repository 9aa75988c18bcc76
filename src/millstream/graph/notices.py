"""Tells the user, once per process, what his program asks for and does not get: a setting of PyFlink's that has no
effect here, or windows that run slower than others would.

Such settings tune Flink's own machinery (buffers, slots, state backends). Refusing them would break programs that
run fine without; ignoring them silently would be a lie. So they are accepted, and said once, as a log line.
"""

from __future__ import annotations

import logging

__all__ = ["say_once"]

_LOG = logging.getLogger("millstream.datastream")
_SAID: set[str] = set()


def say_once(subject: str, sentence: str) -> None:
    """Log `sentence` at INFO unless something was said about `subject` before."""
    if subject not in _SAID:
        _SAID.add(subject)
        _LOG.info("%s", sentence)
