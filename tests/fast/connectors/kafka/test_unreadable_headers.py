"""Kafka messages whose headers cannot be read: as messages whose value cannot."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from millstream.common.serialization import SimpleStringSchema
from millstream.connectors.files.csv_records import CsvDialect
from millstream.connectors.kafka.offsets import Partition
from millstream.connectors.kafka.records import RecordLayout, RecordReader
from millstream.connectors.messages.dead_letters import DeadLetters
from millstream.connectors.tables.formats.csv_format import CsvTableDecoder
from millstream.connectors.tables.kafka.rows import METADATA, KafkaColumn, TableReading, TableRecords
from millstream.datastream.output_tag import OutputTag
from millstream.errors import TypeMismatchError
from millstream.expressions import types
from millstream.expressions.nested_types import RowType

PARTITION = Partition("orders", 3)


class OddHeaders(confluent_kafka.Message):
    """What the client gives for a message with a header name that is no UTF-8."""

    def headers(self) -> Any:
        try:
            b"\xff".decode()
        except UnicodeDecodeError as error:
            raise SystemError("<method 'headers'> returned a result with an exception set") from error


def message(kind: type[confluent_kafka.Message], value: bytes, offset: int, headers: Any = None) -> Any:
    made = kind(topic="orders", partition=3, offset=offset, key=b"k", value=value, headers=headers)
    return made


MESSAGES = [
    message(confluent_kafka.Message, b"a", 7, [("name", b"\xff"), ("name", None), ("", b"")]),
    message(OddHeaders, b"b", 8),
    message(confluent_kafka.Message, b"c", 9),
]
METADATA_NAMES = (("headers", "headers"), ("key", "key"), ("offset", "offset"))


def test_a_header_name_that_is_no_text_is_an_error_with_its_place() -> None:
    reader = RecordReader(RecordLayout(SimpleStringSchema(), METADATA_NAMES), PARTITION, None)
    with pytest.raises(TypeMismatchError, match=r"topic orders, partition 3, offset 8: the name of one of its headers"):
        reader.items(MESSAGES)


def test_a_header_name_that_is_no_text_makes_a_dead_letter_and_the_others_are_read() -> None:
    schema = SimpleStringSchema().with_dead_letters(OutputTag("bad"))
    [letters, batch] = RecordReader(RecordLayout(schema, METADATA_NAMES), PARTITION, None).items(MESSAGES)
    assert isinstance(letters, DeadLetters)
    [letter] = letters.batch.values()
    assert (letter.key, letter.value) == (b"k", b"b") and letter.place.endswith("offset 8")
    assert "not UTF-8" in letter.reason
    assert not isinstance(batch, DeadLetters)
    assert [(row.value, row.offset) for row in batch.values()] == [("a", 7), ("c", 9)]
    assert batch.values()[0].headers == [("name", b"\xff"), ("name", None), ("", b"")]


def test_unrequested_headers_are_not_read() -> None:
    reader = RecordReader(RecordLayout(SimpleStringSchema(), (("offset", "offset"),)), PARTITION, None)
    [batch] = reader.items(MESSAGES)
    assert not isinstance(batch, DeadLetters) and batch.length == 3


@pytest.mark.parametrize("ignores", [False, True])
def test_a_table_with_headers_refuses_or_ignores_a_message_whose_header_names_are_no_text(ignores: bool) -> None:
    values = CsvTableDecoder(RowType.of(["a"], [types.VarCharType(9)]), CsvDialect(), ignores)
    columns = (
        KafkaColumn("a", types.VarCharType(9), value=0),
        KafkaColumn("headers", METADATA["headers"].nullable(), metadata="headers"),
    )
    records = TableRecords(TableReading(columns, values, None), PARTITION)
    if not ignores:
        with pytest.raises(TypeMismatchError, match="topic orders, partition 3, offset 8: the name of one of its head"):
            records.items(MESSAGES)
        return
    [batch] = records.items(MESSAGES)
    assert not isinstance(batch, DeadLetters) and [row.a for row in batch.values()] == ["a", "c"]


@pytest.mark.parametrize("ignores", [False, True])
def test_a_message_without_a_key_is_refused_or_ignored_where_a_column_of_the_key_is_not_null(ignores: bool) -> None:
    text = types.VarCharType(9)
    values, keys = (CsvTableDecoder(RowType.of([name], [text]), CsvDialect(), ignores) for name in ("a", "k"))
    columns = (KafkaColumn("a", text, value=0), KafkaColumn("k", types.VarCharType(9, False), key=0))
    records = TableRecords(TableReading(columns, values, keys), PARTITION)
    keyless = confluent_kafka.Message(topic="orders", partition=3, offset=8, value=b"b")
    messages = [MESSAGES[0], keyless, MESSAGES[2]]
    if not ignores:
        with pytest.raises(TypeMismatchError, match="offset 8: column 'k' is NOT NULL, and the message has no key"):
            records.items(messages)
        return
    [batch] = records.items(messages)
    assert not isinstance(batch, DeadLetters) and [(row.a, row.k) for row in batch.values()] == [("a", "k"), ("c", "k")]
    assert batch.timestamps is not None and len(batch.timestamps) == 2
    assert records.items([keyless]) == []
