"""The syntax of names in a store.

A user's string (an operator's uid, the name of a pin) may contain any character; `safe` converts it to a path part that
every file system and object store accepts, reversibly unless it is long. Every store passes each name to
`checked_name`, which rejects names that lead out of the store.
"""

from __future__ import annotations

import hashlib

from millstream.errors import StoreDamagedError

__all__ = ["TEMPORARY", "OutsideStoreError", "checked_name", "safe"]

TEMPORARY = ".tmp-"
"""Prefix of path parts that are being written. Nothing refers to them yet, and they may be removed."""

_SAFE_PART_CHARS_MAX = 120


def safe(text: str) -> str:
    """`text` as one path part: letters, digits, '_' and '-' stay, every other byte becomes '=XX'.

    Long strings are shortened to their start and a hash, since file systems limit names to 255 bytes.

    >>> safe("my sink.2")
    'my=20sink=2E2'
    """
    part = "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "_-") else f"={byte:02X}"
        for byte in text.encode("utf-8", "surrogatepass")
    )
    if not part:
        return "="
    if len(part) <= _SAFE_PART_CHARS_MAX:
        return part
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return f"{part[: _SAFE_PART_CHARS_MAX - 26]}=={digest}"


class OutsideStoreError(StoreDamagedError, ValueError):
    """A name that leads out of its store. We never write these names: the file that contains one is damaged."""


def checked_name(name: str) -> str:
    """`name` itself when it is relative and stays inside the store; OutsideStoreError otherwise.

    >>> checked_name("manifests/1.json")
    'manifests/1.json'
    >>> checked_name("../job.json")
    Traceback (most recent call last):
    millstream.storage.path_parts.OutsideStoreError: '../job.json' is not a name inside a store: parts are separated \
by '/', and are not '.', '..' or empty
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in parts):
        raise OutsideStoreError(
            f"{name!r} is not a name inside a store: parts are separated by '/', and are not '.', '..' or empty"
        )
    if parts[-1].startswith(TEMPORARY):
        raise OutsideStoreError(f"{name!r} is not a name inside a store: {TEMPORARY!r} marks files still being written")
    return name
