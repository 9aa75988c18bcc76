"""Reads a range of a slot in a task: the same rows every time, even if the connection is lost within it.

The reading process caches its connection between epochs. If it breaks within a range, the range is read again from
its start on a new one, and rows already emitted are skipped: the same range always returns the same rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.contracts import Offset, Read
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.column_types import typed_batch
from millstream.connectors.databases.dialect import Timeouts
from millstream.connectors.databases.patience import DatabaseUnavailableError, Patience
from millstream.connectors.databases.pgoutput import ChangeDecoder, LoggedTable, LogRows
from millstream.connectors.databases.postgres_session import connect, refusal
from millstream.connectors.databases.slots import Slot, messages, slot_for
from millstream.errors import MillstreamError, ProgramError
from millstream.records.columns import KIND_COLUMN

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["ChangeReader", "cached_connection"]

_BATCH_ROWS = 8_192
_PAUSE_S = 0.2
_ROW_TAGS = b"IUD"


@dataclass(frozen=True)
class ChangeReader:
    """Reads ranges of `slot` as rows of `type_info`. `subject` is the prefix of its messages."""

    address: DatabaseAddress
    slot: Slot
    table: LoggedTable
    type_info: RowTypeInfo
    subject: str
    patience: Patience
    timeouts: Timeouts

    def read(self, start: int, stop: int, bytes_max: int | None = None) -> Read:
        """The rows of the transactions in [start, stop), or of as many of the first as have about `bytes_max` bytes."""
        emitted_rows = 0
        deadline_s = self.patience.monotonic() + self.patience.total_s
        while True:
            passed_over = emitted_rows
            try:
                with cached_connection(self.address, self.timeouts) as connection:
                    slot, _ = slot_for(connection, self.slot, start, self.subject)
                    reading = _Reading(ChangeDecoder(self.table, start, stop), bytes_max)
                    for rows in reading.pieces(messages(connection, slot, start, stop, self.timeouts.transaction_s)):
                        fresh = rows.after(passed_over)
                        passed_over = max(0, passed_over - len(rows.kinds))
                        if fresh.kinds:
                            yield self._batch(fresh)
                            emitted_rows += len(fresh.kinds)
                            deadline_s = self.patience.monotonic() + self.patience.total_s
                return stop if reading.ended_at is None else reading.ended_at
            except MillstreamError:
                raise
            except Exception as error:
                self._raise_if_permanent(error, deadline_s)
            self.patience.sleep(_PAUSE_S)

    def _raise_if_permanent(self, error: Exception, deadline_s: float) -> None:
        reason = refusal(error)
        if reason is not None:
            raise ProgramError(f"{self.subject}: {self.address.without_secrets(reason)}") from error
        if self.patience.monotonic() > deadline_s:
            raise DatabaseUnavailableError(
                f"{self.subject}: the database has been unavailable for {self.patience.total_s:g} s: "
                f"{' '.join(str(error).split())}. The range is read again when the job is restarted"
            ) from error

    def _batch(self, rows: LogRows) -> pa.RecordBatch:
        names, types = self.type_info.get_field_names(), self.type_info.get_field_types()
        batch = typed_batch(rows.texts(), names, types, self.subject)
        return batch.append_column(pa.field(KIND_COLUMN, pa.int8()), pa.array(rows.kinds, pa.int8()))


class _Reading:
    """One pass over the messages of a range, in batches."""

    def __init__(self, decoder: ChangeDecoder, bytes_max: int | None) -> None:
        self._decoder, self._bytes_max = decoder, bytes_max
        self.ended_at: Offset | None = None

    def pieces(self, log: Iterator[bytes]) -> Iterator[LogRows]:
        decoder, size = self._decoder, 0
        for message in log:
            commit_end = decoder.take(message)
            # Count only rows: each pass contains the description of the table once, within the range or before it.
            if decoder.is_wanted and message[0] in _ROW_TAGS:
                size += len(message)
            if len(decoder.rows.kinds) >= _BATCH_ROWS:
                yield decoder.take_rows()
            if commit_end is not None and self._bytes_max is not None and size >= self._bytes_max:
                self.ended_at = commit_end
                break
        if decoder.rows.kinds:
            yield decoder.take_rows()


_IDLE: dict[DatabaseAddress, list[Any]] = {}
_IDLE_LOCK = threading.Lock()
_IDLE_S_MAX = 30.0


@contextmanager
def cached_connection(address: DatabaseAddress, timeouts: Timeouts) -> Iterator[Connection[Any]]:
    """A new or cached connection of this process; it is cached again unless it fails."""
    with _IDLE_LOCK:
        idle = _IDLE.setdefault(address, [])
        connection, since_s = idle.pop() if idle else (None, 0.0)
    if connection is not None and time.monotonic() - since_s > _IDLE_S_MAX:
        connection.close()  # a firewall may have dropped it
        connection = None
    if connection is None:
        connection = connect(address, timeouts)
        # A Spark worker process outlives the job; the server closes connections that it leaves open.
        connection.execute("SET idle_session_timeout = '10min'")
        connection.commit()
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    with _IDLE_LOCK:
        _IDLE[address].append((connection, time.monotonic()))


def close_cached() -> None:
    """Close the cached connections."""
    with _IDLE_LOCK:
        for idle in _IDLE.values():
            for connection, _ in idle:
                connection.close()
        _IDLE.clear()
