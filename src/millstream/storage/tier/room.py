"""The size of the tier, and eviction when it is exceeded.

The total size is stored in one small file, updated under a lock by every process that adds or removes files. It is
updated before the files: a process that dies in between leaves it too high. So it is trusted only while it is below the
bound; beyond that, all files are counted again, and the least recently used ones are evicted until an eighth of the
bound is free. The time of last use is the mtime, which readers update. A disk that fills up lowers the bound: the tier
yields to other data. The count misses a file that another process is just writing, so the tier may exceed its bound by
one file per process.

Unsent files, and files that a process has open (they have a second link, see `process_folder`), are never evicted. If
these alone fill the tier, there is no room, and the caller proceeds without the tier.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millstream.storage.tier.process_folder import UNSENT, folders_in

__all__ = ["Room", "unsent_bytes"]

_SIZE = "size"
_RECOUNT_S = 1.0
_FREE_SHARE = 8
_LEFT_BYTES = 1 << 30


class Room:
    """The bytes of the tier `root`: `copies` is the folder from which files may be evicted."""

    def __init__(self, root: Path, copies: Path, bytes_max: int) -> None:
        self._root, self._copies, self._bytes_max = root, copies, bytes_max
        self._full_until_s = 0.0

    def claim(self, size: int) -> bool:
        """Reserve `size` bytes; False if there is no room for them."""
        if size > self._bytes_max or time.monotonic() < self._full_until_s:
            return False
        with self._locked() as file:
            total = _read(file)
            if total is None or total + size > self._bound(total):
                total = self._make_room(size)
            fits = total + size <= self._bound(total)
            _write(file, total + size if fits else total)
        if not fits:
            # All files are in use: counting again for every file would be slow.
            self._full_until_s = time.monotonic() + _RECOUNT_S
        return fits

    def release(self, size: int) -> None:
        """Release `size` bytes that were removed or not added."""
        with self._locked() as file:
            total = _read(file)
            if total is not None:
                _write(file, max(0, total - size))

    def _make_room(self, size: int) -> int:
        """Count all files, evict the least recently used ones if they are too many, and return the bytes left."""
        copies = sorted(_files(self._copies))
        total = sum(copy[1] for copy in copies) + unsent_bytes(self._root)
        bound = self._bound(total)
        if total + size <= bound:
            return total
        goal = bound - max(size, bound // _FREE_SHARE)
        for _, length, links, path in copies:
            if total <= goal:
                break
            if links == 1:
                with suppress(OSError):
                    os.unlink(path)
                    total -= length
        return total

    def _bound(self, total: int) -> int:
        """The bound if the tier holds `total`: it leaves a twentieth of the disk free, at most a gigabyte."""
        disk = os.statvfs(self._root)
        left_bytes = min(_LEFT_BYTES, disk.f_blocks * disk.f_frsize // 20)
        return min(self._bytes_max, total + disk.f_bavail * disk.f_frsize - left_bytes)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        file = os.open(self._root / _SIZE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def unsent_bytes(root: Path) -> int:
    """The bytes of unsent files of living and dead processes."""
    return sum(length for process in folders_in(root) for _, length, _, _ in _files(process / UNSENT))


def _files(folder: Path) -> Iterator[tuple[float, int, int, str]]:
    """All files below: time of last use, bytes, number of links, and path."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        else:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                yield status.st_mtime, status.st_size, status.st_nlink, entry.path


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _read(file: int) -> int | None:
    """The total; None if the file is empty or not a number."""
    text = os.pread(file, 32, 0)
    return int(text) if text.isdigit() else None


def _write(file: int, total: int) -> None:
    text = str(total).encode()
    os.pwrite(file, text, 0)
    os.ftruncate(file, len(text))
