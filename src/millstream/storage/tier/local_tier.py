"""The local tier: a folder of a machine that caches files of object stores, shared by all processes of one user.

    tier.json                                   the version of this layout
    size                                        the total number of bytes (`room`)
    processes/…                                 files of one process (`process_folder`)
    stores/{store}/files/{name}                 a copy of a file in the store
    stores/{store}/parts/{name}/{start}-{stop}  a copy of a part of one

`{store}` is a digest of the store's address. All files are sealed (`sealed_files`) and never change. A copy may be
removed at any time, by another process that needs space or manually. A process that has it open can still read it.

A write that the disk refuses (full, read only) is not an error: the file is not cached, which is logged once, and the
caller uses the store. Only a folder that other users can write to is rejected, because its files are trusted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from millstream.errors import StoreError
from millstream.storage.names import STAGED
from millstream.storage.path_parts import checked_name
from millstream.storage.tier.process_folder import (
    UNSENT,
    ProcessFolder,
    files_below,
    folders_in,
    folders_of_dead,
)
from millstream.storage.tier.room import Room, unsent_bytes
from millstream.storage.tier.sealed_files import (
    TRAILER_BYTES,
    DamagedCopyError,
    content_length,
    read_content,
    write_sealed,
)

__all__ = ["FORMAT", "LocalTier", "TierAbsentError", "UnsentFile"]

FORMAT = 1
"""The version of the layout. A folder of a newer version is not used."""

_LOG = logging.getLogger(__name__)
_STORES, _FILES, _PARTS = "stores", "files", "parts"
_USE_S = 1.0


class TierAbsentError(Exception):
    """The folder has no tier, and one cannot be created; the message has the reason."""


@dataclass(frozen=True)
class UnsentFile:
    """A file that is not in its store yet."""

    name: str
    path: Path
    length: int


class LocalTier:
    """The tier in `folder`, as used by one process. `TierAbsentError` if it cannot be created; StoreError if other
    users can write to it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tier = LocalTier(Path(folder), bytes_max=1 << 20)
    ...     tier.keep("s3://b/job", "segments/a", b"abc"), tier.read("s3://b/job", "segments/a")
    (True, b'abc')
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.folder, self.bytes_max = folder, bytes_max
        try:
            _make_private(folder)
            _check_format(folder)
            self._process = ProcessFolder(folder)
        except OSError as error:
            raise TierAbsentError(f"{error.strerror or error}") from error
        self._room = Room(folder, folder / _STORES, bytes_max)
        self._reported_reasons: set[str] = set()

    def __repr__(self) -> str:
        return f"LocalTier({str(self.folder)!r}, {self.bytes_max})"

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, store_url: str, name: str) -> bytes | None:
        """The content of a cached whole file; None if it is absent or damaged."""
        path = self._find(store_url, name)
        return None if path is None else self._read(path)

    def read_part(self, store_url: str, name: str, start: int, stop: int) -> bytes | None:
        """A part of a file, from `keep_part` or from the whole file; None if it is not cached."""
        data = self._read(self._part(store_url, name, start, stop))
        if data is not None:
            return data
        whole = self.read(store_url, name)
        return None if whole is None else whole[start:stop]

    def hold(self, store_url: str, name: str, length: int) -> Path | None:
        """A path for mapping the whole file, which starts with its content, until `release`; None if not cached."""
        path = self._find(store_url, name)
        if path is None:
            return None
        try:
            held = self._process.hold(path)
        except OSError:
            return None
        try:
            actual_length = content_length(held)
            if actual_length != length:
                raise DamagedCopyError(f"it has {actual_length} bytes, expected {length}")
        except (OSError, DamagedCopyError) as error:
            self._process.release(held)
            self._drop(path, error)
            return None
        _touch(held)
        return held

    def has(self, store_url: str, name: str) -> bool:
        """Whether the whole file is cached."""
        return self._find(store_url, name) is not None

    def release(self, held: Path) -> None:
        """Release a file that is no longer mapped."""
        self._process.release(held)

    def _find(self, store_url: str, name: str) -> Path | None:
        """The path of the whole file: a copy, or a file that has not been uploaded yet."""
        copy = self._copy(store_url, name)
        if copy.exists():
            return copy
        return self._find_unsent(store_url, name) or (copy if copy.exists() else None)

    def _find_unsent(self, store_url: str, name: str) -> Path | None:
        within = Path(UNSENT, _digest(store_url), checked_name(name))
        if (own := self._process.path / within).exists():
            return own
        return next((path for folder in folders_in(self.folder) if (path := folder / within).exists()), None)

    def _read(self, path: Path) -> bytes | None:
        try:
            content = read_content(path)
        except OSError:
            return None
        except DamagedCopyError as error:
            self._drop(path, error)
            return None
        _touch(path)
        return content

    def is_unsent(self, store_url: str, name: str) -> bool:
        """Whether the file is cached, and not yet known to be in its store."""
        return self._find_unsent(store_url, name) is not None

    # --- writing ------------------------------------------------------------------------------------------------

    def keep(self, store_url: str, name: str, data: bytes) -> bool:
        """Cache a copy of a file in the store; False if that is not possible."""
        return self._place(self._copy(store_url, name), data)

    def keep_part(self, store_url: str, name: str, start: int, data: bytes) -> bool:
        """Cache a copy of a part of a file."""
        return self._place(self._part(store_url, name, start, start + len(data)), data)

    def keep_unsent(self, store_url: str, name: str, data: bytes) -> UnsentFile | None:
        """Store a new file for upload; None if that is not possible. It is not removed before `sent`."""
        path = self._process.unsent(_digest(store_url)) / checked_name(name)
        return UnsentFile(name, path, len(data)) if self._place(path, data) else None

    def _place(self, path: Path, data: bytes) -> bool:
        size = len(data) + TRAILER_BYTES
        try:
            if not self._room.claim(size):
                return False
            try:
                with self._process.new_file() as new:
                    write_sealed(new, data)
                    os.makedirs(path.parent, 0o700, exist_ok=True)
                    with suppress(FileExistsError):  # another process placed it first
                        os.link(new, path)
                        return True
                    self._room.release(size)
            except BaseException:
                self._room.release(size)
                raise
        except OSError as error:
            self._warn_once(error)
            return False
        return True

    def discard(self, store_url: str, name: str) -> None:
        """Remove the copies of a file and of its parts. Unsent files are retained."""
        for path in (self._copy(store_url, name), *files_below(self._parts(store_url, name))):
            self._remove(path)

    def _drop(self, path: Path, error: Exception) -> None:
        """Remove a damaged copy. An unsent file is the only copy, so it is left for its uploader to report."""
        if path.is_relative_to(self.folder / _STORES):
            _LOG.warning("%s is damaged: %s. It is removed here, and fetched from the store again", path, error)
            self._remove(path)

    def _remove(self, path: Path) -> None:
        with suppress(OSError):
            size = path.stat().st_size
            os.unlink(path)
            self._room.release(size)

    # --- uploads ------------------------------------------------------------------------------------------------

    def unsent(self, store_url: str) -> list[UnsentFile]:
        """The files of this process that are not known to be in the store."""
        return _unsent_in(self._process.unsent(_digest(store_url)))

    def unsent_names(self, store_url: str) -> set[str]:
        """The files of all processes of the machine that are not in the store yet."""
        digest = _digest(store_url)
        return {file.name for folder in folders_in(self.folder) for file in _unsent_in(folder / UNSENT / digest)}

    def unsent_bytes(self) -> int:
        """The bytes of unsent files of all processes of the machine, alive or dead."""
        return unsent_bytes(self.folder)

    def sent(self, store_url: str, file: UnsentFile) -> None:
        """Turn a file that was uploaded into a copy. Staged output is removed instead: no task reads it again."""
        if file.name.startswith(f"{STAGED}/"):
            self._remove(file.path)
            return
        copy = self._copy(store_url, file.name)
        try:
            os.makedirs(copy.parent, 0o700, exist_ok=True)
            os.rename(file.path, copy)
        except OSError:
            self._remove(file.path)

    def withdraw(self, store_url: str, name: str) -> None:
        """Remove an unsent file of this process."""
        self._remove(self._process.unsent(_digest(store_url)) / checked_name(name))

    def lost(self, file: UnsentFile, reason: Exception, *, is_adopted: bool) -> None:
        """Report an unsent file that can no longer be read and will never reach its store."""
        if is_adopted:
            _LOG.warning(
                "%s was left by a process that ended, and cannot be read: %s. It is removed: what a committed epoch "
                "needs is in the store, and an epoch that is not committed is run again",
                file.path,
                reason,
            )
        else:
            _LOG.error("%s was not sent to the store and is lost: %s", file.path, reason)
        self._remove(file.path)

    def adopt(self, store_url: str) -> list[UnsentFile]:
        """Take over the unsent files of dead processes for this store; returns the files."""
        digest = _digest(store_url)
        adopted = []
        with folders_of_dead(self.folder) as folders:
            for folder in folders:
                for file in _unsent_in(folder / UNSENT / digest):
                    path = self._process.unsent(digest) / file.name
                    with suppress(OSError):  # it remains, and is adopted later
                        os.makedirs(path.parent, 0o700, exist_ok=True)
                        os.rename(file.path, path)
                        adopted.append(replace(file, path=path))
        return adopted

    def close(self) -> None:
        """Close the tier; unsent files are left to other processes."""
        self._process.close()

    def _copy(self, store_url: str, name: str) -> Path:
        return self.folder / _STORES / _digest(store_url) / _FILES / checked_name(name)

    def _parts(self, store_url: str, name: str) -> Path:
        return self.folder / _STORES / _digest(store_url) / _PARTS / checked_name(name)

    def _part(self, store_url: str, name: str, start: int, stop: int) -> Path:
        return self._parts(store_url, name) / f"{start}-{stop}"

    def _warn_once(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        if reason not in self._reported_reasons:
            self._reported_reasons.add(reason)
            _LOG.warning(
                "nothing more is cached in the local tier %s: %s. The job continues with the store alone; free some "
                "space, or set millstream.tier.folder to another folder",
                self.folder,
                reason,
            )


def _digest(store_url: str) -> str:
    return hashlib.sha256(store_url.encode()).hexdigest()[:32]


def _touch(path: Path) -> None:
    """Record that the file is in use, for eviction; at most once a second."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _USE_S:
            os.utime(path)


def _unsent_in(folder: Path) -> list[UnsentFile]:
    unsent_files = []
    for path in sorted(files_below(folder)):
        with suppress(OSError):
            length = max(0, path.stat().st_size - TRAILER_BYTES)  # a power cut may truncate files
            unsent_files.append(UnsentFile(path.relative_to(folder).as_posix(), path, length))
    return unsent_files


def _make_private(folder: Path) -> None:
    """Create the folder if absent; reject a folder in which other users could create files, since files are trusted."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    # Another user's link could lead to any folder of this user.
    if {folder.lstat().st_uid, status.st_uid} != {os.getuid()} or stat.S_IMODE(status.st_mode) & 0o022:
        raise StoreError(
            f"cache folder {folder} can be written by others than this user, who could put wrong state there. Set a "
            f"folder of your own (millstream.tier.folder), or: chmod go-w {folder}"
        )


def _check_format(folder: Path) -> None:
    path = folder / "tier.json"
    content = path.read_bytes() if path.exists() else None
    if content is None or not content.strip(b"\0"):  # empty or zeros after a power cut
        new = folder / f".tier-{os.getpid()}-{time.monotonic_ns()}"
        new.write_text(json.dumps({"format": FORMAT}))
        with suppress(FileExistsError):
            (os.link if content is None else os.replace)(new, path)
        new.unlink(missing_ok=True)
    try:
        layout_format = json.loads(path.read_text())["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise TierAbsentError(f"its {path.name} cannot be read. Remove the folder while no job runs") from error
    if layout_format != FORMAT:
        raise TierAbsentError(f"it was made by another Millstream (format {layout_format!r}, this one knows {FORMAT})")
