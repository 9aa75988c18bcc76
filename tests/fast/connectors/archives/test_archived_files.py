"""One file of an archive: its entry in the state, lookup and reading."""

from __future__ import annotations

import base64
import datetime as dt
import errno
import json
import zlib
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.archives.archive import PARQUET, Archive, ArchiveParts
from millstream.connectors.archives.archived_files import (
    ARCHIVED_REMOVED,
    ARCHIVED_VERSION,
    FORM,
    ArchivedFile,
    entries_of,
    entry_column,
    latest_ms,
    milliseconds,
    read_file,
)
from millstream.connectors.files.group_filters import GroupFilter
from millstream.errors import StoreAwayError, StoreDamagedError
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import BigIntType, BooleanType, TimestampType, VarCharType
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.storage.memory import MemoryStore

NUMBERS = count()
SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string()), (ARCHIVED_VERSION, pa.int64())])
ENTRY = ArchivedFile(FORM, "memory://x", "part-1.parquet", ".staging/1", 7, 2, 3, 0, 1_000, 9_000, 0, 127)
ROWS = [{"k": 1, "name": "a"}, {"k": 2, "name": None}, {"k": 3, "name": "ü"}]

# Written in entry format 1, by the first version that had archives.
YESTERDAY = (
    "UEFSMRUEFTAVLhW076HMBDwVBhUAEgAAGAQBAAkBPAIAAAAAAAAAAwAAAAAAAAAVABUUFRgV/v7inAIcFQYVEBUGFQYcGAgDAAAAAAAAABgIAQ"
    "AAAAAAAAAWACgIAwAAAAAAAAAYCAEAAAAAAAAAEREAAAAKJAIAAAAGAQIDJAAVBBUWFRoVrtq40A48FQQVABIAAAsoAQAAAGECAAAAw7wVABUS"
    "FRYV9aeMoAccFQYVEBUGFQYcNgIoAsO8GAFhEREAAAAJIAIAAAADBQEDAhUEFRAVFBWDvJv5CTwVAhUAEgAACBwHAAAAAAAAABUAFRIVFhWW7a"
    "+QAhwVBhUQFQYVBhwYCAcAAAAAAAAAGAgHAAAAAAAAABYAKAgHAAAAAAAAABgIBwAAAAAAAAAREQAAAAkgAgAAAAYBAQYAFQQZTDUAGAZzY2hl"
    "bWEVBgAVBCUCGAFrABUMJQIYBG5hbWUlAEwcAAAAFQQlAhgQYXJjaGl2ZWRfdmVyc2lvbgAWBhkcGTwmABwVBBk1AAYQGRgBaxUCFgYW9gEW+A"
    "EmXiYIHBgIAwAAAAAAAAAYCAEAAAAAAAAAFgAoCAMAAAAAAAAAGAgBAAAAAAAAABERABksFQQVABUCABUAFRAVAgA8KQYZJgAGAAAAJgAcFQwZ"
    "NQAGEBkYBG5hbWUVAhYGFpgBFqABJsICJoACHDYCKALDvBgBYRERABksFQQVABUCABUAFRAVAgA8FgYZBhkmAgQAAAAmABwVBBk1AAYQGRgQYX"
    "JjaGl2ZWRfdmVyc2lvbhUCFgYW1AEW3AEm3AMmoAMcGAgHAAAAAAAAABgIBwAAAAAAAAAWACgIBwAAAAAAAAAYCAcAAAAAAAAAEREAGSwVBBUA"
    "FQIAFQAVEBUCADwpBhkmAAYAAAAW4gQWBiYIFvQEABkcGAxBUlJPVzpzY2hlbWEYwAIvLy8vLytnQUFBQVFBQUFBQUFBS0FBd0FCZ0FGQUFnQU"
    "NnQUFBQUFCQkFBTUFBQUFDQUFJQUFBQUJBQUlBQUFBQkFBQUFBTUFBQUNFQUFBQVJBQUFBQVFBQUFDWS8vLy9BQUFCQWhBQUFBQWtBQUFBQkFB"
    "QUFBQUFBQUFRQUFBQVlYSmphR2wyWldSZmRtVnljMmx2YmdBQUFBQ1kvLy8vQUFBQUFVQUFBQURVLy8vL0FBQUJCUkFBQUFBY0FBQUFCQUFBQU"
    "FBQUFBQUVBQUFBYm1GdFpRQUFBQUFFQUFRQUJBQUFBQkFBRkFBSUFBWUFCd0FNQUFBQUVBQVFBQUFBQUFBQkFoQUFBQUFjQUFBQUJBQUFBQUFB"
    "QUFBQkFBQUFhd0FBQUFnQURBQUlBQWNBQ0FBQUFBQUFBQUZBQUFBQQAYIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGTwcAAAcAA"
    "AcAAAA9wIAAFBBUjE="
)


def file_of(rows: list[dict[str, object]]) -> bytes:
    table = pa.Table.from_pylist([{**row, ARCHIVED_VERSION: 7} for row in rows])
    return ArchiveParts().written([table])


def store_with_file(**files: bytes) -> tuple[MemoryStore, ArchivedFile]:
    store = MemoryStore(f"archived-files-{next(NUMBERS)}")
    for name, data in files.items():
        store.put(ENTRY.file if name == "published" else ENTRY.staged, data)
    return store, replace(ENTRY, url=store.url)


def test_entries_are_restored_from_state_once_each_ordered_by_version() -> None:
    entries = [replace(ENTRY, version=version) for version in (9, 3, 5, 3)]
    assert [entry.version for entry in entries_of([entry_column(entries[:2]), entry_column(entries[2:])])] == [3, 5, 9]
    assert entries_of([entry_column([ENTRY])]) == [ENTRY]


def test_an_entry_of_a_newer_format_is_rejected() -> None:
    with pytest.raises(StoreDamagedError, match=f"has format {FORM + 1}.*reads up to format {FORM}"):
        entries_of([entry_column([replace(ENTRY, form=FORM + 1)])])


@pytest.mark.parametrize("names", [("published",), ("staged",), ("published", "staged")])
def test_a_file_is_readable_before_and_after_publication(names: tuple[str, ...]) -> None:
    _, entry = store_with_file(**{name: file_of(ROWS) for name in names})
    assert read_file(entry, SCHEMA).select(["k", "name"]).to_pylist() == ROWS


def test_a_file_published_between_two_read_attempts_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store, entry = store_with_file(staged=file_of(ROWS))
    exists = MemoryStore.exists

    def publishing(self: MemoryStore, name: str) -> bool:
        is_there = exists(self, name)
        if name == entry.file and exists(self, entry.staged):  # just after the first lookup
            self.put(entry.file, self.get(entry.staged))
            self.delete(entry.staged)
        return is_there

    monkeypatch.setattr(MemoryStore, "exists", publishing)
    assert read_file(entry, SCHEMA).num_rows == 3
    assert store.list("") == [entry.file]


def test_a_missing_truncated_or_damaged_file_raises() -> None:
    with pytest.raises(StoreDamagedError, match=r"part-1.parquet in memory://.* is missing, with 3 rows that left"):
        read_file(store_with_file()[1], SCHEMA)
    with pytest.raises(StoreDamagedError, match="has 2 rows, expected 3"):
        read_file(store_with_file(published=file_of(ROWS[:2]))[1], SCHEMA)
    whole = file_of(ROWS)
    for at in (0, len(whole) // 3, len(whole) - 1):
        damaged = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        try:
            rows_read = read_file(store_with_file(published=damaged)[1], SCHEMA)
        except StoreDamagedError:
            continue
        assert rows_read.select(["k", "name"]).to_pylist() == ROWS  # the flipped byte is not part of any row


def test_an_unresponsive_disk_is_a_transient_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    _, entry = store_with_file(published=file_of(ROWS))
    for method in ("read_row_groups", "__init__"):
        with monkeypatch.context() as patch:
            patch.setattr(pq.ParquetFile, method, failing)
            with pytest.raises(StoreAwayError, match="cannot be read now"):
                read_file(entry, SCHEMA)
    assert read_file(entry, SCHEMA).num_rows == 3


def written_entry(data: bytes, **changes: Any) -> ArchivedFile:
    """The entry of a file that holds these bytes."""
    return replace(replace(ENTRY, bytes=len(data), crc32=zlib.crc32(data)), **changes)


def test_a_file_with_any_flipped_bit_is_rejected_before_parquet_reads_it() -> None:
    # Arrow aborts the process on some footers with a single flipped bit, so nothing could be reported.
    whole = file_of(ROWS)
    store, _ = store_with_file()
    entry = written_entry(whole, url=store.url)
    for at in range(len(whole)):
        store.put(entry.file, whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(StoreDamagedError, match="has changed: its checksum does not match"):
            read_file(entry, SCHEMA)
    store.put(entry.file, whole)
    assert read_file(entry, SCHEMA).num_rows == 3


@pytest.mark.parametrize("has_checksum", [True, False])
def test_another_file_under_the_same_name_is_rejected_although_row_counts_match(
    tmp_path: Path, has_checksum: bool
) -> None:
    own, other = file_of(ROWS), file_of([{**row, "name": "another"} for row in ROWS])
    yesterday: dict[str, Any] = {} if has_checksum else {"crc32": None, "form": 2}
    entry = written_entry(own, url=str(tmp_path), **yesterday)
    place = tmp_path / entry.file
    place.write_bytes(own)
    assert read_file(entry, SCHEMA).num_rows == 3
    for foreign in (other, own[:-9], b"", pq_bytes(pa.table({ARCHIVED_VERSION: [7, 7, 7]}))):
        place.write_bytes(foreign)
        with pytest.raises(StoreDamagedError, match=f"has {len(foreign)} bytes, expected {len(own)}"):
            read_file(entry, SCHEMA)
    place.write_bytes(own)  # restored, as the error advises
    assert read_file(entry, SCHEMA).num_rows == 3


def pq_bytes(table: pa.Table) -> bytes:
    return ArchiveParts().written([table])


def test_a_column_whose_type_differs_from_the_table_is_reported() -> None:
    _, entry = store_with_file(published=file_of(ROWS))
    with pytest.raises(StoreDamagedError, match=r"cannot be read: .*Put the file back"):
        read_file(entry, pa.schema([("name", pa.int64())]))


def test_a_column_dropped_and_added_again_is_null_in_older_files() -> None:
    _, entry = store_with_file(published=file_of(ROWS))
    column_births = replace(entry, born=json.dumps({"name": "job:9"}))
    names = [row["name"] for row in ROWS]
    for file, births, expected in (
        (entry, {}, names),
        (entry, {"name": "job:9"}, [None] * 3),
        (column_births, {"name": "job:9"}, names),
        (column_births, {"name": "job:12"}, [None] * 3),
    ):
        assert read_file(file, SCHEMA, births=births).column("name").to_pylist() == expected


def test_entries_of_older_versions_have_no_checksum_and_no_column_births() -> None:
    column = entry_column([replace(ENTRY, form=2)])
    known = [field for field in column.type if field.name not in ("crc32", "born")]
    old = pa.StructArray.from_arrays([column.field(field.name) for field in known], fields=known)
    assert entries_of([old]) == [replace(ENTRY, form=2)]
    assert latest_ms([old]) == ENTRY.high_ms and latest_ms([old.slice(1)]) is None


def test_a_column_missing_from_the_file_is_null_and_a_narrower_column_is_cast() -> None:
    _, entry = store_with_file(published=file_of(ROWS))
    wider = pa.schema([("k", pa.decimal128(20, 0)), ("later", pa.int32())])
    rows = read_file(entry, wider)
    assert rows.column("later").to_pylist() == [None] * 3 and rows.column("k").to_pylist() == [1, 2, 3]


def test_row_groups_without_a_wanted_key_are_skipped() -> None:
    rows = [{"k": number, "name": ""} for number in range(40_000)]
    entry = replace(store_with_file(published=file_of(rows))[1], rows=len(rows))
    store = MemoryStore(entry.url.removeprefix("memory://"))
    assert store.list("") == [entry.file]
    rows_read = read_file(entry, SCHEMA, [GroupFilter("k", "IN", (39_999,))])
    assert 0 < rows_read.num_rows < 10_000 and rows_read.column("k").to_pylist()[-1] == 39_999


def test_a_file_of_format_1_is_read_and_has_no_delete_rows() -> None:
    _, entry = store_with_file(published=base64.b64decode("".join(YESTERDAY)))
    rows = read_file(replace(entry, form=1), SCHEMA.append(pa.field(ARCHIVED_REMOVED, pa.bool_())))
    assert rows.to_pylist() == [{**row, ARCHIVED_VERSION: 7, ARCHIVED_REMOVED: None} for row in ROWS]


def test_a_file_without_the_archive_s_own_column_is_reported_as_damaged() -> None:
    _, entry = store_with_file(published=ArchiveParts().written([pa.Table.from_pylist(ROWS)]))
    with pytest.raises(StoreDamagedError, match="has no column archived_version"):
        read_file(entry, SCHEMA)


@given(st.lists(st.none() | st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))))
def test_times_are_rounded_down_to_milliseconds(times: list[dt.datetime | None]) -> None:
    rows_read = milliseconds(pa.array(times, pa.timestamp("us")))
    epoch = dt.datetime(1970, 1, 1)
    for time, time_ms in zip(times, rows_read.tolist(), strict=True):
        expected = np.iinfo(np.int64).max if time is None else (time - epoch) // dt.timedelta(milliseconds=1)
        assert time_ms == expected


@given(st.integers(0, 10**6), st.integers(0, 1000), st.integers(0, 100))
def test_the_cutoff_trails_event_time_by_the_row_age_and_at_most_one_step(
    time_ms: int, after_ms: int, every_ms: int
) -> None:
    row_type = RowType.of(["t", "k"], [TimestampType(3), VarCharType(9)], nullable=False)
    archive = Archive("memory://x", PARQUET, row_type, ("k",), "t", after_ms, every_ms)
    cut_ms = archive.cut_ms(time_ms)
    assert cut_ms is not None and after_ms <= time_ms - cut_ms < after_ms + max(every_ms, 1)
    assert archive.cut_ms(MIN_WATERMARK) is None and archive.cut_ms(MAX_WATERMARK) is None
    assert archive.file_type.types[-2:] == (BigIntType(False), BooleanType())
