"""Snapshot names on the command line: the store of a job and an epoch, or the folder of a savepoint.

jobs/clicks            the newest published epoch
jobs/clicks@1200       epoch 1200
jobs/clicks@before     the savepoint (or fork) of that name in the job's store
backups/clicks-sp      a folder written by `millstream savepoint --to`
s3://bucket/clicks@7
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.errors import ConfigurationError

__all__ = ["SnapshotName", "check_savepoint_name", "parse_snapshot_name"]

_NAME = re.compile(r"(?P<store>.+?)(@(?P<at>[^@/]+))?")
_NAME_BYTES_MAX = 100


@dataclass(frozen=True)
class SnapshotName:
    """`at`: an epoch, the name of a pin, or None for the newest."""

    store: str
    at: int | str | None = None

    def __str__(self) -> str:
        return self.store if self.at is None else f"{self.store}@{self.at}"


def parse_snapshot_name(text: str) -> SnapshotName:
    """Parses the name of a snapshot.

    >>> parse_snapshot_name("s3://bucket/clicks@7")
    SnapshotName(store='s3://bucket/clicks', at=7)
    >>> parse_snapshot_name("jobs/a@²").at  # a digit, but not a number
    '²'
    >>> parse_snapshot_name("s3://user@bucket/clicks"), parse_snapshot_name("jobs/a@before upgrade")
    (SnapshotName(store='s3://user@bucket/clicks', at=None), SnapshotName(store='jobs/a', at='before upgrade'))
    """
    match = _NAME.fullmatch(text.strip())
    if match is None or (match["at"] is not None and match["at"].isdecimal() and int(match["at"]) < 1):
        raise ConfigurationError(
            f"{text!r} names no snapshot. Use a job's store, STORE@EPOCH, STORE@SAVEPOINT or a savepoint's folder"
        )
    at = match["at"]
    return SnapshotName(match["store"], int(at) if at is not None and at.isdecimal() else at)


def check_savepoint_name(name: str) -> None:
    """Rejects a savepoint name that cannot be written as STORE@NAME, or is not valid for a folder.

    >>> check_savepoint_name("before upgrade")
    >>> check_savepoint_name("../elsewhere")
    Traceback (most recent call last):
    millstream.errors.ConfigurationError: '../elsewhere' cannot name a savepoint: it has a '/'. Use a short name \
without '/', '@' and '\\', such as 'before-upgrade'
    """
    problem = _problem_of(name)
    if problem is not None:
        raise ConfigurationError(
            f"{name!r} cannot name a savepoint: {problem}. Use a short name without '/', '@' and '\\', such as "
            "'before-upgrade'"
        )


def _problem_of(name: str) -> str | None:
    if not name.strip() or name != name.strip():
        return "it is empty, or begins or ends with a blank"
    mark = next((mark for mark in "/\\@" if mark in name), None)
    if mark is not None:
        return f"it has a {mark!r}"
    if not name.isprintable():
        return "it has characters that cannot be shown"
    if name.startswith("."):
        return "it begins with '.'"
    if name.isdecimal():
        return "it is a number, which means an epoch"
    return "it is too long" if len(name.encode()) > _NAME_BYTES_MAX else None
