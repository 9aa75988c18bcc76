"""Schemas that programs bring along: what they cannot read is a bad message like any other, whatever they raise."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.messages.codecs import Messages, decoder_of, encoder_of
from millstream.connectors.messages.dead_letters import dead_letters
from millstream.errors import ConnectorAwayError, TypeMismatchError
from millstream.records.batch import Batch


class Ids(DeserializationSchema):
    """The ids of documents. Reads as most people would write it, so it raises whatever Python raises."""

    def deserialize(self, message: bytes) -> Any:
        if message == b"away":
            raise ConnectorAwayError("the registry does not answer")
        return json.loads(message)["id"]

    def produced_type(self) -> TypeInformation:
        return Types.LONG()


def decoded(*messages: bytes | None) -> Any:
    given = Messages(pa.array(messages, pa.binary()), lambda at: f"offset {at}")
    return given, decoder_of(Ids()).decode(given)


def test_whatever_a_schema_raises_the_message_is_a_bad_one_and_others_are_read() -> None:
    given, read = decoded(b'{"id": 1}', b"{", b'{"x": 1}', b"[]", None, b'{"id": "a"}', b'{"id": 2}', b"\xff")
    assert read.batch.values() == [1, 2] and read.origins.tolist() == [0, 6]
    assert [bad.index for bad in read.bad] == [1, 2, 3, 5, 7]
    letters = dead_letters(read, given, "tag")
    assert letters is not None
    reasons = {row.place: row.reason for row in letters.batch.values()}
    assert reasons["offset 2"] == "KeyError: 'id'" and "does not fit LONG" in reasons["offset 5"]


def test_without_a_tag_a_bad_message_is_reported_with_its_place_and_where_the_schema_raised() -> None:
    given, read = decoded(b'{"id": 1}', b'{"x": 1}')
    with pytest.raises(TypeMismatchError, match=r"offset 1: KeyError: 'id'\. The message is b'\{\"x\": 1\}'") as raised:
        dead_letters(read, given, None)
    assert isinstance(raised.value.__cause__, KeyError)


def test_an_unavailable_registry_makes_no_message_a_bad_one() -> None:
    with pytest.raises(ConnectorAwayError):
        decoded(b'{"id": 1}', b"away")


class Unencoded(SerializationSchema):
    def serialize(self, value: Any) -> Any:
        return value


def test_a_schema_that_returns_no_bytes_is_reported() -> None:
    with pytest.raises(TypeMismatchError, match=r"Unencoded\.serialize returned 5 \(int\) for 5, expected bytes"):
        encoder_of(Unencoded(), None).encode(Batch.of_values([b"a", 5], None))
