"""Schemas and encoders convert values to bytes and back; subclasses written in Python are fully supported."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from millstream.common import ByteArraySchema, Encoder, Row, SerializationSchema, SimpleStringSchema, Types
from millstream.common.serialization import (
    BulkWriterFactory,
    DeserializationSchema,
    RowDataBulkWriterFactory,
    RowFieldExtractorSchema,
)
from millstream.common.serializer import TypeSerializer, VoidNamespaceSerializer
from millstream.errors import NotAvailableError, ProgramError, TypeMismatchError


def test_text_is_encoded_and_decoded_in_its_charset() -> None:
    for charset in ("UTF-8", "utf-16", "ISO-8859-1"):
        schema = SimpleStringSchema(charset)
        assert schema.deserialize(schema.serialize("grüße")) == "grüße"
    assert SimpleStringSchema().produced_type() == Types.STRING()
    assert SimpleStringSchema().deserialize(b"a\xffb") == "a\N{REPLACEMENT CHARACTER}b"
    with pytest.raises(ProgramError, match="charset 'klingon'"):
        SimpleStringSchema("klingon")
    with pytest.raises(TypeMismatchError, match="expected a str"):
        SimpleStringSchema().serialize(7)  # type: ignore[arg-type]


def test_bytes_are_unchanged() -> None:
    assert ByteArraySchema().serialize(bytearray(b"a")) == b"a"
    assert ByteArraySchema().deserialize(b"a") == b"a"
    assert ByteArraySchema().produced_type() == Types.PRIMITIVE_ARRAY(Types.BYTE())
    with pytest.raises(TypeMismatchError, match="expected bytes"):
        ByteArraySchema().serialize("a")  # type: ignore[arg-type]


def test_a_row_field_is_selected_by_position() -> None:
    assert RowFieldExtractorSchema(1).serialize(Row("a", 7)) == b"7"
    assert RowFieldExtractorSchema(0).serialize(Row(b"raw", 7)) == b"raw"
    assert RowFieldExtractorSchema(0).serialize(Row(None)) == b""
    with pytest.raises(TypeMismatchError, match="field 2"):
        RowFieldExtractorSchema(2).serialize(Row("a", 7))
    with pytest.raises(ProgramError, match="position"):
        RowFieldExtractorSchema(-1)


def test_records_are_encoded_one_per_line() -> None:
    encoder = Encoder.simple_string_encoder()
    assert encoder.encode("a") + encoder.encode(("b", None)) == b"a\n('b', None)\n"


class JsonSchema(SerializationSchema, DeserializationSchema):
    def serialize(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def deserialize(self, message: bytes) -> Any:
        return json.loads(message)


def test_a_python_schema_works_and_is_untyped_unless_it_declares_a_type() -> None:
    schema = JsonSchema()
    assert schema.deserialize(schema.serialize({"a": [1]})) == {"a": [1]}
    assert schema.produced_type() == Types.PICKLED_BYTE_ARRAY()


def test_an_incomplete_schema_names_the_method_to_override() -> None:
    with pytest.raises(ProgramError, match="Override serialize"):
        SerializationSchema().serialize(1)
    with pytest.raises(ProgramError, match="Override deserialize"):
        DeserializationSchema().deserialize(b"")
    with pytest.raises(ProgramError, match="Override encode"):
        Encoder().encode(1)


def test_writer_factories_store_their_row_type() -> None:
    row_type = Types.ROW([Types.INT()])
    assert RowDataBulkWriterFactory(None, row_type).get_row_type() == row_type
    with pytest.raises(NotAvailableError):
        RowDataBulkWriterFactory().get_row_type()
    with pytest.raises(NotAvailableError):
        BulkWriterFactory().get_java_object()


class Numbers(TypeSerializer[int]):
    def serialize(self, element: int, stream: Any) -> None:
        stream.write(element.to_bytes(8, "big"))

    def deserialize(self, stream: Any) -> int:
        return int.from_bytes(stream.read(8), "big")


def test_serializers_of_one_class_are_equal() -> None:
    stream = io.BytesIO()
    Numbers().serialize(7, stream)
    stream.seek(0)
    assert Numbers().deserialize(stream) == 7
    assert Numbers() == Numbers() != VoidNamespaceSerializer()
    assert len({Numbers(), Numbers()}) == 1
