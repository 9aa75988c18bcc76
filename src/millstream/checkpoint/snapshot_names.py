"""How people name a snapshot: the store of a job and an epoch, or the folder of a savepoint.

jobs/clicks            the newest epoch that is published
jobs/clicks@1200       epoch 1200
jobs/clicks@before     the savepoint (or fork) of that name in the job's store
backups/clicks-sp      a folder that was written by `millstream savepoint --to`
s3://bucket/clicks@7
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.errors import ConfigurationError

__all__ = ["SnapshotName", "parse_snapshot_name"]

_NAME = re.compile(r"(?P<store>.+?)(@(?P<at>[^@/]+))?")


@dataclass(frozen=True)
class SnapshotName:
    """`at`: an epoch, the name of a pin, or None for the newest."""

    store: str
    at: int | str | None = None

    def __str__(self) -> str:
        return self.store if self.at is None else f"{self.store}@{self.at}"


def parse_snapshot_name(text: str) -> SnapshotName:
    """What `text` names.

    >>> parse_snapshot_name("s3://bucket/clicks@7")
    SnapshotName(store='s3://bucket/clicks', at=7)
    >>> parse_snapshot_name("s3://user@bucket/clicks"), parse_snapshot_name("jobs/a@before upgrade")
    (SnapshotName(store='s3://user@bucket/clicks', at=None), SnapshotName(store='jobs/a', at='before upgrade'))
    """
    found = _NAME.fullmatch(text.strip())
    if found is None or (found["at"] is not None and found["at"].isdigit() and int(found["at"]) < 1):
        raise ConfigurationError(
            f"{text!r} names no snapshot. Give a job's store, STORE@EPOCH, STORE@SAVEPOINT or a savepoint's folder"
        )
    at = found["at"]
    return SnapshotName(found["store"], int(at) if at is not None and at.isdigit() else at)
