"""Plain JSON values: the canonical form of values in a manifest.

A value in a manifest must read back equal to itself, or a job would behave differently after a restart. So values are
normalised on entry (a tuple becomes a list, as in JSON), and values that JSON would change or lose are rejected: bytes,
NaN, numbers as keys, objects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Union

from millstream.errors import ProgramError

__all__ = ["JSON", "plain"]

JSON = Union[None, bool, int, float, str, list["JSON"], dict[str, "JSON"]]  # noqa: UP007 - recursive, needs strings


_UNCHANGED = frozenset((str, int, bool, type(None)))
_STRINGS = frozenset((str,))


def plain(value: object, subject: str) -> JSON:
    """`value` as plain JSON, equal to its decoded form; raises ProgramError, naming `subject`, if that is impossible.

    >>> plain({"range": (1, 2)}, "offset")
    {'range': [1, 2]}
    >>> plain(b"x", "offset of split '0'")
    Traceback (most recent call last):
    millstream.errors.ProgramError: offset of split '0' holds a value of type bytes, which JSON cannot represent. \
Use None, bool, int, float, str, or lists and dicts of these.
    """
    kind = type(value)
    if kind in _UNCHANGED:
        return value  # type: ignore[return-value]
    if kind is dict and _STRINGS.issuperset(map(type, value)):  # type: ignore[call-overload]
        # A fast path for the most frequent case in a large manifest.
        return {
            key: item if type(item) in _UNCHANGED else plain(item, subject)
            for key, item in value.items()  # type: ignore[attr-defined]
        }
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refusal(subject, f"the number {value}")
        return float(value)
    if isinstance(value, (list, tuple)):
        return [plain(item, subject) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _refusal(subject, f"a key of type {type(key).__name__}")
        return {str.__str__(key): plain(item, subject) for key, item in value.items()}
    raise _refusal(subject, f"a value of type {type(value).__name__}")


def _refusal(subject: str, content: str) -> ProgramError:
    return ProgramError(
        f"{subject} holds {content}, which JSON cannot represent. "
        f"Use None, bool, int, float, str, or lists and dicts of these."
    )
