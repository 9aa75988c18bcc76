"""A store in a folder of a local (or mounted) file system.

A file is written next to its destination under a temporary name, synced, and then named: by `rename` if it may replace
a file, by `link` if it must not. Both are atomic, so a name never refers to a partial file. The folder is synced last,
because on a local disk a name is not durable before its folder is.

The store's folder determines who may read the files. They are created with the user's umask; in a folder that only its
owner may enter (by `make_private`, or set manually) only the owner can read any file.

File systems without hard links are refused by `check_writable`: they lack an atomic create that never leaves a partial
file.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from millstream.errors import ConfigurationError, StoreAwayError, StoreDamagedError, StoreError, StoreFullError
from millstream.storage.path_parts import TEMPORARY, checked_name
from millstream.storage.store import Names, Store, is_transient, open_store

__all__ = ["UNFINISHED_MS", "LocalStore", "is_private", "make_private"]

UNFINISHED_MS = 1_800_000
"""No writer takes half an hour for one file: an older unnamed file was left by a writer that died."""

_PROBE = "probe-"
_OTHERS = 0o077
# Folders with durable names, including those of their ancestors, by inode: a folder that was removed and created again
# is a different one.
_DURABLE_FOLDERS: set[tuple[str, int]] = set()
_DURABLE_FOLDERS_MAX = 16_384
_FOLDER_ATTEMPTS = 20
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # a dangling or cyclic link is not a file
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class LocalStore:
    """Files in a folder, each written whole and synced before its name appears.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = LocalStore(Path(folder))
    ...     store.create("manifests/1.json", b"{}"), store.create("manifests/1.json", b"late"), store.list("manifests")
    (True, False, ['manifests/1.json'])
    """

    def __init__(self, folder: Path, *, fsync: bool = True) -> None:
        self._root = Path(os.path.abspath(folder))
        self._fsync = fsync
        self._private: bool | None = None  # unknown before the folder exists

    @property
    def is_private(self) -> bool:
        """Whether only the owner of its folder may enter the store."""
        if self._private is None:
            try:
                self._private = not stat.S_IMODE(self._root.stat().st_mode) & _OTHERS
            except OSError:
                return False
        return self._private

    def make_private(self) -> None:
        """Restrict the store to this user from now on; StoreError if another user owns the folder."""
        with self._explain_errors("."):
            self._make_folder(self._root)
            os.chmod(self._root, 0o700)
        self._private = True

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def __repr__(self) -> str:
        return f"LocalStore({str(self._root)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.url, self._fsync))

    def put(self, name: str, data: bytes) -> None:
        path = self._root / checked_name(name)
        with self._explain_errors(name), self._temporary(path, (data,)) as temporary:
            os.rename(temporary, path)
            self._sync_folder(path.parent)

    def create(self, name: str, data: bytes) -> bool:
        return self.create_of(name, (data,))

    def create_of(self, name: str, pieces: Iterable[bytes]) -> bool:
        """`create` from concatenated pieces, so that a large file need not be held in memory whole. If the iterator
        raises, `name` does not exist."""
        path = self._root / checked_name(name)
        with self._explain_errors(name), self._temporary(path, pieces) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise StoreError(_no_links(self._root, error)) from error
                raise
            self._sync_folder(path.parent)
            return True

    def get(self, name: str) -> bytes:
        return self._read(name, 0, -1)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._read(name, start, stop - start)

    def _read(self, name: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` on; -1 for all."""
        path = self._root / checked_name(name)
        try:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError as error:
            if error.errno in (*_NOT_THERE, errno.EISDIR):
                raise self._missing_error(name) from error
            raise _kind(error)(f"Store {self._root}: {name!r} cannot be read: {error.strerror}.") from error

    def exists(self, name: str) -> bool:
        path = self._root / checked_name(name)
        with self._explain_errors(name):
            try:
                return stat.S_ISREG(path.stat().st_mode)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
                return False

    def list(self, prefix: str) -> Names:
        folder = prefix.rstrip("/")
        top = self._root / checked_name(folder) if folder else self._root
        names: Names = []
        for place, folders, files in os.walk(top, onerror=self._raise_unlistable):
            folders[:] = [name for name in folders if not name.startswith(TEMPORARY)]
            within = Path(place).relative_to(self._root).as_posix()
            stem = "" if within == "." else within + "/"
            names.extend(stem + name for name in files if not name.startswith(TEMPORARY))
        return sorted(names)

    def list_after(self, folder: str, after: str) -> Names:
        try:
            files = os.listdir(self._root / checked_name(folder))
        except OSError as error:
            self._raise_unlistable(error)
            return []
        last = after.removeprefix(f"{folder}/")
        # No stat per entry: callers never list folders whose names match.
        return [f"{folder}/{file}" for file in sorted(file for file in files if file > last and file[0] != ".")]

    def delete(self, name: str) -> None:
        # Not synced: if a power failure undoes a deletion, the next retention pass repeats it.
        with self._explain_errors(name), suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._root / checked_name(name))

    def delete_many(self, names: Sequence[str]) -> None:
        for name in names:
            self.delete(name)

    def modified_ms(self, name: str) -> int:
        path = self._root / checked_name(name)
        with self._explain_errors(name):
            try:
                return path.stat().st_mtime_ns // 1_000_000
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
                raise self._missing_error(name) from error

    def place(self, name: str) -> Path:
        """The path of `name`, whether or not it exists; creates nothing."""
        return self._root / checked_name(name)

    def local_path(self, name: str) -> Path | None:
        path = self.place(name)
        with self._explain_errors(name):
            self._make_folder(path.parent)
        return path

    def settle(self, name: str) -> None:
        """Finish a file written in place: set the store's permissions, and make it durable."""
        path = self._root / checked_name(name)
        with self._explain_errors(name):
            if self.is_private:
                os.chmod(path, 0o600)
        self.sync(name)

    def write_at(self, name: str, start: int, piece: bytes | memoryview) -> None:
        """Write a piece of a file at its offset. The file has its name from the first piece on, so only its writer may
        know the name before it is settled. Writing a piece again is idempotent."""
        path = self._root / checked_name(name)
        with self._explain_errors(name):
            # Only the first piece creates the file: after a concurrent removal, later pieces must not recreate it.
            descriptor = self._opened(path, 0 if start else os.O_CREAT)
            try:
                os.lseek(descriptor, start, os.SEEK_SET)
                while piece:
                    piece = memoryview(piece)[os.write(descriptor, piece) :]
            finally:
                os.close(descriptor)

    def sync(self, name: str) -> None:
        """Make another process's file durable without changing it: sync the file, its folder and, once per process,
        every ancestor folder up to the store's root. The creator of a folder may have died before its name was
        durable."""
        path = self._root / checked_name(name)
        with self._explain_errors(name):
            if self._fsync:
                self._sync_in_place(path)
            self._sync_folder(path.parent)
            identity = (str(path.parent), os.stat(path.parent).st_ino)
            if identity not in _DURABLE_FOLDERS:
                for folder in path.parent.parents:
                    if folder.is_relative_to(self._root):
                        self._sync_folder(folder)
                if len(_DURABLE_FOLDERS) >= _DURABLE_FOLDERS_MAX:
                    _DURABLE_FOLDERS.clear()
                _DURABLE_FOLDERS.add(identity)

    def _sync_in_place(self, path: Path) -> None:
        """`_sync` for a file that already has its name. A failure is final: after a failed fsync the kernel drops the
        dirty pages and reports success the next time. So this never raises StoreAwayError: the file must be written
        again, under another name."""
        try:
            _sync(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            name = path.relative_to(self._root).as_posix()
            raise StoreError(_reason(self._root, name, error)) from error

    def check_writable(self) -> None:
        probe = f"{_PROBE}{secrets.token_hex(8)}"
        try:
            self.create(probe, b"Millstream checks that it may write here. This file can be removed.\n")
        finally:
            with suppress(OSError):
                os.unlink(self._root / probe)

    def remove_unfinished(self, before_ms: int) -> None:
        for place, _, files in os.walk(self._root):
            is_root = place == str(self._root)
            _remove_older(place, [name for name in files if _is_unfinished(name, is_root)], before_ms)

    def remove_unfinished_siblings(self, name: str) -> None:
        """Remove old unfinished files of dead writers from the folder of `name`."""
        path = self._root / checked_name(name)
        with suppress(OSError):  # retried with the next name
            before_ms = path.stat().st_mtime_ns // 1_000_000 - UNFINISHED_MS
            _remove_older(path.parent, [file for file in os.listdir(path.parent) if _is_unfinished(file)], before_ms)

    def _missing_error(self, name: str) -> StoreDamagedError:
        return StoreDamagedError(
            f"Store {self._root} has no file {name!r}, which was expected there. "
            f"Look whether {self._root / name} was moved or removed by hand, and put it back."
        )

    @contextmanager
    def _temporary(self, path: Path, pieces: Iterable[bytes]) -> Iterator[Path]:
        """A synced file next to `path` with `pieces` as content; always removed on exit."""
        temporary = path.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            with open(self._opened(temporary, os.O_CREAT | os.O_EXCL), "wb") as file:
                file.writelines(pieces)
                file.flush()
                if self._fsync:
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(temporary)

    def _opened(self, path: Path, flags: int) -> int:
        """A file opened for writing, in a folder that is created if absent. While the folder is empty, another process
        may remove it (such as a sink that checks its write permission), so creation is retried a few times."""
        for attempt in range(_FOLDER_ATTEMPTS):
            try:
                self._make_folder(path.parent)
                return os.open(path, os.O_WRONLY | flags, 0o600 if self.is_private else 0o666)
            except FileNotFoundError:
                if attempt == _FOLDER_ATTEMPTS - 1:
                    raise
        raise AssertionError("every attempt returns or raises")

    def _make_folder(self, folder: Path) -> None:
        """Create `folder` and its missing ancestors, each name synced in its parent."""
        if folder.is_dir():
            return
        missing = [folder, *folder.parents]
        missing = missing[: next(i for i, place in enumerate(missing) if place.is_dir())]
        for place in reversed(missing):
            inside = place.is_relative_to(self._root)
            try:
                place.mkdir(0o700 if inside and self.is_private else 0o777)
            except FileExistsError:
                # Another process created it, and may have removed it since, which is detected when a file is opened in
                # it.
                with suppress(FileNotFoundError):
                    if not stat.S_ISDIR(os.stat(place).st_mode):
                        raise
            self._sync_folder(place.parent)

    def _sync_folder(self, folder: Path) -> None:
        # Windows cannot open a folder and need not: there a rename is durable by itself.
        if self._fsync and os.name != "nt":
            _sync(folder)

    @contextmanager
    def _explain_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _kind(error)(_reason(self._root, name, error)) from error

    def _raise_unlistable(self, error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise _kind(error)(_reason(self._root, str(error.filename), error)) from error


def _is_unfinished(name: str, is_root: bool = False) -> bool:
    return name.startswith(TEMPORARY) or (is_root and name.startswith(_PROBE))


def _remove_older(folder: str | Path, names: Iterable[str], before_ms: int) -> None:
    for name in names:
        path = os.path.join(folder, name)
        with suppress(OSError):  # its writer has finished it, or the next pass retries
            if os.stat(path).st_mtime * 1000 < before_ms:
                os.unlink(path)


def is_private(store: Store) -> bool:
    """Whether the store is a folder that only its owner may enter."""
    opened_store = open_store(store.url)
    return isinstance(opened_store, LocalStore) and opened_store.is_private


def make_private(store: Store) -> None:
    """Restrict the folder of `store` to its owner; ConfigurationError if the store is not a folder."""
    if not isinstance(store, LocalStore):
        raise ConfigurationError(
            f"store {store.url} is not a folder, so it cannot be made private here. "
            "The service decides who may read it: set the rights of the bucket, and leave millstream.store.private out"
        )
    store.make_private()


def _reopen(url: str, fsync: bool) -> Store:
    return open_store(url, fsync=fsync)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _kind(error: OSError) -> type[StoreError]:
    if error.errno in _DISK_FULL:
        return StoreFullError
    return StoreAwayError if is_transient(error) else StoreError


def _no_links(root: Path, error: OSError) -> str:
    return (
        f"Store {root} is on a file system without hard links ({error.strerror}), so two drivers could both commit. "
        f"Give a --store on a local disk or in an object store."
    )


def _reason(root: Path, name: str, error: OSError) -> str:
    """The operating system's refusal, and the user's next step."""
    reason = error.strerror or str(error)
    if error.errno in _DISK_FULL:
        return (
            f"Store {root}: disk full while writing {name!r} ({reason}). Nothing was left half-written. "
            f"Free some space or give another --store, then start the job again."
        )
    if isinstance(error, IsADirectoryError):
        return f"Store {root}: a folder is in the place of {name!r}. Check its content, and remove it."
    if isinstance(error, (NotADirectoryError, FileExistsError)):
        return f"Store {root} is not a folder: a file is at that path or above it ({reason}). Give a folder as --store."
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return (
            f"Store {root} is not writable: {reason} at {name!r}. "
            f"Give a --store this user may write, or change the folder's permissions."
        )
    return f"Store {root}: {name!r} cannot be written: {reason}. Check the disk, or give another --store."
