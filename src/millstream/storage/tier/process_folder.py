"""The part of the tier that belongs to one process: files it writes, has open, or has not uploaded yet.

    processes/{pid}-{token}/lock                    locked as long as the process lives
    processes/{pid}-{token}/new/{number}            being written; no other process refers to it
    processes/{pid}-{token}/held/{number}           a second name of a mapped file, which prevents its eviction
    processes/{pid}-{token}/unsent/{store}/{name}   complete, and not yet known to be in the store

The folder of a file is its state, and a `rename` moves it to the next state: a process may be killed between any two
steps and leaves every file in one of these states. The system releases the lock of a process that died. Then another
process may take over its folder: it removes unfinished files and uploads the unsent ones.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
import shutil
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["PROCESSES", "UNSENT", "UNSENT_S_MAX", "ProcessFolder", "files_below", "folders_in", "folders_of_dead"]

PROCESSES, UNSENT = "processes", "unsent"
_NEW, _HELD, _LOCK, _HIDDEN = "new", "held", "lock", "."
_HALF_MADE_S = 3600.0
UNSENT_S_MAX = 7 * 86_400.0
"""How long an unsent file of a dead process is retained."""


class ProcessFolder:
    """This process's folder in the tier `root`; created now, and locked until it is closed or the process ends."""

    def __init__(self, root: Path) -> None:
        self.path = root / PROCESSES / f"{os.getpid()}-{secrets.token_hex(6)}"
        self._numbers = itertools.count()
        # Under a hidden name until it is locked.
        hidden = root / PROCESSES / f"{_HIDDEN}{self.path.name}"
        for part in (_NEW, _HELD, UNSENT):
            (hidden / part).mkdir(0o700, parents=True)
        self._lock = os.open(hidden / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _LOCKS.add(self)
        os.rename(hidden, self.path)

    @contextmanager
    def new_file(self) -> Iterator[Path]:
        """A path at which to write a file, to be renamed or linked from there; removed on exit."""
        path = self.path / _NEW / str(next(self._numbers))
        try:
            yield path
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def hold(self, path: Path) -> Path:
        """A second name that retains a file until `release`. FileNotFoundError if the file was removed."""
        held = self.path / _HELD / str(next(self._numbers))
        os.link(path, held)
        return held

    def release(self, held: Path) -> None:
        """Release a file that is no longer open; it counts as used until now."""
        with suppress(OSError):
            os.utime(held)
            os.unlink(held)

    def unsent(self, store: str) -> Path:
        """The folder of files to be uploaded to a store."""
        return self.path / UNSENT / store

    def close(self) -> None:
        """Release the folder to other processes. Links to files that are still mapped are dropped."""
        with suppress(OSError):
            os.close(self._lock)
        self._lock = -1
        _LOCKS.discard(self)

    def close_in_child(self) -> None:
        """Close the inherited lock in a forked child."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


_LOCKS: weakref.WeakSet[ProcessFolder] = weakref.WeakSet()


def _close_inherited_locks() -> None:
    for folder in list(_LOCKS):
        folder.close_in_child()


os.register_at_fork(after_in_child=_close_inherited_locks)


@contextmanager
def folders_of_dead(root: Path) -> Iterator[list[Path]]:
    """The folders of processes that have died, locked inside the context and reduced to unsent files. Empty ones are
    removed on exit."""
    locks: list[int] = []
    folders: list[Path] = []
    try:
        _remove_half_made(root / PROCESSES)
        for folder in folders_in(root):
            lock = _lock_of_dead(folder)
            if lock is not None:
                locks.append(lock)
                folders.append(folder)
                for path in (*files_below(folder / _NEW), *files_below(folder / _HELD)):
                    with suppress(OSError):
                        os.utime(path)  # files it had open are evicted last, in case the job continues on this machine
                        os.unlink(path)
        yield folders
        for folder in folders:
            _remove_older(files_below(folder / UNSENT))
            if not files_below(folder / UNSENT):
                _remove_whole(folder)
    finally:
        for lock in locks:
            os.close(lock)


def folders_in(root: Path) -> list[Path]:
    """The folders of all processes, alive or dead."""
    try:
        return [root / PROCESSES / name for name in os.listdir(root / PROCESSES) if not name.startswith(_HIDDEN)]
    except OSError:
        return []


def files_below(folder: Path) -> list[Path]:
    """All files in a folder and its subfolders."""
    return [Path(place, file) for place, _, files in os.walk(folder) for file in files]


def _remove_older(unsent: list[Path]) -> None:
    """Removes unsent files that are days old: their job no longer runs."""
    for path in unsent:
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > UNSENT_S_MAX:
                os.unlink(path)


def _remove_whole(folder: Path) -> None:
    """Removes a folder, hiding it first: a partly removed folder has no lock to show that its process is dead."""
    hidden = folder.with_name(f"{_HIDDEN}{folder.name}")
    with suppress(OSError):
        os.rename(folder, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _remove_half_made(folder: Path) -> None:
    """Removes the hidden folders of processes that died while creating or removing a folder."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_HIDDEN) and time.time() - (folder / name).stat().st_mtime > _HALF_MADE_S:
                shutil.rmtree(folder / name, ignore_errors=True)


def _lock_of_dead(folder: Path) -> int | None:
    try:
        # Created if absent: every visible folder has a lock, but a power cut may lose it.
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None  # another process has just removed the folder
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
