"""Checks that errors are clear: a connector is misconfigured on purpose, and its error is examined.

A clear error is raised in bounded time, is not accidental (such as a KeyError), names its subject, and contains no
secrets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.errors import TypeMismatchError
from millstream.testing.connectors.records import short

__all__ = ["Broken", "check_error", "check_secrets"]

_SLACK_S = 1.0  # generous, because the machine may be busy
_ACCIDENTS = (KeyError, IndexError, AttributeError, TypeError, UnboundLocalError, RecursionError, StopIteration)


@dataclass(frozen=True)
class Broken:
    """A connector that cannot work: its defect (`what`), how to `make` it, and the words its error must contain."""

    what: str
    make: Callable[[], Any]
    says: Sequence[str] = ()
    within_s: float = 30.0


def check_error(broken: Broken, use: Callable[[Any], None], secrets: Sequence[str]) -> str:
    """Create and use the broken connector; returns its error message; raises if the message is not clear."""
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            use(broken.make())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(broken.within_s + _SLACK_S)
    assert not thread.is_alive(), f"with {broken.what} it raises nothing within {broken.within_s:g} s"
    assert errors, f"with {broken.what} it raises no error: records may be lost silently"
    error = errors[0]
    text = str(error)
    finding = f"with {broken.what} it says {type(error).__name__}: {short(text)!r}"
    is_accident = isinstance(error, _ACCIDENTS) and not isinstance(error, TypeMismatchError)
    assert not is_accident, f"{finding}. That is an accident: catch it, and say what to do"
    assert len(text.split()) >= 3, f"{finding}. Say the subject, what was found, what was expected, and the next step"
    for word in broken.says:
        assert word in text, f"{finding}, without {word!r}"
    for secret in secrets:
        assert secret not in _all_texts(error), f"with {broken.what} its error shows a secret"
    return f"{broken.what}: {short(text)}"


def check_secrets(secrets: Sequence[str], shown: dict[str, str]) -> str:
    """Check that no secret occurs in any of these strings, keyed by where they occur."""
    for place, text in shown.items():
        for secret in secrets:
            assert secret not in text, f"a secret is in {place}"
    return f"looked at {', '.join(shown)}"


def _all_texts(error: BaseException) -> str:
    """The error with its chain of causes, which logs print too."""
    texts: list[str] = []
    following: BaseException | None = error
    while following is not None and len(texts) < 20:
        texts.append(f"{following!s} {following!r}")
        following = following.__cause__ or following.__context__
    return " ".join(texts)
