"""Types are plain values: compared by content, readable, and strict about their components."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any

import pytest

from millstream.common import Instant, Row, Types
from millstream.common.typeinfo import (
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    LocalTimeTypeInfo,
    RowTypeInfo,
    TypeInformation,
)
from millstream.errors import NotAvailableError, ProgramError

EVERY: list[TypeInformation] = [
    Types.STRING(),
    Types.BYTE(),
    Types.BOOLEAN(),
    Types.SHORT(),
    Types.INT(),
    Types.LONG(),
    Types.FLOAT(),
    Types.DOUBLE(),
    Types.CHAR(),
    Types.BIG_INT(),
    Types.BIG_DEC(),
    Types.INSTANT(),
    Types.SQL_DATE(),
    Types.SQL_TIME(),
    Types.SQL_TIMESTAMP(),
    Types.PICKLED_BYTE_ARRAY(),
    Types.ROW([Types.INT(), Types.STRING()]),
    Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]),
    Types.TUPLE([Types.INT(), Types.STRING()]),
    Types.PRIMITIVE_ARRAY(Types.BYTE()),
    Types.BASIC_ARRAY(Types.STRING()),
    Types.OBJECT_ARRAY(Types.ROW([Types.INT()])),
    Types.MAP(Types.STRING(), Types.LIST(Types.INT())),
    Types.LIST(Types.INT()),
]


@pytest.mark.parametrize("type_info", EVERY, ids=str)
def test_a_type_equals_only_an_identical_type_and_survives_pickling(type_info: TypeInformation) -> None:
    assert [other for other in EVERY if other == type_info] == [type_info]
    twin = pickle.loads(pickle.dumps(type_info))
    assert twin == type_info
    assert hash(twin) == hash(type_info)


@pytest.mark.parametrize("type_info", EVERY, ids=str)
def test_repr_of_a_type_evaluates_to_it(type_info: TypeInformation) -> None:
    assert eval(repr(type_info), {"Types": Types}) == type_info


@pytest.mark.parametrize("type_info", EVERY, ids=str)
def test_java_types_are_rejected(type_info: TypeInformation) -> None:
    with pytest.raises(NotAvailableError, match="Use"):
        type_info.get_java_type_info()


def test_short_text_reads_like_sql() -> None:
    nested = Types.ROW_NAMED(["who", "tags"], [Types.STRING(), Types.MAP(Types.STRING(), Types.LIST(Types.INT()))])
    assert f"{nested}" == nested.notation == "ROW<who STRING, tags MAP<STRING, LIST<INT>>>"
    assert Types.ROW([Types.INT()]).notation == "ROW<INT>"
    assert ExternalTypeInfo(Types.TUPLE([Types.INT()])).notation == "TUPLE<INT>"
    assert LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE).notation == "LOCAL_DATE"


def test_row_types_return_their_fields() -> None:
    row_type = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    assert row_type.get_field_names() == ["a", "b"]
    assert row_type.get_field_types() == [Types.INT(), Types.STRING()]
    assert row_type.get_field_index("b") == 1
    assert row_type.get_field_index("c") == -1
    assert Types.ROW([Types.INT(), Types.INT()]).get_field_names() == ["f0", "f1"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Types.ROW([Types.STRING]), "Call it"),
        (lambda: Types.LIST(int), "must be a type"),
        (lambda: Types.MAP("a", Types.INT()), "key of a MAP"),
        (lambda: Types.ROW_NAMED(["a"], [Types.INT(), Types.INT()]), "one name per type"),
        (lambda: Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()]), "more than once"),
        (lambda: Types.ROW_NAMED([""], [Types.INT()]), "field name"),
        (lambda: Types.PRIMITIVE_ARRAY(Types.STRING()), "OBJECT_ARRAY"),
        (lambda: BasicArrayTypeInfo(Types.LIST(Types.INT())), "OBJECT_ARRAY"),
    ],
)
def test_an_invalid_type_is_rejected_with_the_remedy(make: Any, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        make()


@pytest.mark.parametrize(
    ("type_info", "value", "internal"),
    [
        (Types.SQL_DATE(), dt.date(1970, 1, 2), 1),
        (Types.SQL_TIME(), dt.time(0, 1, 0, 5), 60_000_005),
        (Types.SQL_TIMESTAMP(), dt.datetime(1969, 12, 31, 23, 59, 59), -1_000_000),
        (Types.INSTANT(), Instant(1, 5), 1_000_000_005),
        (Types.TUPLE([Types.SQL_DATE(), Types.INT()]), (dt.date(1970, 1, 2), 7), (1, 7)),
        (RowTypeInfo([Types.SQL_DATE()], ["day"]), Row(day=dt.date(1970, 1, 2)), (1,)),
        (Types.LIST(Types.INT()), [1], [1]),
    ],
)
def test_wire_forms_survive_a_round_trip(type_info: TypeInformation, value: Any, internal: Any) -> None:
    assert type_info.to_internal_type(value) == internal
    assert type_info.from_internal_type(internal) == value
    assert type_info.to_internal_type(None) is None
    assert type_info.from_internal_type(None) is None


def test_a_zoned_timestamp_is_converted_to_utc() -> None:
    zoned = dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert Types.SQL_TIMESTAMP().to_internal_type(zoned) == 0


@pytest.mark.parametrize(
    ("type_info", "expected"),
    [
        (Types.INT(), "Integer"),
        (Types.BIG_DEC(), "BigDecimal"),
        (Types.INSTANT(), "Instant"),
        (Types.SQL_DATE(), "DateTypeInfo"),
        (Types.SQL_TIME(), "TimeTypeInfo"),
        (Types.SQL_TIMESTAMP(), "TimestampTypeInfo"),
        (Types.PICKLED_BYTE_ARRAY(), "PickledByteArrayTypeInfo"),
        (Types.ROW([Types.INT(), Types.STRING()]), "RowTypeInfo(Integer, String)"),
        (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.LONG()]), "RowTypeInfo(a: Integer, b: Long)"),
        (Types.TUPLE([Types.INT(), Types.BOOLEAN()]), "TupleTypeInfo(Integer, Boolean)"),
        (Types.LIST(Types.LIST(Types.INT())), "ListTypeInfo<ListTypeInfo<Integer>>"),
        (Types.MAP(Types.STRING(), Types.LIST(Types.INT())), "MapTypeInfo<String, ListTypeInfo<Integer>>"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "PrimitiveArrayTypeInfo<Byte>"),
        (Types.BASIC_ARRAY(Types.STRING()), "BasicArrayTypeInfo<String>"),
        (Types.OBJECT_ARRAY(Types.ROW([Types.INT()])), "ObjectArrayTypeInfo<RowTypeInfo(Integer)>"),
        (ExternalTypeInfo(Types.ROW([Types.INT()])), "ExternalTypeInfo<RowTypeInfo(Integer)>"),
    ],
)
def test_the_text_of_a_type_is_pyflinks(type_info: TypeInformation, expected: str) -> None:
    assert str(type_info) == expected
