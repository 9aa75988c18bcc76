"""Avro messages: rows of a schema's type, in and out, and what random bytes are."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import fastavro.utils
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.message_formats import BYTES, check_decoder, check_encoder, place, values_of

from millstream.common import Row, RowKind, Types
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.connectors.messages.codecs import Messages, decoder_of
from millstream.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from millstream.errors import NotAvailableError, ProgramError, TypeMismatchError

SINGLES: list[tuple[Any, TypeInformation]] = [
    ("boolean", Types.BOOLEAN()),
    ("int", Types.INT()),
    ("long", Types.LONG()),
    ("float", Types.FLOAT()),
    ("double", Types.DOUBLE()),
    ("string", Types.STRING()),
    ("bytes", BYTES),
    ({"type": "int", "logicalType": "date"}, Types.SQL_DATE()),
    ({"type": "long", "logicalType": "time-micros"}, Types.SQL_TIME()),
    ({"type": "long", "logicalType": "timestamp-micros"}, Types.SQL_TIMESTAMP()),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, Types.SQL_TIMESTAMP()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, Types.DECIMAL(10, 2)),
]


@st.composite
def schemas(draw: st.DrawFn, depth: int, name: str) -> Any:
    """A schema, always nullable, as streams' values are. Records have names that no other has."""
    kind = draw(st.integers(0, 6 if depth else 2))
    if kind <= 2:
        return ["null", draw(st.sampled_from(SINGLES))[0]]
    if kind == 3:
        return ["null", {"type": "array", "items": draw(schemas(depth - 1, name))}]
    if kind == 4:
        return ["null", {"type": "map", "values": draw(schemas(depth - 1, name))}]
    return ["null", draw(records(depth - 1, name))]


@st.composite
def records(draw: st.DrawFn, depth: int = 2, name: str = "R") -> Any:
    count = draw(st.integers(1, 4))
    fields = [draw(schemas(depth, f"{name}{at}")) for at in range(count)]
    named = [{"name": f"field{at}", "type": field} for at, field in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named}


def reader(schema: Any) -> AvroRowDeserializationSchema:
    return AvroRowDeserializationSchema(avro_schema_string=json.dumps(schema))


def writer(schema: Any) -> AvroRowSerializationSchema:
    return AvroRowSerializationSchema(avro_schema_string=json.dumps(schema))


def written(schema: Any, record: Any) -> bytes:
    """By fastavro itself, as another program would."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


@settings(deadline=None)
@given(st.data(), records())
def test_rows_of_any_schema_come_back_as_they_went(data: st.DataObject, schema: Any) -> None:
    row_type = reader(schema).produced_type()
    rows = data.draw(st.lists(values_of(row_type, nulls=False), max_size=4))
    messages = check_encoder(writer(schema), rows, row_type)
    check_decoder(reader(schema), [*messages, None])
    decoded = decoder_of(reader(schema)).decode(Messages(pa.array(messages, pa.binary()), place))
    assert repr(decoded.batch.values()) == repr([reader(schema).deserialize(message) for message in messages])
    plain = [row for row in rows if "nan" not in repr(row)]
    assert [reader(schema).deserialize(writer(schema).serialize(row)) for row in plain] == plain


@settings(deadline=None)
@given(records(), st.lists(st.binary(max_size=30), max_size=5))
def test_random_bytes_are_bad_messages_and_nothing_worse(schema: Any, messages: list[bytes]) -> None:
    check_decoder(reader(schema), messages)


PRICE = {"type": "fixed", "name": "Price", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 3}
FLAT = SINGLES[:11]


@st.composite
def flat_records(draw: st.DrawFn) -> Any:
    """Records without lists and maps: those that are read at once."""
    fields: list[Any] = []
    for at in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(FLAT))[0]
        inner = {
            "type": "record",
            "name": f"In{at}",
            "fields": [{"name": "x", "type": kind}, {"name": "y", "type": "int"}],
        }
        symbols = {"type": "enum", "name": f"E{at}", "symbols": ["A", "B", "C"]}
        fixed = {"type": "fixed", "name": f"F{at}", "size": 3}
        choices = [kind, ["null", kind], [kind, "null"], inner, ["null", inner], symbols, ["null", symbols], fixed]
        fields.append({"name": f"field{at}", "type": draw(st.sampled_from(choices))})
    return {"type": "record", "name": "R", "fields": fields}


@settings(deadline=None)
@given(st.data(), flat_records())
def test_flat_records_in_columns_are_read_as_one_by_one_also_when_they_are_damaged(
    data: st.DataObject, schema: Any
) -> None:
    parsed = fastavro.parse_schema(schema)
    seeds = data.draw(st.lists(st.integers(0, 2**32), min_size=1, max_size=5))
    messages: list[bytes | None] = [None]
    for seed in seeds:
        random.seed(seed)
        message = written(schema, fastavro.utils.generate_one(parsed))
        messages.append(message)
        cut = data.draw(st.integers(0, len(message)))
        messages.append(message[:cut] + data.draw(st.binary(max_size=2)) + message[cut + 1 :])
    check_decoder(reader(schema), messages)
    check_decoder(reader(schema), data.draw(st.lists(st.binary(max_size=20), max_size=5)))


EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CLICK", "VIEW"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "price", "type": PRICE},
        {"name": "again", "type": ["null", "Kind"]},
        {"name": "any", "type": ["null", "string", "long"]},
    ],
}


def test_records_are_exchanged_with_another_program() -> None:
    record = {
        "id": uuid.UUID(int=5),
        "kind": "VIEW",
        "at": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
        "hash": b"abcd",
        "price": Decimal("1.500"),
        "again": "CLICK",
        "any": 7,
    }
    message = written(EVENT, record)
    row = reader(EVENT).deserialize(message)
    assert row == Row(
        id=str(uuid.UUID(int=5)),
        kind="VIEW",
        at=dt.datetime(2024, 2, 29, 12),
        hash=b"abcd",
        price=Decimal("1.500"),
        again="CLICK",
        any=7,
    )
    assert writer(EVENT).serialize(row) == message
    check_decoder(reader(EVENT), [message, message[:-1], message + b"x", b"", b"\xff" * 20])


AD = {"type": "record", "name": "Ad", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}


def test_remaining_bytes_are_reported_as_another_schema() -> None:
    with pytest.raises(TypeMismatchError, match="its record ends after 3 of 4 bytes: another schema wrote it"):
        reader(AD).deserialize(b"\x02\x02ax")
    with pytest.raises(TypeMismatchError, match="it is not an Avro record of the schema"):
        reader(AD).deserialize(b"\x02\x08a")


def test_what_the_schema_cannot_hold_is_refused_by_name() -> None:
    with pytest.raises(TypeMismatchError, match="Make nullable fields a union with null"):
        writer(AD).serialize(Row(id=1, name=None))
    with pytest.raises(TypeMismatchError, match="whole number"):
        writer(AD).serialize(Row(id="x", name="a"))
    with pytest.raises(TypeMismatchError, match="kind DELETE"):
        writer(AD).serialize(Row.of_kind(RowKind.DELETE, 1, "a"))


NOTHINGS = """{"type": "record", "name": "A",
    "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}]}"""


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "is not an Avro schema"),
        ('"no such type"', "is not an Avro schema"),
        ('{"type": "record", "name": "A"}', "has no fields"),
        ('"long"', "is a record"),
        ('{"type": "record", "name": "A", "fields": [{"name": "next", "type": ["null", "A"]}]}', "contains itself"),
        (NOTHINGS, "no bytes"),
        ("[" * 10_000, "Avro schema"),
    ],
)
def test_an_unusable_schema_is_refused_where_it_is_passed(schema: str, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        AvroRowDeserializationSchema(avro_schema_string=schema)


def test_pyflinks_names_take_a_schema_and_no_java_class(tmp_path: Path) -> None:
    (tmp_path / "ad.avsc").write_text(json.dumps(AD))
    schema = AvroSchema.parse_file(str(tmp_path / "ad.avsc"))
    assert schema.get_row_type() == Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    assert isinstance(schema.get_row_type(), RowTypeInfo)
    assert GenericRecordAvroTypeInfo(schema) == GenericRecordAvroTypeInfo(AvroSchema.parse_string(json.dumps(AD)))
    with pytest.raises(NotAvailableError, match=r"Java class .* is not supported"):
        AvroRowDeserializationSchema(record_class="com.example.Ad")
    with pytest.raises(ProgramError, match="cannot be read"):
        AvroSchema.parse_file(str(tmp_path / "missing"))
