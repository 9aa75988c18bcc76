"""Reads ranges of partitions in a task, with consumers that stay open between epochs.

A process caches some consumers, each for one partition (`_Reader`). The next epoch usually continues where the last one
ended; its records have then already been prefetched. In any other case (another range after a failure, a partition that
moved from another process) a new consumer is created. It is ready sooner than one that seeks, which must first wait for
its current fetch, and prefetched records cannot be mistaken for the wanted ones.

**The end of a range.** Offsets have gaps: transaction markers, records of aborted transactions, compacted records. So a
range does not end after a number of records, nor at a record with its last offset. It ends when a record at or after
`stop` arrives, or the end of readable data (the consumer reports its position). A record after `stop` is
cached for the next epoch. A consumer reports the end when a fetch returns nothing, which a broker delays. So where
ranges end in markers, as they always do with transactions, consumers use a shorter fetch wait.

No record is skipped silently: an offset that no longer exists is an error, and is never replaced by "the earliest".
"""

from __future__ import annotations

import atexit
import gc
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import ClientErrors, confluent, new_client
from millstream.connectors.kafka.cluster import PATIENCE_S
from millstream.connectors.kafka.kafka_failures import failure_of
from millstream.connectors.kafka.offsets import Partition
from millstream.errors import ConnectorError

__all__ = ["close_consumers", "read_range"]

_CONSUMERS_MAX = 128
"""Consumers that a process caches per cluster. Each has some threads and its own buffer."""
_WIDE_MAX, _NARROW_KBYTES = 32, "2048"
"""With more consumers than this, each has a smaller buffer: their total size stays about constant."""
_IDLE_S = 120.0
_BATCH_RECORDS = 8_192
_WAIT_S = 0.2
_GATHER_S = 0.005
_SILENCE_S = 10.0
"""After this time without a record the existence of the topic is checked."""
_BRIEF_FETCH_MS = "30"
"""How long a broker may wait for records where the end must be detected soon."""
_DEFAULTS = {
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": "8192",
    "fetch.queue.backoff.ms": "10",
    "fetch.error.backoff.ms": "100",
    "reconnect.backoff.max.ms": "1000",
    "check.crcs": "true",
    "group.id": "millstream",
}


def read_range(
    settings: ClientSettings,
    partition: Partition,
    start: int,
    stop: int,
    is_enough: Callable[[], bool],
    source: str = "",
) -> Generator[list[Any], None, int]:
    """The messages of `partition` with offsets in [start, stop), in order, in batches.

    Calls `is_enough` after each batch to decide whether to stop. Returns the offset reached. `source` separates
    readers: two sources of one topic have their own consumers.
    """
    with _reader_of((os.getpid(), source, settings), partition, start) as reader:
        return (yield from reader.read(stop, is_enough))


def close_consumers() -> None:
    """Close all idle consumers of this process."""
    with _LOCK:
        readers = [reader for (process, *_), pool in _POOLS.items() if process == os.getpid() for reader in pool]
        _POOLS.clear()
    for reader in readers:
        reader.close()


# --- consumers that stay open ----------------------------------------------------------------------------------

_LOCK = threading.Lock()
_PoolKey = tuple[int, str, ClientSettings]
_POOLS: dict[_PoolKey, list[_Reader]] = {}
"""Idle consumers by process, source and settings, least recently used first. A forked
process does not use its parent's."""
_MARKED: set[tuple[_PoolKey, Partition]] = set()
"""Partitions with ranges that ended in markers, which consumers do not return."""
atexit.register(close_consumers)


@contextmanager
def _reader_of(key: _PoolKey, partition: Partition, start: int) -> Iterator[_Reader]:
    """A reader of one range: the cached one positioned at its start, or a new one. It is cached again unless it
    fails."""
    with _LOCK:
        pool = _POOLS.setdefault(key, [])
        of_partition = [each for each in pool if each.partition == partition]
        pool[:] = [each for each in pool if each not in of_partition]
        is_narrow = len(pool) >= _WIDE_MAX
    reader = next((each for each in of_partition if each.position == start), None)
    for each in of_partition:
        if each is not reader:
            each.close()
    is_brief = (key, partition) in _MARKED
    reader = reader or _Reader(key[2], partition, start, is_brief=is_brief, is_narrow=is_narrow)
    try:
        yield reader
    except BaseException:  # also if the caller abandons the read: the position is unknown
        reader.close()
        raise
    _cache_reader(key, reader)


def _cache_reader(key: _PoolKey, reader: _Reader) -> None:
    if reader.meets_marks and not reader.is_brief:
        _MARKED.add((key, reader.partition))
        reader.close()
        return
    now_s = reader.used_s = time.monotonic()
    closing: list[_Reader] = []
    with _LOCK:
        _POOLS.setdefault(key, []).append(reader)
        for pool in _POOLS.values():
            closing += [each for each in pool if now_s - each.used_s > _IDLE_S]
            pool[:] = [each for each in pool if each not in closing]
            # Close the newest: an epoch reads its partitions in turn, and the oldest is requested next.
            closing += pool[_CONSUMERS_MAX:]
            del pool[_CONSUMERS_MAX:]
    for each in closing:
        each.close()


class _Reader:
    """A consumer of one partition.

    `is_brief`: brokers use a short fetch wait; `meets_marks`: it reached an end that is known only from the consumer's
    report. `position`: all records before it were returned; None: unknown, so it cannot be reused. `_scanned`: all
    records before it were received; the ones not returned yet are in `_ahead`. Many attributes: the client, the
    position in the partition, and the state of a silence.
    """

    def __init__(
        self, settings: ClientSettings, partition: Partition, start: int, *, is_brief: bool, is_narrow: bool
    ) -> None:
        self._settings = settings
        self._module = confluent()
        self._client_errors = ClientErrors()
        special = {"queued.max.messages.kbytes": _NARROW_KBYTES} if is_narrow else {}
        if is_brief and settings.get("fetch.max.wait.ms") is None:
            special["fetch.wait.max.ms"] = _BRIEF_FETCH_MS
        defaults = {name: value for name, value in (_DEFAULTS | special).items() if settings.get(name) is None}
        self._consumer = new_client(
            "consumer",
            settings,
            self._client_errors,
            **defaults,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
        )
        self._consumer.assign([self._module.TopicPartition(partition.topic, partition.number, start)])
        self.partition = partition
        self.position: int | None = start
        self.used_s = 0.0
        self.is_brief, self.meets_marks = is_brief, False
        self._scanned = start
        self._ahead: list[Any] = []
        self._checked_s = 0.0
        self._missing_since_s: float | None = None

    def close(self) -> None:
        """Release its connections and its buffer."""
        self._consumer.close()

    def read(self, stop: int, is_enough: Callable[[], bool]) -> Generator[list[Any], None, int]:
        """The messages before `stop`. The position is unknown while the caller holds a batch: an abandoned caller
        may or may not have used it."""
        quiet_since_s = time.monotonic()
        self._missing_since_s = None
        while True:
            assert self.position is not None
            if not self._ahead:
                self.position = max(self.position, min(self._scanned, stop))
            if self.position >= stop:
                return self.position
            if not self._ahead and not self._fetch(stop - self.position):
                self._check_silence(time.monotonic() - quiet_since_s, stop)
                continue
            quiet_since_s = time.monotonic()
            count = self._count_before(stop)
            messages, self._ahead = self._ahead[:count], self._ahead[count:]
            position = stop if self._ahead else min(self._scanned, stop)
            if count:
                self.position = None
                lot = [messages]
                del messages
                yield lot.pop()  # the caller holds the only reference, and releases it soon
                quiet_since_s = time.monotonic()
            self.position = position
            if count and is_enough():
                return position

    def _check_silence(self, quiet_s: float, stop: int) -> None:
        """Check the topic after a time without records. A consumer waits for a deleted topic in the same way as for a
        moving leader, so this queries the broker, which may be wrong for a short time."""
        if quiet_s > PATIENCE_S:
            raise self._timeout_error(stop)
        now_s = time.monotonic()
        if quiet_s < _SILENCE_S or now_s - self._checked_s < _SILENCE_S / 4:
            return
        self._checked_s = now_s
        if not self._is_topic_missing():
            self._missing_since_s = None
        elif self._missing_since_s is None:
            self._missing_since_s = now_s
        elif now_s - self._missing_since_s > _SILENCE_S / 2:
            raise ConnectorError(
                f"reading {self._place()}: the topic was deleted. Do not delete topics that a job reads. To "
                "continue without "
                "the lost records, give the source another uid and start with --allow-non-restored-state: it then "
                "starts at its starting offsets."
            )

    def _is_topic_missing(self) -> bool:
        topic = self.partition.topic
        try:
            error = self._consumer.list_topics(topic, _SILENCE_S / 4).topics[topic].error
        except self._module.KafkaException:
            return False  # no response is a different failure
        return error is not None and error.code() == self._module.KafkaError.UNKNOWN_TOPIC_OR_PART

    def _count_before(self, stop: int) -> int:
        if self._ahead and self._ahead[-1].offset() < stop:
            return len(self._ahead)
        return bisect_left(self._ahead, stop, key=lambda message: message.offset())

    def _fetch(self, wanted: int) -> bool:
        """Receive available records, or wait briefly for some; returns whether the position advanced."""
        count, scanned = min(wanted, _BATCH_RECORDS), self._scanned
        messages = self._take(count, 0)
        if not messages:
            messages = self._consumer.consume(1, _WAIT_S)
            if messages and count > 1:
                messages += self._take(count - 1, _GATHER_S)
        if any(map(self._module.Message.error, messages)):
            messages = self._without_events(messages)
        if messages:
            self._scanned = max(self._scanned, messages[-1].offset() + 1)
        self._ahead = messages
        return self._scanned > scanned

    def _take(self, count: int, timeout_s: float) -> list[Any]:
        """Receive available records with garbage collection disabled: collection would traverse thousands of messages,
        and all other objects, repeatedly, and take a fifth of the read time."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            messages: list[Any] = self._consumer.consume(count, timeout_s)
        finally:
            if was_enabled:
                gc.enable()
        return messages

    def _without_events(self, messages: list[Any]) -> list[Any]:
        """The records among `messages`; others are events that report the consumer's position, or its error."""
        error_codes = self._module.KafkaError
        records = [message for message in messages if message.error() is None]
        seen = max(self._scanned, records[-1].offset() + 1) if records else self._scanned
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.code() == error_codes._PARTITION_EOF:
                self.meets_marks |= message.offset() > seen
                self._scanned = max(self._scanned, message.offset())
            elif error.code() in (error_codes._AUTO_OFFSET_RESET, error_codes.OFFSET_OUT_OF_RANGE):
                raise self._loss_error(error)
            elif not error.retriable():
                raise self._failure(f"reading {self._place()}", error)
        return records

    def _place(self) -> str:
        at = "" if self.position is None else f" from offset {self.position}"
        return f"partition {self.partition.number} of topic {self.partition.topic}{at}"

    def _timeout_error(self, stop: int) -> ConnectorError:
        error = self._module.KafkaError(self._module.KafkaError._TIMED_OUT, f"no record arrived in {PATIENCE_S:.0f} s")
        return self._failure(f"reading {self._place()} to {stop}", error)

    def _failure(self, subject: str, error: Any) -> ConnectorError:
        return failure_of(error, self._settings, subject, client_errors=self._client_errors)

    def _loss_error(self, error: Any) -> ConnectorError:
        topic = self.partition.topic
        return ConnectorError(
            f"reading {self._place()}: Kafka no longer has that offset ({error.str().strip()}). The topic's "
            "retention was shorter than the job's downtime, or the topic was deleted and created again. The records "
            "are lost to this job. To continue without them: give the source another uid and start with "
            "--allow-non-restored-state, so that it starts at its starting offsets. To prevent it: "
            f"raise retention.ms of topic {topic}."
        )
