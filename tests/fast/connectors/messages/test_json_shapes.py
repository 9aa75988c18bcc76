"""Documents of one shape are decoded as single documents are; a document of another shape does not affect them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.message_formats import check_decoder

from millstream.common.typeinfo import Types
from millstream.connectors.messages import json_reading
from millstream.connectors.messages.json_shapes import learnt_shape, read_shape, shape_of
from millstream.datastream.formats.json import JsonRowDeserializationSchema

ROW = Types.ROW_NAMED(
    ["user", "cents", "ok", "price", "at"],
    [Types.STRING(), Types.INT(), Types.BOOLEAN(), Types.DOUBLE(), Types.SQL_TIMESTAMP()],
)
WIRE = pa.schema([("user", pa.string()), ("cents", pa.int64())])
PLAIN = b'{"user": "anna", "cents": 17, "ok": true, "price": 1.5, "at": "2024-02-29 12:00:00", "more": "x", "n": 3}'


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reading, "_SHAPED_MIN", 1)


def reader(*, strict: bool = False) -> JsonRowDeserializationSchema:
    builder = JsonRowDeserializationSchema.builder().type_info(ROW)
    return (builder.fail_on_missing_field() if strict else builder).build()


_TEXTS = st.text(st.sampled_from('ab"\\,:{} é\n\x1f\x7f\u2028€😀'), max_size=6)
_NUMBERS = st.one_of(
    st.integers(-(2**33), 2**33).map(str),
    st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{0,3})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["-0", "00", "007", "+1", "0x1F", "-", "1e400", "NaN", "null", '"5"', " 3", "3 ", "1_0", "٣"]),
)
_TRUTHS = st.sampled_from(["true", "false", "null", "True", "1", '"true"', "tru", " true"])
_TIMES = st.sampled_from(['"2024-02-29 12:00:00"', '"2023-02-29 12:00:00"', '"1999-12-31T23:59:59.5Z"', '""', "null"])


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Like `PLAIN`, with any values, sometimes damaged."""
    user = json.dumps(draw(_TEXTS), ensure_ascii=draw(st.booleans()))
    values = (user, draw(_NUMBERS), draw(_TRUTHS), draw(_NUMBERS), draw(_TIMES), json.dumps(draw(_TEXTS)))
    text = '{{"user": {}, "cents": {}, "ok": {}, "price": {}, "at": {}, "more": {}, "n": {}}}'
    document = text.format(*values, draw(_NUMBERS)).encode()
    if draw(st.integers(0, 3)):
        return document
    at, end = sorted(draw(st.tuples(st.integers(0, len(document)), st.integers(0, len(document)))))
    slices = st.sampled_from([b"", b'"', b"{", b"}", b",", b" ", b"\\", b"\xff", b"\n", b'", "', b'"x": 1, '])
    return document[:at] + draw(slices) + document[min(end, at + draw(st.integers(0, 3))) :]


@settings(deadline=None)
@given(st.lists(st.one_of(st.just(PLAIN), st.just(PLAIN), documents()), min_size=1, max_size=12), st.booleans())
def test_documents_of_similar_shape_equal_decoding_one_by_one(messages: list[bytes], strict: bool) -> None:
    check_decoder(reader(strict=strict), messages)


@pytest.mark.slow
def test_a_truncated_last_document_is_decoded_as_a_single_one() -> None:
    for length in range(len(PLAIN) + 1):
        check_decoder(reader(), [PLAIN, PLAIN, PLAIN[:length]])
        check_decoder(reader(), [PLAIN, PLAIN, PLAIN + PLAIN[-length:]])


def test_documents_of_one_shape_are_sliced_and_not_parsed() -> None:
    texts = pa.array([f'{{"user":"é{n}","cents":{n * 7}}}' for n in range(100)])
    shape = learnt_shape(texts, WIRE)
    assert shape is not None
    cut = read_shape(texts, shape, WIRE)
    assert cut is not None and cut[1].all()
    assert cut[0]["user"].to_pylist() == [f"é{n}" for n in range(100)]
    assert cut[0]["cents"].to_pylist() == [n * 7 for n in range(100)]


def test_other_documents_are_marked_and_define_a_second_shape() -> None:
    plain = [f'{{"user": "u{n}", "cents": {n}}}' for n in range(60)]
    other = [f'{{"cents":{n},"user":"v{n}"}}' for n in range(30)]
    texts = pa.array([*plain[:30], *other, "{", *plain[30:]])
    shape = shape_of(plain[0].encode(), WIRE)
    assert shape is not None
    cut = read_shape(texts, shape, WIRE)
    assert cut is not None
    assert cut[1].tolist() == [True] * 30 + [False] * 31 + [True] * 30
    schema = JsonRowDeserializationSchema.builder().type_info(
        Types.ROW_NAMED(["user", "cents"], [Types.STRING(), Types.LONG()])
    )
    check_decoder(schema.build(), [text.encode() for text in texts.to_pylist()])


@pytest.mark.parametrize(
    "document",
    ['{"user": "a"}', '{"user": "a", "cents": [1]}', '{"user": "a", "cents": 1, "cents": 2}', '{"user": 1, "cents": 1}',
     '{"user": "a", "cents": 1} x', '{"us\\u0065r": "a", "cents": 1}', "[1]", "", "{"],
)  # fmt: skip
def test_a_document_that_cannot_be_sliced_has_no_shape(document: str) -> None:
    assert shape_of(document.encode(), WIRE) is None


def test_a_document_with_an_escape_is_parsed_separately_and_does_not_affect_others() -> None:
    documents = [f'{{"user": "u{n}", "cents": {n}}}' for n in range(20)]
    documents[7] = '{"user": "a\\u0062", "cents": 7}'
    texts = pa.array(documents)
    shape = learnt_shape(texts, WIRE)
    assert shape is not None
    cut = read_shape(texts, shape, WIRE)
    assert cut is not None
    assert [at for at, is_fit in enumerate(cut[1].tolist()) if not is_fit] == [7]


def test_a_slice_of_documents_is_decoded_at_its_own_offset() -> None:
    messages: Any = pa.array([PLAIN] * 5 + [PLAIN.replace(b"anna", b"bert")] * 5, pa.binary()).slice(4, 3).to_pylist()
    check_decoder(reader(), messages)
    texts = pa.array([f'{{"user": "{n}", "cents": {n}}}' for n in range(10)]).slice(4, 3)
    shape = learnt_shape(texts, WIRE)
    assert shape is not None
    cut = read_shape(texts, shape, WIRE)
    assert cut is not None and cut[0]["cents"].to_pylist() == [4, 5, 6]
