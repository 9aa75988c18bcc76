"""Decimals in CSV and JSON, written as by Flink 2.3."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.tables.formats.cell_text import decimal_text, decimal_texts

# Written by Flink for DECIMAL(20, 3) and DECIMAL(20, 10).
FLINKS = {
    "100000.000": "1E+5",
    "0.000": "0",
    "120.500": "120.5",
    "-7.000": "-7",
    "10.000": "1E+1",
    "1.5000000000": "1.5",
    "0.0000001000": "1E-7",
    "0.0000100000": "0.00001",
    "-100.0000000000": "-1E+2",
}


def test_each_decimal_is_written_as_flink_writes_it() -> None:
    assert {text: decimal_text(Decimal(text)) for text in FLINKS} == FLINKS


@given(st.integers(0, 38), st.lists(st.none() | st.integers(0, 37) | st.integers(-(10**38) + 1, 10**38 - 1)))
def test_decimal_columns_are_written_as_each_value_is(scale: int, numbers: list[int | None]) -> None:
    # Small numbers represent powers of ten, which end in zeros.
    unscaled = [10**number if number is not None and 0 <= number <= 37 else number for number in numbers]
    values = [None if each is None else Decimal((0 if each >= 0 else 1, _digits(each), -scale)) for each in unscaled]
    column = pa.array(values, pa.decimal128(38, scale))
    expected = [None if value is None else decimal_text(value) for value in column.to_pylist()]
    assert decimal_texts(column).to_pylist() == expected


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))
