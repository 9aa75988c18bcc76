"""A JSON schema says the type of rows, as in Flink; what cannot be a row is refused with its place."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from inputs.message_formats import BYTES, check_decoder

from millstream.common import Row, Types
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.errors import ProgramError

SCHEMA = {
    "type": "object",
    "definitions": {"address": {"type": "object", "properties": {"city": {"type": ["string", "null"]}}}},
    "properties": {
        "id": {"type": "integer"},
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "name": {"type": "string"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "raw": {"type": "string", "contentEncoding": "base64"},
        "home": {"$ref": "#/definitions/address"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "pair": {"type": "array", "items": [{"type": "boolean"}, {"type": "string"}]},
    },
}


def test_a_schema_has_flinks_types_and_reads_documents() -> None:
    schema = JsonRowDeserializationSchema.builder().json_schema(json.dumps(SCHEMA)).build()
    address = Types.ROW_NAMED(["city"], [Types.STRING()])
    assert schema.produced_type() == Types.ROW_NAMED(
        ["id", "price", "name", "day", "at", "raw", "home", "tags", "pair"],
        [
            Types.BIG_DEC(),
            Types.BIG_DEC(),
            Types.STRING(),
            Types.SQL_DATE(),
            Types.SQL_TIMESTAMP(),
            BYTES,
            address,
            Types.OBJECT_ARRAY(Types.STRING()),
            Types.TUPLE([Types.BOOLEAN(), Types.STRING()]),
        ],
    )
    document = b"""{"id": 12345678901234567890, "price": 0.10, "name": "x", "day": "2024-02-29", "raw": "QQ==",
        "at": "2024-02-29T12:00:00Z", "home": {"city": "Ulm"}, "tags": ["a"], "pair": [true, "b"]}"""
    assert schema.deserialize(document) == Row(
        id=Decimal("12345678901234567890"),
        price=Decimal("0.10"),
        name="x",
        day=dt.date(2024, 2, 29),
        at=dt.datetime(2024, 2, 29, 12),
        raw=b"A",
        home=Row(city="Ulm"),
        tags=["a"],
        pair=(True, "b"),
    )
    check_decoder(schema, [document, b"{}", b"[]", b'{"id": "x"}'])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "is not a JSON schema"),
        ({"type": "string"}, "has the type object"),
        ({"type": "object"}, "has no properties"),
        ({"type": "object", "properties": {"a": {}}}, r"the schema\.a: found the type None"),
        ({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}, "expected one, or one and null"),
        ({"type": "object", "properties": {"a": {"$ref": "#/none"}}}, "refers to no schema"),
        ({"type": "object", "properties": {"a": {"$ref": "http://other"}}}, "expected one within it"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "expected one within it"),
        ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, "contains itself"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "does not declare its items"),
        ({"type": "object", "properties": {"a": {"anyOf": []}}}, "a choice of 0 types"),
        ({"type": "object", "properties": {"a": {"type": "null"}}}, "is not supported in a row"),
        ({"type": "object", "properties": {"a": 1}}, "expected an object"),
    ],
)
def test_a_schema_that_is_no_row_is_refused_with_its_place(schema: Any, reason: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(ProgramError, match=reason):
        JsonRowDeserializationSchema.builder().json_schema(text)
