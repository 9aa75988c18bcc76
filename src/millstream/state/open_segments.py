"""The segments a process has open: each file is mapped once, and checked once.

Segments never change, so a mapping may be kept as long as anybody likes. From a local store files are mapped
in place. From a remote store a file is downloaded once into `cache_folder` and mapped there; without such a
folder it is held in memory. `keep_only` lets go of what no version names any more: a mapping keeps a deleted
file's space on disk.

A downloaded file is named after the store and the file, so that two jobs can share a folder; it is a copy that
anybody may delete while no process runs.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from millstream.errors import StoreAwayError, StoreDamagedError
from millstream.state.layout import TableLayout
from millstream.state.segment import Segment
from millstream.state.stored_layout import stored_layout
from millstream.state.version import SegmentRef
from millstream.storage.away import is_away
from millstream.storage.store import Store

__all__ = ["OpenSegments"]


class OpenSegments:
    """Opens the segments of one store, and remembers them.

    >>> from millstream.storage import open_store
    >>> OpenSegments(open_store("memory://doctest-open-segments")).open_files
    []
    """

    def __init__(self, store: Store, cache_folder: Path | None = None) -> None:
        self.store = store
        self._cache_folder = cache_folder
        self._open: dict[tuple[str, TableLayout], Segment] = {}
        self.read_ns = 0  # the time that views of these segments have spent looking rows up, for statistics

    @property
    def open_files(self) -> list[str]:
        """The files open now."""
        return sorted({file for file, _ in self._open})

    def segment(self, ref: SegmentRef, layout: TableLayout) -> Segment:
        """The segment a ref names; StoreDamagedError if it is missing or damaged."""
        found = self._open.get((ref.file, layout))
        if found is None:
            found = Segment.of_file(self._bytes(ref, layout.state), layout, ref)
            self._open[ref.file, layout] = found
        return found

    def stored_layout(self, ref: SegmentRef, state: str) -> TableLayout:
        """The layout that a segment was written with, as the file itself tells it."""
        return stored_layout(self._bytes(ref, state), f"State {state!r}, epoch {ref.epoch}: segment {ref.file}")

    def keep_only(self, refs: Iterable[SegmentRef], layout: TableLayout) -> None:
        """Let go of the segments of this table that `refs` do not name."""
        named = {ref.file for ref in refs}
        for file, table in list(self._open):
            # A state's schema may have changed since: then its segments were opened anew, with another layout.
            if table.state != layout.state or (file in named and table == layout):
                continue
            del self._open[file, table]
            if file not in named and self._cache_folder is not None and self.store.local_path(file) is None:
                with suppress(OSError):
                    os.unlink(self._cached(file))

    def _bytes(self, ref: SegmentRef, state: str) -> pa.Buffer:
        path = self.store.local_path(ref.file)
        if path is None and self._cache_folder is None:
            return pa.py_buffer(self._downloaded(ref, state))
        if path is None:
            path = self._cached(ref.file)
            # A copy of the wrong size was cut by a full disk; the checksums find what this does not.
            if not path.is_file() or path.stat().st_size != ref.file_bytes:
                _write_whole(path, self._downloaded(ref, state))
        try:
            with pa.memory_map(str(path)) as source:
                return source.read_buffer()
        except FileNotFoundError as error:
            raise _missing(ref, state) from error
        except (OSError, pa.ArrowException) as error:
            raise (StoreAwayError if is_away(error) else StoreDamagedError)(
                f"State {state!r}, epoch {ref.epoch}: segment {ref.file} cannot be opened: {error}. "
                "Restore the file from a copy, or start the job from an older epoch."
            ) from error

    def _downloaded(self, ref: SegmentRef, state: str) -> bytes:
        try:
            return self.store.get(ref.file)
        except StoreDamagedError as error:
            raise _missing(ref, state) from error

    def _cached(self, file: str) -> Path:
        assert self._cache_folder is not None
        digest = hashlib.sha256(f"{self.store.url}\0{file}".encode()).hexdigest()[:40]
        return self._cache_folder / f"{digest}.arrow"


def _write_whole(path: Path, data: bytes) -> None:
    """Write beside and rename, so that another process never maps half a file. Not synced: it is a copy."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _missing(ref: SegmentRef, state: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"State {state!r}, epoch {ref.epoch}: segment {ref.file} is missing, though the manifest names it. "
        "Look whether it was moved or removed by hand and put it back, or start the job from an older epoch."
    )
