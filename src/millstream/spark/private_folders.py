"""Private folders of a process, removed when the process ends, or later if it was killed.

**Shuffle files** are in memory if the system provides a memory file system. They live for one epoch and contain the
user's records. **Temporary files** of the driver's JVM contain the program that is sent to executors. A folder is
created with an unpredictable name, for this user only; entries created by others are neither used nor followed.

Spark removes its files when it ends, but not when it is killed. So a process locks its folder for its lifetime, and on
start removes the abandoned folders of this machine and user. The lock, not a process id, proves that the owner lives:
several machines or containers may share the file system, each with its own process ids.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

from millstream.storage.path_parts import safe

__all__ = ["SHUFFLE_PREFIX", "PrivateFolder", "fresh_folder", "fresh_shuffle_folder"]

SHUFFLE_PREFIX = "millstream-shuffle-"
_FREE_BYTES_MIN = 4 << 30
_TRIES = 10


class PrivateFolder:
    """A folder owned by this process until it is closed or the process ends."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self._lock = path, lock
        self._process = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        """Removes the folder; idempotent. A process forked from the owner does not remove it."""
        atexit.unregister(self.close)
        if self._lock >= 0 and os.getpid() == self._process:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def fresh_shuffle_folder(
    memory: Path = Path("/dev/shm"), host: str | None = None, free_bytes_min: int = _FREE_BYTES_MIN
) -> PrivateFolder | None:
    """Creates a folder in the memory file system; None if the system has none, or not enough space."""
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        return None
    return fresh_folder(SHUFFLE_PREFIX, memory, host, free_bytes_min)


def fresh_folder(prefix: str, parent: Path, host: str | None = None, free_bytes_min: int = 0) -> PrivateFolder | None:
    """Creates a folder of this process below `parent`, with a name prefix; None without enough space. First
    removes abandoned folders of this machine and user."""
    prefix = f"{prefix}{safe(host or socket.gethostname())}-"
    _remove_abandoned(parent, prefix)
    free = os.statvfs(parent)
    if free.f_bavail * free.f_frsize < free_bytes_min:
        return None
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = _lock_folder(path, fcntl.LOCK_EX)
        if lock is not None:
            return PrivateFolder(path, lock)
    return None


def _remove_abandoned(memory: Path, prefix: str) -> None:
    """Removes the folders of this machine and user that no process has locked."""
    for path in memory.glob(f"{prefix}*"):
        lock = _lock_folder(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock_folder(path: Path, mode: int) -> int | None:
    """Locks the folder at `path`; None if it is not ours, is not a folder, or is locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, mode)
        locked, current = os.fstat(descriptor), os.lstat(path)
        # Between its creation and the lock, another process may have removed the folder as abandoned.
        if (
            os.path.samestat(locked, current)
            and locked.st_uid == os.getuid()
            and not stat.S_IMODE(locked.st_mode) & 0o077
        ):
            return descriptor
    except OSError:
        pass  # locked by another process, or just removed
    os.close(descriptor)
    return None
