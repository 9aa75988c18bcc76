"""Ranges are read exactly, however the client cuts what it gives, and however often it says that it is at the end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.kafka import consumers
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.consumers import close_consumers, read_range
from millstream.connectors.kafka.offsets import Partition
from millstream.errors import ConnectorAwayError, ConnectorError

PARTITION = Partition("t", 0)
SETTINGS = ClientSettings.of({"bootstrap.servers": "nowhere:1"})


class KafkaError:
    _PARTITION_EOF, _AUTO_OFFSET_RESET, OFFSET_OUT_OF_RANGE, _TIMED_OUT = -191, -140, 1, -185

    def __init__(self, code: int, text: str = "") -> None:
        self._code, self._text = code, text

    def code(self) -> int:
        return self._code

    def name(self) -> str:
        return "_TIMED_OUT"

    def str(self) -> str:
        return self._text

    def retriable(self) -> bool:
        return False


@dataclass(frozen=True)
class Message:
    at: int
    failure: KafkaError | None = None

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.failure


@dataclass
class TopicPartition:
    topic: str
    partition: int
    offset: int


class Client:
    """A consumer over `offsets` of a partition that may be read up to `end`, and begins at `first`."""

    offsets: list[int]
    end: int
    first = 0
    chance = random.Random(0)
    open_count = 0
    patience_ms: ClassVar[list[object]] = []

    def __init__(self, settings: dict[str, object]) -> None:
        Client.patience_ms.append(settings.get("fetch.wait.max.ms"))
        self._position, self._told_end = -1, -1
        Client.open_count += 1

    def assign(self, partitions: list[TopicPartition]) -> None:
        assert self._position == -1, "a consumer stays where it is"
        self._position = partitions[0].offset

    def close(self) -> None:
        Client.open_count -= 1

    def consume(self, count: int, timeout: float) -> list[Message]:
        """Some of what comes next; none of it, now and then. The end is told once each time it is come to."""
        if self._position < self.first:
            return [Message(self._position, KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range"))]
        if self.chance.random() < 0.2:
            return []
        waiting = [at for at in self.offsets if self._position <= at < self.end]
        chosen = waiting[: min(count, self.chance.randint(1, 7))]
        messages = [Message(at) for at in chosen]
        if chosen:
            self._position = chosen[-1] + 1
        if len(chosen) == len(waiting) and len(messages) < count and self._told_end != self.end:
            self._told_end = self._position = self.end
            messages.append(Message(self.end, KafkaError(KafkaError._PARTITION_EOF)))
        return messages


class Module:
    KafkaError = KafkaError
    Message = Message
    TopicPartition = TopicPartition


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(consumers, "confluent", lambda: Module)
    monkeypatch.setattr(consumers, "new_client", lambda *_, **settings: Client(settings))
    monkeypatch.setattr(consumers, "_MARKED", set())
    monkeypatch.setattr(consumers, "_BATCH_RECORDS", 100)  # and back, whatever a test makes of it
    Client.open_count, Client.first = 0, 0
    Client.patience_ms.clear()
    yield
    close_consumers()
    assert Client.open_count == 0


def offsets_in(
    start: int, stop: int, enough: int | None = None, partition: Partition = PARTITION
) -> tuple[list[int], int]:
    """What is read, and the offset that was reached; it is enough after so many."""
    got: list[int] = []
    reading = read_range(SETTINGS, partition, start, stop, lambda: enough is not None and len(got) >= enough)
    while True:
        try:
            got += [message.offset() for message in next(reading)]
        except StopIteration as end:
            return got, end.value


logs = st.sets(st.integers(0, 60), max_size=40).map(sorted)
steps = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.sampled_from([None, 1, 5])), max_size=6)


@given(logs, steps, st.integers(), st.integers(1, 9))
def test_a_range_holds_what_it_holds(
    log: list[int], ranges: list[tuple[int, int, int | None]], seed: int, batch_records: int
) -> None:
    close_consumers()  # one that an example before left holds messages of another log
    consumers._BATCH_RECORDS = batch_records
    Client.offsets, Client.end, Client.chance = log, 60, random.Random(seed)
    for first, second, enough in ranges:
        start, stop = sorted((first, second))
        got, reached = offsets_in(start, stop, enough)
        assert got == [at for at in log if start <= at < reached]
        assert reached == stop or (enough is not None and len(got) >= enough and reached <= stop)


@given(logs, st.lists(st.integers(1, 20), max_size=6), st.integers())
def test_a_partition_that_grows_is_read_on_by_one_consumer(log: list[int], growths: list[int], seed: int) -> None:
    """Also where all that is new are marks of transactions, which nobody gets to see."""
    close_consumers()
    Client.offsets, Client.end, Client.chance = log, 0, random.Random(seed)
    got: list[int] = []
    for growth in growths:
        start, Client.end = Client.end, Client.end + growth
        more, reached = offsets_in(start, Client.end)
        got += more
        assert reached == Client.end and Client.open_count <= 1
    assert got == [at for at in log if at < Client.end]


def test_partitions_beyond_what_a_process_keeps_do_not_cost_the_others_their_consumers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumers, "_CONSUMERS_MAX", 8)
    partitions = [Partition("t", number) for number in range(10)]
    Client.offsets, Client.chance = list(range(60)), random.Random(2)
    for epoch in range(4):
        Client.end = 10 * (epoch + 1)
        for partition in partitions:
            offsets_in(10 * epoch, Client.end, partition=partition)
    assert Client.open_count == 8
    # All in the first epoch; later only those that are too many.
    assert len(Client.patience_ms) == 10 + 3 * 2


def test_where_ranges_end_in_marks_the_next_consumer_detects_the_end_sooner() -> None:
    Client.offsets, Client.chance = [0, 1, 4, 5, 8, 9], random.Random(1)
    for Client.end in (2, 4, 6, 8, 10, 12):
        offsets_in(max(0, Client.end - 2), Client.end)
    assert Client.patience_ms == [None, "30"]


def test_an_expired_offset_is_an_error_and_never_skipped() -> None:
    Client.offsets, Client.end, Client.first = [5, 6], 7, 5
    with pytest.raises(ConnectorError, match=r"no longer has that offset.*retention"):
        offsets_in(3, 7)


def test_what_does_not_come_is_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "PATIENCE_S", 0.05)
    Client.offsets, Client.end = [1], 2
    with pytest.raises(ConnectorAwayError, match="reading partition 0 of topic t from offset 2 to 9"):
        offsets_in(0, 9)
