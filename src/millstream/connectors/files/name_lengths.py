"""Checks the length of a file name against its file system before the epoch is committed.

A local folder, and most file systems, allow 255 bytes for each component of a path and 4,095 for the whole path; object
stores allow 1,024 for the whole key. Bytes are those of UTF-8, after escaping.
"""

from __future__ import annotations

from millstream.errors import ProgramError
from millstream.storage.store import is_object_address

__all__ = ["check_length"]

PART_BYTES_MAX, PATH_BYTES_MAX, KEY_BYTES_MAX = 255, 4_095, 1_024
_SHOWN = 20


def check_length(base_url: str, name: str, subject: str) -> None:
    """ProgramError for a file below `base_url` whose name exceeds the limit of its file system.

    >>> check_length("s3://bucket/out", "day=1/" + "x" * 300, "FileSink")
    >>> check_length("file:///out", "day=" + "x" * 300, "FileSink")
    Traceback (most recent call last):
    millstream.errors.ProgramError: FileSink: 'day=xxxxxxxxxxxxxxxx…' has 304 bytes as a path component, and at most \
255 are allowed there. Make a shorter name of such values before the sink
    """
    place, _, path = base_url.partition("://")
    if place == "memory":
        return
    if is_object_address(base_url):
        whole, most, what = f"{path.partition('/')[2].rstrip('/')}/{name}".lstrip("/"), KEY_BYTES_MAX, "a key"
    else:
        for part in name.split("/"):
            _check(part, PART_BYTES_MAX, "a path component", subject)
        whole, most, what = f"{path.rstrip('/')}/{name}", PATH_BYTES_MAX, "a path"
    _check(whole, most, what, subject)


def _check(text: str, most: int, what: str, subject: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > most:
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        raise ProgramError(
            f"{subject}: {shown!r} has {size} bytes as {what}, and at most {most} are allowed there. Make a shorter "
            f"name of such values before the sink"
        )
