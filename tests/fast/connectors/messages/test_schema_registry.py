"""Avro messages that name their schema: read by both, the registry asked once, its absence no message's fault."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs.message_formats import check_decoder, check_encoder
from servers.registry_server import RegistryServer

from millstream.common import Row, Types
from millstream.connectors.messages.codecs import Messages, decoder_of
from millstream.datastream.formats.avro import AvroRowSerializationSchema, AvroSchema
from millstream.datastream.formats.confluent import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    SchemaRegistry,
)
from millstream.errors import ConnectorAwayError, ConnectorError, ProgramError, TypeMismatchError

OLD = {"type": "record", "name": "Ad", "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}]}
NEW = json.dumps(
    {
        "type": "record",
        "name": "Ad",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string", "default": "?"}],
    }
)
AD = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def old_message(registry: RegistryServer, number: int) -> bytes:
    record = AvroRowSerializationSchema(avro_schema_string=json.dumps(OLD)).serialize((number, "x"))
    return b"\x00" + registry.add(OLD).to_bytes(4, "big") + record


def test_a_message_of_an_older_schema_is_read_as_the_newer_one(registry: RegistryServer) -> None:
    schema = ConfluentRegistryAvroDeserializationSchema(NEW, registry.url)
    messages = [old_message(registry, number) for number in range(50)]
    assert schema.deserialize(messages[7]) == Row(id=7, name="?")
    check_decoder(schema, [*messages, None, b"", b"\x00", b"\x01\x00\x00\x00\x01\x02", messages[0][:-1]])
    assert registry.requests == ["GET /schemas/ids/1"]


def test_rows_are_written_under_their_subject_and_come_back(registry: RegistryServer) -> None:
    writer = ConfluentRegistryAvroSerializationSchema("ads/value", AvroSchema.parse_string(NEW), registry.url)
    messages = check_encoder(writer, [Row(id=1, name="a"), Row(id=2, name="b")], AD)
    assert messages[0][:5] == b"\x00\x00\x00\x00\x01" and list(registry.subjects) == ["ads%2Fvalue"]
    assert len(registry.requests) == 1
    reader = ConfluentRegistryAvroDeserializationSchema(NEW, registry.url)
    odd = [old_message(registry, 9), b"", b"\x00\x00", messages[0] + b"x", messages[0][:6], b"\x00\x00\x00\x00\x63\x02"]
    check_decoder(reader, [messages[0], *odd, messages[1], None])
    assert [reader.deserialize(message) for message in messages] == [Row(id=1, name="a"), Row(id=2, name="b")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.binary(max_size=12), max_size=4))
def test_random_bytes_are_bad_messages(registry: RegistryServer, messages: list[bytes]) -> None:
    registry.add(OLD)
    odd = [b"\x00\x00\x00\x00\x01" + message for message in messages]
    check_decoder(ConfluentRegistryAvroDeserializationSchema(NEW, registry.url), [*messages, *odd])


def test_an_unknown_schema_number_is_a_bad_message_and_requested_once(registry: RegistryServer) -> None:
    schema = ConfluentRegistryAvroDeserializationSchema(NEW, registry.url)
    check_decoder(schema, [b"\x00\x00\x00\x00\x63\x02"] * 3)
    with pytest.raises(TypeMismatchError, match="the schema registry has no schema 99"):
        schema.deserialize(b"\x00\x00\x00\x00\x63\x02")
    assert registry.requests == ["GET /schemas/ids/99"]


def test_a_schema_that_cannot_be_resolved_or_used_is_a_bad_message(registry: RegistryServer) -> None:
    other = registry.add({"type": "record", "name": "Ad", "fields": [{"name": "id", "type": "string"}]})
    endless = registry.add('{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}')
    broken = registry.add("no schema")
    schema = ConfluentRegistryAvroDeserializationSchema(NEW, registry.url)
    messages = [b"\x00" + number.to_bytes(4, "big") + b"\x02a" for number in (other, endless, broken)]
    check_decoder(schema, messages)
    for message in messages:
        with pytest.raises(TypeMismatchError):
            schema.deserialize(message)


def test_an_unavailable_registry_is_retried_and_then_an_error_of_the_job(registry: RegistryServer) -> None:
    message = old_message(registry, 1)
    registry.failures = 2
    assert ConfluentRegistryAvroDeserializationSchema(NEW, registry.url).deserialize(message).id == 1
    assert len(registry.requests) == 3
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = SchemaRegistry(f"http://127.0.0.1:{free.getsockname()[1]}", patience_s=0.2)
    schema = ConfluentRegistryAvroDeserializationSchema(NEW, gone)
    with pytest.raises(ConnectorAwayError, match="does not answer"):
        schema.deserialize(message)
    with pytest.raises(ConnectorAwayError, match="does not answer"):
        decoder_of(schema).decode(Messages(pa.array([message], pa.binary()), str))


def test_a_password_is_sent_and_never_shown() -> None:
    secret = "Basic " + base64.b64encode(b"me:hush").decode()
    with RegistryServer(secret) as server:
        settings_ = SchemaRegistry(server.url, "me", "hush")
        assert "hush" not in repr(settings_)
        message = old_message(server, 3)
        assert ConfluentRegistryAvroDeserializationSchema(NEW, settings_).deserialize(message).id == 3
        stranger = ConfluentRegistryAvroDeserializationSchema(NEW, SchemaRegistry(server.url, "you", "hush"))
        with pytest.raises(ConnectorError, match="401") as refusal:
            stranger.deserialize(message)
        assert "hush" not in str(refusal.value) and not isinstance(refusal.value, ConnectorAwayError)
    with pytest.raises(ProgramError, match="pass user= and password="):
        SchemaRegistry("http://me:hush@localhost")
    with pytest.raises(ProgramError, match="expected http"):
        SchemaRegistry("localhost:8081")
