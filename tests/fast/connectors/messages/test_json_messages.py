"""Batch decoding and encoding of JSON messages equals document by document, for any documents."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.message_formats import check_decoder, check_encoder, documents_of, json_message, place, row_types, values_of

from millstream.common.time import Instant
from millstream.common.typeinfo import RowTypeInfo, Types
from millstream.common.types import Row, RowKind
from millstream.connectors.messages.codecs import Messages, bad_message_error, decoder_of, encoder_of
from millstream.connectors.messages.json_values import NESTING_MAX
from millstream.datastream.formats.csv import CsvRowDeserializationSchema
from millstream.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from millstream.errors import TypeMismatchError
from millstream.records.batch import Batch

ORDER = Types.ROW_NAMED(
    ["id", "name", "price", "at", "tags"],
    [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.SQL_TIMESTAMP(), Types.LIST(Types.STRING())],
)


def reader(row_type: RowTypeInfo, *, strict: bool = False, lenient: bool = False) -> JsonRowDeserializationSchema:
    builder = JsonRowDeserializationSchema.builder().type_info(row_type)
    if strict:
        builder.fail_on_missing_field()
    if lenient:
        builder.ignore_parse_errors()
    return builder.build()


def writer(row_type: RowTypeInfo) -> JsonRowSerializationSchema:
    return JsonRowSerializationSchema.builder().with_type_info(row_type).build()


@pytest.mark.slow
@settings(deadline=None)
@given(st.data(), row_types(2))
def test_batch_decoding_of_json_equals_decoding_one_by_one(data: st.DataObject, row_type: RowTypeInfo) -> None:
    documents = data.draw(st.lists(documents_of(row_type), max_size=6))
    messages: list[bytes | None] = [json_message(document) for document in documents]
    messages.insert(data.draw(st.integers(0, len(messages))), data.draw(st.sampled_from([None, b"", b"null", b"{}"])))
    check_decoder(reader(row_type), messages)
    check_decoder(reader(row_type, strict=True), messages)
    check_decoder(reader(row_type, lenient=True), messages)


@settings(deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=12), documents_of(ORDER).map(json_message)), max_size=6), st.data())
def test_batch_decoding_of_malformed_json_equals_decoding_one_by_one(
    messages: list[bytes], data: st.DataObject
) -> None:
    for at, message in enumerate(messages):
        if message and data.draw(st.booleans()):
            cut = data.draw(st.integers(0, len(message) - 1))
            messages[at] = message[:cut] + data.draw(st.binary(max_size=2)) + message[cut + 1 :]
    check_decoder(reader(ORDER), messages)


@settings(deadline=None)
@given(st.data(), row_types(2))
def test_batch_encoding_of_json_equals_encoding_one_by_one_and_survives_a_round_trip(
    data: st.DataObject, row_type: RowTypeInfo
) -> None:
    rows = data.draw(st.lists(values_of(row_type, nulls=False), max_size=5))
    messages = check_encoder(writer(row_type), rows, row_type)
    decoded = decoder_of(reader(row_type)).decode(Messages(pa.array(messages, pa.binary()), place))
    assert repr(decoded.batch.values()) == repr(Batch.of_values(rows, row_type).values())


DIGITS = r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?"
NUMBERS = st.one_of(
    st.from_regex(DIGITS, fullmatch=True), st.integers(-(2**65), 2**65).map(str), st.floats(width=32).map(repr)
)
CLOCK = r"[0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,10})?)?(Z|z|[+-][01][0-9]:[0-5][0-9])?"
TIMES = st.from_regex(rf"[0-9]{{4}}-[01][0-9]-[0-3][0-9]([T ]{CLOCK})?|{CLOCK}", fullmatch=True)
NUMERIC = st.sampled_from(
    [
        *(Types.BYTE(), Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE(), Types.BIG_INT(), Types.BIG_DEC()),
        *(Types.DECIMAL(10, 2), Types.DECIMAL(38, 20), Types.DECIMAL(5, 5), Types.DECIMAL(38, 0)),
    ]
)
TEMPORAL = st.sampled_from([Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.INSTANT()])


@settings(deadline=None)
@given(NUMERIC, st.lists(st.tuples(NUMBERS, st.booleans()), min_size=1, max_size=4))
def test_numbers_in_any_notation_are_decoded_as_one_by_one(type_info: Any, tokens: list[tuple[str, bool]]) -> None:
    texts = [f'"{text}"' if is_text else text for text, is_text in tokens]
    check_decoder(reader(Types.ROW_NAMED(["a"], [type_info])), [f'{{"a": {text}}}'.encode() for text in texts])
    lists = Types.ROW_NAMED(["a"], [Types.LIST(type_info)])
    check_decoder(reader(lists), [f'{{"a": [{text}, null]}}'.encode() for text in texts])
    records = CsvRowDeserializationSchema.Builder(Types.ROW_NAMED(["a"], [type_info])).build()
    check_decoder(records, [text.encode() for text, _ in tokens])


@settings(deadline=None)
@given(TEMPORAL, st.lists(TIMES, min_size=1, max_size=4))
def test_times_in_any_notation_are_decoded_as_one_by_one(type_info: Any, texts: list[str]) -> None:
    row_type = Types.ROW_NAMED(["a"], [type_info])
    check_decoder(reader(row_type), [f'{{"a": "{text}"}}'.encode() for text in texts])
    check_decoder(CsvRowDeserializationSchema.Builder(row_type).build(), [text.encode() for text in texts])


ODD = [
    b'{"id": 1}',
    b'{"\\u0069d": 1}',
    b' {"id": 1}\n',
    b'{"id":\n\t1}',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1}\n{"id": 2}',
    b'{"name": "}',
    b'{"name": "}\n{"}',
    b'{"id": 1, "id": 2}',
    b'{"id": null, "id": 2}',
    b'{"x": 1, "x": 2, "id": 3}',
    b'{"id": 1.0}',
    b'{"id": 1e2}',
    b'{"id": "1"}',
    b'{"id": true}',
    b'{"id": 9223372036854775807}',
    b'{"id": 9223372036854775808}',
    b'{"id": -0}',
    b'{"price": -0}',
    b'{"price": -0.0}',
    b'{"price": 1e400}',
    b'{"price": NaN}',
    b'{"price": -Infinity}',
    b'{"price": "NaN"}',
    b'{"price": 123456789012345678901234567890}',
    b'{"price": 0.1000000000000000055511151231257827021181583404541015625}',
    b'{"name": "a\\u0000b\\ud83d\\ude00"}',
    b'{"name": "\\ud83d"}',
    b'{"x": "\\ud83d", "id": 1}',
    b'{"name": "a\x00b"}',
    b'{"name": "a\nb"}',
    b'{"name": "\xff"}',
    b'{"x": "\xed\xa0\x80"}',
    b'{"name": "\xc3\xa4"}',
    '\ufeff{"id": 1}'.encode(),
    '{"id": 1}'.encode("utf-16"),
    '{"id": 1}'.encode("utf-16-le"),
    '{"id": 1}'.encode("utf-32"),
    b'{"at": "2024-02-29 23:59:59"}',
    b'{"at": "2024-02-29T23:59:59.1234567Z"}',
    b'{"at": "2024-02-29T23:59:59+01:00"}',
    b'{"at": "2024-02-30T23:59:59"}',
    b'{"at": "2024-02-29T24:00:00"}',
    b'{"at": "0000-01-01T00:00:00"}',
    b'{"at": "2024-02-29"}',
    b'{"at": 1709251199}',
    b'{"tags": ["a", null, "b"]}',
    b'{"tags": [1]}',
    b'{"tags": {}}',
    b'{"id": 1,}',
    b"{'id': 1}",
    b'{"id": 01}',
    b'{"id": +1}',
    b'{"id": 1} x',
    b'// a comment\n{"id": 1}',
    b"[]",
    b"null",
    b"1",
    b"",
    b" ",
    b"{}",
    b'{"x": ' + b"[" * (NESTING_MAX - 1) + b"]" * (NESTING_MAX - 1) + b"}",
    b'{"x": ' + b"[" * NESTING_MAX + b"]" * NESTING_MAX + b"}",
    b'{"x": "' + b"[" * 1000 + b'"}',
    b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"x": ' + b"1" * 5000 + b"}",
    b'{"x": "' + b"1" * 5000 + b'"}',
]


@pytest.mark.parametrize("message", ODD)
def test_an_unusual_document_is_decoded_alike_singly_and_in_a_batch(message: bytes) -> None:
    plain = b'{"id": 7, "name": "x", "price": 1.5, "at": "2024-02-29T12:00:00", "tags": []}'
    check_decoder(reader(ORDER), [message])
    check_decoder(reader(ORDER), [plain, message, plain])
    check_decoder(reader(ORDER, strict=True), [plain, message])


@pytest.mark.slow
def test_many_messages_with_bad_ones_among_them_are_each_read_once() -> None:
    messages: list[Any] = [json_message({"id": number, "name": "n"}) for number in range(1_200)]
    for at in (0, 1, 700, 1_100, 1_199):
        messages[at] = b'{"id": "x"}'
    messages[1_000], messages[1_001] = None, b"null"
    check_decoder(reader(ORDER), messages)
    check_decoder(reader(ORDER), [message if at % 50 else b"{" for at, message in enumerate(messages)])


def test_a_bad_message_is_reported_with_its_position_and_bytes() -> None:
    messages = Messages(pa.array([b'{"id": 1}', b'{"id": "x"}'], pa.binary()), place)
    [bad] = decoder_of(reader(ORDER)).decode(messages).bad
    text = str(bad_message_error(bad, messages))
    assert text.startswith("topic t, partition 0, offset 1: ") and """b'{"id": "x"}'""" in text
    assert "field id is 'x' (str), expected a whole number" in text


def test_decimals_retain_the_digits_of_the_document() -> None:
    money = Types.ROW_NAMED(["a", "b", "c"], [Types.DECIMAL(38, 20), Types.BIG_DEC(), Types.DOUBLE()])
    message = b'{"a": 12345678901234567.12345678901234567890, "b": 0.10000000000000000000001, "c": 0.5}'
    check_decoder(reader(money), [message])
    assert reader(money).deserialize(message) == Row(
        a=Decimal("12345678901234567.12345678901234567890"), b=Decimal("0.10000000000000000000001"), c=0.5
    )
    assert writer(money).serialize(reader(money).deserialize(message)) == message.replace(b" ", b"")


def test_an_instant_retains_its_nanoseconds() -> None:
    row_type = Types.ROW_NAMED(["at"], [Types.INSTANT()])
    message = b'{"at":"2024-02-29T12:00:00.123456789Z"}'
    check_decoder(reader(row_type), [message])
    assert reader(row_type).deserialize(message) == Row(at=Instant(1709208000, 123456789))
    assert check_encoder(writer(row_type), [Row(at=Instant(1709208000, 123456789))], row_type) == [message]


def test_json_rejects_rows_other_than_inserts() -> None:
    row_type = Types.ROW_NAMED(["n"], [Types.INT()])
    deleted = Row.of_kind(RowKind.DELETE, 1)
    deleted.set_field_names(["n"])
    with pytest.raises(TypeMismatchError, match="kind DELETE"):
        writer(row_type).serialize(deleted)
    with pytest.raises(TypeMismatchError, match="kind DELETE"):
        encoder_of(writer(row_type), row_type).encode(Batch.of_values([Row(n=1), deleted], row_type))
    with pytest.raises(TypeMismatchError, match="None in place of a row"):
        encoder_of(writer(row_type), row_type).encode(Batch.of_values([Row(n=1), None], row_type))


def test_a_schema_with_its_own_deserialize_is_called_for_every_message() -> None:
    class Shouting(JsonRowDeserializationSchema):
        def deserialize(self, message: bytes) -> Any:
            return super().deserialize(message.lower())

    builder = JsonRowDeserializationSchema.builder().type_info(ORDER)
    decoded = decoder_of(Shouting(builder=builder)).decode(Messages(pa.array([b'{"ID": 1}'], pa.binary()), place))
    assert decoded.batch.values()[0].id == 1
