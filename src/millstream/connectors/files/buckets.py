"""Which folder below a file sink's base path a record goes to.

A bucket is a relative path, '' for the base path itself. Some assigners look at the record, some only at the clock;
processing time stands still within an epoch, so the latter give one answer for a whole epoch and cost nothing.
A bucket that would leave the base path is refused.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from millstream.errors import ProgramError
from millstream.storage.path_parts import checked_name

__all__ = ["BasePathBuckets", "BucketAssigner", "DateTimeBuckets", "FunctionBuckets", "checked_bucket"]


class BucketAssigner(ABC):
    """Decides the bucket of a record."""

    @abstractmethod
    def for_epoch(self, now_ms: int) -> str | None:
        """The bucket of every record of this epoch, or None when it depends on the record."""

    def for_value(self, value: Any, now_ms: int) -> str:
        """The bucket of one record; asked only when `for_epoch` gave None."""
        raise NotImplementedError(f"{type(self).__name__} decides per epoch")


@dataclass(frozen=True)
class BasePathBuckets(BucketAssigner):
    """Everything goes into the base path itself."""

    def for_epoch(self, now_ms: int) -> str:
        return ""


@dataclass(frozen=True)
class DateTimeBuckets(BucketAssigner):
    """Folders named after processing time, in Flink's (Java's) date pattern.

    >>> DateTimeBuckets("yyyy-MM-dd--HH", "UTC").for_epoch(0)
    '1970-01-01--00'
    >>> DateTimeBuckets("'year='yyyy/MM", "Asia/Tokyo").for_epoch(0)
    'year=1970/01'
    """

    pattern: str = "yyyy-MM-dd--HH"
    timezone: str | None = None

    def __post_init__(self) -> None:
        # A bad pattern or zone is found where the program says it, not in the first epoch.
        self.for_epoch(0)

    def for_epoch(self, now_ms: int) -> str:
        moment = datetime.fromtimestamp(now_ms / 1000, _zone(self.timezone))
        if self.timezone is None:
            moment = moment.astimezone()
        return checked_bucket("".join(_piece(token, moment, self.pattern) for token in _tokens(self.pattern)))


@dataclass(frozen=True)
class FunctionBuckets(BucketAssigner):
    """The user's function of the record; it returns the bucket as text."""

    function: Callable[[Any], str]

    def for_epoch(self, now_ms: int) -> None:
        return None

    def for_value(self, value: Any, now_ms: int) -> str:
        bucket = self.function(value)
        if not isinstance(bucket, str):
            raise ProgramError(
                f"The bucket function gave {bucket!r} ({type(bucket).__name__}) for {value!r}. Return a str."
            )
        return bucket


def checked_bucket(bucket: str) -> str:
    """The bucket without its outer slashes, when it stays below the base path.

    >>> checked_bucket("day=1/"), checked_bucket("")
    ('day=1', '')
    """
    relative = bucket.strip("/")
    try:
        return checked_name(relative) if relative else ""
    except ValueError as error:
        raise ProgramError(
            f"Bucket {bucket!r} is not a folder below the sink's base path. "
            f"Return a relative path whose parts are not '.', '..' or empty."
        ) from error


def _zone(name: str | None) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as error:
        raise ProgramError(f"Time zone {name!r} is not known. Give a name such as 'Europe/Berlin' or 'UTC'.") from error


_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_LETTERS = {"y": "%Y", "u": "%Y", "M": "%m", "d": "%d", "H": "%H", "h": "%I", "m": "%M", "s": "%S", "D": "%j"}


def _tokens(pattern: str) -> list[re.Match[str]]:
    tokens = list(_TOKEN.finditer(pattern))
    if sum(len(token.group()) for token in tokens) != len(pattern):
        raise ProgramError(f"Date pattern {pattern!r} has a quote that is not closed.")
    return tokens


def _piece(token: re.Match[str], moment: datetime, pattern: str) -> str:
    """The text of one token of a Java date pattern."""
    text, letter = token.group(), token.group(2)
    if text.startswith("'"):
        return token.group(1).replace("''", "'") or "'"
    if letter is None:
        return text
    if letter in ("y", "u") and len(text) == 2:
        return moment.strftime("%y")
    if letter == "S":
        return f"{moment.microsecond:06d}000"[: len(text)]
    if letter == "a":
        return moment.strftime("%p")
    if letter in "ME" and len(text) >= 3:
        full = len(text) >= 4
        return moment.strftime({"M": "%B" if full else "%b", "E": "%A" if full else "%a"}[letter])
    if letter in _LETTERS:
        return str(int(moment.strftime(_LETTERS[letter]))).zfill(len(text))
    raise ProgramError(
        f"Date pattern {pattern!r} has {text!r}, which is not supported. Use y, M, d, H, h, m, s, S, D, E, a, "
        f"and put literal text between single quotes."
    )
