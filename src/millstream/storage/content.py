"""Length and CRC-32 of a file in a store. Local files are read in pieces."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from millstream.errors import StoreDamagedError
from millstream.storage.objects import ObjectStore
from millstream.storage.store import Store

__all__ = ["content_of", "pieces_of", "size_of"]

_PIECE_BYTES = 1 << 20


def content_of(store: Store, name: str, bytes_max: int | None = None) -> tuple[int, int]:
    """Length and checksum of a file. Of a file longer than `bytes_max`, only `bytes_max` + 1 bytes are read.

    >>> from millstream.storage.store import open_store
    >>> store = open_store("memory://doctest-content")
    >>> store.put("a", b"123456789")
    >>> content_of(store, "a")
    (9, 3421780262)
    """
    length = checksum = 0
    for piece in pieces_of(store, name, bytes_max):
        length, checksum = length + len(piece), zlib.crc32(piece, checksum)
    return length, checksum


def size_of(store: Store, name: str) -> int:
    """The length of a file, without reading it where the store supports that; 0 if it is absent."""
    try:
        path = store.local_path(name)
        if path is not None:
            return path.stat().st_size
        if isinstance(store, ObjectStore):
            facts = store.size_and_mark(name)
            return 0 if facts is None else facts[0]
        return len(store.get(name))
    except (FileNotFoundError, StoreDamagedError):
        return 0


def pieces_of(store: Store, name: str, bytes_max: int | None = None) -> Iterator[bytes]:
    """The bytes of a file in pieces; a remote file is one piece."""
    path = store.local_path(name)
    if path is None:
        yield store.get(name)
        return
    remaining_bytes = None if bytes_max is None else bytes_max + 1
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES if remaining_bytes is None else min(_PIECE_BYTES, remaining_bytes)):
                remaining_bytes = None if remaining_bytes is None else remaining_bytes - len(piece)
                yield piece
    except FileNotFoundError as error:
        raise StoreDamagedError(f"Store {store.url} has no file {name!r}, which was expected there.") from error
