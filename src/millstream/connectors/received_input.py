"""Input that is received on the driver and cannot be requested again: it is written to the job's store and read from
there.

A thread on the driver receives records in order and writes them to the store in **chunks**. A stored record has a
permanent number and is processed exactly once; the job reads ranges of numbers. What happens to records that had
arrived but were not stored when the driver crashed depends on the sender: a socket loses them, a queue redelivers
unacknowledged ones.

    {folder}/{first number}-{count}      a chunk: the records numbered first … first + count - 1

A job that was forked, or restored elsewhere, reads the earlier records in the store of its original job. The
newest chunk is never removed, so its name defines where the numbering continues.

    {folder}/receiver                    the name of the latest receiver

Two drivers of one job may receive at the same time, until a commit of one of them fails. Both would assign the same
numbers to different records. So a receiver first writes its name to this file, and then reads the newest number. After
storing a chunk, and before acknowledging it, a receiver checks that it is still the latest: if not, it stops. Its chunk
counts if the other receiver has seen it; otherwise both may have used the same numbers. So a replaced receiver, for its
last chunk, and a new one, for its first, look for a chunk with overlapping numbers, and remove their own if one exists:
at least one of the two always sees the other.

While the job's store is unavailable nothing can be stored: the receiver waits, and with it the sender. Any other
failure of a receiver is raised once. If the job runs again after that, another receiver replaces it.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.errors import (
    FencedError,
    JobFailedError,
    MillstreamError,
    NotAvailableError,
    StoreAwayError,
    StoreDamagedError,
)
from millstream.storage.layered_stores import LayeredStore
from millstream.storage.store import Store, open_store

__all__ = ["ReceivedSource", "Receiver", "newest_chunks"]

_LOG = logging.getLogger(__name__)
_CHUNK = re.compile(r"\d{18,}-\d+")
_STORE_PAUSE_S = 1.0
_UNREAD_MAX = 2_000_000
"""Maximum number of unread records in the store: a slow job makes its sender wait instead of filling its disk."""


class Receiver(threading.Thread):
    """Stores records as they arrive. `stored` counts those that the job may read.

    It starts after the job has reported its position: no record receives a number that was used before.
    """

    retained_chunks = 1
    """How many of the newest chunks stay after they were read: the name of the last one continues the numbering."""

    def __init__(self, name: str, store: Store, bases: tuple[Store, ...], folder: str) -> None:
        super().__init__(name=f"millstream-{name}", daemon=True)
        self._store, self._folder = store, folder
        self._owner_name, self._name_bytes = f"{folder}/receiver", secrets.token_hex(16).encode()
        self._is_new = True
        self.stop_requested = threading.Event()
        self._read_to = 0
        self._failure: Exception | None = None
        self.has_failed = self.has_ended = False
        chunks = next((names for holder in (store, *bases) if (names := _chunks(holder, folder))), [])
        self.stored = max((sum(_span(name)) for name in chunks), default=0)

    @abstractmethod
    def receive(self) -> None:
        """Receive records and call `keep`, until the input ends or `stop_requested` is set."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection. Called once, at the end, also if nothing was received."""

    def keep(self, data: bytes, count: int) -> None:
        """Make `count` records durable as one chunk and readable by the job; waits for an unavailable store.
        FencedError if another receiver has started since: the records must not be acknowledged."""
        is_repeated = False
        while True:
            try:
                self._append(data, count, is_repeated)
                return
            except StoreAwayError as error:
                if not is_repeated:
                    _LOG.warning("nothing is received until the store answers: %s", error.message)
                is_repeated = True
                if self.stop_requested.wait(_STORE_PAUSE_S):
                    raise

    def _append(self, data: bytes, count: int, is_repeated: bool) -> None:
        name, end = f"{self._folder}/{self.stored:018d}-{count}", self.stored + count
        # A write without a response may have succeeded: then the same bytes are stored there.
        is_created = self._store.create(name, data) or (is_repeated and self._store.get(name) == data)
        is_last = self._store.get(self._owner_name) == self._name_bytes
        if is_created and (self._is_new or not is_last) and self._overlaps(name, end):
            self._store.delete(name)
            is_created = False
        if not is_created or not is_last:
            raise FencedError(
                f"Store {self._store.url}: the same input is received by another driver of the job, or by another "
                f"source of its program, so no more is received here from record {self.stored} on. Nothing is lost. "
                "Stop one of them, and restart the other if it has stopped too"
            )
        self.stored, self._is_new = end, False

    def _overlaps(self, name: str, end: int) -> bool:
        """Whether another chunk has overlapping numbers."""
        spans = (_span(other) for other in _chunks(self._store, self._folder) if other != name)
        return any(first < end and first + length > self.stored for first, length in spans)

    def replace(self, other: Receiver) -> None:
        """Continue after another receiver that has failed."""
        self.resume_from(other._read_to)

    def resume_from(self, position: int) -> None:
        """The job has read the records before `position`, perhaps from another store."""
        self._read_to = position
        if self.ident is None:
            self.stored = max(self.stored, position)

    @property
    def has_room(self) -> bool:
        """Whether the job keeps up. If not, a receiver applies backpressure to its sender if it can."""
        return self.stored - self._read_to < _UNREAD_MAX

    def start_receiving(self) -> None:
        if self.ident is None:
            self._store.put(self._owner_name, self._name_bytes)
            # Listed once more: chunks that another receiver has stored until now count.
            ends = (sum(_span(name)) for name in _chunks(self._store, self._folder))
            self.stored = max(self.stored, *ends, 0)
            self.take_over()
            self.start()

    def take_over(self) -> None:
        """Called when this receiver has become the latest one: read the stored chunks, if that matters."""

    def run(self) -> None:
        try:
            self.receive()
        except Exception as error:
            self._failure = error
        finally:
            self.disconnect()
            self.has_ended = True

    def stop(self) -> None:
        self.stop_requested.set()
        if self.ident is None:
            self.disconnect()
        else:
            self.join(timeout=10)

    def raise_failure(self, subject: str) -> None:
        """Raise the failure, if any; after that `has_failed` is set."""
        self.has_failed = self._failure is not None
        if isinstance(self._failure, MillstreamError):
            raise self._failure
        if self._failure is not None:
            raise JobFailedError(
                f"{subject}: the input could not be received or stored: {self._failure}."
            ) from self._failure

    def remove_before(self, offset: int) -> None:
        """Remove the chunks before `offset`, except for the newest `retained_chunks`."""
        for name in _chunks(self._store, self._folder)[: -self.retained_chunks]:
            if sum(_span(name)) <= offset:
                self._store.delete(name)


class ReceivedSource(Source):
    """A source of one split, whose records a `Receiver` stores. Subclasses define how they arrive and their format.

    `subject` names it in errors; `split_name` is the split's permanent name.
    """

    replayable = False
    single = True
    split_name = "received"

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._receiver: Receiver | None = None
        self._receives_into: tuple[Store, tuple[Store, ...]] | None = None
        self._stores: list[str] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None, "_receives_into": None}

    @property
    @abstractmethod
    def subject(self) -> str:
        """The sender of the records, for display."""

    @abstractmethod
    def copied(self) -> ReceivedSource:
        """A copy with the same settings, to be opened."""

    @abstractmethod
    def connected(self, store: Store, bases: tuple[Store, ...], folder: str) -> Receiver:
        """A connected receiver, which stores into `folder`."""

    @abstractmethod
    def records_of(self, data: bytes, count: int) -> list[Any]:
        """The records of a chunk; raises ValueError if it is damaged."""

    def opened(self, store: Store, session: Any) -> Source:
        source = self.copied()
        bases = store.bases if isinstance(store, LayeredStore) else ()
        source._stores = [store.url, *(base.url for base in bases)]
        source._receives_into = store, bases
        source._receiver = self.connected(store, bases, self._folder)
        return source

    def reopened(self, store: Store, session: Any) -> Source:
        raise NotAvailableError(
            f"{type(self).__name__}: input from {self.subject} is stored only while an epoch needs it to continue, "
            f"so an "
            "epoch that read it cannot be replayed. Run the job with millstream.record on: then its input is stored "
            "with its epochs"
        )

    def splits(self, context: SourceContext) -> Sequence[Split]:
        if self._receiver is not None:
            if self._receiver.has_failed and self._receives_into is not None:
                receiver = self.connected(*self._receives_into, self._folder)
                receiver.replace(self._receiver)
                self._receiver = receiver
            self._receiver.start_receiving()
        return (Split(self.split_name, 0, {"stores": self._stores, "folder": self._folder}),)

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        assert self._receiver is not None, "the source is not opened"
        self._check_receiver()
        return max(offset, min(offset + budget, self._receiver.stored))

    def _check_receiver(self) -> None:
        """Raises if the input ended because of a failure: it is then not complete."""
        if self._receiver is not None:
            self._receiver.raise_failure(f"{type(self).__name__}, {self.subject}")

    def finished(self, split: Split, offset: Offset) -> bool:
        self._check_receiver()
        return self._receiver is not None and self._receiver.has_ended and bool(offset >= self._receiver.stored)

    def complete(self, context: SourceContext) -> bool:
        self._check_receiver()
        return self._receiver is not None and self._receiver.has_ended

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        stores = [open_store(url) for url in split.info["stores"]]
        chunks = [(store, name, *_span(name)) for store in stores for name in _chunks(store, split.info["folder"])]
        while start < stop:
            matching_chunks = [chunk for chunk in chunks if chunk[2] <= start < chunk[2] + chunk[3]]
            if not matching_chunks:
                raise StoreDamagedError(
                    f"{type(self).__name__}: record {start} from {self.subject} is no longer in {stores[0].url}, "
                    "nor in a store that the job started from. Restore the files from a copy, or use a newer epoch."
                )
            store, name, first, count = matching_chunks[0]
            records = self._records(store, name, count)[start - first : min(count, stop - first)]
            yield from self.items_of(records, start)
            start = first + count
        return stop

    def items_of(self, records: list[Any], first: int) -> Iterable[Any]:
        """The items that `read` yields for some records, the first with the number `first`. Default: the list
        itself."""
        return (records,)

    def _records(self, store: Store, name: str, count: int) -> list[Any]:
        try:
            return self.records_of(store.get(name), count)
        except ValueError as error:
            raise StoreDamagedError(
                f"Store {store.url}: {name!r} is damaged ({error}). Restore it from a copy."
            ) from error

    def committed(self, positions: dict[str, Offset]) -> None:
        if self._receiver is not None:
            self._receiver.resume_from(positions.get(self.split_name, 0))

    def released(self, retained_positions: Sequence[dict[str, Offset]]) -> None:
        if self._receiver is not None:
            offsets = (positions.get(self.split_name, 0) for positions in retained_positions)
            self._receiver.remove_before(min(offsets, default=0))

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.stop()


def newest_chunks(stores: Sequence[Store], folder: str, records_min: int) -> Iterator[tuple[bytes, int]]:
    """The newest chunks of the first store that has any, newest first, until they hold `records_min` records: the bytes
    and the record count of each."""
    holder = next((store for store in stores if _chunks(store, folder)), None)
    for name in reversed(_chunks(holder, folder)) if holder is not None else ():
        if records_min <= 0:
            return
        assert holder is not None
        yield holder.get(name), _span(name)[1]
        records_min -= _span(name)[1]


def _chunks(store: Store, folder: str) -> list[str]:
    """The chunks in a store, in order, without unrelated files."""
    return [name for name in store.list(folder) if _CHUNK.fullmatch(name.rpartition("/")[2])]


def _span(name: str) -> tuple[int, int]:
    """The number of the first record of a chunk, and its record count."""
    first, _, count = name.rpartition("/")[2].partition("-")
    return int(first), int(count)
