"""Messages built by column equal messages built one by one; staged messages are read back unchanged or rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.fresh_names import fresh_name

from millstream.common.serialization import SerializationSchema, SimpleStringSchema
from millstream.common.typeinfo import Types
from millstream.connectors.contracts import WriterContext
from millstream.connectors.kafka.outgoing_messages import (
    MessageMaker,
    RecordSerializer,
    StagedMessages,
    by_topic,
    read_messages,
)
from millstream.errors import ProgramError, StoreDamagedError
from millstream.records.batch import Batch
from millstream.storage.store import Store, open_store


class Reversed(SerializationSchema):
    """A user-defined schema without column support; an empty text has no key."""

    def serialize(self, value: str) -> Any:
        return value[::-1].encode() or None


def expected_messages(
    serializer: RecordSerializer, values: list[str], times: list[int] | None
) -> list[tuple[Any, ...]]:
    """The expected output of a message builder, record by record."""
    messages = []
    for at, value in enumerate(values):
        time = None if times is None or times[at] < 0 else times[at]
        key = None if serializer.key is None else serializer.key.serialize(value)
        topic = serializer.topic or (serializer.selector(value) if serializer.selector else None)
        messages.append((topic, key, serializer.value.serialize(value), time))
    return messages


def topic_of(value: str) -> str:
    return f"topic-{len(value) % 3}"


texts = st.lists(st.text(max_size=6), max_size=30)
times = st.integers(-(2**63), 2**63 - 1)


@given(texts, st.data(), st.booleans(), st.booleans())
def test_messages_built_by_column_equal_messages_built_one_by_one(
    values: list[str], data: st.DataObject, with_key: bool, with_selector: bool
) -> None:
    stamps = data.draw(st.one_of(st.none(), st.lists(times, min_size=len(values), max_size=len(values))))
    serializer = RecordSerializer(
        SimpleStringSchema(),
        Reversed() if with_key else None,
        None if with_selector else "out",
        topic_of if with_selector else None,
    )
    store = open_store(fresh_name("memory://messages"))
    columns = None if stamps is None else np.array(stamps, np.int64)
    batch = Batch.of_values(values, Types.STRING(), columns)
    expected = expected_messages(serializer, values, stamps)
    built = MessageMaker(serializer, Types.STRING(), 1_000_000).messages(batch)
    assert sorted(_rows(list(by_topic(serializer.topic, built))), key=repr) == sorted(expected, key=repr)
    gathered = StagedMessages(context(store), serializer.topic)
    gathered.add(built)
    gathered.add(built)
    if not values:
        assert not gathered.stage()
        return
    [staged] = gathered.stage()
    read = _rows(list(read_messages(staged, store)))
    for topic in {row[0] for row in expected}:
        assert [row for row in read if row[0] == topic] == [row for row in expected if row[0] == topic] * 2
    assert staged["records"] == 2 * len(values)
    assert staged["first_topic"] == min(row[0] for row in expected)


def _rows(messages: list[tuple[str, pa.RecordBatch]]) -> list[tuple[Any, ...]]:
    return [
        (topic, *row)
        for topic, batch in messages
        for row in zip(*(batch.column(name).to_pylist() for name in ("key", "value", "timestamp")), strict=True)
    ]


def context(store: Store) -> WriterContext:
    return WriterContext("out", 1, 0, 1, "n1", store, 0, Types.STRING(), "a-job")


def test_a_large_epoch_is_staged_in_chunks_that_are_read_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.connectors.staged_columns._CHUNK_BYTES_MAX", 100_000)
    store = open_store(fresh_name("memory://messages"))
    maker = MessageMaker(RecordSerializer(SimpleStringSchema(), topic="out"), Types.STRING(), 1_000_000)
    gathered = StagedMessages(context(store), "out")
    values = [f"{i:05}" + "x" * 100 for i in range(5_000)]
    for start in range(0, len(values), 500):
        gathered.add(maker.messages(Batch.of_values(values[start : start + 500], Types.STRING())))
    [staged] = gathered.stage()
    assert len(staged["chunks"]) >= 4
    assert [row[2].decode() for row in _rows(list(read_messages(staged, store)))] == values


def test_damaged_or_newer_messages_are_not_published() -> None:
    store = open_store(fresh_name("memory://messages"))
    maker = MessageMaker(RecordSerializer(SimpleStringSchema(), topic="out"), Types.STRING(), 1_000_000)
    gathered = StagedMessages(context(store), "out")
    gathered.add(maker.messages(Batch.of_values(["x" * 50_000], Types.STRING())))
    [staged] = gathered.stage()
    name = staged["chunks"][0]["file"]
    data = bytearray(store.get(name))
    data[len(data) // 2] ^= 1
    store.put(name, bytes(data))
    with pytest.raises(StoreDamagedError, match="checksum"):
        list(read_messages(staged, store))
    with pytest.raises(StoreDamagedError, match=r"format 2.*reads format 1"):
        list(read_messages({**staged, "form": 2}, store))


def test_a_message_above_the_producers_size_limit_is_rejected_when_it_is_built() -> None:
    maker = MessageMaker(RecordSerializer(SimpleStringSchema(), topic="out"), Types.STRING(), 1_000)
    maker.messages(Batch.of_values(["x" * 900], Types.STRING()))
    with pytest.raises(ProgramError, match=r"a message of 1,000 bytes is larger than max\.request\.size"):
        maker.messages(Batch.of_values(["x", "y" * 1_000], Types.STRING()))


@pytest.mark.parametrize("name", ["", "a b", "a/b", ".", "..", "x" * 250, "é", None, 5, ["a"], "a\n"])
def test_an_unknown_topic_is_rejected_before_its_message_is_staged(name: Any) -> None:
    maker = MessageMaker(RecordSerializer(SimpleStringSchema(), selector=lambda value: name), Types.STRING(), 1_000)
    with pytest.raises(ProgramError, match=r"the topic selector returned .* for 'a', expected the name of a topic"):
        maker.messages(Batch.of_values(["a"], Types.STRING()))
    if name is not None:
        with pytest.raises(ProgramError, match="does not support the topic name"):
            RecordSerializer(SimpleStringSchema(), topic=name)


class Headers:
    """Headers of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    def timestamps(self, batch: Batch) -> pa.Array | None:
        return None

    def headers(self, batch: Batch) -> pa.Array:
        rows = [None, [("n", None)], [("name", b"x" * self._size)]]
        return pa.array(rows[: batch.length], pa.map_(pa.string(), pa.binary()))


def test_headers_count_among_the_bytes_of_a_message() -> None:
    def built(size: int) -> pa.RecordBatch:
        serializer = RecordSerializer(SimpleStringSchema(), topic="out", metadata=Headers(size))
        return MessageMaker(serializer, Types.STRING(), 1_000).messages(Batch.of_values(["a"] * 3, Types.STRING()))

    assert built(800).num_rows == 3
    with pytest.raises(ProgramError, match=r"a message of 1,015 bytes is larger than max\.request\.size"):
        built(1_000)
