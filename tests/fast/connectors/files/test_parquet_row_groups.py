"""A row group that several epochs read is decoded once, and its rows are the same whether it was kept or not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.common.typeinfo import Types
from millstream.connectors.contracts import Split
from millstream.connectors.files import parquet_rows
from millstream.connectors.files.parquet_rows import ParquetRows

TYPE = Types.ROW_NAMED(["n"], [Types.LONG()])


@pytest.fixture
def split(tmp_path: Path) -> Split:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": list(range(100))}), path, row_group_size=40)
    parquet_rows._kept.clear()
    return Split(str(path), 0, {"path": str(path), "end": None, "size": path.stat().st_size})


def rows(split: Split, start: int, stop: int) -> list[int]:
    return [n for batch in ParquetRows(TYPE).read(split, start, stop) for n in batch.column(0).to_pylist()]


def test_ranges_inside_a_row_group_decode_it_once(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    read = pq.ParquetFile.read_row_group

    def counted(self: pq.ParquetFile, group: int, **options: object) -> pa.Table:
        decoded.append(group)
        return read(self, group, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    assert [n for start in range(0, 100, 7) for n in rows(split, start, min(start + 7, 100))] == list(range(100))
    assert decoded == [0, 1, 2]
    assert not parquet_rows._kept, "what was read to its end is not kept"


def test_nothing_is_kept_beyond_the_room_there_is(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "_KEPT_BYTES_MAX", 100)
    assert rows(split, 0, 7) == list(range(7)) and not parquet_rows._kept
    assert rows(split, 3, 50) == list(range(3, 50))


def test_a_file_that_was_replaced_is_read_anew(split: Split, tmp_path: Path) -> None:
    assert rows(split, 0, 7) == list(range(7))
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"n": list(range(500, 600))}), path, row_group_size=40)
    other = Split(str(path), 0, {"path": str(path), "end": None, "size": path.stat().st_size})
    assert rows(other, 0, 3) == [500, 501, 502]
