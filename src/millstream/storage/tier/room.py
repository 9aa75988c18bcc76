"""How many bytes the tier holds, and what leaves when there are too many.

The sum of all files stands in one small file, changed under a lock by whoever adds or removes some, in any process. It
is a sum of intentions: a process that dies between the two leaves it too high. So it is only believed while it is below
the bound; beyond it, everything is counted anew, and the files that were used least recently go, until an eighth of the
bound is free. When a file was used last is its time of change, which readers set. A disk that fills up lowers the
bound: the tier gives way to others. A file that another process is just writing is not counted anew: the tier may pass
its bound by one file per process.

Never removed for room: what is unsent, and what a process has open (it has a second link, see `process_folder`). If
that alone fills the tier, there is no room, and the caller does without.
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
    """The bytes of the tier `root`: `copies` is the folder from which files may be removed."""

    def __init__(self, root: Path, copies: Path, bytes_max: int) -> None:
        self._root, self._copies, self._bytes_max = root, copies, bytes_max
        self._full_until_s = 0.0

    def claim(self, size: int) -> bool:
        """So many bytes are about to be added; False if there is no room for them."""
        if size > self._bytes_max or time.monotonic() < self._full_until_s:
            return False
        with self._locked() as file:
            total = _read(file)
            if total is None or total + size > self._bound(total):
                total = self._make_room(size)
            fits = total + size <= self._bound(total)
            _write(file, total + size if fits else total)
        if not fits:
            # All there is, is in use: to count it again for every file would be slow.
            self._full_until_s = time.monotonic() + _RECOUNT_S
        return fits

    def give_back(self, size: int) -> None:
        """So many bytes are removed, or were not added after all."""
        with self._locked() as file:
            total = _read(file)
            if total is not None:
                _write(file, max(0, total - size))

    def _make_room(self, size: int) -> int:
        """Count everything, and remove what was used least recently if that is too much; the bytes that are left."""
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
        """How much there may be, if `total` is there: a twentieth of the disk is left to others, a gigabyte at most."""
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
    """All that no store has yet, of living and dead processes."""
    return sum(length for process in folders_in(root) for _, length, _, _ in _files(process / UNSENT))


def _files(folder: Path) -> Iterator[tuple[float, int, int, str]]:
    """All files below: when each was used last, its bytes, its links, its path."""
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
    """The sum; None if nobody has counted, or what stands there is no number."""
    text = os.pread(file, 32, 0)
    return int(text) if text.isdigit() else None


def _write(file: int, total: int) -> None:
    text = str(total).encode()
    os.pwrite(file, text, 0)
    os.ftruncate(file, len(text))
