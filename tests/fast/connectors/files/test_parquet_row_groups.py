"""A row group shared by several epochs is decoded once, and its rows do not depend on earlier reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs.fresh_names import fresh_name

from millstream.common.typeinfo import Types
from millstream.connectors.contracts import Split
from millstream.connectors.files import row_groups
from millstream.connectors.files.parquet_rows import ParquetRows, near_boundary
from millstream.connectors.files.places import InputFile
from millstream.errors import JobFailedError
from millstream.expressions.data_types import DataTypes
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType

TYPE = Types.ROW_NAMED(["n"], [Types.LONG()])


@pytest.fixture(autouse=True)
def empty_reader_pool() -> Iterator[None]:
    _clear_pool()
    yield
    _clear_pool()


@pytest.fixture
def split(tmp_path: Path) -> Split:
    return _write_file(tmp_path / "rows.parquet", range(100))


def _clear_pool() -> None:
    while row_groups._idle_readers:
        row_groups._idle_readers.popitem()[1].close()


def _write_file(path: Path, numbers: range) -> Split:
    pq.write_table(pa.table({"n": list(numbers)}), path, row_group_size=40)
    return Split(str(path), 0, {"path": str(path), "end": None, "size": path.stat().st_size})


def rows(split: Split, start: int, stop: int) -> list[int]:
    return [n for batch in ParquetRows(TYPE).read(split, start, stop) for n in batch.column(0).to_pylist()]


def test_ranges_inside_a_row_group_decode_it_once(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    class Counted(row_groups.GroupReader):
        def __init__(self, name: row_groups.GroupName, footer: pq.FileMetaData) -> None:
            opened.append(name.group)
            super().__init__(name, footer)

    monkeypatch.setattr(row_groups, "GroupReader", Counted)
    assert [n for start in range(0, 100, 7) for n in rows(split, start, min(start + 7, 100))] == list(range(100))
    assert opened == [0, 1, 2]
    assert not row_groups._idle_readers, "a reader is released at its end"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(1, 400) | st.none()), max_size=6))
def test_any_ranges_in_any_order_return_their_rows(split: Split, ranges: list[tuple[int, int, int | None]]) -> None:
    for first, second, bytes_max in ranges:
        start, stop = sorted((first, second))
        items = ParquetRows(TYPE).read_within(split, start, stop, bytes_max)
        read, end = [], None
        while end is None:
            try:
                read += next(items).column(0).to_pylist()
            except StopIteration as stopped:
                end = stopped.value
        reached = end["end"] if isinstance(end, dict) else end
        assert read == list(range(start, reached))
        assert reached == stop if bytes_max is None else reached > start or start == stop


def test_a_reader_abandoned_in_mid_range_is_not_pooled(split: Split) -> None:
    items = ParquetRows(TYPE).read(split, 3, 30)
    next(items)
    items.close()
    assert not row_groups._idle_readers
    assert rows(split, 5, 50) == list(range(5, 50))


def test_idle_readers_stay_within_their_limits(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "_IDLE_BYTES_MAX", 100)
    assert rows(split, 0, 7) == list(range(7)) and not row_groups._idle_readers
    assert rows(split, 3, 50) == list(range(3, 50))


def test_the_reader_idle_longest_is_evicted_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "_IDLE_READERS_MAX", 2)
    splits = [_write_file(tmp_path / f"{number}.parquet", range(number, 100)) for number in range(3)]
    for split in splits:
        rows(split, 0, 7)
    assert [Path(name.path).stem for name in row_groups._idle_readers] == ["1", "2"]
    assert [rows(split, 7, 9) for split in splits] == [[7, 8], [8, 9], [9, 10]]


def test_a_file_replaced_while_its_reader_was_idle_is_rejected(split: Split) -> None:
    rows(split, 0, 7)
    path = Path(split.info["path"])
    other = path.with_name("other.parquet")
    pq.write_table(pa.table({"n": list(range(500, 900))}), other)
    os.replace(other, path)
    with pytest.raises(JobFailedError, match="it was truncated or replaced"):
        rows(split, 7, 9)
    path.unlink()
    with pytest.raises(JobFailedError, match=r"rows\.parquet"):
        rows(split, 7, 9)


ROWS = TableRowType(RowType.of(["n", "s"], [DataTypes.BIGINT(), DataTypes.STRING()], nullable=False))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "bc", "", None]) | st.text(max_size=3), min_size=1, max_size=60),
    st.integers(1, 60),
    st.integers(0, 3),
)
def test_dictionary_encoded_text_equals_plain_text(
    tmp_path: Path, texts: list[str | None], step: int, width: int
) -> None:
    path = tmp_path / fresh_name("texts")
    table = pa.table({"s": pa.array([text and text * width for text in texts], pa.string()), "n": range(len(texts))})
    pq.write_table(table, path, row_group_size=17)
    split = Split(str(path), 0, {"path": str(path), "end": None, "size": path.stat().st_size})
    reader, read = ParquetRows(ROWS, emit_dictionaries=True), []
    for start in range(0, len(texts), step):
        for batch in reader.read(split, start, min(start + step, len(texts))):
            rows = Batch.of_coded_columns(batch, ROWS)
            assert rows.columns().schema.types == [pa.int64(), pa.string()]
            read += rows.columns().to_pylist()
    assert read == table.select(["n", "s"]).to_pylist()


def test_repeated_text_stays_dictionary_encoded_until_it_is_needed_plain(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    texts = [f"text {number % 7}" for number in range(1000)]
    pq.write_table(pa.table({"n": range(1000), "s": texts}), path)
    split = Split(str(path), 0, {"path": str(path), "end": None, "size": path.stat().st_size})
    (encoded,) = ParquetRows(ROWS, emit_dictionaries=True).read(split, 0, 1000)
    assert isinstance(encoded.column(1), pa.DictionaryArray)
    batch = Batch.of_coded_columns(encoded, ROWS)
    part = batch.slice(3, 10).take(np.array([1, 0]))
    assert isinstance(part.coded_columns().column(1), pa.DictionaryArray)
    assert part.columns().column(1).to_pylist() == ["text 4", "text 3"]
    assert Batch.concat([part, batch.slice(0, 1)]).columns().column(1).to_pylist() == ["text 4", "text 3", "text 0"]
    assert [tuple(row) for row in batch.slice(0, 2).values()] == [(0, "text 0"), (1, "text 1")]
    (few,) = ParquetRows(ROWS, emit_dictionaries=True).read(split, 0, 5)
    assert few.column(1).type == pa.string(), "a dictionary with more values than rows would be a burden"
    (plain,) = ParquetRows(ROWS).read(split, 0, 1000)
    assert plain.column(1).type == pa.string(), "dictionaries are emitted on request only"


@given(st.lists(st.integers(1, 50), max_size=6), st.integers(0, 200), st.integers(1, 200))
def test_a_range_is_extended_to_a_row_group_boundary_that_is_close_enough(
    counts: list[int], start: int, budget: int
) -> None:
    ends = list(accumulate(counts))
    reached = near_boundary(ends, start, start + budget)
    assert start < reached <= start + budget * 3 // 2
    near_ends = [end for end in ends if end > start and 2 * abs(end - start - budget) <= budget]
    assert reached in near_ends if near_ends else reached == start + budget


def test_splits_of_a_large_file_are_read_by_whole_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"n": range(100)}), path, row_group_size=40)
    (split,) = ParquetRows(TYPE).plan(InputFile(str(path), path.stat().st_size, 0, cut_by_content=True), 10**9)
    reader = ParquetRows(TYPE)
    assert reader.reach(split, 0, 35) == 40 and reader.reach(split, 0, 5) == 5
    assert reader.reach(split, 5, 100) == split.info["end"]


def test_a_pooled_reader_has_not_decoded_the_whole_row_group(tmp_path: Path) -> None:
    texts = pa.array([f"{number:01000}" for number in range(20_000)])
    pq.write_table(pa.table({"n": texts}), tmp_path / "wide.parquet", use_dictionary=False, compression="none")
    size = (tmp_path / "wide.parquet").stat().st_size
    wide = Split("wide", 0, {"path": str(tmp_path / "wide.parquet"), "end": None, "size": size})
    before = pa.total_allocated_bytes()
    for _ in ParquetRows(Types.ROW_NAMED(["n"], [Types.STRING()])).read(wide, 0, 10):
        pass
    assert len(row_groups._idle_readers) == 1
    assert pa.total_allocated_bytes() - before < size / 2
