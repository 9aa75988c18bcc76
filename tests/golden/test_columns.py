"""Columnar conversion agrees with `conform`, the slow reference, for every value."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.time import Instant
from millstream.common.typeinfo import ExternalTypeInfo, TypeInformation, Types
from millstream.common.typeinfo.scalar_types import LocalTimeTypeInfo
from millstream.common.types import Row, RowKind
from millstream.errors import PickledValueError, ProgramError, TypeMismatchError
from millstream.records.columns import (
    KIND_COLUMN,
    arrow_type,
    as_declared,
    checked_batch,
    from_record_batch,
    holds_pickles,
    keeps_values,
    stream_schema,
    to_record_batch,
)
from millstream.records.conformance import conform
from millstream.records.unpickling import unpickled
from millstream.state.schemas.saved_types import type_from, written_type

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WALL_TIMES = st.datetimes(timezones=st.sampled_from([None, None, dt.UTC, dt.timezone(dt.timedelta(hours=3))]))

SCALARS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.STRING(), TEXT),
    (Types.CHAR(), st.characters(exclude_categories=["Cs"])),
    (Types.BOOLEAN(), st.booleans()),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.SHORT(), st.integers(-(2**15), 2**15 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.LONG(), st.integers(-9, 9) | st.integers(-9, 9).map(np.int32)),
    (Types.FLOAT(), st.floats(width=32)),
    (Types.FLOAT(), st.floats(-1e30, 1e30) | st.integers(-(2**70), 2**70)),
    (Types.DOUBLE(), st.floats()),
    (Types.DOUBLE(), st.floats() | st.integers(-(2**80), 2**80)),
    (Types.BIG_INT(), st.integers() | st.integers(-(2**3000), 2**3000)),
    (Types.BIG_DEC(), st.decimals(allow_nan=False)),
    (Types.BIG_DEC(), st.decimals(allow_nan=False) | st.integers(-9, 9)),
    (Types.INSTANT(), st.builds(Instant, st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999))),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), st.datetimes()),
    (Types.SQL_TIMESTAMP(), WALL_TIMES),
    (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE), st.dates()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=5) | st.binary(max_size=3).map(bytearray)),
]

Typed = tuple[TypeInformation, st.SearchStrategy[Any]]


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values, values, values)


def row_values(names: list[str], cells: list[st.SearchStrategy[Any]], top: bool, form: int) -> st.SearchStrategy[Any]:
    """Accepted forms of a row. Mostly one form for all rows of a batch, as programs do; 0 mixes all forms."""
    values = st.tuples(*cells)

    def named(cell_values: tuple[Any, ...], order: list[int]) -> Row:
        row = Row(*(cell_values[i] for i in order))
        row.set_field_names([names[i] for i in order])
        return row

    in_order = list(range(len(names)))
    plain = names == [f"f{i}" for i in in_order]
    forms = [
        st.builds(named, values, st.just(in_order)),
        values.map(lambda v: Row(*v)),
        st.builds(named, values, st.just(in_order) if plain else st.just(in_order[::-1])),
        values,
        values.map(list),
        values.map(lambda v: dict(zip(names, v, strict=True))),
    ]
    if top:
        forms.append(st.builds(lambda k, v: Row.of_kind(k, *v), st.sampled_from(RowKind), values))
    return forms[form % len(forms)] if form else st.one_of(forms)


def composites(children: st.SearchStrategy[Typed], top: bool = False) -> st.SearchStrategy[Typed]:
    def rows(fields: list[Typed], named: bool, form: int) -> Typed:
        names = [f"{'n' if named else 'f'}{i}" for i in range(len(fields))]
        cells = [nullable(values) for _, values in fields]
        return Types.ROW_NAMED(names, [t for t, _ in fields]), row_values(names, cells, top, form)

    def tuples(fields: list[Typed], mixed: bool) -> Typed:
        cells = st.tuples(*(nullable(values) for _, values in fields))
        return Types.TUPLE([t for t, _ in fields]), cells | cells.map(list) if mixed else cells

    def lists(child: Typed, mixed: bool) -> Typed:
        items = st.lists(nullable(child[1]), max_size=3)
        return Types.LIST(child[0]), items | items.map(tuple) if mixed else items

    keys = st.sampled_from([s for s in SCALARS if s[0] not in (Types.PRIMITIVE_ARRAY(Types.BYTE()),)])
    fields = st.lists(children, max_size=3)
    return st.one_of(
        st.builds(rows, fields, st.booleans(), st.integers(0, 7)),
        st.builds(tuples, fields, st.booleans()),
        st.builds(lists, children, st.booleans()),
        children.map(lambda child: (Types.OBJECT_ARRAY(child[0]), st.lists(nullable(child[1]), max_size=3))),
        children.map(lambda child: (ExternalTypeInfo(child[0]), child[1])),
        st.builds(
            lambda k, v: (Types.MAP(k[0], v[0]), st.dictionaries(k[1], nullable(v[1]), max_size=3)), keys, children
        ),
    )


NESTED = st.recursive(
    st.sampled_from([*SCALARS, (Types.PICKLED_BYTE_ARRAY(), st.sets(st.integers(), max_size=2))]),
    composites,
    max_leaves=5,
)
STREAMS = st.sampled_from(SCALARS) | composites(NESTED, top=True).filter(lambda typed: arrow_type(typed[0]) is not None)
NUMBERS = [1, -(2**40), 2**64, 1.0, 1e300, True, decimal.Decimal(1), np.float32(0.1), np.bool_(True)]
TEXTS = ["x", "xy", "\ud800", b"b"]
GROUPS = [(), (1, 2), [1.5], {}, {"n0": 1}, {None: 1}, Row(), Row(1, "a"), Row.of_kind(RowKind.DELETE, 1)]
TIMES = [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.time(1, tzinfo=dt.UTC), Instant(1, 2)]
ODDITIES: st.SearchStrategy[Any] = st.sampled_from([*NUMBERS, *TEXTS, *GROUPS, *TIMES, object(), lambda: None])


def shape(value: Any) -> Any:
    """A comparable form in which NaN equals NaN, -0.0 differs from 0.0, and types and row kinds count."""
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, Row):
        return "Row", value._fields, value.get_row_kind(), tuple(map(shape, value))
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(shape, value))
    if isinstance(value, dict):
        return dict, tuple((shape(k), shape(v)) for k, v in value.items())
    return type(value), repr(value) if isinstance(value, decimal.Decimal) else value


def check_against_the_definition(type_info: TypeInformation, values: list[Any]) -> None:
    expected = [conform(value, type_info) for value in values]
    batch = to_record_batch(values, type_info)
    assert batch.num_rows == len(values)
    assert shape(from_record_batch(batch, type_info, unpickled)) == shape(expected)
    assert shape(from_record_batch(batch.slice(1, 3), type_info, unpickled)) == shape(expected[1:4])
    assert shape(as_declared(values, type_info)) == shape(expected)
    if keeps_values(values, type_info):
        assert shape(values) == shape(expected)
    assert keeps_values(expected, type_info), "what has been through columns once is kept"


NAMES = ["n0", "n1"]
# Two fields of one type: a swapped pair fits its columns, and only the names distinguish it.
CELLS = [nullable(st.integers(-9, 9)), nullable(st.integers(-9, 9))]
ROW_FORMS = [
    (Types.ROW_NAMED(NAMES, [Types.INT(), Types.INT()]), row_values(NAMES, CELLS, top=True, form=form))
    for form in range(8)
]


@pytest.mark.parametrize("typed", [*SCALARS, *ROW_FORMS], ids=lambda typed: typed[0].notation)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_simple_types_round_trip_like_the_reference(typed: Typed, data: st.DataObject) -> None:
    type_info, values = typed
    check_against_the_definition(type_info, data.draw(st.lists(nullable(values), max_size=6)))


@settings(max_examples=150, deadline=None)
@given(STREAMS.flatmap(lambda t: st.tuples(st.just(t[0]), st.lists(nullable(t[1]), max_size=6))))
def test_nested_types_round_trip_like_the_reference(case: tuple[TypeInformation, list[Any]]) -> None:
    check_against_the_definition(*case)


@settings(max_examples=150, deadline=None)
@given(STREAMS.flatmap(lambda t: st.tuples(st.just(t[0]), st.lists(t[1] | ODDITIES, max_size=4))))
def test_columns_reject_exactly_what_the_reference_rejects(case: tuple[TypeInformation, list[Any]]) -> None:
    type_info, values = case
    try:
        expected = [conform(value, type_info) for value in values]
    except TypeMismatchError as refusal:
        with pytest.raises(TypeMismatchError) as fast:
            to_record_batch(values, type_info)
        assert str(fast.value) == str(refusal)
        assert not keeps_values(values, type_info)
    else:
        assert shape(from_record_batch(to_record_batch(values, type_info), type_info, unpickled)) == shape(expected)


@pytest.mark.parametrize(
    ("type_info", "value", "path", "words"),
    [
        (Types.INT(), 2**31, "", ["2147483648", "INT", "int", "2147483647"]),
        (Types.INT(), 1.0, "", ["1.0", "INT", "float"]),
        (Types.INT(), True, "", ["True", "bool"]),
        (Types.LONG(), "7", "", ["'7'", "str", "LONG"]),
        (Types.STRING(), b"raw", "", ["bytes", "STRING"]),
        (Types.FLOAT(), 1e300, "", ["1e+300", "32 bits"]),
        (Types.CHAR(), "ab", "", ["one character"]),
        (Types.TUPLE([Types.INT(), Types.INT()]), (1,), "", ["2 fields, not 1"]),
        (Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()]), Row("a", "b"), "age", ["field age", "'b'"]),
        (Types.ROW_NAMED(["name"], [Types.STRING()]), Row(nme="a"), "", ["exactly the fields ['name']"]),
        (
            Types.ROW([Types.LIST(Types.MAP(Types.STRING(), Types.INT()))]),
            Row([{"k": "v"}]),
            "f0[0]['k']",
            ["field f0"],
        ),
        (Types.ROW([Types.ROW([Types.INT()])]), Row(Row.of_kind(RowKind.DELETE, 1)), "f0", ["INSERT"]),
        (Types.MAP(Types.STRING(), Types.INT()), {None: 1}, "", ["None among its keys"]),
        (Types.LIST(Types.PICKLED_BYTE_ARRAY()), [1, lambda: None], "[1]", ["can be pickled"]),
    ],
)
def test_a_misfit_names_value_field_and_expectation(
    type_info: TypeInformation, value: Any, path: str, words: list[str]
) -> None:
    with pytest.raises(TypeMismatchError) as refusal:
        to_record_batch([None, value], type_info)
    assert refusal.value.path == path
    assert refusal.value.value is value
    for word in words:
        assert word in str(refusal.value)


def test_rows_have_a_column_per_field_and_other_values_one_column() -> None:
    named = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])
    assert stream_schema(named) == pa.schema({"word": pa.string(), "count": pa.int64()})
    assert stream_schema(Types.ROW([Types.INT()])) == pa.schema({"f0": pa.int32()})
    assert stream_schema(Types.DOUBLE()) == pa.schema({"value": pa.float64()})
    assert stream_schema(Types.PICKLED_BYTE_ARRAY()) is None
    assert arrow_type(Types.PICKLED_BYTE_ARRAY()) is None
    assert arrow_type(Types.ROW([Types.INT()])) == pa.struct({"f0": pa.int32()})


def test_row_kinds_are_a_column_only_if_there_are_changes() -> None:
    type_info = Types.ROW([Types.INT()])
    assert to_record_batch([Row(1)], type_info).schema.names == ["f0"]
    batch = to_record_batch([Row(1), Row.of_kind(RowKind.UPDATE_BEFORE, 2)], type_info)
    assert batch.schema.names == ["f0", KIND_COLUMN]
    assert [row.get_row_kind() for row in from_record_batch(batch, type_info)] == [
        RowKind.INSERT,
        RowKind.UPDATE_BEFORE,
    ]


def test_encodings_without_an_arrow_type_are_marked() -> None:
    schema = stream_schema(Types.ROW_NAMED(["big"], [Types.BIG_INT()]))
    assert schema is not None
    assert schema.field("big").metadata == {b"millstream.type": b"BIG_INT"}


def test_equal_types_convert_alike_under_any_name() -> None:
    row = Row(a=1, b=2)
    by_position = Types.ROW([Types.INT(), Types.INT()])
    named_plainly = Types.ROW_NAMED(["f0", "f1"], [Types.INT(), Types.INT()])
    assert by_position == named_plainly
    assert conform(row, by_position) == conform(row, named_plainly) == Row(f0=1, f1=2)


def test_external_batches_are_cast_only_without_loss() -> None:
    longs = pa.record_batch({"value": pa.array([1, 2], pa.int64())})
    assert from_record_batch(longs, Types.INT()) == [1, 2]
    large = pa.record_batch({"value": pa.array(["a"], pa.large_string())})
    assert from_record_batch(large, Types.STRING()) == ["a"]
    with pytest.raises(TypeMismatchError, match="column value"):
        checked_batch(pa.record_batch({"value": pa.array([2**40])}), Types.INT())
    with pytest.raises(TypeMismatchError, match="text is never converted"):
        checked_batch(longs, Types.STRING())
    with pytest.raises(TypeMismatchError, match=r"columns \['v'\], expected \['value'\]"):
        checked_batch(pa.record_batch({"v": pa.array([1])}), Types.INT())


@pytest.mark.parametrize(
    ("type_info", "words"),
    [
        (Types.PICKLED_BYTE_ARRAY(), "untyped"),
        (Types.MAP(Types.LIST(Types.INT()), Types.INT()), "keys that are not hashable"),
        (Types.ROW_NAMED([KIND_COLUMN], [Types.INT()]), "change kind"),
    ],
)
def test_types_without_columns_are_rejected_with_an_alternative(type_info: TypeInformation, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        to_record_batch([], type_info)


def test_empty_batches_have_the_columns_of_their_type() -> None:
    type_info = Types.ROW_NAMED(["a", "b"], [Types.LIST(Types.INT()), Types.INSTANT()])
    batch = to_record_batch([], type_info)
    assert batch.schema == stream_schema(type_info)
    assert from_record_batch(batch, type_info) == []


@given(STREAMS, st.data())
def test_a_type_holds_pickles_exactly_if_its_columns_do(typed: Typed, data: st.DataObject) -> None:
    type_info, values = typed
    saved = type_from(written_type(type_info), "a test")
    assert arrow_type(saved) == arrow_type(type_info), "what a manifest tells is what a segment has"
    assert holds_pickles(saved) == holds_pickles(type_info) == ("PICKLED" in repr(written_type(type_info)))
    batch = to_record_batch(data.draw(st.lists(values, min_size=1, max_size=3)), type_info)
    seen: list[bytes] = []
    from_record_batch(batch, type_info, lambda written: seen.append(written) or 0)
    if seen:
        assert holds_pickles(type_info)
        with pytest.raises(PickledValueError, match="stored as a pickle"):
            from_record_batch(batch, type_info)
    else:
        assert shape(from_record_batch(batch, type_info)) == shape(from_record_batch(batch, type_info, unpickled))
