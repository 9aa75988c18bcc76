"""Protobuf messages: rows of a message type, in and out, and what random bytes are."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.message_formats import BYTES, TEXT, check_decoder, check_encoder, integers

from millstream.common import Instant, Row, RowKind, Types
from millstream.connectors.messages import protobuf
from millstream.connectors.messages.codecs import Messages, decoder_of
from millstream.connectors.messages.protobuf import protobuf_source
from millstream.datastream.formats.protobuf import ProtobufRowDeserializationSchema, ProtobufRowSerializationSchema
from millstream.errors import ProgramError, TypeMismatchError

SINGLES: list[tuple[str, int, Any]] = [
    ("i32", Field.TYPE_INT32, integers(32)),
    ("s64", Field.TYPE_SINT64, integers(64)),
    ("u32", Field.TYPE_UINT32, st.integers(0, 2**32 - 1)),
    ("u64", Field.TYPE_FIXED64, st.integers(0, 2**64 - 1)),
    ("real", Field.TYPE_DOUBLE, st.floats(allow_nan=False)),
    ("small", Field.TYPE_FLOAT, st.floats(width=32, allow_nan=False)),
    ("flag", Field.TYPE_BOOL, st.booleans()),
    ("text", Field.TYPE_STRING, TEXT),
    ("data", Field.TYPE_BYTES, st.binary(max_size=5)),
]


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    """A file of proto3 with a message that has every kind of field, and one of proto2 that contains itself."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(
        name="all.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="VIEW", number=0)
    kind.value.add(name="CLICK", number=3)
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="n", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    whole = file.message_type.add(name="All")
    for number, (name, type_, _) in enumerate(SINGLES, 1):
        whole.field.add(name=name, number=number, type=type_, label=Field.LABEL_OPTIONAL)
    whole.oneof_decl.add(name="_maybe")
    whole.field.add(
        name="maybe", number=20, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL, oneof_index=0, proto3_optional=True
    )
    whole.field.add(name="kind", number=21, type=Field.TYPE_ENUM, type_name=".shop.Kind", label=Field.LABEL_OPTIONAL)
    message = {"type": Field.TYPE_MESSAGE, "type_name": ".shop.Inner"}
    whole.field.add(name="inner", number=22, label=Field.LABEL_OPTIONAL, **message)
    whole.field.add(name="inners", number=23, label=Field.LABEL_REPEATED, **message)
    whole.field.add(name="numbers", number=24, type=Field.TYPE_INT32, label=Field.LABEL_REPEATED)
    whole.field.add(
        name="at",
        number=25,
        type=Field.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=Field.LABEL_OPTIONAL,
    )
    entry = whole.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL, **message)
    whole.field.add(
        name="counts", number=26, type=Field.TYPE_MESSAGE, type_name=".shop.All.CountsEntry", label=Field.LABEL_REPEATED
    )
    old = files.file.add(name="old.proto", package="old", syntax="proto2")
    node = old.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=Field.TYPE_MESSAGE, type_name=".old.Node", label=Field.LABEL_OPTIONAL)
    needy = old.message_type.add(name="Needy")
    needy.field.add(name="id", number=1, type=Field.TYPE_INT32, label=Field.LABEL_REQUIRED)
    old.message_type.add(name="Empty")
    return files


SET = descriptors().SerializeToString()


def reader(name: str = "shop.All", **options: Any) -> ProtobufRowDeserializationSchema:
    return ProtobufRowDeserializationSchema(descriptor_set=SET, message_name=name, **options)


def writer(name: str = "shop.All") -> ProtobufRowSerializationSchema:
    return ProtobufRowSerializationSchema(descriptor_set=SET, message_name=name)


def message_class(name: str = "shop.All") -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


INNERS = st.builds(lambda n: Row(n=n), integers(64))
ROWS = st.fixed_dictionaries(
    {
        **{name: values for name, _, values in SINGLES},
        "maybe": st.one_of(st.none(), integers(32)),
        "kind": st.sampled_from(["VIEW", "CLICK"]),
        "inner": st.one_of(st.none(), INNERS),
        "inners": st.lists(INNERS, max_size=2),
        "numbers": st.lists(integers(32), max_size=3),
        "at": st.one_of(st.none(), st.builds(Instant, st.integers(-(2**40), 2**40), st.integers(0, 999_999_999))),
        "counts": st.dictionaries(TEXT, INNERS, max_size=2),
    }
).map(lambda fields: Row(**fields))


@settings(deadline=None)
@given(st.lists(ROWS, max_size=4))
def test_rows_come_back_as_they_went_and_a_compiled_class_reads_them(rows: list[Row]) -> None:
    row_type = reader().produced_type()
    messages = check_encoder(writer(), rows, row_type)
    check_decoder(reader(), [*messages, None])
    assert [reader().deserialize(message) for message in messages] == rows
    for row, message in zip(rows, messages, strict=True):
        parsed = message_class().FromString(message)
        assert (parsed.text, parsed.u64, list(parsed.numbers)) == (row.text, row.u64, row.numbers)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=6))
def test_random_bytes_are_bad_messages_or_read_alike(messages: list[bytes]) -> None:
    check_decoder(reader(), messages)
    check_decoder(reader("old.Needy"), messages)
    check_decoder(reader(ignore_parse_errors=True), messages)


def test_a_field_that_can_be_absent_is_none_and_one_that_cannot_has_its_default() -> None:
    row = reader().deserialize(b"")
    assert (row.i32, row.text, row.maybe, row.inner, row.at, row.inners, row.counts, row.kind) == (
        0, "", None, None, None, [], {}, "VIEW",
    )  # fmt: skip
    empty_inner = writer().serialize(row.__class__(**{**row.as_dict(), "inner": Row(n=0)}))
    assert reader().deserialize(empty_inner).inner == Row(n=0)


def test_what_would_come_back_as_another_value_is_refused() -> None:
    row = reader().deserialize(b"").as_dict()
    with pytest.raises(TypeMismatchError, match="field i32 is None, but it always has a value"):
        writer().serialize(Row(**{**row, "i32": None}))
    with pytest.raises(TypeMismatchError, match="a repeated field cannot"):
        writer().serialize(Row(**{**row, "numbers": [1, None]}))
    with pytest.raises(TypeMismatchError, match="a map cannot"):
        writer().serialize(Row(**{**row, "counts": None}))
    with pytest.raises(TypeMismatchError, match=r"expected one of \['CLICK', 'VIEW'\]"):
        writer().serialize(Row(**{**row, "kind": "BUY"}))
    with pytest.raises(TypeMismatchError, match="does not fit"):
        writer().serialize(Row(**{**row, "u64": -1}))
    with pytest.raises(TypeMismatchError, match="kind DELETE"):
        writer("shop.Inner").serialize(Row.of_kind(RowKind.DELETE, 1))


def test_an_enum_without_a_name_and_a_missing_required_field_are_bad() -> None:
    with pytest.raises(TypeMismatchError, match="holds the enum value 7, which has no name"):
        reader().deserialize(message_class()(kind=7).SerializeToString())
    with pytest.raises(TypeMismatchError, match=r"required fields of old\.Needy are missing"):
        reader("old.Needy").deserialize(b"")
    with pytest.raises(TypeMismatchError, match="999999999"):
        reader().deserialize(b"\xca\x01\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")


def test_a_compiled_class_will_do_and_its_schema_travels() -> None:
    compiled = ProtobufRowDeserializationSchema(message_class())
    assert compiled.produced_type() == reader().produced_type()
    travelled = pickle.loads(pickle.dumps(compiled))
    assert travelled.deserialize(message_class()(text="x").SerializeToString()).text == "x"
    types = dict(
        zip(compiled.produced_type().get_field_names(), compiled.produced_type().get_field_types(), strict=True)
    )
    assert (types["u64"], types["u32"], types["data"]) == (Types.BIG_INT(), Types.LONG(), BYTES)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "pass a compiled message class"),
        ({"message_class": int}, "expected a message class compiled by protoc"),
        ({"descriptor_set": SET, "message_name": "shop.None"}, "has no usable message 'shop.None'"),
        ({"descriptor_set": b"\xff", "message_name": "a"}, "has no usable message 'a'"),
        ({"descriptor_set": SET, "message_name": "old.Node"}, "contains itself"),
        ({"descriptor_set": SET, "message_name": "old.Empty"}, "has no fields"),
    ],
)
def test_a_message_type_that_cannot_be_used_is_refused(arguments: Any, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        protobuf_source(**arguments)


def test_a_worker_without_the_package_takes_no_message_for_a_bad_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(source: object) -> Any:
        raise ProgramError("Protobuf needs the package protobuf")

    schema = reader(ignore_parse_errors=True)
    monkeypatch.setattr(protobuf, "_message_class", absent)
    with pytest.raises(ProgramError, match="needs the package"):
        schema.deserialize(b"")
    with pytest.raises(ProgramError, match="needs the package"):
        decoder_of(schema).decode(Messages(pa.array([b""]), lambda index: f"message {index}"))
