"""PyFlink's DataFrame API returns the same rows as equivalent tables."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream.dataframe as mf
from millstream.dataframe import context
from millstream.errors import ProgramError
from millstream.table.window import Tumble

Point = namedtuple("Point", "x y")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(context, "_environment", None)
    yield


def values(frame: mf.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_frames_are_filtered_computed_grouped_and_aggregated() -> None:
    bids = mf.from_dict({"auction": [1, 1, 2, 3], "price": [5, 7, 3, None]})
    dear = bids.filter(mf.col("price") > 3, mf.col("auction") < 3).with_column("half", mf.col("price") / 2)
    assert values(dear) == [(1, 5, 2), (1, 7, 3)]
    assert values(bids.group_by("auction").agg(mf.col("price").sum.alias("total"))) == [(1, 12), (2, 3), (3, None)]
    assert values(bids.agg(mf.col("price").max.alias("highest"))) == [(7,)]
    assert (3, 4) in [tuple(row) for row in bids.select("price", (mf.col("auction") * 2).alias("twice")).collect()]


def test_frames_are_made_of_arrow_records_and_ranges() -> None:
    table = pa.table({"a": pa.array([1, None], pa.int16()), "b": ["x", "y"]})
    assert repr(mf.from_arrow(table)) == "DataFrame(a: SMALLINT, b: STRING)"
    assert mf.from_arrow(table).to_table().get_schema().get_field_names() == ["a", "b"]
    schema = {"a": mf.DataType.int32(), "b": mf.DataType.string()}
    assert values(mf.from_records([{"a": 1, "b": "x"}, {"a": 2}], schema)) == [(1, "x"), (2, None)]
    assert values(mf.from_records([Point(1, 2)])) == [(1, 2)]
    assert values(mf.range(1, 10, 3)) == [(1,), (4,), (7,)]


def test_a_frame_is_written_and_read_by_a_connector(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "numbers"), "format": "csv"}
    mf.range(3).write_generic("filesystem", options=options).wait()
    computed = {"twice": "id * 2"}
    again = mf.read_generic(
        "filesystem", schema={"id": mf.DataType.int64()}, options=options, computed_columns=computed
    )
    assert values(again) == [(0, 0), (1, 2), (2, 4)]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: mf.from_dict({"a": [1], "b": []}), "columns of different lengths"),
        (lambda: mf.from_dict({"a": [1]}, {"b": mf.DataType.int32()}), "the schema has the column 'b'"),
        (lambda: mf.range(3).select(), "found no columns"),
        (lambda: mf.range(3).filter(1), "expected an expression, an SQL text, or a function"),  # type: ignore[arg-type]
        (lambda: mf.range(3, 4, 0), "a step of 0"),
        (lambda: mf.from_records([(1,)]), "a schema that names the fields"),
        (lambda: mf.from_records([{"a": 1}, {"z": 1}]), "the field 'z'"),
        (lambda: mf.read_generic("datagen"), "as the schema"),
        (lambda: mf.DataFrame([1]), "expected a Table"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_call_is_rejected_at_its_line(wrong: Any, sentence: str) -> None:
    with pytest.raises(ProgramError, match=sentence):
        wrong()


def test_brackets_select_columns_and_filter_rows() -> None:
    bids = mf.from_records([(1, 5), (2, 7)], schema=["auction", "price"])
    assert values(bids[["price"]]) == [(5,), (7,)]
    assert values(bids["price", bids["auction"] + 1]) == [(5, 2), (7, 3)]
    assert values(bids[bids["price"] > 5]) == [(2, 7)]
    with pytest.raises(TypeError):
        bids[3]  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        iter(bids)  # type: ignore[call-overload]


def test_rows_are_filtered_by_texts_functions_and_values_of_columns() -> None:
    people = mf.from_records(
        [
            {"name": "Ada", "age": 30, "city": "Rome"},
            {"name": "Bo", "age": 17, "city": "Rome"},
            {"name": "Cy", "age": 40, "city": None},
        ]
    )
    assert values(people.filter("age >= 18 AND city IS NOT NULL").select("name")) == [("Ada",)]
    assert values(people.filter(lambda frame: frame["age"] < 18, city="Rome").select("name")) == [("Bo",)]
    assert values(people.filter(city=None).select("name")) == [("Cy",)]
    older = people.filter("city = 'Rome'").with_column("age", lambda frame: frame["age"] + 1)
    chosen = older.select(["name"], ("city", "age"), twice=mf.col("age") * 2)
    assert values(chosen) == [("Ada", "Rome", 31, 62), ("Bo", "Rome", 18, 36)]


def test_aggregates_are_named_by_keywords() -> None:
    bids = mf.from_dict({"auction": [1, 1, 2], "price": [5, 7, 3]})
    by_auction = bids.group_by(["auction"]).agg(mf.col("price").max.alias("most"), total=mf.col("price").sum)
    assert repr(by_auction) == "DataFrame(auction: BIGINT, most: BIGINT, total: BIGINT)"
    assert values(by_auction) == [(1, 7, 12), (2, 3, 3)]
    assert values(bids.agg(rows=mf.col("price").count)) == [(3,)]
    with pytest.raises(ValueError, match="found no columns"):
        bids.agg()
    with pytest.raises(TypeError):
        bids.group_by("auction").agg("price")  # type: ignore[arg-type]


def test_a_schema_of_names_chooses_renames_or_names_columns() -> None:
    pd = pytest.importorskip("pandas")
    assert values(mf.from_records([Point(1, 2)], schema=["y", "x"])) == [(2, 1)]
    assert values(mf.from_records([{"a": 1, "b": 2}], schema=["b"])) == [(2,)]
    assert values(mf.from_dict({"a": [1], "b": [2]}, schema=["b", "a"])) == [(2, 1)]
    assert repr(mf.from_pandas(pd.DataFrame({"a": [1], "b": ["x"]}), schema=["i", "t"])) == (
        "DataFrame(i: BIGINT, t: STRING)"
    )
    assert repr(mf.from_arrow(pa.table({"a": [1.5]}), schema=["d"])) == "DataFrame(d: DOUBLE)"
    assert values(mf.from_arrow(pa.table({"a": [1], "b": [2]}), {"b": mf.DataType.string()})) == [("2",)]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda: mf.from_records([{"a": 1}], schema=["b"]), ValueError),
        (lambda: mf.from_records([{"a": 1}, (1,)]), TypeError),
        (lambda: mf.from_records([(1,)], schema=["a", "b"]), ValueError),
        (lambda: mf.from_records([(1,)], schema="a"), TypeError),
        (lambda: mf.from_records([(1, 2)], schema=["a", "a"]), ValueError),
        (lambda: mf.from_records([]), ValueError),
        (lambda: mf.from_dict({"a": [1]}, schema=[]), ValueError),
        (lambda: mf.from_arrow(pa.table({"a": [1]}), schema=["a", "b"]), ValueError),
        (lambda: mf.lit(1, "INT"), TypeError),
    ],
)
def test_a_mismatched_schema_is_rejected_as_in_pyflink(wrong: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        wrong()


def test_a_watermark_assigns_event_time_to_rows_of_the_program() -> None:
    moments = [datetime(2026, 1, 1, 0, 0, second, 1500) for second in (1, 2, 11)]
    watermark = ("ts", "ts - INTERVAL '1' SECOND")
    columns = pa.table({"ts": pa.array(moments, pa.timestamp("us")), "n": [1, 2, 3]})
    from_rows = mf.from_dict({"ts": moments, "n": [1, 2, 3]}, watermark=watermark)
    for frame in (from_rows, mf.from_arrow(columns, None, watermark)):
        window = Tumble.over(mf.lit(10).seconds).on(mf.col("ts")).alias("w")
        table = frame.to_table().window(window).group_by(mf.col("w")).select(mf.col("n").sum)
        assert values(mf.from_table(table)) == [(3,), (3,)]
    with pytest.raises(ValueError, match="expected a timestamp"):
        mf.from_dict({"a": [1]}, watermark=("a", "a"))
    with pytest.raises(ValueError, match="no column 'b'"):
        mf.from_dict({"a": [1]}, watermark=("b", "b"))
    with pytest.raises(TypeError):
        mf.from_dict({"a": [1]}, watermark="a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: mf.range(10**15), "at most 10,000,000: the program holds them in memory"),
        (lambda: mf.range(0, -(10**15), -1), "found 1,000,000,000,000,000 numbers"),
        (lambda: mf.range("5"), "found '5', expected integers"),
        (lambda: mf.from_dict({"a": "xyz"}), "found 'xyz' as the column 'a'"),
        (lambda: mf.from_dict({"a": 3}), "found 3 as the column 'a'"),
        (lambda: mf.from_records(None), "found None, expected records"),
        (lambda: mf.from_records({"a": [1]}), "expected records"),
        (lambda: mf.from_records([Point(1, 2)], {"a": mf.DataType.int64()}), "found the field 'x' in Point"),
        (lambda: mf.from_table(3), "found 3, expected a Table"),
    ],
)
def test_an_unsupported_input_of_a_frame_is_rejected(made: Any, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        made()


@pytest.mark.parametrize("bounds", [(0,), (7,), (0, 7, 2), (0, 8, 2), (7, 0, -3), (6, 0, -3), (0, 7, -1)])
def test_a_range_has_the_numbers_of_pythons_range(bounds: tuple[int, ...]) -> None:
    assert [row[0] for row in mf.range(*bounds).collect()] == list(range(*bounds))
