"""Folders of one process for files that only its user may read, removed when the process ends or has been killed.

**Shuffle files** are in memory where the system offers a memory file system. They live for one epoch and hold the
user's records. **Temporary files** of the driver's JVM hold the program that is sent to executors. A folder is made
under a name that cannot be guessed, for this user alone; what somebody else made is neither used nor followed, whatever
it is called.

Spark removes its files when it ends, but not when it is killed. So a process locks its folder as long as it lives, and
first removes what processes of this machine and user have left. The lock says who lives, and never a process's number:
several machines or containers may share the file system, and each counts its processes for itself.
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
    """A folder that is this process's until it is closed, or the process ends."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self._lock = path, lock
        self._process = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        """Remove the folder; closing again changes nothing. A process that was forked from its owner leaves it."""
        atexit.unregister(self.close)
        if self._lock >= 0 and os.getpid() == self._process:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def fresh_shuffle_folder(
    memory: Path = Path("/dev/shm"), host: str | None = None, free_bytes_min: int = _FREE_BYTES_MIN
) -> PrivateFolder | None:
    """A folder of this process in the memory file system; None where there is none, or not enough room in it."""
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        return None
    return fresh_folder(SHUFFLE_PREFIX, memory, host, free_bytes_min)


def fresh_folder(prefix: str, parent: Path, host: str | None = None, free_bytes_min: int = 0) -> PrivateFolder | None:
    """A folder of this process below `parent`, whose name begins with `prefix`; None where there is not enough room.
    Folders that processes of this machine and user left behind are removed first."""
    prefix = f"{prefix}{safe(host or socket.gethostname())}-"
    _remove_abandoned(parent, prefix)
    free = os.statvfs(parent)
    if free.f_bavail * free.f_frsize < free_bytes_min:
        return None
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = _locked(path, fcntl.LOCK_EX)
        if lock is not None:
            return PrivateFolder(path, lock)
    return None


def _remove_abandoned(memory: Path, prefix: str) -> None:
    """Remove the folders of this machine and user that no process holds."""
    for path in memory.glob(f"{prefix}*"):
        lock = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _locked(path: Path, how: int) -> int | None:
    """A lock on the folder that `path` names then and now; None when it is not ours, is no folder, or is locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, how)
        locked, current = os.fstat(descriptor), os.lstat(path)
        # Between making a folder and locking it somebody may have taken it for abandoned, and removed it.
        if (
            os.path.samestat(locked, current)
            and locked.st_uid == os.getuid()
            and not stat.S_IMODE(locked.st_mode) & 0o077
        ):
            return descriptor
    except OSError:
        pass  # somebody holds it, or it has just gone
    os.close(descriptor)
    return None
