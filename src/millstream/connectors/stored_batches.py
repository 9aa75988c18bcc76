"""Input that is written to the job's store before it is read, batch by batch, so that it can be read again.

A batch is a folder of Parquet files and, once it is complete, a marker that lists them; a folder without its marker
does not exist. Batches are numbered from 0 by whoever writes them, and the same number is stored once however often
it is offered. What the job has read and committed may be removed; how far that has gone is written down before, so
that a batch offered once more after a crash is still known.

    input/{name}/batch-000000000000/…parquet
    input/{name}/markers/000000000000.json
    input/{name}/consumed.json
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Json, Offset, Read, Split
from millstream.connectors.files.parquet_rows import row_ranges
from millstream.connectors.foreign_columns import inward
from millstream.errors import ProgramError, StoreAwayError, StoreDamagedError, StoreError
from millstream.records.columns import stream_schema
from millstream.storage.away import is_away
from millstream.storage.content import content_of
from millstream.storage.names import safe
from millstream.storage.patient import patient
from millstream.storage.store import Store, open_store

__all__ = ["StoredBatches", "read_stored"]

_BATCH_RECORDS_MAX = 65_536


@dataclass(frozen=True)
class _StoredFile:
    file: str
    rows: int
    bytes: int | None = None  # batches of the first Millstreams tell neither
    crc32: int | None = None


class StoredBatches:
    """The batches of one input in a job's store. Written by one thread, read by another."""

    def __init__(self, store: Store, name: str, type_info: TypeInformation) -> None:
        self._store = store
        self._folder = f"input/{safe(name)}"
        self._type_text = str(type_info)
        self._changed = threading.Condition()
        self._batches: dict[int, tuple[_StoredFile, ...]] = {}
        self._finished: set[int] = set()
        self._closed = False
        consumed = f"{self._folder}/consumed.json"
        self._consumed_through: int = json.loads(store.get(consumed))["through"] if store.exists(consumed) else -1
        for marker in store.list(f"{self._folder}/markers"):
            number = int(marker.rpartition("/")[2].removesuffix(".json"))
            if number > self._consumed_through:
                self._batches[number] = self._read_marker(marker)
        # What a driver before this one stored may have been read already; its reader need not say so again.
        self._inherited = frozenset(self._batches)

    def folder(self, number: int) -> str:
        """Where the files of a batch are to be written."""
        return f"{self._folder}/batch-{number:012d}"

    def scratch(self, name: str) -> str:
        """A folder beside the batches for whoever writes them."""
        return f"{self._folder}/{name}"

    def has(self, number: int) -> bool:
        """Whether this batch is stored already, or was stored and read to its end."""
        with self._changed:
            return number <= self._consumed_through or number in self._batches

    def add(self, number: int) -> None:
        """The files of the batch are written: make them durable, list them, and let the job see them."""
        files = []
        for name in self._store.list(self.folder(number)):
            if name.endswith(".parquet") and not name.rpartition("/")[2].startswith((".", "_")):
                self._store.settle(name)
                with _opened(self._store, name) as file:
                    files.append(_StoredFile(name, file.metadata.num_rows, *content_of(self._store, name)))
        marker = {"type": self._type_text, "files": [asdict(file) for file in files]}
        self._store.put(self._marker(number), json.dumps(marker, indent=1).encode())
        with self._changed:
            self._batches[number] = tuple(files)

    def splits(self) -> list[Split]:
        """A split for each file that is not empty; its offset is the row number."""
        with self._changed:
            return [
                Split(f"{number:012d}-{at:05d}", 0, {"store": self._store.url, "file": file.file, "end": file.rows})
                for number, files in sorted(self._batches.items())
                for at, file in enumerate(files)
                if file.rows
            ]

    def committed(self, positions: Mapping[str, Offset], *, delete: bool) -> None:
        """A manifest holds these positions: batches read to their end make room, and may be deleted."""
        with self._changed:
            for number, files in self._batches.items():
                ends = {f"{number:012d}-{at:05d}": file.rows for at, file in enumerate(files) if file.rows}
                if all(positions.get(name, 0) >= end for name, end in ends.items()):
                    self._finished.add(number)
            through = self._consumed_through
            while through + 1 in self._finished:
                through += 1
            gone = {n: files for n, files in self._batches.items() if n <= through} if delete else {}
            self._changed.notify_all()
        if gone:
            self._forget(through, gone)

    def wait_for_room(self, unread_max: int) -> None:
        """Wait while `unread_max` batches are stored and not yet read. Raises when the input was closed meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._unread() < unread_max)
            if self._closed:
                raise InterruptedError("the job that reads this input has stopped")

    def _unread(self) -> int:
        return len(self._batches.keys() - self._finished - self._inherited)

    def close(self) -> None:
        """Nobody will read any more: let the writer go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _forget(self, through: int, gone: Mapping[int, Sequence[_StoredFile]]) -> None:
        # First say that these are done, then remove them: a batch offered again in between must not be stored again.
        self._store.put(f"{self._folder}/consumed.json", json.dumps({"through": through}).encode())
        with self._changed:
            self._consumed_through = through
            for number in gone:
                del self._batches[number]
                self._finished.discard(number)
        for number in gone:
            self._store.delete(self._marker(number))
            for name in self._store.list(self.folder(number)):
                self._store.delete(name)

    def _marker(self, number: int) -> str:
        return f"{self._folder}/markers/{number:012d}.json"

    def _read_marker(self, name: str) -> tuple[_StoredFile, ...]:
        try:
            marker: Json = json.loads(self._store.get(name))
            files = tuple(_StoredFile(**entry) for entry in marker["files"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamagedError(
                f"Store {self._store.url}: {name!r}, a list of stored input, is not readable ({error}). "
                f"Restore it from a copy."
            ) from error
        if marker["type"] != self._type_text:
            raise ProgramError(
                f"The DataFrame has the type {self._type_text}, and this job has stored input of type {marker['type']} "
                f"from it. Give the job a new store, or the DataFrame its former columns."
            )
        return files


def read_stored(split: Split, start: Offset, stop: Offset, type_info: TypeInformation) -> Read:
    """The rows [start, stop) of a stored file. Runs in a task."""
    schema = stream_schema(type_info)
    assert schema is not None
    name = split.info["file"]
    store = patient(open_store(split.info["store"]))
    with _opened(store, name) as file:
        for group, begin, end in row_ranges(file.metadata, start, stop):
            try:
                table = file.read_row_group(group, columns=schema.names).select(schema.names)
            except (pa.ArrowInvalid, OSError) as error:
                raise _damaged(store, name, error) from error
            for batch in table.slice(begin, end - begin).to_batches(max_chunksize=_BATCH_RECORDS_MAX):
                yield inward(batch, type_info, name)
    return stop


def _opened(store: Store, name: str) -> pq.ParquetFile:
    path = store.local_path(name)
    try:
        if path is None:
            return pq.ParquetFile(pa.BufferReader(store.get(name)), page_checksum_verification=True)
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(store, name, error) from error


def _damaged(store: Store, name: str, error: Exception) -> StoreError:
    if is_away(error):
        return StoreAwayError(f"Store {store.url}: stored input {name!r} cannot be read just now ({error}).")
    return StoreDamagedError(
        f"Store {store.url}: stored input {name!r} is missing or damaged ({error}). Restore it from a copy."
    )
