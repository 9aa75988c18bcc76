"""Rows go into the folder of their partition, whether text stands in columns as a dictionary or spelt out."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.tables.filesystem.partitions import PartitionBuckets
from millstream.expressions import types
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType

STRING = types.VarCharType(0x7FFFFFFF)
ROW_TYPE = RowType.of(["n", "day", "hour"], [types.BigIntType(), STRING, STRING], nullable=False)
# A dictionary as a function gives one: values may come twice, and NULL is one of them.
VALUES = ["a", "b", "a", None]


def divided(columns: list[pa.Array]) -> list[tuple[str, list[dict[str, int]]]]:
    buckets = PartitionBuckets(["n", "day", "hour"], ["day", "hour"])
    rows = pa.RecordBatch.from_arrays(columns, names=["n", "day", "hour"])
    batch = Batch.of_coded_columns(rows, TableRowType(ROW_TYPE))
    return [(folder, piece.columns().to_pylist()) for folder, piece in buckets.divided(batch)]


def by_rows(days: list[str | None], hours: list[str | None]) -> list[tuple[str, list[dict[str, int]]]]:
    """The slow way: a row at a time."""
    folders: dict[str, list[dict[str, int]]] = {}
    for n, (day, hour) in enumerate(zip(days, hours, strict=True)):
        name = f"day={day or '__DEFAULT_PARTITION__'}/hour={hour or '__DEFAULT_PARTITION__'}"
        folders.setdefault(name, []).append({"n": n})
    return list(folders.items())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.none() | st.integers(0, len(VALUES) - 1)] * 2), max_size=12), st.booleans())
def test_rows_are_divided_as_one_by_one(codes: list[tuple[int | None, int | None]], is_coded: bool) -> None:
    days, hours = ([None if code is None else VALUES[code] for code in column] for column in _columns(codes))
    texts = [pa.array(days, pa.string()), pa.array(hours, pa.string())]
    dictionaries = [
        pa.DictionaryArray.from_arrays(pa.array(column, pa.int32()), pa.array(VALUES)) for column in _columns(codes)
    ]
    assert divided([pa.array(range(len(codes)), pa.int64()), *(dictionaries if is_coded else texts)]) == by_rows(
        days, hours
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=4), st.integers(1, 3), st.integers(0, 1))
def test_equal_texts_are_detected_without_comparing_each(texts: list[str], repeats: int, skipped: int) -> None:
    days = (texts * repeats)[skipped:]
    column = pa.array(texts * repeats, pa.string())[skipped:]
    columns = [pa.array(range(len(days)), pa.int64()), column, pa.array(["h"] * len(days), pa.string())]
    assert divided(columns) == by_rows([*days], ["h"] * len(days))


def _columns(codes: list[tuple[int | None, int | None]]) -> list[list[int | None]]:
    return [[code[at] for code in codes] for at in (0, 1)]
