"""The file source: every record once, however the files are cut, found or interrupted."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import hashlib
import io
import itertools
import json
import logging
import os
import pickle
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.time import Instant
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row
from millstream.connectors.contracts import Offset, SourceContext, Split
from millstream.connectors.files import discovery
from millstream.connectors.files.csv_records import CsvDialect, CsvRecords
from millstream.connectors.files.discovery import files_of_list, list_of_files
from millstream.connectors.files.formats import BadRecords, FileFormat
from millstream.connectors.files.lines import JsonLines, TextLines, line_blocks
from millstream.connectors.files.orc_files import OrcRows
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.connectors.files.parts import CsvParts
from millstream.connectors.files.places import InputFile, check_path, files_below
from millstream.connectors.files.source import FileSource, file_source
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.errors import JobFailedError, ProgramError, StoreDamagedError, TypeMismatchError
from millstream.records.columns import from_record_batch
from millstream.storage.store import open_store

PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


def at(now_ms: int = 0) -> SourceContext:
    return SourceContext(now_ms=now_ms, run_started_ms=0, parallelism=2)


def read_range(source: FileSource, split: Split, start: Offset, stop: Offset) -> tuple[list[Any], Offset]:
    records: list[Any] = []
    reading = pickle.loads(pickle.dumps(source)).read(split, start, stop)
    while True:
        try:
            chunk = next(reading)
        except StopIteration as end:
            return records, end.value
        if isinstance(chunk, pa.RecordBatch):
            assert source.type_info is not None
            chunk = from_record_batch(chunk, source.type_info)
        records.extend(chunk)


def drain(source: FileSource, budget: int = 1000, offsets: dict[str, Offset] | None = None) -> list[Any]:
    """Everything there is to read from `offsets` on, epoch by epoch and split by split; offsets are moved on."""
    offsets = {} if offsets is None else offsets
    records: list[Any] = []
    for split in source.splits(at()):
        offset = offsets.get(split.name, split.start)
        while not source.finished(split, offset):
            stop = source.reach(split, offset, budget, at())
            assert stop != offset
            found, offset = read_range(source, split, offset, stop)
            records.extend(found)
            # Offsets live in the manifest, as JSON.
            offset = json.loads(json.dumps(offset))
        offsets[split.name] = offset
    return records


def one_file(folder: Path, data: bytes, format: FileFormat, name: str = "in.txt", **options: Any) -> FileSource:
    (folder / name).write_bytes(data)
    return FileSource([str(folder / name)], format, **options)


@given(
    st.lists(st.text(st.sampled_from("ab\r é"), max_size=9), max_size=30),
    st.booleans(),
    st.lists(st.integers(0, 300), max_size=6),
    st.integers(1, 40),
)
def test_lines_cut_at_random_positions_are_all_the_lines(
    lines: list[str], last_ended: bool, cuts: list[int], block_bytes: int
) -> None:
    data = "\n".join(lines).encode() + (b"\n" if last_ended and lines else b"")
    size = len(data)
    bounds = sorted({0, size, *(cut for cut in cuts if cut < size)})
    joined: list[bytes] = []
    for start, stop in itertools.pairwise(bounds):
        joined += [block for _, block in line_blocks(io.BytesIO(data), start, stop, size, block_bytes)]
    assert b"".join(joined) == data
    assert all(block.endswith(b"\n") for block in joined[:-1])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=12), max_size=40),
    st.integers(1, 50),
    st.integers(1, 5),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_a_text_file_yields_its_lines_whatever_the_split_size_budget_and_compression(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], split_bytes: int, budget: int, end: str, packed: bool
) -> None:
    data = "".join(line + end for line in lines).encode()
    name = "in.txt.gz" if packed else "in.txt"
    folder = tmp_path_factory.mktemp("lines")
    source = one_file(folder, gzip.compress(data) if packed else data, TextLines(), name, split_bytes_max=split_bytes)
    assert drain(source, budget) == lines


def test_the_last_line_needs_no_end_and_other_separators_do_not_end_lines(tmp_path: Path) -> None:
    source = one_file(tmp_path, "a\x0bb\u2028c\n\nlast".encode(), TextLines())
    assert drain(source) == ["a\x0bb\u2028c", "", "last"]


def test_text_is_read_in_its_charset_and_unsuitable_charsets_are_refused(tmp_path: Path) -> None:
    assert drain(one_file(tmp_path, "grün\n".encode("latin-1"), TextLines("ISO-8859-1"))) == ["grün"]
    with pytest.raises(ProgramError, match=r"UTF-16.*Convert"):
        TextLines("UTF-16")
    with pytest.raises(ProgramError, match="not known"):
        TextLines("UTF-88")


@pytest.mark.parametrize("excess", [b"[" * 500 + b"]" * 500, b"1" * 5_000])
def test_a_json_line_is_a_record_or_none_whatever_its_neighbours_are(tmp_path: Path, excess: bytes) -> None:
    line, row_type = b'{"n": 1, "x": ' + excess + b"}\n", Types.ROW_NAMED(["n"], [Types.LONG()])
    for neighbour in (b'{"n": 2}\n', b'{"n": null, "n": 2}\n'):
        source = one_file(tmp_path, neighbour + line, JsonLines(row_type, ignore_parse_errors=True))
        assert drain(source) == [Row(n=2)]


def test_decimals_of_json_lines_keep_their_digits(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["a"], [Types.DECIMAL(38, 20)])
    source = one_file(tmp_path, b'{"a": 12345678901234567.12345678901234567890}\n', JsonLines(row_type))
    assert drain(source) == [Row(a=Decimal("12345678901234567.12345678901234567890"))]


def test_big_files_are_cut_and_a_resumed_job_goes_on_at_its_offset(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(1000)]
    source = one_file(tmp_path, "\n".join(lines).encode(), TextLines(), split_bytes_max=1000)
    splits = list(source.splits(at()))
    assert len(splits) == 9 and len({split.name for split in splits}) == 9
    first, offset = read_range(source, splits[0], 0, 50)
    assert len(first) > 1
    assert first + drain(source, 7, {splits[0].name: offset}) == lines


def test_json_lines_become_typed_rows(tmp_path: Path) -> None:
    type_info = Types.ROW_NAMED(
        ["id", "price", "day", "at", "tags", "owner", "by_rank", "pair", "raw"],
        [
            Types.LONG(),
            Types.BIG_DEC(),
            Types.SQL_DATE(),
            Types.INSTANT(),
            Types.LIST(Types.STRING()),
            PERSON,
            Types.MAP(Types.INT(), Types.SQL_TIMESTAMP()),
            Types.TUPLE([Types.INT(), Types.SQL_TIME()]),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
        ],
    )
    full = {
        "id": 1,
        "price": "1.10",
        "day": "2024-02-29",
        "at": "1970-01-01T00:00:01.5Z",
        "tags": ["x"],
        "owner": {"age": 3, "name": "n"},
        "by_rank": {"1": "2024-02-29 10:00:00"},
        "pair": [7, "10:11:12"],
        "raw": "AQI=",
        "unknown": True,
    }
    data = json.dumps(full) + '\n\n{"id":2}\n'
    first, second = drain(one_file(tmp_path, data.encode(), JsonLines(type_info)))
    assert first == Row(
        id=1,
        price=Decimal("1.10"),
        day=dt.date(2024, 2, 29),
        at=Instant(1, 500_000_000),
        tags=["x"],
        owner=Row(name="n", age=3),
        by_rank={1: dt.datetime(2024, 2, 29, 10)},
        pair=(7, dt.time(10, 11, 12)),
        raw=b"\x01\x02",
    )
    assert second.id == 2 and second.owner is None


def test_json_lines_without_a_type_are_plain_values(tmp_path: Path) -> None:
    assert drain(one_file(tmp_path, b'\xef\xbb\xbf{"a":[1]}\n7\n', JsonLines())) == [{"a": [1]}, 7]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"name": "x", "age": ', "Expecting value"),
        ('{"name": "x", "age": "old"}', "age"),
        ("[1, 2]", "expected a dict"),
        ('{"name": "x"}', "'age' is missing"),
    ],
)
def test_a_bad_json_line_is_named_with_file_position_and_text(tmp_path: Path, line: str, reason: str) -> None:
    good = '{"name": "grün", "age": 1}\n'
    format = JsonLines(PERSON, fail_on_missing_field=True)
    source = one_file(tmp_path, (good + line + "\n" + good).encode(), format, "people.json")
    with pytest.raises(TypeMismatchError) as caught:
        drain(source)
    assert f"people.json, byte {len(good.encode())}" in str(caught.value) and reason in str(caught.value)
    assert line in str(caught.value)


def test_bad_records_are_counted_when_they_may_be_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = b'{"name":"a","age":1}\n{"name":\n{"name":"b","age":"x"}\n{"name":"c","age":2}\n'
    with caplog.at_level(logging.WARNING):
        rows = drain(one_file(tmp_path, data, JsonLines(PERSON, ignore_parse_errors=True)))
    assert [row.name for row in rows] == ["a", "c"]
    assert "2 records ignored" in caplog.text and "byte 21" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        rows = drain(one_file(tmp_path, b'a,1\nb\n"c"x,3\nd,4\n', CsvRecords(PERSON, ignore_parse_errors=True)))
    assert [row.name for row in rows] == ["a", "d"]
    assert "2 records ignored" in caplog.text


def test_a_json_line_that_is_nested_too_deep_is_a_bad_record_as_any(tmp_path: Path) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert drain(one_file(tmp_path, deep + b"\n1\n", JsonLines(ignore_parse_errors=True))) == [1]
    with pytest.raises(TypeMismatchError, match=r"byte 0: not a JSON record .*nested deeper than 400"):
        drain(one_file(tmp_path, deep + b"\n1\n", JsonLines()))
    lenient = JsonRowDeserializationSchema.builder().type_info(PERSON).ignore_parse_errors().build()
    assert lenient.deserialize(deep) is None


FIELD = st.text(st.sampled_from('ab,"\n\r é#'), max_size=6)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(FIELD, st.none() | st.integers(-(2**31), 2**31 - 1)), max_size=20), st.integers(1, 4))
def test_csv_with_quoted_line_ends_is_read_as_it_was_written_whatever_the_budget(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int | None]], budget: int
) -> None:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([text, "" if number is None else number] for text, number in rows)
    source = one_file(tmp_path_factory.mktemp("csv"), buffer.getvalue().encode(), CsvRecords(PERSON), "in.csv")
    assert [tuple(row) for row in drain(source, budget)] == rows


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(FIELD | st.none(), st.none() | st.integers(-9, 9)), max_size=9), st.sampled_from(",;\t|"))
def test_what_the_csv_sink_writes_the_csv_source_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str | None, int | None]], delimiter: str
) -> None:
    data = CsvParts(delimiter=delimiter, null_text="NULL").encode(rows)
    format = CsvRecords(PERSON, CsvDialect(delimiter=delimiter, null_text="NULL"))
    assert [tuple(row) for row in drain(one_file(tmp_path_factory.mktemp("csv"), data, format), 2)] == rows


def test_csv_dialects(tmp_path: Path) -> None:
    def read(data: bytes, type_info: TypeInformation, **dialect: Any) -> list[Any]:
        return drain(one_file(tmp_path, data, CsvRecords(type_info, CsvDialect(**dialect))))

    assert read(b"a|NULL\n|7\n", PERSON, delimiter="|", null_text="NULL") == [
        Row(name="a", age=None),
        Row(name="", age=7),
    ]
    assert read(b"'a,b',1\n", PERSON, quote="'") == [Row(name="a,b", age=1)]
    assert read(b'"a\\"b",1\n', PERSON, escape="\\") == [Row(name='a"b', age=1)]
    assert read(b'5" disk,1\n', PERSON) == [Row(name='5" disk', age=1)]
    assert read(b'"x,1\n', PERSON, quote=None) == [Row(name='"x', age=1)]
    assert read(b"# no\na,1\n", PERSON, comments=True) == [Row(name="a", age=1)]
    assert read(b"\nname,age\na,1\n", PERSON, header="skip") == [Row(name="a", age=1)]
    assert read(b"age,other,name\r\n1,x,a\r\n", PERSON, header="names") == [Row(name="a", age=1)]
    listed = Types.TUPLE([Types.BASIC_ARRAY(Types.INT()), Types.BOOLEAN(), Types.DOUBLE(), Types.SQL_TIMESTAMP()])
    assert read(b"1;2,true,1.5,2024-02-29 10:00:00.25\n", listed) == [
        ([1, 2], True, 1.5, dt.datetime(2024, 2, 29, 10, 0, 0, 250_000))
    ]


def test_compressed_csv_with_a_header_is_read_in_small_epochs(tmp_path: Path) -> None:
    data = "age,name\n" + "".join(f'{n},"n\n{n}"\n' for n in range(50))
    format = CsvRecords(PERSON, CsvDialect(header="names"))
    rows = drain(one_file(tmp_path, gzip.compress(data.encode()), format, "in.csv.gz"), budget=3)
    assert rows == [Row(name=f"n\n{n}", age=n) for n in range(50)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x", "1 fields, expected 2"),
        ("x,1,2", "3 fields"),
        ("x,1.5", "1.5"),
        ("x,1_000", "1_000"),
        ("x,99999999999", "99999999999"),
        ('"x,2', "unexpected end of data"),
    ],
)
def test_a_bad_csv_record_is_named_with_file_position_and_text(tmp_path: Path, line: str, reason: str) -> None:
    source = one_file(tmp_path, f'"a\nb",1\n{line}\n'.encode(), CsvRecords(PERSON), "people.csv")
    with pytest.raises(TypeMismatchError) as caught:
        drain(source)
    assert "people.csv, byte 8" in str(caught.value) and reason in str(caught.value)


def test_csv_refuses_types_it_cannot_hold() -> None:
    with pytest.raises(ProgramError, match="CSV field cannot hold"):
        CsvRecords(Types.ROW([Types.MAP(Types.STRING(), Types.INT())]))
    with pytest.raises(ProgramError, match="Use a ROW or TUPLE"):
        CsvRecords(Types.STRING())
    with pytest.raises(ProgramError, match="delimiter"):
        CsvDialect(delimiter="||")


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 25), st.integers(1, 2000))
def test_parquet_rows_are_all_read_whatever_the_row_groups_splits_and_budget(
    tmp_path_factory: pytest.TempPathFactory, count: int, group: int, budget: int, split_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    table = pa.table(
        {"age": pa.array(range(count), pa.int32()), "x": [0] * count, "name": [str(n) for n in range(count)]}
    )
    pq.write_table(table, folder / "in.parquet", row_group_size=group)
    source = FileSource([str(folder)], ParquetRows(PERSON), split_bytes_max=split_bytes)
    assert drain(source, budget) == [Row(name=str(n), age=n) for n in range(count)]


def test_parquet_columns_are_cast_where_nothing_is_lost_and_refused_where_something_would_be(tmp_path: Path) -> None:
    def source(table: pa.Table, type_info: TypeInformation) -> FileSource:
        name = f"{len(os.listdir(tmp_path))}.parquet"
        pq.write_table(table, tmp_path / name)
        return FileSource([str(tmp_path / name)], ParquetRows(type_info))

    def typed(of: TypeInformation) -> TypeInformation:
        return Types.ROW_NAMED(["v"], [of])

    small = pa.table({"v": pa.array([1, None], pa.int16())})
    assert [row.v for row in drain(source(small, typed(Types.LONG())))] == [1, None]
    price = pa.table({"v": pa.array([Decimal("1.10")], pa.decimal128(10, 2))})
    assert [row.v for row in drain(source(price, typed(Types.BIG_DEC())))] == [Decimal("1.10")]
    with pytest.raises(TypeMismatchError, match=r"parquet, column 'v': .*99999999999"):
        drain(source(pa.table({"v": [99999999999]}), typed(Types.INT())))
    with pytest.raises(JobFailedError, match=r"has the columns \['w'\], and \['v'\]"):
        drain(source(pa.table({"w": [1]}), typed(Types.INT())))
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(JobFailedError, match="not complete Parquet"):
        drain(FileSource([str(tmp_path / "bad.parquet")], ParquetRows(PERSON)))
    with pytest.raises(ProgramError, match="needs the type"):
        ParquetRows(Types.PICKLED_BYTE_ARRAY())


def test_folders_are_read_recursively_oldest_first_without_hidden_and_empty_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "_temporary").mkdir()
    for name, modified in (("b", 1), ("sub/a", 2), ("a", 3), (".c", 0), ("_d", 0), ("_temporary/e", 0), ("sub/.f", 0)):
        (tmp_path / name).write_text(name + "\n")
        os.utime(tmp_path / name, (modified, modified))
    (tmp_path / "empty").touch()
    assert drain(FileSource([str(tmp_path)], TextLines())) == ["b", "sub/a", "a"]
    assert drain(FileSource([str(tmp_path / ".c")], TextLines())) == [".c"]


def test_links_that_lead_back_or_nowhere_are_passed_over(tmp_path: Path) -> None:
    """A link to a folder that it is in has no files of its own; one that leads to itself has nothing to read."""
    below, beside = tmp_path / "in" / "below", tmp_path / "beside"
    below.mkdir(parents=True)
    beside.mkdir()
    (below / "a").write_text("a")
    (beside / "b").write_text("b")
    for link, target in (("up", tmp_path / "in"), ("over", tmp_path), ("self", below), ("next", beside)):
        (below / link).symlink_to(target)
    (beside / "back").symlink_to(tmp_path / "in")
    (below / "loop").symlink_to("loop")
    (below / "ring").symlink_to("ring2")
    (below / "ring2").symlink_to("ring")
    (below / "nowhere").symlink_to("gone")
    found = [str(Path(file.path).relative_to(tmp_path)) for file in files_below(str(tmp_path / "in"))]
    assert sorted(found) == ["in/below/a", "in/below/next/b"]
    with pytest.raises(ProgramError, match="is a broken or circular symbolic link"):
        check_path(str(below / "loop"), False)


def test_an_unlistable_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files would be missing in silence."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "a").write_text("a")
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(ProgramError, match=r"the folder .*closed cannot be listed \(Permission denied\)"):
        list(files_below(str(tmp_path)))


def test_a_missing_path_is_reported_before_the_job_runs(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="does not exist"):
        FileSource([str(tmp_path / "nowhere")], TextLines()).opened(open_store("memory://missing-path"), None)
    with pytest.raises(ProgramError, match="no path"):
        FileSource([], TextLines()).opened(open_store("memory://missing-path"), None)
    with pytest.raises(ProgramError, match="hdfs"):
        FileSource(["hdfs://host/in"], TextLines())


def test_a_monitored_folder_lists_new_files_as_new_splits_at_its_interval(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    source = FileSource([str(tmp_path)], TextLines(), discovery_interval_ms=100)
    assert [Path(split.name).name for split in source.splits(at(0))] == ["a"]
    (tmp_path / "b").write_text("b\n")
    assert len(source.splits(at(99))) == 1
    assert [Path(split.name).name for split in source.splits(at(100))] == ["a", "b"]
    assert not source.complete(at(100)) and not source.bounded


def test_a_clock_that_is_set_back_hides_no_new_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    source = FileSource([str(tmp_path)], TextLines(), discovery_interval_ms=100)
    source.splits(at(10_000))
    (tmp_path / "b").write_text("b\n")
    assert len(source.splits(at(5_000))) == 2
    (tmp_path / "c").write_text("c\n")
    assert len(source.splits(at(5_099))) == 2 and len(source.splits(at(5_100))) == 3


def test_after_a_crash_the_files_and_their_sizes_are_those_first_seen(tmp_path: Path) -> None:
    store = open_store("memory://file-log")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_text("1\n2\n")
    for interval_ms in (None, 0):
        source = FileSource([str(folder)], TextLines(), interval_ms, split_bytes_max=3)
        first = [split for split in source.opened(store, None).splits(at()) if split.info["path"].endswith("/a")]
        with open(folder / "a", "a") as file:
            file.write("3\n")
        (folder / "later").write_text("x\n")
        resumed = source.opened(store, None).splits(at())
        assert resumed[: len(first)] == first
        assert len(resumed) == len(first) + (interval_ms is not None)


def test_sources_with_the_same_paths_agree_on_their_files(tmp_path: Path) -> None:
    store = open_store("memory://shared-log")
    (tmp_path / "a").write_text("1\n")
    one, two = (FileSource([str(tmp_path)], TextLines(), 0).opened(store, None) for _ in range(2))
    assert list(one.splits(at())) == list(two.splits(at()))
    (tmp_path / "b").write_text("2\n")
    one.splits(at(1))
    with open(tmp_path / "b", "a") as file:
        file.write("a size that only the second would see\n")
    (tmp_path / "c").write_text("3\n")
    two.splits(at(1))
    two.splits(at(2))
    assert list(one.splits(at(3))) == list(two.splits(at(3))) and len(one.splits(at(3))) == 3


def test_a_damaged_list_of_files_is_reported(tmp_path: Path) -> None:
    store = open_store("memory://damaged-log")
    (tmp_path / "a").write_text("1\n")
    FileSource([str(tmp_path)], TextLines()).opened(store, None).splits(at())
    [name] = store.list("input")
    store.put(name, b"{")
    with pytest.raises(StoreDamagedError, match="not readable"):
        FileSource([str(tmp_path)], TextLines()).opened(store, None)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.parquet"])
def test_a_file_that_was_cut_or_removed_is_an_error_and_nothing_is_skipped(tmp_path: Path, name: str) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"name": ["a"], "age": pa.array([1], pa.int32())}), buffer)
    whole = {"a.txt": b"1\n2\n3\n", "a.txt.gz": gzip.compress(b"1\n2\n"), "a.parquet": buffer.getvalue()}[name]
    source = one_file(tmp_path, whole, ParquetRows(PERSON) if name == "a.parquet" else TextLines(), name)
    [split] = source.splits(at())
    (tmp_path / name).write_bytes(whole[:4])
    with pytest.raises(JobFailedError, match=f"has 4 bytes, and had {len(whole)}"):
        drain(source)
    (tmp_path / name).unlink()
    with pytest.raises(JobFailedError, match="no longer exists"):
        read_range(source, split, 0, 1)


def test_a_broken_gzip_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=r"in\.gz is not complete gzip"):
        drain(one_file(tmp_path, gzip.compress(b"1\n" * 10_000)[:-9], TextLines(), "in.gz"))
    with pytest.raises(JobFailedError, match=r"in\.gz is not complete gzip"):
        drain(one_file(tmp_path, b"plain text\n", TextLines(), "in.gz"))


DOCUMENT_TYPE = Types.ROW_NAMED(
    ["n", "d", "s", "b", "list", "row"],
    [
        Types.INT(),
        Types.DOUBLE(),
        Types.STRING(),
        Types.BOOLEAN(),
        Types.LIST(Types.LONG()),
        Types.ROW_NAMED(["n"], [Types.BYTE()]),
    ],
)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(2**34), 2**34)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["1e400", "-0", "1.0", "1e2", "\ud800", "1" * 25]).map(lambda text: RawJson(text))
)
VALUE = st.recursive(SCALAR, lambda v: st.lists(v, max_size=2) | st.fixed_dictionaries({"n": v}), max_leaves=3)
FIELDS = {
    "n": st.integers(-9, 9),
    "d": st.floats(),
    "s": st.text(),
    "b": st.booleans(),
    "list": st.lists(st.integers()),
}
DOCUMENT = st.fixed_dictionaries({}, optional={**FIELDS, "x": VALUE}) | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["n", "d", "s", "b", "list", "row"], VALUE)
)


class RawJson(str):
    """Text that stands in a document as it is."""


def as_json(value: Any) -> str:
    if isinstance(value, RawJson):
        return "0" if "\ud800" in value else str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{as_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()


def decoded(format: JsonLines, block: bytes, slow: bool) -> Any:
    decode = format.decode_values if slow else format.decode
    try:
        return [str(row) for row in from_record_batch(decode(1, block, BadRecords("f", "JSON", False)), DOCUMENT_TYPE)]
    except TypeMismatchError as error:
        return str(error)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        DOCUMENT.map(as_json) | st.sampled_from(["", " ", "null", "{", "}", "[{}]", "{}{}", '{"n":1,"n":2}']),
        max_size=4,
    ),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_the_fast_path_of_json_equals_the_slow_path(documents: list[str], end: str) -> None:
    block = end.join(documents).encode()
    assert decoded(JsonLines(DOCUMENT_TYPE), block, False) == decoded(JsonLines(DOCUMENT_TYPE), block, True)


def test_a_file_that_is_called_like_the_second_half_of_another_is_a_split_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    (tmp_path / "a#5").write_text("other\n")
    source = FileSource([str(tmp_path)], TextLines(), split_bytes_max=5)
    names = [split.name for split in source.splits(at())]
    assert len(names) == len(set(names)) == 5
    assert sorted(drain(source)) == ["one", "other", "three", "two"]


@pytest.mark.parametrize("rows_per_group", [7, 400])
def test_rows_of_any_size_are_read_as_far_as_the_bytes_of_an_epoch_allow(tmp_path: Path, rows_per_group: int) -> None:
    row_type = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
    table = pa.table({"n": list(range(400)), "text": ["x" * 10_000] * 400})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows_per_group)
    orc.write_table(table, tmp_path / "b.orc")
    for file, format in (("a.parquet", ParquetRows(row_type)), ("b.orc", OrcRows(row_type))):
        source = file_source([str(tmp_path / file)], format)
        [split] = source.splits(at())
        offset: Any = 0
        numbers: list[int] = []
        epochs = 0
        while not source.finished(split, offset):
            stop = source.reach(split, offset, 1_000, at())
            reading, read_bytes = source.read_within(split, offset, stop, 500_000), 0
            while True:
                try:
                    batch = next(reading)
                except StopIteration as end:
                    offset = end.value
                    break
                read_bytes += batch.nbytes
                numbers += batch.column("n").to_pylist()
            assert read_bytes <= 1_100_000
            epochs += 1
        assert numbers == list(range(400)) and epochs >= 4


def test_lines_are_reached_no_further_than_the_bytes_of_an_epoch_allow(tmp_path: Path) -> None:
    source = one_file(tmp_path, b"x" * 999 + b"\n" + b"short\n" * 5_000, TextLines())
    [split] = source.splits(at())
    context = SourceContext(now_ms=0, run_started_ms=0, parallelism=1, record_bytes_max=3)
    assert source.reach(split, 0, 100, context) == 300


def test_a_list_of_an_older_millstream_is_read_and_its_files_are_cut_as_they_were(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["n"], [Types.LONG()])
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": list(range(400))}), path, row_group_size=100)
    entries = [{"path": str(path), "size": path.stat().st_size, "modified_ns": 1}]
    checksum = hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
    old_list = json.dumps({"files": entries, "checksum": checksum}, indent=1).encode()
    [file] = files_of_list(old_list)
    assert file.cut_by_content
    splits = ParquetRows(row_type).plan(file, 1_500)
    assert [(split.name, split.start) for split in splits] == [(str(path), 0), (f"{path}#200", 200)]
    with pytest.raises(ValueError, match="checksum"):
        files_of_list(old_list.replace(b"a.parquet", b"b.parquet"))
    [new_file] = files_of_list(list_of_files([InputFile(str(path), 9, 1, "mark")]))
    assert not new_file.cut_by_content and new_file.mark == "mark"


def test_a_search_that_takes_long_does_not_hold_epochs_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("a\n")
    source = FileSource([str(tmp_path)], TextLines(), discovery_interval_ms=1)
    assert len(list(source.splits(at(0)))) == 1
    source._search_s = 5.0
    may_end = threading.Event()
    real = discovery.list_files

    def slow(*arguments: Any) -> Any:
        assert may_end.wait(30)
        return real(*arguments)

    monkeypatch.setattr(discovery, "list_files", slow)
    (tmp_path / "b").write_text("b\n")
    assert len(list(source.splits(at(10)))) == 1, "it is still looking"
    may_end.set()
    deadline_s = time.monotonic() + 30
    while len(list(source.splits(at(20)))) == 1 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert [Path(split.name).name for split in source.splits(at(20))] == ["a", "b"]
