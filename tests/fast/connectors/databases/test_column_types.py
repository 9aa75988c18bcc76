"""PostgreSQL text values: decoding a whole column equals decoding each value on its own."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Instant, Row, Types
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.databases.column_types import typed_column
from millstream.connectors.databases.sql_values import array_text, column_values, text_of
from millstream.errors import TypeMismatchError


def values_of(texts: list[str | None], type_info: TypeInformation) -> list[Any]:
    return column_values(typed_column(pa.array(texts, pa.string()), type_info, "table t"), type_info)


@pytest.mark.parametrize(
    ("type_info", "text", "value"),
    [
        (Types.BOOLEAN(), "t", True),
        (Types.LONG(), "-9223372036854775808", -(2**63)),
        (Types.BIG_INT(), str(10**30), 10**30),
        (Types.DOUBLE(), "-Infinity", float("-inf")),
        (Types.DECIMAL(5, 2), "1.5", Decimal("1.50")),
        (Types.BIG_DEC(), "1.500", Decimal("1.500")),
        (Types.SQL_DATE(), "0001-01-01", dt.date(1, 1, 1)),
        (Types.SQL_TIME(), "23:59:59.5", dt.time(23, 59, 59, 500_000)),
        (Types.SQL_TIMESTAMP(), "1969-12-31 23:59:59.999999", dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        (Types.INSTANT(), "1969-12-31 23:59:59.5+00", Instant(-1, 500_000_000)),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "\\x00ff", b"\x00\xff"),
        (Types.LIST(Types.LIST(Types.INT())), "{{1,2},{NULL,4}}", [[1, 2], [None, 4]]),
        (Types.LIST(Types.BOOLEAN()), "{t,f}", [True, False]),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), '{"a": 7}', Row(a=7)),
        (Types.MAP(Types.STRING(), Types.LONG()), '{"a": 7}', {"a": 7}),
    ],
)
def test_a_text_is_decoded_to_the_value_it_encodes(type_info: TypeInformation, text: str, value: Any) -> None:
    assert values_of([text, None, text], type_info) == [value, None, value]


@pytest.mark.parametrize(
    ("type_info", "text"),
    [
        (Types.INT(), "2147483648"),
        (Types.SQL_DATE(), "infinity"),
        (Types.SQL_TIMESTAMP(), "0044-03-15 00:00:00 BC"),
        (Types.SQL_TIME(), "24:00:00"),
        (Types.DECIMAL(5, 2), "NaN"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "abc"),
        (Types.LIST(Types.INT()), "{1,x}"),
        (Types.BIG_INT(), "1.5"),
    ],
)
def test_a_text_invalid_for_its_type_is_quoted_in_the_error(type_info: TypeInformation, text: str) -> None:
    with pytest.raises(TypeMismatchError) as refusal:
        values_of([None, text], type_info)
    assert f"{text!r}" in str(refusal.value) and "table t" in str(refusal.value)


TEXTS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=8)


@given(st.lists(st.one_of(st.none(), TEXTS), max_size=5))
def test_an_encoded_array_is_decoded_to_the_same_value(values: list[str | None]) -> None:
    assert values_of([array_text(values)], Types.LIST(Types.STRING())) == [values]


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=10))
def test_numbers_survive_a_round_trip_through_text(values: list[float | None]) -> None:
    texts = [None if value is None else text_of(value) for value in values]
    assert repr(values_of(texts, Types.DOUBLE())) == repr(values)
