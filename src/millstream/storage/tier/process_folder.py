"""What of the tier belongs to one process: what it is writing, what it has open, what it has not yet sent.

    processes/{pid}-{token}/lock                    locked as long as the process lives
    processes/{pid}-{token}/new/{number}            being written; nobody else knows of it
    processes/{pid}-{token}/held/{number}           a second name of a file that is mapped: it is not removed for room
    processes/{pid}-{token}/unsent/{store}/{name}   whole, and not yet known to be in the store

The place of a file says what it is, and one `rename` brings it to the next: a process may be killed between any two
steps, and what it leaves is whole and in one of these places. The system lets go of the lock of a process that died.
Then another may take its folder: what was being written is removed, and what is unsent becomes the other's to send.
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

__all__ = ["PROCESSES", "UNSENT", "UNSENT_S_MAX", "ProcessFolder", "files_below", "folders_in", "taken_from_dead"]

PROCESSES, UNSENT = "processes", "unsent"
_NEW, _HELD, _LOCK, _HIDDEN = "new", "held", "lock", "."
_HALF_MADE_S = 3600.0
UNSENT_S_MAX = 7 * 86_400.0
"""How long a file of a process that died waits for one that sends it."""


class ProcessFolder:
    """The folder of this process in the tier `root`; made now, and locked until it is closed or the process ends."""

    def __init__(self, root: Path) -> None:
        self.path = root / PROCESSES / f"{os.getpid()}-{secrets.token_hex(6)}"
        self._numbers = itertools.count()
        # Under a name that is not looked at, until it is locked.
        hidden = root / PROCESSES / f"{_HIDDEN}{self.path.name}"
        for part in (_NEW, _HELD, UNSENT):
            (hidden / part).mkdir(0o700, parents=True)
        self._lock = os.open(hidden / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _LOCKS.add(self)
        os.rename(hidden, self.path)

    @contextmanager
    def new_file(self) -> Iterator[Path]:
        """A place to write a file, to be renamed or linked from there; gone on leaving."""
        path = self.path / _NEW / str(next(self._numbers))
        try:
            yield path
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def hold(self, path: Path) -> Path:
        """Another name of a file, by which it stays until `release`. FileNotFoundError if it is gone already."""
        held = self.path / _HELD / str(next(self._numbers))
        os.link(path, held)
        return held

    def release(self, held: Path) -> None:
        """The file is not open any more: it was used until now."""
        with suppress(OSError):
            os.utime(held)
            os.unlink(held)

    def unsent(self, store: str) -> Path:
        """Where files for a store lie that it does not have yet."""
        return self.path / UNSENT / store

    def close(self) -> None:
        """Leave the folder to others. Links to files that are still mapped are given up."""
        with suppress(OSError):
            os.close(self._lock)
        self._lock = -1
        _LOCKS.discard(self)

    def close_in_child(self) -> None:
        """A child that was forked must not keep the lock of its parent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


_LOCKS: weakref.WeakSet[ProcessFolder] = weakref.WeakSet()


def _forget_locks() -> None:
    for folder in list(_LOCKS):
        folder.close_in_child()


os.register_at_fork(after_in_child=_forget_locks)


@contextmanager
def taken_from_dead(root: Path) -> Iterator[list[Path]]:
    """The folders of processes that have died, locked for the time being, with nothing in them but what is unsent.
    Those with nothing at all are removed on leaving."""
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
                        os.utime(path)  # what it had open is used again first, if the job goes on here
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
    """All files in a folder and in those below it."""
    return [Path(place, file) for place, _, files in os.walk(folder) for file in files]


def _remove_older(unsent: list[Path]) -> None:
    """What nobody has sent for days belongs to a job that is gone."""
    for path in unsent:
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > UNSENT_S_MAX:
                os.unlink(path)


def _remove_whole(folder: Path) -> None:
    """Hidden first: a folder that is removed by halves has no lock, and nobody could tell that its process is dead."""
    hidden = folder.with_name(f"{_HIDDEN}{folder.name}")
    with suppress(OSError):
        os.rename(folder, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _remove_half_made(folder: Path) -> None:
    """Folders of processes that died before theirs had its name, or while they removed one."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_HIDDEN) and time.time() - (folder / name).stat().st_mtime > _HALF_MADE_S:
                shutil.rmtree(folder / name, ignore_errors=True)


def _lock_of_dead(folder: Path) -> int | None:
    try:
        # Made if it is not there: a process has it before its folder can be seen, but a power cut may lose it.
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None  # somebody else has just removed the folder
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
