"""Generated tables: every type has values within its bounds, and a row is the same whenever it is made."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.contracts import Source, SourceContext, Split
from millstream.connectors.tables.factories import factory_of
from millstream.connectors.tables.factory import TableDefinition, TableSource
from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)

TYPES: dict[str, DataType] = {
    "yes": BooleanType(),
    "tiny": TinyIntType(),
    "small": SmallIntType(),
    "whole": IntType(),
    "big": BigIntType(),
    "single": FloatType(),
    "fraction": DoubleType(),
    "money": DecimalType(38, 4),
    "code": CharType(5),
    "word": VarCharType(12),
    "fixed": BinaryType(3),
    "data": VarBinaryType(9),
    "day": DateType(),
    "clock": TimeType(),
    "at": TimestampType(3),
    "precise": TimestampType(9),
    "moment": LocalZonedTimestampType(6),
    "months": YearMonthIntervalType(),
    "span": DayTimeIntervalType(),
    "list": ArrayType(IntType()),
    "map": MapType(VarCharType(4), ArrayType(DoubleType())),
    "bag": MultisetType(VarCharType(2)),
    "row": RowType.of(["a", "b"], [IntType(), VarCharType(3)]),
}
BEGAN_MS = 1_700_000_000_000


def table(types: dict[str, DataType], **options: str) -> TableSource:
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    row_type = RowType.of(list(types), list(types.values()), nullable=False)
    definition = TableDefinition("orders", row_type, {"connector": "datagen", **named})
    return factory_of("datagen").source(definition, None, [])


def at(now_ms: int) -> SourceContext:
    return SourceContext(now_ms=now_ms, run_started_ms=BEGAN_MS, parallelism=2)


def read(source: Source, start: int, stop: int) -> list[dict[str, Any]]:
    """Rows start to stop of the first split."""
    split: Split = source.splits(at(BEGAN_MS))[0]
    batches = list(source.read(split, {**split.start, "row": start}, {**split.start, "row": stop}))
    return [
        row for batch in batches for row in batch.select([f for f in batch.schema.names if f != "precise"]).to_pylist()
    ]


@given(start=st.integers(0, 1 << 40), first=st.integers(1, 30), second=st.integers(1, 30))
def test_rows_read_in_pieces_are_the_rows(start: int, first: int, second: int) -> None:
    source = table(TYPES).source
    pieces = read(source, start, start + first) + read(source, start + first, start + first + second)
    assert pieces == read(source, start, start + first + second)


def test_batches_have_just_the_columns_of_the_table() -> None:
    source = table(TYPES).source
    split = source.splits(at(BEGAN_MS))[0]
    [batch] = source.read(split, split.start, {**split.start, "row": 50})
    assert batch.schema == pa.schema([(name, each.arrow) for name, each in TYPES.items()])
    batch.validate(full=True)
    assert not any(column.null_count for column in batch.columns)


def test_numbers_stay_within_their_bounds_and_reach_all_of_them() -> None:
    source = table(
        {"small": IntType(), "money": DecimalType(6, 2), "fraction": DoubleType()},
        fields__small__min="-2", fields__small__max="2",
        fields__money__min="1.5", fields__money__max="1.55",
        fields__fraction__min="0.5", fields__fraction__max="0.75",
    ).source  # fmt: skip
    rows = read(source, 0, 2_000)
    assert {row["small"] for row in rows} == {-2, -1, 0, 1, 2}
    assert {row["money"] for row in rows} == {decimal.Decimal(f"1.5{digit}") for digit in range(6)}
    assert all(0.5 <= row["fraction"] < 0.75 for row in rows)


def test_texts_have_the_requested_length() -> None:
    types: dict[str, DataType] = {"code": CharType(5), "word": VarCharType(0x7FFFFFFF), "open": VarCharType(9)}
    rows = read(table(types, fields__open__length="4", fields__open__var_len="true").source, 0, 200)
    assert {len(row["code"]) for row in rows} == {5} and {len(row["word"]) for row in rows} == {100}
    assert {len(row["open"]) for row in rows} == {1, 2, 3, 4}


def test_some_values_are_null_according_to_the_rate() -> None:
    rows = read(table({"word": VarCharType(4)}, fields__word__null_rate="0.5").source, 0, 2_000)
    assert 0.4 < sum(row["word"] is None for row in rows) / len(rows) < 0.6


def test_times_are_those_at_which_rows_are_due_also_when_they_are_made_again() -> None:
    source = table({"at": TimestampType(3)}, rows_per_second="10").source
    first = read(source, 0, 3)
    began = dt.datetime.fromtimestamp(BEGAN_MS / 1000, dt.UTC).replace(tzinfo=None)
    # Every sixteenth row is in the split.
    assert [row["at"] - began for row in first] == [dt.timedelta(milliseconds=1_600 * n) for n in range(3)]
    split = source.splits(at(BEGAN_MS + 99_000))[0]
    kept = {"row": 0, "began_ms": BEGAN_MS}
    [again] = source.read(split, kept, {**kept, "row": 3})
    assert again.to_pylist() == first


def test_a_table_with_a_sequence_ends_with_it() -> None:
    ended = table(
        {"id": BigIntType(), "other": IntType()},
        fields__id__kind="sequence",
        fields__id__start="3",
        fields__id__end="7",
    )
    assert ended.bounded
    source, context = ended.source, at(BEGAN_MS + 3_600_000)
    ids = []
    for split in source.splits(context):
        stop = source.reach(split, split.start, 100, context)
        assert source.finished(split, stop)
        ids += [row for batch in source.read(split, split.start, stop) for row in batch["id"].to_pylist()]
    assert sorted(ids) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields.idd.min": "1"}, "a column 'idd' that the table does not have. Did you mean 'id'?"),
        ({"fields.id.mim": "1"}, "a column has no option 'mim'. Did you mean 'min'?"),
        ({"fields.id.min": "5", "fields.id.max": "1"}, "min ≤ max"),
        ({"fields.id.kind": "sequenz"}, "one of random, sequence. Did you mean 'sequence'?"),
        ({"fields.id.kind": "sequence", "fields.id.start": "1"}, "a sequence needs"),
        ({"fields.id.null-rate": "2"}, "a number from 0 to 1"),
        ({"rows-per-second": "0"}, "a number above 0"),
        ({"number-of-rows": "ten"}, "expected a whole number"),
        ({"row-per-second": "1"}, "Did you mean 'rows-per-second'?"),
    ],
)
def test_options_that_cannot_be_are_refused_with_what_can(options: dict[str, str], message: str) -> None:
    definition = TableDefinition("orders", RowType.of(["id"], [IntType()]), {"connector": "datagen", **options})
    with pytest.raises(ProgramError) as refusal:
        factory_of("datagen").source(definition, None, [])
    assert message in str(refusal.value) and "'orders'" in str(refusal.value)
