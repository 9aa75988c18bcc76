"""Rules that assign records to folders below a file sink's base path, and complete its parts.

A *bucket* is a relative path, '' for the base path itself. Some assigners use the record, others only processing time,
which is constant within an epoch, so they compute one bucket per epoch. A bucket outside the base path is rejected.

Task output is staged as *chunks* in a hidden staging folder, one per job and sink.

A *rolling policy* is evaluated once per part and epoch, with numbers from the manifest: the same manifest always
yields the same files.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.storage.path_parts import checked_name, safe

__all__ = [
    "STAGING",
    "BasePathBuckets",
    "BucketAssigner",
    "DateTimeBuckets",
    "FunctionBuckets",
    "OnCheckpoint",
    "RollingPolicy",
    "WhenLargeOrOld",
    "checked_bucket",
    "chunk_name",
    "staging_folder",
]


class BucketAssigner(ABC):
    """Decides the bucket of a record."""

    @abstractmethod
    def for_epoch(self, now_ms: int) -> str | None:
        """The bucket of every record of this epoch, or None if it depends on the record."""

    def for_value(self, value: Any, now_ms: int) -> str:
        """The bucket of one record; called only if `for_epoch` returned None."""
        raise NotImplementedError(f"{type(self).__name__} decides per epoch")

    def divided(self, batch: Batch) -> Iterable[tuple[str, Batch]] | None:
        """Splits a batch by bucket using its columns; returns the rows to write per bucket. None (the default): use the
        records."""
        return None


@dataclass(frozen=True)
class BasePathBuckets(BucketAssigner):
    """Writes everything into the base path itself."""

    def for_epoch(self, now_ms: int) -> str:
        return ""


@dataclass(frozen=True)
class DateTimeBuckets(BucketAssigner):
    """Folders named after processing time, by a date pattern in Flink's (Java's) syntax.

    >>> DateTimeBuckets("yyyy-MM-dd--HH", "UTC").for_epoch(0)
    '1970-01-01--00'
    >>> DateTimeBuckets("'year='yyyy/MM", "Asia/Tokyo").for_epoch(0)
    'year=1970/01'
    """

    pattern: str = "yyyy-MM-dd--HH"
    timezone: str | None = None

    def __post_init__(self) -> None:
        # Report a bad pattern or zone where the program declares it, not in the first epoch.
        self.for_epoch(0)

    def for_epoch(self, now_ms: int) -> str:
        moment = datetime.fromtimestamp(now_ms / 1000, _zone(self.timezone))
        if self.timezone is None:
            moment = moment.astimezone()
        return checked_bucket("".join(_piece(token, moment, self.pattern) for token in _tokens(self.pattern)))


@dataclass(frozen=True)
class FunctionBuckets(BucketAssigner):
    """The user's function of the record, which returns the bucket as text."""

    function: Callable[[Any], str]

    def for_epoch(self, now_ms: int) -> None:
        return None

    def for_value(self, value: Any, now_ms: int) -> str:
        bucket = self.function(value)
        if not isinstance(bucket, str):
            raise ProgramError(
                f"The bucket function returned {bucket!r} ({type(bucket).__name__}) for {value!r}. Return a str."
            )
        return bucket


def checked_bucket(bucket: str) -> str:
    """The bucket without leading and trailing slashes; raises if it leaves the base path.

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
        raise ProgramError(f"Time zone {name!r} is not known. Use a name such as 'Europe/Berlin' or 'UTC'.") from error


_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_LETTERS = {"y": "%Y", "u": "%Y", "M": "%m", "d": "%d", "H": "%H", "h": "%I", "m": "%M", "s": "%S", "D": "%j"}


def _tokens(pattern: str) -> list[re.Match[str]]:
    tokens = list(_TOKEN.finditer(pattern))
    if sum(len(token.group()) for token in tokens) != len(pattern):
        raise ProgramError(f"Date pattern {pattern!r} has an unclosed quote.")
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


@dataclass(frozen=True)
class OnCheckpoint:
    """Publishes the output of every epoch."""

    @property
    def chunk_bytes_max(self) -> int | None:
        return None

    def rolls(self, part_bytes: int, since_ms: int, touched_ms: int, now_ms: int) -> bool:
        return True

    def due_ms(self, since_ms: int, touched_ms: int) -> int:
        return since_ms


@dataclass(frozen=True)
class WhenLargeOrOld:
    """Publishes a part when it is large, has been open for a long time, or has not grown for a while. Flink's default.

    >>> policy = WhenLargeOrOld()
    >>> policy.rolls(part_bytes=10, since_ms=0, touched_ms=0, now_ms=59_999)
    False
    >>> policy.rolls(part_bytes=10, since_ms=0, touched_ms=59_999, now_ms=60_000)
    True
    """

    part_bytes: int = 128 * 1024 * 1024
    rollover_ms: int = 60_000
    inactivity_ms: int = 60_000

    def __post_init__(self) -> None:
        for name in ("part_bytes", "rollover_ms", "inactivity_ms"):
            if getattr(self, name) <= 0:
                raise ProgramError(f"Rolling policy: {name} is {getattr(self, name)}. Use more than 0.")

    @property
    def chunk_bytes_max(self) -> int | None:
        """The size at which a writer cuts chunks, so that one long epoch still makes parts of the desired size."""
        return self.part_bytes

    def rolls(self, part_bytes: int, since_ms: int, touched_ms: int, now_ms: int) -> bool:
        return part_bytes >= self.part_bytes or now_ms >= self.due_ms(since_ms, touched_ms)

    def due_ms(self, since_ms: int, touched_ms: int) -> int:
        """When a part must be published although it receives no more records."""
        return min(since_ms + self.rollover_ms, touched_ms + self.inactivity_ms)


RollingPolicy = OnCheckpoint | WhenLargeOrOld


STAGING = ".millstream-staging"
"""The hidden folder below a sink's base path; on the same file system as the parts, so that a link reaches them."""


def staging_folder(job: str, uid: str) -> str:
    """The folder below STAGING for the sink `uid` of the job with this id.

    The id separates jobs that write to one folder, regardless of their store names and machines: a job must
    never sweep the chunks of another.
    """
    return f"{safe(job)}-{safe(uid)}"


def chunk_name(folder: str, epoch: int, subtask: int, nonce: str, index: int) -> str:
    """The staged name of a chunk below the base path.

    >>> chunk_name("3f-sink", 7, 0, "a1", 2)
    '.millstream-staging/3f-sink/000000000007-00000-a1-00002'
    """
    return f"{STAGING}/{folder}/{epoch:012d}-{subtask:05d}-{nonce}-{index:05d}"
