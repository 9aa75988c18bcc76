"""Bad messages among good ones: batch decoding yields the same rows and bad messages as decoding one by one."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.common.typeinfo import Types
from millstream.connectors.files.csv_records import CsvDialect
from millstream.connectors.messages import row_decoder
from millstream.connectors.messages.changelog import DebeziumDecoder
from millstream.connectors.messages.codecs import MessageDecoder, Messages
from millstream.connectors.messages.csv_messages import CsvDecoder, CsvMessages
from millstream.connectors.messages.json_reading import JsonDecoder
from millstream.connectors.messages.row_decoder import RowDecoder, utf8_mask
from millstream.connectors.tables.formats.cell_text import cell_value, read_cells
from millstream.connectors.tables.formats.csv_format import CsvTableDecoder
from millstream.connectors.tables.formats.json_cells import JsonReading
from millstream.connectors.tables.formats.json_format import JsonTableDecoder
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, RowType

AMOUNT, NUMBERS = types.DecimalType(6, 2), ArrayType(types.IntType())
TABLE = RowType.of(
    ["s", "n", "d", "at", "tags"], [types.VarCharType(99), types.IntType(), AMOUNT, types.TimestampType(3), NUMBERS]
)
ROW = Types.ROW_NAMED(["s", "n", "d"], [Types.STRING(), Types.INT(), Types.DECIMAL(6, 2)])
Spoil = Callable[[bytes], bytes]
SPOILERS: list[Spoil] = [
    lambda message: message.replace(b"s-", b"\xff", 1),
    lambda message: message.replace(b"s-", b"\xc3", 1),
    lambda message: message[:-2],
    lambda message: message + b",x",
    lambda message: message.replace(b":", b"", 1),
    lambda message: message.replace(b"17", b"99999999999", 1),
    lambda message: message.replace(b"17", b"1e999999999", 1),
    lambda message: message.replace(b"17", b"1.5", 1),
    lambda message: message.replace(b"17", b'"x"', 1),
    lambda message: message.replace(b"2.25", b"123456.5", 1),
    lambda message: message.replace(b"02-28", b"02-30", 1),
    lambda message: message.replace(b"[1, 2]", b"[1, 2.5]", 1),
    lambda message: b"",
    lambda message: b"null",
]


def document(number: int) -> dict[str, Any]:
    values = {"s": f"s-{number} größe", "n": 17, "d": 2.25, "at": "2026-02-28 12:00:00.5", "tags": [1, 2]}
    return {name: value for name, value in values.items() if number % 5 or name != "s"}


def good_of(kind: str, number: int) -> bytes:
    written = json.dumps(document(number), ensure_ascii=False)
    if kind == "debezium":
        written = f'{{"before": null, "after": {written}, "op": "c"}}'
    if "csv" in kind:
        written = f"s-{number} größe,17,2.25" + (",2026-02-28 12:00:00.5,1;2" if kind == "csv table" else "")
    return written.encode()


DECODERS: dict[str, Callable[[], MessageDecoder]] = {
    "json": lambda: JsonDecoder(ROW),
    "debezium": lambda: DebeziumDecoder(ROW),
    "csv": lambda: CsvDecoder(CsvMessages(ROW)),
    "json table": lambda: JsonTableDecoder(TABLE, JsonReading()),
    "csv table": lambda: CsvTableDecoder(TABLE, CsvDialect()),
}


def decode(decoder: MessageDecoder, messages: list[bytes]) -> tuple[list[Any], list[tuple[int, str]], list[int]]:
    decoded = decoder.decode(Messages(pa.array(messages, pa.binary()), str))
    origins = range(len(messages)) if decoded.origins is None else decoded.origins.tolist()
    return decoded.batch.values(), [(bad.index, bad.reason) for bad in decoded.bad], list(origins)


def decode_one_by_one(make: Callable[[], MessageDecoder], messages: list[bytes]) -> Any:
    rows, bad, origins = [], [], []
    for at, message in enumerate(messages):
        decoder = make()
        if isinstance(decoder, RowDecoder):
            decoder.columns = lambda values: None  # type: ignore[method-assign]
        values, refused, _ = decode(decoder, [message])
        rows += values
        bad += [(at, reason) for _, reason in refused]
        origins += [at] * len(values)
    return rows, bad, origins


@pytest.mark.slow
@pytest.mark.parametrize("kind", DECODERS)
@given(places=st.lists(st.tuples(st.integers(0, 299), st.integers(0, len(SPOILERS) - 1)), max_size=12))
@example(places=[(at * 20, at) for at in range(len(SPOILERS))])
@example(places=[(at, at % len(SPOILERS)) for at in range(300)])
def test_batch_decoding_with_bad_messages_equals_decoding_one_by_one(kind: str, places: list[tuple[int, int]]) -> None:
    messages = [good_of(kind, number) for number in range(300)]
    for at, spoiler in places:
        messages[at] = SPOILERS[spoiler](messages[at])
    assert decode(DECODERS[kind](), messages) == decode_one_by_one(DECODERS[kind], messages)


@pytest.mark.parametrize("kind", ["json", "debezium", "csv", "json table", "csv table"])
def test_good_messages_are_decoded_by_column_next_to_invalid_text(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [good_of(kind, 1 + 5 * number) for number in range(2000)]
    messages[7::100] = [b"\xff" + message for message in messages[7::100]]
    read = row_decoder._DecodeCall._read_slowly
    slow: list[int] = []
    monkeypatch.setattr(
        row_decoder._DecodeCall, "_read_slowly", lambda self, v, i: (slow.append(len(v)), read(self, v, i))
    )
    _, bad, _ = decode(DECODERS[kind](), messages)
    assert len(bad) == 20 and sum(slow) == 20


@given(st.lists(st.binary(max_size=6) | st.text(max_size=4).map(str.encode), max_size=30))
@example([b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe0\x80\x80", b"a\n", b"\n\xff", b"\xf0\x9f\x98\x80"])
def test_utf_8_validation_equals_pythons(values: list[bytes]) -> None:
    def is_text(value: bytes) -> bool:
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
        return True

    mask = utf8_mask(pa.array(values, pa.binary()))
    assert (np.ones(len(values), np.bool_) if mask is None else mask).tolist() == [is_text(value) for value in values]


CELLS = st.sampled_from(
    """1 -7 +3 127 128 32768 2147483648 9223372036854775807 9223372036854775808 1.5 2.255 1e3 1e999999999 x true TRUE
    2024-02-29 2023-02-29 1900-02-29 2000-02-29 0000-01-01 23:59:59.5 NaN Infinity 12345.67 99999.999 _4_
    2024-02-29_23:59:59.999 2024-04-31_00:00:00 2024-01-01_24:00:00 9999-12-31_00:00:00""".split()  # noqa: SIM905
).map(lambda text: text.replace("_", " "))
CELL_TYPES: list[DataType] = [
    types.TinyIntType(), types.SmallIntType(), types.IntType(), types.BigIntType(), types.FloatType(),
    types.DoubleType(), types.DecimalType(6, 2), types.DecimalType(38, 0), types.BooleanType(), types.DateType(),
    types.TimeType(3), types.TimestampType(3), types.TimestampType(9), types.LocalZonedTimestampType(3),
]  # fmt: skip


@pytest.mark.parametrize("of", CELL_TYPES, ids=str)
@given(texts=st.lists(st.none() | CELLS, max_size=30))
def test_decoding_a_column_of_cells_equals_decoding_each_cell(of: DataType, texts: list[str | None]) -> None:
    column, bad = read_cells(pa.array(texts, pa.string()), of)
    values, refused = [], []
    for text in texts:
        try:
            values.append(None if text is None else cell_value(text, of))
            refused.append(False)
        except ValueError:
            values.append(None)
            refused.append(True)
    expected = pa.array(values, of.arrow)
    assert repr(column.to_pylist()) == repr(expected.to_pylist()) and column.type == of.arrow
    assert (np.zeros(len(texts), np.bool_) if bad is None else bad).tolist() == refused


def test_nonexistent_dates_are_bad_cells_among_good_ones() -> None:
    texts = ["2024-02-29", "2023-02-29", "2024-04-31", "2024-12-31"] * 5
    column, bad = read_cells(pa.array(texts), types.DateType())
    assert bad is not None and bad.tolist() == [False, True, True, False] * 5
    assert column.to_pylist()[:4] == [dt.date(2024, 2, 29), None, None, dt.date(2024, 12, 31)]
