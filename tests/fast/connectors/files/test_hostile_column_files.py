"""Parquet and ORC files that are small and hold much: read in bounded pieces, or refused by name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from millstream.common.typeinfo import Types
from millstream.connectors.contracts import Split
from millstream.connectors.files import orc_files
from millstream.connectors.files.formats import explained_file_errors
from millstream.connectors.files.orc_files import OrcRows
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.errors import JobFailedError, MillstreamError

ROW = Types.ROW_NAMED(["s", "n"], [Types.STRING(), Types.LONG()])
NUMBERS = Types.ROW_NAMED(["n"], [Types.LONG()])


def batches(rows: Any, path: Path, stop: int = 1_000_000) -> list[pa.RecordBatch]:
    size = path.stat().st_size
    split = Split(path.name, 0, {"path": str(path), "size": size, "end": None, "mark": ""})
    return [batch for batch in rows.read_within(split, 0, stop, None) if isinstance(batch, pa.RecordBatch)]


def coded(path: Path, texts: list[str | None], codes: list[int]) -> Path:
    indices = pa.array([None if texts[code] is None else code for code in codes], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array([text or "" for text in texts]))
    table = pa.table({"s": column, "n": pa.array(range(len(codes)), pa.int64())})
    pq.write_table(table, path, compression="zstd", dictionary_pagesize_limit=1 << 30, store_schema=False)
    return path


@pytest.mark.parametrize("emit_dictionaries", [False, True])
def test_a_long_text_in_a_dictionary_is_not_spelt_out_for_all_rows_at_once(
    tmp_path: Path, emit_dictionaries: bool
) -> None:
    codes = [0, 1] * 150
    path = coded(tmp_path / "a.parquet", ["x" * (1 << 20), "y"], codes)
    assert path.stat().st_size < 10_000
    found = batches(ParquetRows(ROW, emit_dictionaries=emit_dictionaries), path)
    assert max(len(batch) for batch in found) <= 64  # of a MiB each
    assert [length for batch in found for length in _lengths(batch)] == [1 << 20, 1] * 150
    assert [n for batch in found for n in batch.column("n").to_pylist()] == list(range(300))


def _lengths(batch: pa.RecordBatch) -> list[int]:
    column = batch.column("s")
    spelt = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
    return [len(each.as_buffer()) for each in spelt]


@pytest.mark.parametrize("seed", range(5))
def test_texts_of_dictionaries_are_those_that_were_written(tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    texts = [None if draws.random() < 0.1 else "é" * draws.randrange(3000) for _ in range(50)]
    codes = [draws.randrange(len(texts)) for _ in range(2000)]
    path = coded(tmp_path / "a.parquet", texts, codes)
    found = batches(ParquetRows(ROW), path)
    assert [text for batch in found for text in batch.column("s").to_pylist()] == [texts[code] for code in codes]


def test_an_orc_file_of_more_rows_than_its_stripes_may_have_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"n": pa.array(np.zeros(1000, np.int64))}), path)
    assert sum(map(len, batches(OrcRows(NUMBERS), path))) == 1000
    monkeypatch.setattr(orc_files, "_STRIPE_ROWS_MAX", 999)
    with pytest.raises(JobFailedError, match=r"a\.orc claims to have 1,000 rows in 1 stripes"):
        batches(OrcRows(NUMBERS), path)


@pytest.mark.parametrize("kind", ["orc", "parquet"])
def test_a_file_of_columns_with_one_byte_changed_or_cut_short_is_read_or_is_an_error_with_its_name(
    tmp_path: Path, kind: str
) -> None:
    table = pa.table({"n": pa.array(range(500), pa.int64())})
    whole = tmp_path / f"whole.{kind}"
    (orc.write_table if kind == "orc" else pq.write_table)(table, whole)
    data, draws = whole.read_bytes(), random.Random(1)
    for case in range(60):
        at = draws.randrange(len(data))
        changed = data[:at] if case % 2 else data[:at] + bytes([draws.randrange(256)]) + data[at + 1 :]
        path = tmp_path / f"{case}.{kind}"
        path.write_bytes(changed)
        try:
            batches(OrcRows(NUMBERS) if kind == "orc" else ParquetRows(NUMBERS), path)
        except MillstreamError as error:
            assert path.name in str(error)


def test_a_file_that_needs_more_memory_than_there_is_is_not_called_damaged() -> None:
    error = pytest.raises(JobFailedError, match=r"File a\.parquet has parts that need more memory than is available")
    with error, explained_file_errors("a.parquet", "Parquet"):
        raise pa.ArrowMemoryError("realloc of size 2147483648 failed")
