"""The text of a typed record is Flink's, by column as value by value; the text of an untyped record is Python's."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.time import Instant
from millstream.common.typeinfo import ExternalTypeInfo, LocalTimeTypeInfo, TypeInformation, Types
from millstream.common.types import Row, RowKind
from millstream.records.columns import as_declared
from millstream.records.text import printed_texts, texts
from millstream.records.text_reference import text

_TimeType = LocalTimeTypeInfo.TimeType
LOCAL_DATE = LocalTimeTypeInfo(_TimeType.LOCAL_DATE)
LOCAL_TIME = LocalTimeTypeInfo(_TimeType.LOCAL_TIME)
LOCAL_TIMESTAMP = LocalTimeTypeInfo(_TimeType.LOCAL_DATE_TIME)
NOON = dt.datetime(2024, 2, 29, 12, 0)


@pytest.mark.parametrize(
    ("type_info", "value", "expected"),
    [
        (Types.STRING(), "a 'b'", "a 'b'"),
        (Types.BOOLEAN(), True, "true"),
        (Types.LONG(), -5, "-5"),
        (Types.LONG(), None, "null"),
        (Types.FLOAT(), 110.1, "110.1"),
        (Types.FLOAT(), 1e10, "1.0E10"),
        (Types.FLOAT(), 1.4e-45, "1.4E-45"),
        (Types.DOUBLE(), 110.1, "110.1"),
        (Types.DOUBLE(), 12345678.9, "1.23456789E7"),
        (Types.DOUBLE(), 0.0001, "1.0E-4"),
        (Types.DOUBLE(), -0.0, "-0.0"),
        (Types.DOUBLE(), 5e-324, "4.9E-324"),
        (Types.DOUBLE(), float("nan"), "NaN"),
        (Types.DOUBLE(), float("-inf"), "-Infinity"),
        (Types.CHAR(), "x", "x"),
        (Types.BIG_INT(), 10**30, "1" + "0" * 30),
        (Types.BIG_DEC(), Decimal("1.10"), "1.10"),
        (Types.BIG_DEC(), Decimal("-0.0"), "0.0"),
        (Types.DECIMAL(10, 2), Decimal("1.1"), "1.10"),
        (Types.INSTANT(), Instant(0, 0), "1970-01-01T00:00:00Z"),
        (Types.INSTANT(), Instant(-1, 1_000), "1969-12-31T23:59:59.000001Z"),
        (Types.INSTANT(), Instant(253_402_300_800, 0), "+10000-01-01T00:00:00Z"),
        (Types.SQL_DATE(), NOON.date(), "2024-02-29"),
        (Types.SQL_TIME(), dt.time(1, 2, 3, 400_000), "01:02:03"),
        (Types.SQL_TIMESTAMP(), NOON, "2024-02-29 12:00:00.0"),
        (Types.SQL_TIMESTAMP(), NOON.replace(microsecond=120), "2024-02-29 12:00:00.00012"),
        (LOCAL_DATE, NOON.date(), "2024-02-29"),
        (LOCAL_TIME, dt.time(1, 2), "01:02"),
        (LOCAL_TIMESTAMP, NOON, "2024-02-29T12:00"),
        (LOCAL_TIMESTAMP, NOON.replace(microsecond=500_000), "2024-02-29T12:00:00.500"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x01\xff", "[1, -1]"),
        (Types.PRIMITIVE_ARRAY(Types.FLOAT()), [1.1, 2.0], "[1.1, 2.0]"),
        (Types.OBJECT_ARRAY(Types.STRING()), ["a", None], "[a, null]"),
        (Types.LIST(Types.LIST(Types.BOOLEAN())), [[True], []], "[[true], []]"),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1, "b": None}, "{a=1, b=null}"),
        (Types.TUPLE([Types.STRING(), Types.INT()] * 2), ("hi", 0, "ho", 4), "(hi,0,ho,4)"),
        (Types.TUPLE([Types.LIST(Types.INT()), Types.BOOLEAN()]), ([1, 2], None), "([1, 2],null)"),
        (Types.ROW([Types.STRING(), Types.INT(), Types.BOOLEAN()]), Row("a", None, True), "+I[a, null, true]"),
        (Types.ROW([Types.ROW([Types.INT()])]), Row.of_kind(RowKind.DELETE, Row(1)), "-D[+I[1]]"),
        (ExternalTypeInfo(Types.ROW([Types.INT()])), Row(1), "+I[1]"),
        (Types.PICKLED_BYTE_ARRAY(), ("a", True, None), "('a', True, None)"),
        (Types.TUPLE([Types.PICKLED_BYTE_ARRAY()] * 2), (None, {"a": True}), "(null,{'a': True})"),
        (Types.TUPLE([]), (), "()"),
    ],
    ids=str,
)
def test_a_typed_value_is_formatted_as_in_flink(type_info: Any, value: Any, expected: str) -> None:
    values = as_declared([value], type_info)
    assert texts(values, type_info) == [expected]
    if value != Instant(253_402_300_800, 0):  # later than Python's dates, which the reference uses
        assert text(values[0], type_info) == expected


def test_an_untyped_value_has_pythons_text() -> None:
    values = [Row(a=1), True, None, 1e20, ("a", None)]
    assert texts(values, None) == ["Row(a=1)", "True", "None", "1e+20", "('a', None)"]


def test_print_formats_rows_from_python_texts_as_pyflink_does() -> None:
    row_type = Types.ROW([Types.STRING(), Types.BOOLEAN(), Types.ROW([Types.INT()]), Types.LIST(Types.STRING())])
    values = as_declared([Row("a", True, Row(1), ["x"]), Row.of_kind(RowKind.DELETE, None, None, None, None)], row_type)
    assert printed_texts(values, row_type) == ["+I[a,True,Row(f0=1),['x']]", "-D[None,None,None,None]"]
    assert printed_texts([None], row_type) == ["null"]
    assert printed_texts([("a", True)], Types.TUPLE([Types.STRING(), Types.BOOLEAN()])) == ["(a,true)"]


_MOMENTS = st.datetimes()
_SINGLE: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.STRING(), st.text(max_size=5)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.FLOAT(), st.floats(width=32)),
    (Types.DOUBLE(), st.floats()),
    (Types.BIG_DEC(), st.decimals(allow_nan=False, allow_infinity=False)),
    (Types.DECIMAL(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    (Types.INSTANT(), st.builds(Instant, st.integers(-(10**10), 10**11), st.integers(0, 10**9 - 1))),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), _MOMENTS),
    (LOCAL_TIME, st.times()),
    (LOCAL_TIMESTAMP, _MOMENTS),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=4)),
    (Types.PICKLED_BYTE_ARRAY(), st.integers() | st.text(max_size=3) | st.booleans()),
]
Typed = tuple[TypeInformation, st.SearchStrategy[Any]]


def _nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def of_fields(make: Any, convert: Any) -> st.SearchStrategy[Typed]:
        return st.lists(inner, max_size=3).map(
            lambda fields: (make([t for t, _ in fields]), st.tuples(*[v | st.none() for _, v in fields]).map(convert))
        )

    return (
        of_fields(Types.TUPLE, tuple)
        | of_fields(Types.ROW, lambda cells: Row(*cells))
        | inner.map(lambda typed: (Types.LIST(typed[0]), st.lists(typed[1] | st.none(), max_size=3)))
        | inner.map(
            lambda typed: (
                Types.MAP(Types.DOUBLE(), typed[0]),
                st.dictionaries(st.floats(), typed[1] | st.none(), max_size=2),
            )
        )
    )


TYPED = st.recursive(st.sampled_from(_SINGLE), _nested, max_leaves=5)


@given(st.data())
def test_formatting_a_column_equals_formatting_single_values(data: st.DataObject) -> None:
    type_info, value = data.draw(TYPED)
    values = as_declared(data.draw(st.lists(value | st.none(), max_size=4)), type_info)
    assert texts(values, type_info) == [text(one, type_info) for one in values]
