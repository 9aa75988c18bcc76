"""The segments a process has open: each file is mapped once, and checked once.

Segments never change, so a mapping may be held for any length of time. Files of a local store are mapped in place.
A file of a remote store is downloaded once into `cache_folder` and mapped there. `keep_only` closes the segments that
no version names any more: a mapping holds the disk space of a file that was deleted.

Some files cannot be mapped: those of a remote store where there is no `cache_folder`, and all files where `maps` is
False, because a process must not die of a file that was cut (`segment_file`). Their parts are held in memory, up to a
bound for the whole process (`segment_memory`), and read or downloaded again when they are needed again.

A downloaded file is named after the store and the file, so that two jobs can share a folder. It is a copy that may be
deleted while no process runs. Files in the folder are trusted, so a folder that others can write to is refused.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from millstream.errors import StoreAwayError, StoreDamagedError, StoreError
from millstream.state.schemas.stored_layout import stored_layout
from millstream.state.segments.segment import HeldSegment, Segment
from millstream.state.segments.segment_file import (
    WHOLE_BYTES_MAX,
    DownloadedFile,
    RangedFile,
    ReadFile,
    SegmentFile,
    WholeFile,
    mapped_file,
)
from millstream.state.segments.segment_memory import SegmentMemory
from millstream.state.segments.version import SegmentRef
from millstream.state.tables.layout import TableLayout
from millstream.storage.store import Store, is_transient

__all__ = ["OpenSegments"]

_OF_THIS_PROCESS = SegmentMemory()


class OpenSegments:
    """Opens the segments of one store, and remembers them.

    >>> from millstream.storage import open_store
    >>> OpenSegments(open_store("memory://doctest-open-segments")).open_files
    []
    """

    def __init__(
        self,
        store: Store,
        cache_folder: Path | None = None,
        *,
        maps: bool = True,
        is_foreign: bool = False,
        memory: SegmentMemory = _OF_THIS_PROCESS,
    ) -> None:
        self.store, self._is_foreign = store, is_foreign
        self._cache_folder, self._maps, self._memory = cache_folder, maps, memory
        self._open: dict[tuple[str, TableLayout], Segment] = {}
        self.read_ns = 0  # the time that views of these segments have spent looking rows up, for statistics

    @property
    def open_files(self) -> list[str]:
        """The files open now."""
        return sorted({file for file, _ in self._open})

    def segment(self, ref: SegmentRef, layout: TableLayout) -> Segment:
        """The segment a ref names; StoreDamagedError if it is missing or damaged."""
        segment = self._open.get((ref.file, layout))
        if segment is None:
            file = self._file(ref, layout.state)
            if isinstance(file, WholeFile):
                segment = Segment.of_file(file, layout, ref)
            else:
                segment = HeldSegment.of_file(file, layout, ref).in_memory(self._memory)
            segment.is_foreign = self._is_foreign
            self._open[ref.file, layout] = segment
        return segment

    def stored_layout(self, ref: SegmentRef, state: str) -> TableLayout:
        """The layout that a segment was written with, from the file itself."""
        return stored_layout(self._file(ref, state), _subject(ref, state))

    def keep_only(self, refs: Iterable[SegmentRef], layout: TableLayout) -> None:
        """Close the segments of this table that `refs` do not name."""
        live_files = {ref.file for ref in refs}
        for file, table in list(self._open):
            # A state's schema may have changed since: then its segments were opened anew, with another layout.
            if table.state != layout.state or (file in live_files and table == layout):
                continue
            del self._open[file, table]
            if file not in live_files and self._cache_folder is not None and self.store.local_path(file) is None:
                with suppress(OSError):
                    os.unlink(self._cache_path(file))

    def _file(self, ref: SegmentRef, state: str) -> SegmentFile:
        path = self.store.local_path(ref.file)
        if path is None and self._cache_folder is None:
            return self._remote(ref, state)
        if path is None:
            path = self._cache_path(ref.file)
            # A copy of the wrong size was cut by a full disk; the checksums find what this does not.
            if not path.is_file() or path.stat().st_size != ref.file_bytes:
                _write_whole(path, self._download(ref, state))
        try:
            return mapped_file(path) if self._maps else ReadFile(path, _subject(ref, state))
        except FileNotFoundError as error:
            raise _missing_error(ref, state) from error
        except (OSError, pa.ArrowException) as error:
            raise (StoreAwayError if is_transient(error) else StoreDamagedError)(
                f"{_subject(ref, state)} cannot be opened: {error}. "
                "Restore the file from a copy, or start the job from an older epoch."
            ) from error

    def _remote(self, ref: SegmentRef, state: str) -> SegmentFile:
        subject = _subject(ref, state)
        if ref.file_bytes <= WHOLE_BYTES_MAX:
            return DownloadedFile(lambda: self._download(ref, state), ref.file_bytes, subject)

        def fetch(start: int, stop: int) -> bytes:
            try:
                return self.store.get_range(ref.file, start, stop)
            except StoreDamagedError as error:
                raise _missing_error(ref, state) from error

        return RangedFile(fetch, ref.file_bytes, subject)

    def _download(self, ref: SegmentRef, state: str) -> bytes:
        try:
            return self.store.get(ref.file)
        except StoreDamagedError as error:
            raise _missing_error(ref, state) from error

    def _cache_path(self, file: str) -> Path:
        assert self._cache_folder is not None
        _make_private(self._cache_folder)
        digest = hashlib.sha256(f"{self.store.url}\0{file}".encode()).hexdigest()[:40]
        return self._cache_folder / f"{digest}.arrow"


def _write_whole(path: Path, data: bytes) -> None:
    """Write beside and rename, so that another process never maps half a file. Not synced: it is a copy."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _make_private(folder: Path) -> None:
    """Make the folder if it is not there; refuse one where others could have put files, which we would trust."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
        raise StoreError(
            f"cache folder {folder} can be written by others than this user, who could put wrong state there. Give one "
            f"of your own, or: chmod go-w {folder}"
        )


def _subject(ref: SegmentRef, state: str) -> str:
    return f"State {state!r}, epoch {ref.epoch}: segment {ref.file}"


def _missing_error(ref: SegmentRef, state: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{_subject(ref, state)} is missing, though the manifest names it. "
        "Look whether it was moved or removed by hand and put it back, or start the job from an older epoch."
    )
