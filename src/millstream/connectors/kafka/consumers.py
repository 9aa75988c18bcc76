"""Reading ranges of partitions in a task, with consumers that stay open between epochs.

A process keeps some consumers, each for one partition (`_Reader`). The next epoch usually goes on where the last one
ended: then its records are there already, because a consumer fetches ahead. For anything else (another range after a
failure, a partition that came from another process) there is a new consumer. That is sooner ready than one that is sent
elsewhere, which has to wait for the fetch it is in, and what it had fetched cannot be mistaken for what is wanted.

**Where a range ends.** Offsets have gaps: marks of transactions, records of aborted ones, what compaction removed. So a
range is not over after so many records, nor at a record with its last offset. It is over when a record at or behind
`stop` is seen, or the end of what may be read (the consumer tells the offset it has come to). A record behind `stop` is
kept for the next epoch. That it has come to the end a consumer tells when a fetch brings nothing, for which a broker
takes its time. So where ranges end in such marks, as with transactions they all do, consumers fetch with less patience.

Nothing is skipped in silence: an offset that is not in the partition any more is an error, and never "the earliest".
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
from millstream.connectors.kafka.clients import Complaints, confluent, new_client
from millstream.connectors.kafka.cluster import PATIENCE_S
from millstream.connectors.kafka.kafka_failures import failure_of
from millstream.connectors.kafka.offsets import Partition
from millstream.errors import ConnectorError

__all__ = ["close_consumers", "read_range"]

_CONSUMERS_MAX = 128
"""So many consumers a process keeps for one cluster. Each has some threads and a buffer of its own."""
_WIDE_MAX, _NARROW_KBYTES = 32, "2048"
"""Beyond so many, a consumer has a smaller buffer: all of them together stay about as large."""
_IDLE_S = 120.0
_BATCH_RECORDS = 8_192
_WAIT_S = 0.2
_GATHER_S = 0.005
_SILENCE_S = 10.0
"""After so long without a record it is asked whether the topic is still there."""
_BRIEF_FETCH_MS = "30"
"""How long a broker may wait for records where the end must be known soon."""
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
    """The messages of `partition` with offsets from `start` to below `stop`, in their order, some at a time.

    After each lot `is_enough` is asked whether to end there. Returns the offset that was reached. `source` tells apart
    who reads: two sources of one topic have consumers of their own.
    """
    with _reader_of((os.getpid(), source, settings), partition, start) as reader:
        return (yield from reader.read(stop, is_enough))


def close_consumers() -> None:
    """Close all consumers of this process that nobody reads with."""
    with _LOCK:
        readers = [reader for (process, *_), pool in _POOLS.items() if process == os.getpid() for reader in pool]
        _POOLS.clear()
    for reader in readers:
        reader.close()


# --- consumers that stay open ----------------------------------------------------------------------------------

_LOCK = threading.Lock()
_PoolKey = tuple[int, str, ClientSettings]
_POOLS: dict[_PoolKey, list[_Reader]] = {}
"""Consumers that nobody reads with just now, the longest unused first, by process, source and settings. A forked
process finds none of its parent's."""
_MARKED: set[tuple[_PoolKey, Partition]] = set()
"""Partitions of which ranges have ended in marks that no consumer gets to see."""
atexit.register(close_consumers)


@contextmanager
def _reader_of(key: _PoolKey, partition: Partition, start: int) -> Iterator[_Reader]:
    """A reader of one range: the one that stands at its start, or a new one. It is kept, but for one that failed."""
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
    except BaseException:  # also one that is given up in the middle: it stands nowhere
        reader.close()
        raise
    _put_back(key, reader)


def _put_back(key: _PoolKey, reader: _Reader) -> None:
    if reader.meets_marks and not reader.is_brief:
        _MARKED.add((key, reader.partition))
        reader.close()
        return
    now_s = reader.used_s = time.monotonic()
    left_out: list[_Reader] = []
    with _LOCK:
        _POOLS.setdefault(key, []).append(reader)
        for pool in _POOLS.values():
            left_out += [each for each in pool if now_s - each.used_s > _IDLE_S]
            pool[:] = [each for each in pool if each not in left_out]
            # The newest go: an epoch reads its partitions in turn, and the oldest is the next to be asked for.
            left_out += pool[_CONSUMERS_MAX:]
            del pool[_CONSUMERS_MAX:]
    for each in left_out:
        each.close()


class _Reader:
    """A consumer of one partition.

    `is_brief`: brokers shall not wait long; `meets_marks`: it has come to an end that it could only be told of.
    `position`: all records before it were given out; None: nobody knows, so it cannot be used again. `_scanned`: all
    records before it have come from the consumer; those that were not given out yet are `_ahead`. Many attributes: the
    client, the place in the partition, and what is known of a silence.
    """

    def __init__(
        self, settings: ClientSettings, partition: Partition, start: int, *, is_brief: bool, is_narrow: bool
    ) -> None:
        self._settings = settings
        self._module = confluent()
        self._complaints = Complaints()
        special = {"queued.max.messages.kbytes": _NARROW_KBYTES} if is_narrow else {}
        if is_brief and settings.get("fetch.max.wait.ms") is None:
            special["fetch.wait.max.ms"] = _BRIEF_FETCH_MS
        defaults = {name: value for name, value in (_DEFAULTS | special).items() if settings.get(name) is None}
        self._consumer = new_client(
            "consumer",
            settings,
            self._complaints,
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
        self._asked_s = 0.0
        self._gone_since_s: float | None = None

    def close(self) -> None:
        """Give its connections and its buffer back."""
        self._consumer.close()

    def read(self, stop: int, is_enough: Callable[[], bool]) -> Generator[list[Any], None, int]:
        """The messages before `stop`. While some are given out the position is unknown: whoever does not come back for
        more may have had them or not."""
        quiet_since_s = time.monotonic()
        self._gone_since_s = None
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
                yield lot.pop()  # whoever takes them is the only one to hold them, and lets them go soon
                quiet_since_s = time.monotonic()
            self.position = position
            if count and is_enough():
                return position

    def _check_silence(self, quiet_s: float, stop: int) -> None:
        """Nothing has come for a while. A consumer waits for a topic that is gone as for one that moves. So the broker
        is asked whether there is one; for a moment it may not know."""
        if quiet_s > PATIENCE_S:
            raise self._no_answer(stop)
        now_s = time.monotonic()
        if quiet_s < _SILENCE_S or now_s - self._asked_s < _SILENCE_S / 4:
            return
        self._asked_s = now_s
        if not self._is_topic_missing():
            self._gone_since_s = None
        elif self._gone_since_s is None:
            self._gone_since_s = now_s
        elif now_s - self._gone_since_s > _SILENCE_S / 2:
            raise ConnectorError(
                f"reading {self._place()}: the topic is gone. Keep topics that are read; or, to go on without what is "
                "lost, give the source another uid and start with --allow-non-restored-state: it then begins as its "
                "starting offsets say."
            )

    def _is_topic_missing(self) -> bool:
        topic = self.partition.topic
        try:
            error = self._consumer.list_topics(topic, _SILENCE_S / 4).topics[topic].error
        except self._module.KafkaException:
            return False  # nobody answers, which is another matter
        return error is not None and error.code() == self._module.KafkaError.UNKNOWN_TOPIC_OR_PART

    def _count_before(self, stop: int) -> int:
        if self._ahead and self._ahead[-1].offset() < stop:
            return len(self._ahead)
        return bisect_left(self._ahead, stop, key=lambda message: message.offset())

    def _fetch(self, wanted: int) -> bool:
        """Take what has come, or wait a little for something to come; whether that is further than before."""
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
        """What has come, without Python's search for garbage in between: it would go through thousands of messages
        again and again, and then through all else, for a fifth of the time that reading takes."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            messages: list[Any] = self._consumer.consume(count, timeout_s)
        finally:
            if was_enabled:
                gc.enable()
        return messages

    def _without_events(self, messages: list[Any]) -> list[Any]:
        """The records among `messages`; others tell how far the consumer has come, or why it comes no further."""
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
                raise self._lost(error)
            elif not error.retriable():
                raise self._failure(f"reading {self._place()}", error)
        return records

    def _place(self) -> str:
        at = "" if self.position is None else f" from offset {self.position}"
        return f"partition {self.partition.number} of topic {self.partition.topic}{at}"

    def _no_answer(self, stop: int) -> ConnectorError:
        error = self._module.KafkaError(self._module.KafkaError._TIMED_OUT, f"no record came in {PATIENCE_S:.0f} s")
        return self._failure(f"reading {self._place()} to {stop}", error)

    def _failure(self, subject: str, error: Any) -> ConnectorError:
        return failure_of(error, self._settings, subject, complaints=self._complaints)

    def _lost(self, error: Any) -> ConnectorError:
        topic = self.partition.topic
        return ConnectorError(
            f"reading {self._place()}: Kafka does not have that offset any more ({error.str().strip()}). The topic's "
            f"retention was shorter than the job was away, or the topic was deleted and made anew. The records are "
            f"lost to this job. To go on without them: give the source another uid and start with "
            f"--allow-non-restored-state, so that it begins as its starting offsets say. So that it does not happen "
            f"again: raise retention.ms of topic {topic}."
        )
