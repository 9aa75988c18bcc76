"""Batch decoding and encoding of CSV messages equals record by record, for any text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.message_formats import BYTES, SINGLE, check_decoder, check_encoder, place, row_types, values_of

from millstream.common import Row, RowKind, Types
from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.messages.codecs import Messages, decoder_of, encoder_of
from millstream.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millstream.errors import TypeMismatchError
from millstream.records.batch import Batch

DELIMITERS = st.sampled_from([",", ";", "\t", "|", "ä"])
QUOTES = st.sampled_from(['"', "'"])
NULL_TEXTS = st.sampled_from([None, "", "null", "n/a"])


def reader(row_type: RowTypeInfo, delimiter: str = ",", quote: str = '"', null_text: str | None = None) -> Any:
    builder = CsvRowDeserializationSchema.Builder(row_type).set_field_delimiter(delimiter).set_quote_character(quote)
    return (builder if null_text is None else builder.set_null_literal(null_text)).build()


def writer(row_type: RowTypeInfo, delimiter: str = ",", quote: str = '"', null_text: str | None = None) -> Any:
    builder = CsvRowSerializationSchema.Builder(row_type).set_field_delimiter(delimiter).set_quote_character(quote)
    return (builder if null_text is None else builder.set_null_literal(null_text)).build()


ODD_FIELDS = st.one_of(
    st.text(st.sampled_from("ab0 \"',;\n\r\\#\x00\ufeff1-.eE+_"), max_size=6),
    st.sampled_from(["1", "-0", "+1", " 1", "1_0", "0x1", "1e400", "nan", "inf", "1.5", ".5", "5.", "1e5", "٣"]),
    st.sampled_from(["true", "TRUE", " true", "yes", "2024-02-29", "2024-02-30", "12:00", "2024-02-29 12:00:00.5"]),
    st.sampled_from(["2147483648", "9223372036854775808", "123456.789", "0.001", "QQ==", "Q", "n/a", "null", ""]),
)


@settings(deadline=None)
@given(st.data(), row_types(0), DELIMITERS, QUOTES, NULL_TEXTS)
def test_batch_decoding_of_csv_equals_decoding_one_by_one(
    data: st.DataObject, row_type: RowTypeInfo, delimiter: str, quote: str, null_text: str | None
) -> None:
    width = len(row_type.get_field_types())
    written = writer(row_type, delimiter, quote, null_text)
    rows = data.draw(st.lists(values_of(row_type, nulls=False), max_size=4))
    messages: list[Any] = [written.serialize(row) for row in rows]
    for fields in data.draw(st.lists(st.lists(ODD_FIELDS, min_size=max(0, width - 1), max_size=width + 1), max_size=3)):
        messages.append(delimiter.join(fields).encode() + data.draw(st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"])))
    messages += [None, b"", b"\xff", b'"']
    check_decoder(reader(row_type, delimiter, quote, null_text), messages)


@settings(deadline=None)
@given(st.data(), row_types(0), DELIMITERS, QUOTES)
def test_batch_encoding_of_csv_equals_encoding_one_by_one(
    data: st.DataObject, row_type: RowTypeInfo, delimiter: str, quote: str
) -> None:
    rows = data.draw(st.lists(values_of(row_type, nulls=False), max_size=5))
    check_encoder(writer(row_type, delimiter, quote, "<none>"), rows, row_type)


PLAIN = SINGLE.filter(lambda type_info: type_info not in (Types.FLOAT(), Types.DOUBLE(), Types.INSTANT()))


@settings(deadline=None)
@given(st.data(), row_types(0, PLAIN))
def test_csv_rows_survive_a_round_trip(data: st.DataObject, row_type: RowTypeInfo) -> None:
    rows = data.draw(st.lists(values_of(row_type, nulls=False), max_size=5))
    messages = check_encoder(writer(row_type, null_text="<none>"), rows, row_type)
    decoded = decoder_of(reader(row_type, null_text="<none>")).decode(Messages(pa.array(messages, pa.binary()), place))
    assert not decoded.bad and decoded.batch.values() == Batch.of_values(rows, row_type).values()


AD = Types.ROW_NAMED(["name", "clicks"], [Types.STRING(), Types.LONG()])


def test_a_message_with_two_records_is_a_bad_message() -> None:
    with pytest.raises(TypeMismatchError, match="it holds 2 records, expected one"):
        reader(AD).deserialize(b"a,1\nb,2\n")
    check_decoder(reader(AD), [b"a,1\nb,2\n", b"a,1\n\n", b'"a\nb",1', b'"a,1', b"\na,1"])


def test_comments_and_escapes_are_decoded_one_by_one() -> None:
    comments = CsvRowDeserializationSchema.Builder(AD).set_allow_comments(True).build()
    check_decoder(comments, [b"#a,1", b"b,2"])
    escapes = CsvRowDeserializationSchema.Builder(AD).set_escape_character("\\").build()
    check_decoder(escapes, [b"a\\,b,1", b"b,2"])
    lenient = CsvRowDeserializationSchema.Builder(AD).set_ignore_parse_errors(True).build()
    check_decoder(lenient, [b"a", b"b,x", b"c,3"])


def test_a_very_long_field_is_decoded_by_both_decoders() -> None:
    message = b"x" * 200_000 + b",1"
    check_decoder(reader(AD), [message, b'"' + message[:-2] + b'",2'])


def test_lists_in_fields_survive_a_round_trip() -> None:
    row_type = Types.ROW_NAMED(["items", "raw"], [Types.LIST(Types.INT()), BYTES])
    check_decoder(reader(row_type), [b"1;2;3,QQ==", b",", b"x,QQ=="])
    assert check_encoder(writer(row_type), [Row(items=[1, 2], raw=b"A")], row_type) == [b"1;2,QQ==\n"]


def test_csv_rejects_rows_other_than_inserts() -> None:
    deleted = Row.of_kind(RowKind.DELETE, "a", 1)
    with pytest.raises(TypeMismatchError, match="kind DELETE"):
        encoder_of(writer(AD), AD).encode(Batch.of_values([deleted], AD))
    with pytest.raises(TypeMismatchError, match="kind DELETE"):
        writer(AD).serialize(deleted)
