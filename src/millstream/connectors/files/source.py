"""A source that reads files: those that exist at the start, or also new ones.

`discovery` decides which files to read and logs them before they are read; the format decides how to read them.
A static source reads only the files listed at the start of the job. A monitored source lists the folders again at an
interval; each new file is a new split.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.files.discovery import FileLog, check_paths
from millstream.connectors.files.formats import ByteFormat, FileFormat, RowCountedFormat, split_name
from millstream.connectors.files.places import InputFile, place_of
from millstream.connectors.splits_on_demand import SplitsOnDemand
from millstream.errors import ProgramError
from millstream.storage.store import Store

__all__ = ["FileSource", "RowFileSource", "file_source"]

_SPLIT_BYTES_MAX = 64 * 1024 * 1024
_SEARCH_S_MAX = 0.5


class FileSource(Source):
    """The records of the files at `paths` (folders are read recursively) in `format`.

    `discovery_interval_ms` None reads the files present at the start; a number also discovers new files.

    >>> from millstream.connectors.files.lines import TextLines
    >>> FileSource(["in"], TextLines(), discovery_interval_ms=1000).bounded
    False
    """

    sequential = True

    def __init__(
        self,
        paths: Sequence[str],
        format: FileFormat,
        discovery_interval_ms: int | None = None,
        split_bytes_max: int = _SPLIT_BYTES_MAX,
    ) -> None:
        if isinstance(paths, str):
            raise ProgramError(f"FileSource: paths is the text {paths!r}. Pass a list of paths.")
        if discovery_interval_ms is not None and discovery_interval_ms < 0:
            raise ProgramError(f"FileSource: discovery_interval_ms is {discovery_interval_ms}. Use 0 or more.")
        if split_bytes_max < 1:
            raise ProgramError(f"FileSource: split_bytes_max is {split_bytes_max}. Use at least 1.")
        self.paths = tuple(place_of(path) for path in paths)
        self.format = format
        self.discovery_interval_ms = discovery_interval_ms
        self.split_bytes_max = split_bytes_max
        self.bounded = discovery_interval_ms is None
        self.type_info = format.type_info
        self._log: FileLog | None = None
        self._discovered_ms: int | None = None
        self._splits: SplitsOnDemand[InputFile] | None = None
        self._search: Future[list[InputFile]] | None = None
        self._search_s = 0.0

    def opened(self, store: Store, session: Any) -> Source:
        log = FileLog(self.paths, store)
        if not log.has_started:
            # A resumed job already has its list of files; a missing file is an error when it is read.
            check_paths(self.paths, is_watched=not self.bounded)
        source = type(self)(self.paths, self.format, self.discovery_interval_ms, self.split_bytes_max)
        source._log = log
        return source

    def __getstate__(self) -> dict[str, Any]:
        # A task reads the splits it is assigned; the list of files stays on the driver.
        return {**self.__dict__, "_log": None, "_splits": None, "_search": None}

    def splits(self, context: SourceContext) -> Sequence[Split]:
        if self._log is None:
            check_paths(self.paths, is_watched=not self.bounded)
            self._log = FileLog(self.paths, None)
        self._discover(self._log, context.now_ms)
        if self._splits is None:
            self._splits = SplitsOnDemand(self._log.files, self._planned)
        return self._splits

    def _discover(self, log: FileLog, now_ms: int) -> None:
        """List new files if due. Slow listings run concurrently with epochs, from the second listing on."""
        if self._search is not None:
            if not self._search.done():
                return
            search, self._search = self._search, None
            log.add(search.result())
            self._discovered_ms = now_ms
        elif self._is_discovery_due(log, now_ms):
            self._discovered_ms = now_ms
            if self._search_s < _SEARCH_S_MAX:
                log.add(self._timed(log.unlisted_files))
            else:
                self._search = _in_background(partial(self._timed, log.unlisted_files))

    def _timed(self, list_new: Callable[[], list[InputFile]]) -> list[InputFile]:
        began_s = time.monotonic()
        files = list_new()
        self._search_s = max(time.monotonic() - began_s, 0.9 * self._search_s)
        return files

    def _planned(self, file: InputFile) -> Sequence[Split]:
        splits = self.format.plan(file, self.split_bytes_max) if file.size else ()
        # An empty file is listed too: its start is its end.
        return splits or (Split(split_name(file, 0), 0, {"path": file.path, "end": 0, "size": 0}),)

    def _is_discovery_due(self, log: FileLog, now_ms: int) -> bool:
        if self.discovery_interval_ms is None:
            return not log.has_started
        return self._discovered_ms is None or not 0 <= now_ms - self._discovered_ms < self.discovery_interval_ms

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        stop = self.format.reach(split, offset, budget)
        if context.record_bytes_max is None or not isinstance(self.format, ByteFormat) or not isinstance(stop, int):
            return stop
        # Here an offset is a byte position: the byte limit of the epoch is the limit of the range.
        return min(stop, offset + max(1, budget) * context.record_bytes_max)

    def finished(self, split: Split, offset: Offset) -> bool:
        return split.info["size"] == 0 or self.format.finished(split, offset)

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return (yield from self.format.read(split, start, _as_number(stop)))

    def describe(self) -> str:
        interval_ms = self.discovery_interval_ms
        again = "" if interval_ms is None else f", new ones every {interval_ms} ms"
        return f"{self.format.name} files in {', '.join(self.paths)}{again}"


class RowFileSource(FileSource):
    """A file source of a format whose offsets are row numbers: the byte limit of an epoch applies during the read."""

    format: RowCountedFormat

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        return (yield from self.format.read_within(split, start, _as_number(stop), bytes_max))


def _as_number(stop: Offset) -> Offset:
    """The end of a file is a special offset, `{"end": N}`. A replayed range up to it stops at N."""
    return stop["end"] if isinstance(stop, dict) else stop


def file_source(paths: Sequence[str], format: FileFormat, discovery_interval_ms: int | None = None) -> FileSource:
    """The file source for a format."""
    kind = RowFileSource if isinstance(format, RowCountedFormat) else FileSource
    return kind(paths, format, discovery_interval_ms)


def _in_background(call: Callable[[], list[InputFile]]) -> Future[list[InputFile]]:
    """The future result of `call`. The thread does not keep the process alive."""
    future: Future[list[InputFile]] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name="millstream-file-search").start()
    return future
