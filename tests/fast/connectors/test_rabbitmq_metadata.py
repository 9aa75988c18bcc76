"""What stands beside the body of a RabbitMQ message may be anything; the job goes on."""

from __future__ import annotations

import struct

import pika.spec
import pytest

from millstream.common.serialization import SimpleStringSchema
from millstream.connectors.rabbitmq.connection import RabbitAddress, tolerate_invalid_headers
from millstream.connectors.rabbitmq.source import RabbitSource, id_text, packed
from millstream.datastream.output_tag import OutputTag
from millstream.errors import TypeMismatchError

NESTED = b""
for _ in range(3000):
    NESTED = b"\x01aF" + struct.pack(">I", len(NESTED)) + NESTED


@pytest.mark.parametrize(
    "table",
    [
        b"\x01ad" + struct.pack(">d", float("nan")),
        b"\x01af" + struct.pack(">f", float("inf")),
        b"\x01aT" + struct.pack(">Q", 2**62),
        b"\x01a?",
        NESTED,
    ],
    ids=["NaN", "infinity", "a time of no year", "an unknown type", "nested too deep"],
)
def test_a_table_of_headers_that_the_client_cannot_read_is_passed_over(table: bytes) -> None:
    tolerate_invalid_headers()
    flags = pika.spec.BasicProperties.FLAG_HEADERS | pika.spec.BasicProperties.FLAG_CORRELATION_ID
    content = struct.pack(">HI", flags, len(table)) + table + b"\x02id"
    properties = pika.spec.BasicProperties().decode(content)
    assert properties.correlation_id == "id" and "a" not in (properties.headers if table is not NESTED else {})


def test_ids_are_any_bytes_and_stay_distinct() -> None:
    ids = [b"\xff", b"\xfe", "\\xff", "ff", "", None]
    texts = [id_text(each) for each in ids]
    assert len(set(texts[:4])) == 4 and texts[4:] == [None, None]
    source = RabbitSource(RabbitAddress(), "q", True, SimpleStringSchema())
    records = source.records_of(packed([b"x"] * 6, texts), 6)
    assert [correlation_id for _, correlation_id in records] == texts


def test_a_message_without_an_id_is_a_dead_letter_where_ids_are_used() -> None:
    schema = SimpleStringSchema().with_dead_letters(OutputTag("bad"))
    records = [(b"a", "1"), (b"b", None), (b"c", "3")]
    letters, batch = RabbitSource(RabbitAddress(), "q", True, schema).items_of(records, 5)
    [letter] = letters.batch.values()
    assert letter.value == b"b" and "message 6 of the job" in letter.place and "no correlation id" in letter.reason
    assert batch.values() == ["a", "c"]
    [batch] = RabbitSource(RabbitAddress(), "q", False, schema).items_of(records, 5)
    assert batch.values() == ["a", "b", "c"]
    with pytest.raises(TypeMismatchError, match="message 6 of the job: it has no correlation id"):
        list(RabbitSource(RabbitAddress(), "q", True, SimpleStringSchema()).items_of(records, 5))
