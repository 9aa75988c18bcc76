"""Input that is written to the job's store before it is read, batch by batch, so that it can be read again.

A batch is a folder of Parquet files and, once it is complete, a marker that lists them; a folder without its marker
is ignored. The writer numbers batches, within a series that no other job has (`batch_series`), and a number is stored
only once, no matter how often it is offered. A batch that every retained epoch has read to its end may be removed. The
number of the last removed batch is recorded first, so that a batch offered again after a crash is recognised, and a job
that would continue from an earlier position is rejected.

    input/{name}/series.json
    input/{name}/batch-3f9a2c1b7d40-000000000000/…parquet
    input/{name}/markers/3f9a2c1b7d40-000000000000.json
    input/{name}/consumed.json
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.batch_series import (
    batch_folder,
    batch_of_split,
    consumed_through,
    marked_batches,
    marker_name,
    new_series,
    read_sealed,
    save_consumed,
    save_sealed,
    save_series,
    scratch_folder,
    series_of,
    split_name,
)
from millstream.connectors.contracts import Json, Offset, Read, Split
from millstream.connectors.files.parquet_rows import row_ranges
from millstream.connectors.foreign_columns import inward
from millstream.errors import ProgramError, StoreAwayError, StoreDamagedError, StoreError
from millstream.records.columns import stream_schema
from millstream.storage.content import content_of
from millstream.storage.patience import with_patience
from millstream.storage.store import Store, is_transient, open_store

__all__ = ["StoredBatches", "read_stored"]

_BATCH_RECORDS_MAX = 65_536


@dataclass(frozen=True)
class _StoredFile:
    file: str
    rows: int
    bytes: int | None = None  # missing in batches of the first versions
    crc32: int | None = None


@dataclass(frozen=True)
class _Batch:
    """A complete batch, and its store."""

    series: str
    number: int
    store: str
    files: tuple[_StoredFile, ...]

    def ends(self) -> dict[str, int]:
        """The non-empty splits, each with its number of rows."""
        return {split_name(self.series, self.number, at): f.rows for at, f in enumerate(self.files) if f.rows}

    def is_read(self, positions: Mapping[str, Offset]) -> bool:
        return all(positions.get(split, 0) >= end for split, end in self.ends().items())


class StoredBatches:
    """The batches of one input in a job's store. Written by one thread, read by another, released by a third.

    `series` is new if the input is opened in the store for the first time; `begin` then stores it once it is complete.
    """

    def __init__(self, store: Store, name: str, type_info: TypeInformation) -> None:
        self._store, self._name = store, name
        self._type_text = type_info.notation
        self._condition = threading.Condition()
        self._finished_numbers: set[int] = set()
        self._is_closed = False
        stored_series = series_of(store, name)
        self.is_new = stored_series is None
        self.series = new_series(store, name) if stored_series is None else stored_series
        self._consumed_through = consumed_through(store, name)
        self._is_checked = False
        self._batches: dict[int, _Batch] = {}  # numbers continue from series to series, so they are unique
        for past in self.series.inherits:
            self._load(open_store(past.store), past.series, past.through)
        self._load(store, self.series.series, None)
        # Batches stored by an earlier driver may have been read already; its reader need not report it again.
        self._earlier_numbers = frozenset(self._batches)

    def _load(self, store: Store, series: str, through: int | None) -> None:
        removed_through = consumed_through(store, self._name)
        for number in marked_batches(store, self._name, series):
            if number > removed_through and (through is None or number <= through):
                files = self._read_marker(store, marker_name(self._name, series, number))
                self._batches[number] = _Batch(series, number, store.url, files)

    def begin(self) -> None:
        """Store a new series, after everything it depends on."""
        if self.is_new:
            save_series(self._store, self._name, self.series)
            self.is_new = False

    def folder(self, number: int) -> str:
        """The folder for the files of a batch."""
        return batch_folder(self._name, self.series.series, number)

    def scratch(self, name: str) -> str:
        """A folder of this series for the writer, next to the batches."""
        return scratch_folder(self._name, self.series.series, name)

    def has(self, number: int) -> bool:
        """Whether this batch is stored, or was stored and read to its end."""
        with self._condition:
            return number <= max(self._consumed_through, self.series.inherited_through) or number in self._batches

    def add(self, number: int) -> None:
        """Add a batch whose files are written: make them durable, list them, and make them visible to the job."""
        files = []
        for name in self._store.list(self.folder(number)):
            if name.endswith(".parquet") and not name.rpartition("/")[2].startswith((".", "_")):
                self._store.settle(name)
                with _open_parquet(self._store, name) as file:
                    files.append(_StoredFile(name, file.metadata.num_rows, *content_of(self._store, name)))
        marker = {"type": self._type_text, "files": [asdict(file) for file in files]}
        series = self.series.series
        save_sealed(self._store, marker_name(self._name, series, number), marker)
        with self._condition:
            self._batches[number] = _Batch(series, number, self._store.url, tuple(files))

    def splits(self) -> list[Split]:
        """A split for each file that is not empty; its offset is the row number."""
        self._check_once({})  # no commit reported yet: the job is starting
        with self._condition:
            return [
                Split(split_name(batch.series, number, at), 0, {"store": batch.store, "file": f.file, "end": f.rows})
                for number, batch in sorted(self._batches.items())
                for at, f in enumerate(batch.files)
                if f.rows
            ]

    def committed(self, positions: Mapping[str, Offset]) -> None:
        """A manifest has these positions: batches read to their end no longer count as unread."""
        self._check_once(positions)
        with self._condition:
            self._finished_numbers |= {number for number, batch in self._batches.items() if batch.is_read(positions)}
            self._condition.notify_all()

    def _check_once(self, positions: Mapping[str, Offset]) -> None:
        if not self._is_checked:
            self._check(positions)
            self._is_checked = True

    def _check(self, positions: Mapping[str, Offset]) -> None:
        """Reject `positions` if a later batch was removed, or is not in this store."""
        batches = [batch for split in positions if (batch := batch_of_split(split)) is not None]
        foreign = sorted({series for series, _ in batches} - self.series.tokens)
        if foreign:
            raise StoreError(
                f"Store {self._store.url}: the job has read stored batches of DataFrame {self._name!r} (series "
                f"{foreign[0]!r}) that are neither in this store nor in one that the job started from: rows would be "
                f"missing or repeated. A savepoint in its own folder does not include the input of a DataFrame: start "
                f"from STORE@EPOCH of the job itself. Or start that input again: give its source another uid."
            )
        newest = max((number for _, number in batches), default=-1)
        # An input from before series existed does not retain the last batch, which would show this.
        if self.series.series and newest < self._consumed_through:
            raise StoreError(
                f"Store {self._store.url}: batches {newest + 1} to {self._consumed_through} of DataFrame "
                f"{self._name!r} are removed, because no retained epoch needed them, but the job would continue "
                f"before them. Start from a newer epoch, or start that input again: give its source another uid."
            )

    def released(self, retained_positions: Sequence[Mapping[str, Offset]]) -> None:
        """Remove batches read to their end in every retained epoch, which have the positions `retained_positions`.

        The newest such batch with rows stays: its splits show how far later manifests have read.
        """
        with self._condition:
            through = begin = max(self._consumed_through, self.series.inherited_through)
            number = through + 1
            while number in self._batches and all(
                self._batches[number].is_read(positions) for positions in retained_positions
            ):
                if self._batches[number].ends():
                    through = number - 1
                number += 1
        if retained_positions and through > begin:
            self._remove_through(through)

    def wait_for_room(self, unread_max: int) -> None:
        """Wait while `unread_max` batches are stored and not yet read. Raises if the input was closed since."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or self._unread() < unread_max)
            if self._is_closed:
                raise InterruptedError("the job that reads this input has stopped")

    def _unread(self) -> int:
        return len(self._batches.keys() - self._finished_numbers - self._earlier_numbers)

    def close(self) -> None:
        """The reader has stopped: end the wait of the writer."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def _remove_through(self, through: int) -> None:
        # First record their removal, then remove them: a batch offered again in between must not be stored again.
        save_consumed(self._store, self._name, through)
        with self._condition:
            self._consumed_through = through
            series = self.series.series
            removed = [n for n, batch in self._batches.items() if n <= through and batch.series == series]
            for number in removed:
                del self._batches[number]
                self._finished_numbers.discard(number)
        for number in removed:
            self._store.delete(marker_name(self._name, self.series.series, number))
            for name in self._store.list(self.folder(number)):
                self._store.delete(name)

    def _read_marker(self, store: Store, name: str) -> tuple[_StoredFile, ...]:
        marker: Json = read_sealed(store, name)
        try:
            files, type_text = tuple(_StoredFile(**entry) for entry in marker["files"]), marker["type"]
        except (KeyError, TypeError) as error:
            raise StoreDamagedError(
                f"Store {store.url}: {name!r}, a list of stored input, is not readable ({error}). "
                f"Restore it from a copy."
            ) from error
        if type_text != self._type_text:
            raise ProgramError(
                f"The DataFrame has the type {self._type_text}, but this job has stored input of type {type_text} "
                f"from it. Give the job a new store, or the DataFrame its former columns."
            )
        return files


def read_stored(split: Split, start: Offset, stop: Offset, type_info: TypeInformation) -> Read:
    """The rows [start, stop) of a stored file. Runs in a task."""
    schema = stream_schema(type_info)
    assert schema is not None
    name = split.info["file"]
    store = with_patience(open_store(split.info["store"]))
    with _open_parquet(store, name) as file:
        if file.metadata.num_rows != split.info["end"]:
            problem = f"it has {file.metadata.num_rows} rows, but {split.info['end']} were stored"
            raise _damage_error(store, name, ValueError(problem))
        for group, begin, end in row_ranges(file.metadata, start, stop):
            try:
                table = file.read_row_group(group, columns=schema.names).select(schema.names)
            except (pa.ArrowInvalid, OSError) as error:
                raise _damage_error(store, name, error) from error
            for batch in table.slice(begin, end - begin).to_batches(max_chunksize=_BATCH_RECORDS_MAX):
                yield inward(batch, type_info, name)
    return stop


def _open_parquet(store: Store, name: str) -> pq.ParquetFile:
    path = store.local_path(name)
    try:
        if path is None:
            return pq.ParquetFile(pa.BufferReader(store.get(name)), page_checksum_verification=True)
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damage_error(store, name, error) from error


def _damage_error(store: Store, name: str, error: Exception) -> StoreError:
    if is_transient(error):
        return StoreAwayError(f"Store {store.url}: stored input {name!r} cannot be read now ({error}).")
    return StoreDamagedError(
        f"Store {store.url}: stored input {name!r} is missing or damaged ({error}). Restore it from a copy."
    )
