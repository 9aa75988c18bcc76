"""Text and bytes as messages: a column at once, with the answers of message by message."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.message_formats import BYTES, TEXT, check_decoder, check_encoder, place

from millstream.common.serialization import ByteArraySchema, RowFieldExtractorSchema, SimpleStringSchema
from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.connectors.messages.codecs import Messages, PerMessageDecoder, PerMessageEncoder, decoder_of, encoder_of
from millstream.errors import TypeMismatchError
from millstream.records.batch import Batch

CHARSETS = st.sampled_from(["UTF-8", "latin-1", "UTF-16", "UTF-16LE", "cp1252"])


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9), TEXT.map(str.encode)), max_size=5), CHARSETS)
def test_any_bytes_are_text_of_any_charset(messages: list[bytes | None], charset: str) -> None:
    check_decoder(SimpleStringSchema(charset), messages)
    check_decoder(ByteArraySchema(), messages)


@given(st.lists(TEXT, max_size=5), st.sampled_from(["UTF-8", "UTF-16"]))
def test_text_is_written_as_one_by_one_and_read_back(rows: list[str], charset: str) -> None:
    messages = check_encoder(SimpleStringSchema(charset), rows, Types.STRING())
    decoded = decoder_of(SimpleStringSchema(charset)).decode(Messages(pa.array(messages, pa.binary()), place))
    assert decoded.batch.values() == rows


FIELDS = Types.ROW_NAMED(["a", "b", "c", "d"], [Types.STRING(), Types.LONG(), BYTES, Types.SHORT()])
ROWS = st.builds(
    Row,
    st.none() | TEXT,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.binary(max_size=9),
    st.none() | st.integers(-(2**15), 2**15 - 1),
)


@given(st.lists(ROWS, max_size=5), st.integers(0, 3), st.booleans())
def test_a_field_of_a_row_is_written_as_one_by_one(rows: list[Row], index: int, with_deletions: bool) -> None:
    if with_deletions and rows:
        rows[0].set_row_kind(RowKind.DELETE)
    check_encoder(RowFieldExtractorSchema(index), rows, FIELDS)


def test_fields_of_other_types_are_written_one_by_one() -> None:
    for type_info in (Types.DOUBLE(), Types.BOOLEAN()):
        encoder = encoder_of(RowFieldExtractorSchema(0), Types.TUPLE([type_info]))
        assert isinstance(encoder, PerMessageEncoder)


@given(st.lists(st.binary(max_size=9), max_size=5))
def test_bytes_are_written_as_they_are(rows: list[bytes]) -> None:
    assert check_encoder(ByteArraySchema(), rows, BYTES) == rows


@pytest.mark.parametrize(("schema", "type_info"), [(SimpleStringSchema(), Types.STRING()), (ByteArraySchema(), BYTES)])
def test_none_is_refused_never_a_message_without_a_value(schema: Any, type_info: Any) -> None:
    with pytest.raises(TypeMismatchError, match="got None"):
        encoder_of(schema, type_info).encode(Batch.of_values([None], type_info))


def test_a_schema_with_its_own_methods_is_called_for_every_message() -> None:
    class Upper(SimpleStringSchema):
        def deserialize(self, message: bytes) -> str:
            return super().deserialize(message).upper()

        def serialize(self, value: str) -> bytes:
            return super().serialize(value.lower())

    assert isinstance(decoder_of(Upper()), PerMessageDecoder)
    assert isinstance(encoder_of(Upper(), Types.STRING()), PerMessageEncoder)


def test_a_stream_of_another_type_is_written_value_by_value() -> None:
    assert isinstance(encoder_of(SimpleStringSchema(), Types.LONG()), PerMessageEncoder)
    assert isinstance(encoder_of(SimpleStringSchema(), None), PerMessageEncoder)
