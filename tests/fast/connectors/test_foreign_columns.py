"""Columns of other systems: what goes out comes back, and what does not fit is named."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.time import Instant
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row
from millstream.connectors.foreign_columns import foreign_schema, inward, outward
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.columns import from_record_batch, stream_schema, to_record_batch

INSTANTS = st.builds(Instant, st.integers(-(10**10), 10**10), st.integers(0, 999_999).map(lambda micros: micros * 1000))
DECIMALS = st.decimals(min_value=-(10**18), max_value=10**18, places=18)
LEAVES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.INSTANT(), INSTANTS),
    (Types.BIG_DEC(), DECIMALS),
    (Types.BIG_INT(), st.integers(-(10**37), 10**37)),
    (Types.STRING(), st.text(max_size=3)),
    (Types.SQL_TIMESTAMP(), st.datetimes()),
]


def nested(leaf: tuple[TypeInformation, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[TypeInformation, Any]]:
    type_info, values = leaf
    value = st.none() | values
    shapes: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
        (type_info, value),
        (Types.LIST(type_info), st.none() | st.lists(value, max_size=3)),
        (Types.MAP(Types.STRING(), type_info), st.none() | st.dictionaries(st.text(max_size=2), value, max_size=3)),
        (Types.TUPLE([type_info, Types.INT()]), st.none() | st.tuples(value, st.integers(0, 9))),
        (Types.ROW_NAMED(["x"], [Types.LIST(type_info)]), st.builds(lambda v: Row(x=v), st.lists(value, max_size=2))),
    ]
    return st.sampled_from(shapes).flatmap(lambda s: st.tuples(st.just(s[0]), st.lists(s[1], max_size=4)))


@given(st.sampled_from(LEAVES).flatmap(nested))
def test_outward_conversion_is_reversible(case: tuple[TypeInformation, list[Any]]) -> None:
    inner, values = case
    type_info = Types.ROW_NAMED(["v"], [inner])
    batch = to_record_batch([(value,) for value in values], type_info)
    out = outward(batch, type_info)
    assert out.schema.equals(foreign_schema(type_info))
    back = inward(out, type_info, "a test")
    assert back.schema.equals(stream_schema(type_info))
    assert from_record_batch(back, type_info) == from_record_batch(batch, type_info)


def test_timestamps_of_any_unit_become_instants() -> None:
    type_info = Types.ROW_NAMED(["at"], [Types.INSTANT()])
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Asia/Tokyo"):
            batch = pa.record_batch({"at": pa.array([-1, None, 7], pa.timestamp(unit, zone))})
            ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
            first, none, last = (row["at"] for row in from_record_batch(inward(batch, type_info, "x"), type_info))
            assert none is None
            assert (first.seconds, first.nanos) == (-1, (10**9 - 10**9 // ticks) % 10**9)
            assert (last.seconds, last.nanos) == divmod(7 * (10**9 // ticks), 10**9)


def test_what_lies_below_a_microsecond_is_dropped_outward() -> None:
    type_info = Types.ROW_NAMED(["at"], [Types.INSTANT()])
    out = outward(to_record_batch([(Instant(-1, 999_999_999),)], type_info), type_info)
    assert out.column(0).to_pylist() == [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)]


@pytest.mark.parametrize(
    ("type_info", "value"),
    [(Types.BIG_INT(), 10**40), (Types.BIG_DEC(), Decimal("1e30")), (Types.BIG_DEC(), Decimal("1e-19"))],
)
def test_a_number_too_large_for_other_systems_is_an_error_that_names_the_column(
    type_info: TypeInformation, value: Any
) -> None:
    row_type = Types.ROW_NAMED(["amount"], [type_info])
    with pytest.raises(TypeMismatchError, match="Column 'amount'"):
        outward(to_record_batch([(value,)], row_type), row_type)


def test_pickled_fields_are_refused() -> None:
    with pytest.raises(ProgramError, match="pickled values"):
        foreign_schema(Types.ROW_NAMED(["p"], [Types.PICKLED_BYTE_ARRAY()]))
