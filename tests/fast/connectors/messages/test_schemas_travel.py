"""Schemas hold settings only: they are pickled to tasks and work there as on the driver."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from inputs.message_formats import place

from millstream.common import Row, Types
from millstream.common.serialization import ByteArraySchema, SimpleStringSchema
from millstream.connectors.messages.codecs import Messages, decoder_of, encoder_of
from millstream.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from millstream.datastream.formats.canal import CanalJsonDeserializationSchema, CanalJsonSerializationSchema
from millstream.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millstream.datastream.formats.debezium import DebeziumJsonDeserializationSchema, DebeziumJsonSerializationSchema
from millstream.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from millstream.datastream.formats.protobuf import ProtobufRowDeserializationSchema, ProtobufRowSerializationSchema
from millstream.records.batch import Batch

ROW = Types.ROW_NAMED(["seconds", "nanos"], [Types.LONG(), Types.INT()])
AVRO = """{"type": "record", "name": "D", "fields": [
    {"name": "seconds", "type": "long"}, {"name": "nanos", "type": "int"}]}"""
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
SCHEMAS: list[tuple[Any, Any, Any]] = [
    (SimpleStringSchema("UTF-16"), SimpleStringSchema("UTF-16"), Types.STRING()),
    (ByteArraySchema(), ByteArraySchema(), BYTES),
    (
        JsonRowDeserializationSchema.builder().type_info(ROW).build(),
        JsonRowSerializationSchema.builder().with_type_info(ROW).build(),
        ROW,
    ),
    (CsvRowDeserializationSchema.Builder(ROW).build(), CsvRowSerializationSchema.Builder(ROW).build(), ROW),
    (AvroRowDeserializationSchema(None, AVRO), AvroRowSerializationSchema(None, AVRO), ROW),
    (ProtobufRowDeserializationSchema(Duration), ProtobufRowSerializationSchema(Duration), ROW),
    (DebeziumJsonDeserializationSchema(ROW), DebeziumJsonSerializationSchema(ROW), ROW),
    (CanalJsonDeserializationSchema(ROW), CanalJsonSerializationSchema(ROW), ROW),
]


@pytest.mark.parametrize(("reader", "writer", "type_info"), SCHEMAS, ids=lambda value: type(value).__name__)
def test_a_pickled_schema_decodes_and_encodes_as_before(reader: Any, writer: Any, type_info: Any) -> None:
    value: Any = {Types.STRING(): "grün", BYTES: b"\x00\xff"}.get(type_info, Row(seconds=5, nanos=7))
    batch = Batch.of_values([value, value], type_info)
    sent_reader, sent_writer = cloudpickle.loads(cloudpickle.dumps((reader, writer)))
    assert sent_reader.produced_type() == type_info
    messages = encoder_of(sent_writer, type_info).encode(batch)
    assert messages.equals(encoder_of(writer, type_info).encode(batch))
    assert decoder_of(sent_reader).decode(Messages(messages, place)).batch.values() == [value, value]


@pytest.mark.parametrize(("reader", "writer", "type_info"), SCHEMAS, ids=lambda value: type(value).__name__)
def test_no_messages_decode_to_no_rows(reader: Any, writer: Any, type_info: Any) -> None:
    for nothing in (pa.array([], pa.binary()), pa.nulls(3, pa.binary())):
        decoded = decoder_of(reader).decode(Messages(nothing, place))
        assert (decoded.batch.values(), decoded.bad) == ([], ())
        assert decoded.origins is None or len(decoded.origins) == 0
    assert len(encoder_of(writer, type_info).encode(Batch.of_values([], type_info))) == 0
