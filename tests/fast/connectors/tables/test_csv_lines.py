"""Lines of CSV that are made a column at a time are those that are made a record at a time."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.typeinfo import Types
from millstream.connectors.files.csv_records import CsvDialect
from millstream.connectors.files.csv_text import CsvLines
from millstream.connectors.tables.formats import csv_cells
from millstream.connectors.tables.formats.csv_cells import joined_texts
from millstream.connectors.tables.formats.csv_format import CsvTableEncoder, line_encoder
from millstream.expressions import types
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType

ROW_TYPE = RowType.of(
    ["n", "word", "at", "note"],
    [types.BigIntType(), types.VarCharType(0x7FFFFFFF), types.TimestampType(3), types.VarCharType(0x7FFFFFFF)],
    nullable=False,
)
RECORDS = Types.ROW_NAMED(ROW_TYPE.names, [Types.LONG(), Types.STRING(), Types.SQL_TIMESTAMP(), Types.STRING()])
LONG = st.text("abcé", min_size=20, max_size=30)
PLAIN_AND_LONG = st.text("abc", min_size=25, max_size=30)
SHORT = st.text('ab", \n', max_size=4)
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)


def batch_of(records: list[tuple[int | None, str | None, dt.datetime | None, str | None]]) -> Batch:
    columns = [pa.array(values, field.data_type.arrow) for values, field in zip(zip(*records), ROW_TYPE.fields)]  # noqa: B905
    return Batch.of_columns(pa.RecordBatch.from_arrays(columns, schema=ROW_TYPE.schema), TableRowType(ROW_TYPE))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([PLAIN_AND_LONG, LONG, SHORT, LONG | SHORT | st.none()]), st.booleans())
def test_lines_of_columns_are_the_lines_of_records(
    data: st.DataObject, words: st.SearchStrategy[str | None], has_nulls: bool
) -> None:
    none: st.SearchStrategy[None] = st.none() if has_nulls else st.nothing()
    record = st.tuples(st.integers(-9, 9) | none, words | none, MOMENTS | none, words | none)
    records = data.draw(st.lists(record, min_size=1, max_size=6))
    expected = [f"{line}\n" for line in CsvLines().write(records, RECORDS)]
    encoder = CsvTableEncoder(ROW_TYPE, CsvDialect(), "\n")
    assert encoder.lines(batch_of(records)).to_pylist() == expected
    chunk = line_encoder(encoder)
    chunk.add(batch_of(records))
    assert chunk.finish() == "".join(expected).encode()


COLUMNS = st.integers(0, 4).flatmap(
    lambda rows: st.lists(
        st.lists(st.text("aé,", max_size=3), min_size=rows, max_size=rows) | st.text('",\n', min_size=1, max_size=3),
        min_size=1,
        max_size=5,
    ).map(lambda pieces: [["x"] * rows, *pieces])
)


@settings(max_examples=100, deadline=None)
@given(COLUMNS, st.integers(0, 2))
def test_pieces_gathered_at_once_equal_pieces_joined_row_by_row(pieces: list[list[str] | str], skipped: int) -> None:
    arrays = [each if isinstance(each, str) else pa.array(each, pa.string())[skipped:] for each in pieces]
    assert joined_texts(arrays).equals(pc.binary_join_element_wise(*arrays, ""))


def test_pieces_that_are_too_long_for_one_array_are_joined_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_cells, "_BYTES_MAX", 8)
    assert joined_texts([pa.array(["a text", "b"]), ","]).to_pylist() == ["a text,", "b,"]
