"""Epochs become transactions of a Delta table, once each; what the table cannot take is refused in good time."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Row, RowKind, Types
from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.contracts import CommitId, RestorePoint, WriterContext
from millstream.connectors.delta.data_files import divided, partition_text
from millstream.connectors.delta.sink import DeltaTableSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.delta import DeltaSink
from millstream.errors import MillstreamError, ProgramError, StoreDamagedError
from millstream.records.batch import Batch
from millstream.storage.store import open_store
from millstream.testing import CRASH, Script, run

SALE = Types.ROW_NAMED(["shop", "cents"], [Types.STRING(), Types.LONG()])


def stage(sink: Any, values: Sequence[Any], epoch: int, job: str = "j1", nonce: str = "n1") -> list[Any]:
    """What a task stages for these rows."""
    store = open_store("memory://delta-tests")
    writer = sink.writer(WriterContext("out", epoch, 0, 1, nonce, store, 1_000, SALE, job))
    writer.write(Batch.of_values(list(values), sink._shape.row_type))
    return list(writer.stage())


def commit(sink: Any, staged: list[Any], epoch: int, job: str = "j1") -> None:
    plan = sink.plan_commit(staged, None, 0, False)
    sink.commit(CommitId(job, "out", epoch), plan.publish, open_store("memory://delta-tests"))


def cents(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["cents"].to_pylist())


def test_a_job_writes_a_table_that_others_read(tmp_path: Path) -> None:
    everything = Types.ROW_NAMED(
        ["cents", "text", "ratio", "paid", "day", "at", "instant", "amount", "tags", "by_name", "inner", "raw"],
        [
            Types.LONG(),
            Types.STRING(),
            Types.DOUBLE(),
            Types.BOOLEAN(),
            Types.SQL_DATE(),
            Types.SQL_TIMESTAMP(),
            Types.INSTANT(),
            Types.BIG_DEC(),
            Types.LIST(Types.STRING()),
            Types.MAP(Types.STRING(), Types.INT()),
            Types.ROW_NAMED(["x"], [Types.INT()]),
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
        ],
    )
    day, at = dt.date(1969, 12, 31), dt.datetime(2026, 3, 1, 12, 30, 0, 5)
    full = (2, "é", -0.5, True, day, at, None, None, ["a", None], {"k": 1}, Row(x=1), b"\x00\xff")

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_collection([Row(1, *[None] * 11), Row(*full)], everything)
        rows.sink_to(DeltaSink.for_row_type(str(tmp_path / "t"), everything).build()).uid("t")

    run(build)
    first, second = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("cents").to_pylist()
    assert {name for name, value in first.items() if value is not None} == {"cents"}
    assert second == {
        **dict(zip(everything.get_field_names(), full, strict=True)),
        "by_name": [("k", 1)],
        "inner": {"x": 1},
    }
    frame = DeltaTable(tmp_path / "t").to_pandas()
    assert sorted(frame["cents"]) == [1, 2]
    dataset = DeltaTable(tmp_path / "t").to_pyarrow_dataset()  # DuckDB's own reader is an extension, not to be had here
    assert duckdb.arrow(dataset).filter("paid").project("text").fetchall() == [("é",)]


def test_every_epoch_is_one_version_through_crashes(tmp_path: Path) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.add_source(Script([1, 2, CRASH, 3, 4, CRASH, 5])).map(lambda n: Row("s", n), SALE)
        rows.sink_to(DeltaSink.for_row_type(str(tmp_path / "t"), SALE).build()).uid("t")

    result = run(build, parallelism=2)
    assert cents(tmp_path / "t") == [1, 2, 3, 4, 5]
    assert DeltaTable(tmp_path / "t").version() == result.epochs


def test_a_repeated_commit_changes_nothing(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    staged = stage(sink, [("a", 1)], epoch=1)
    commit(sink, staged, 1)
    commit(sink, staged, 1)
    commit(DeltaTableSink(str(tmp_path), SALE).opened(None), staged, 1)
    later = stage(sink, [("a", 2)], epoch=2)
    commit(sink, later, 2)
    commit(DeltaTableSink(str(tmp_path), SALE).opened(None), staged, 1)  # an old driver that wakes up
    assert cents(tmp_path) == [1, 2] and DeltaTable(tmp_path).version() == 2


def test_another_job_with_epochs_of_the_same_numbers_adds_its_own(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    for job in ("j1", "j2"):
        commit(sink, stage(sink, [("a", 1)], epoch=1, job=job), 1, job)
    assert cents(tmp_path) == [1, 1]


def test_an_epoch_without_records_makes_no_version(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    commit(sink, [], 1)
    assert DeltaTable(tmp_path).version() == 0


def test_drivers_that_race_with_the_same_epochs_add_each_once(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    epochs = {epoch: stage(sink, [("a", epoch)], epoch) for epoch in range(1, 13)}
    errors: list[BaseException] = []

    def drive() -> None:
        try:
            driver = DeltaTableSink(str(tmp_path), SALE).opened(None)
            for epoch, staged in epochs.items():
                commit(driver, staged, epoch)
        except BaseException as error:
            errors.append(error)

    drivers = [threading.Thread(target=drive) for _ in range(3)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert errors == [] and cents(tmp_path) == list(epochs)


def test_a_table_that_others_change_meanwhile_is_added_to_all_the_same(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    commit(sink, stage(sink, [("a", 1)], epoch=1), 1)
    write_deltalake(tmp_path, pa.table({"shop": ["theirs"], "cents": [10]}), mode="append")
    commit(sink, stage(sink, [("a", 2)], epoch=2), 2)
    DeltaTable(tmp_path).optimize.compact()
    commit(sink, stage(sink, [("a", 2)], epoch=2), 2)
    DeltaTable(tmp_path).create_checkpoint()
    commit(DeltaTableSink(str(tmp_path), SALE).opened(None), stage(sink, [("a", 2)], epoch=2), 2)
    assert cents(tmp_path) == [1, 2, 10]


def test_rows_are_partitioned_by_columns_and_read_by_them(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(
        ["cents", "day", "shop", "paid"], [Types.LONG(), Types.SQL_DATE(), Types.STRING(), Types.BOOLEAN()]
    )
    shops = ["a b", "ä/ö", "100%", "=", "a?b#c", "..", None, "__HIVE_DEFAULT_PARTITION__x"]
    rows = [(n, dt.date(2026, 3, 1 + n % 2), shops[n % 8], n % 3 == 0) for n in range(96)]
    sink = DeltaTableSink(str(tmp_path / "t"), row_type, ["day", "shop", "paid"]).opened(None)
    commit(sink, stage(sink, rows, epoch=1), 1)
    table = DeltaTable(tmp_path / "t")
    assert (
        sorted(map(tuple, (row.values() for row in table.to_pyarrow_table().to_pylist())), key=lambda row: row[0])
        == rows
    )
    for shop in shops[:6]:
        found = table.to_pyarrow_table(filters=[("shop", "=", shop)])["cents"].to_pylist()
        assert sorted(found) == [row[0] for row in rows if row[2] == shop]
    everything = {path.resolve() for path in (tmp_path / "t").rglob("*")}
    assert all(path.is_relative_to((tmp_path / "t").resolve()) for path in everything)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "b", None]), st.sampled_from([True, False, None]))))
def test_rows_are_divided_as_one_by_one(rows: list[tuple[int, str | None, bool | None]]) -> None:
    expected: dict[tuple[str | None, ...], list[int]] = {}
    for number, text, flag in rows:
        expected.setdefault((partition_text("text", text), partition_text("flag", flag)), []).append(number)
    numbers, texts, flags = zip(*rows, strict=True) if rows else ((), (), ())
    batch = pa.record_batch(
        {"n": pa.array(numbers, pa.int64()), "text": pa.array(texts, pa.string()), "flag": pa.array(flags, pa.bool_())}
    )
    groups = {values: group["n"].to_pylist() for values, group in divided(batch, ["text", "flag"])}
    assert groups == expected and list(groups) == list(expected)


def test_an_empty_text_in_a_partition_column_is_an_error_and_no_silent_null(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE, ["shop"]).opened(None)
    with pytest.raises(ProgramError, match="'' in the partition column 'shop'"):
        stage(sink, [("", 1)], epoch=1)


def test_readers_may_skip_files_by_the_statistics_in_the_log(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    commit(sink, stage(sink, [("a", -5), (None, 7), ("b", None)], epoch=1), 1)
    [action] = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action["min.cents"], action["max.cents"]) == (3, -5, 7)
    assert (action["null_count.cents"], action["null_count.shop"]) == (1, 1)


def test_large_epochs_make_several_files(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE, file_bytes_max=10_000).opened(None)
    writer = sink.writer(WriterContext("out", 1, 0, 1, "n", open_store("memory://delta-tests"), 0, SALE, "j1"))
    for start in range(0, 5_000, 500):
        writer.write(Batch.of_values([("shop", n) for n in range(start, start + 500)], SALE))
    staged = list(writer.stage())
    commit(sink, staged, 1)
    assert len(staged) > 3 and cents(tmp_path) == list(range(5_000))


def test_what_an_aborted_attempt_wrote_is_removed_and_was_never_seen(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE, file_bytes_max=1).opened(None)
    writer = sink.writer(WriterContext("out", 1, 0, 1, "n", open_store("memory://delta-tests"), 0, SALE, "j1"))
    writer.write(Batch.of_values([("a", 1)], SALE))
    assert list(tmp_path.rglob("part-*")) and cents(tmp_path) == []
    writer.abort()
    assert not list(tmp_path.rglob("part-*"))


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_data_file_that_was_lost_before_its_epoch_was_added_is_named(tmp_path: Path, damage: str) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    staged = stage(sink, [("a", 1)], epoch=1)
    file = tmp_path / staged[0]["path"]
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StoreDamagedError, match="is not part of the table yet"):
        commit(sink, staged, 1)
    assert cents(tmp_path) == []


@pytest.mark.parametrize(
    ("columns", "partition_by", "words"),
    [
        ([("shop", "string")], [], "'cents' of the stream is missing"),
        ([("shop", "string"), ("cents", "integer")], [], "column 'cents' is integer, but the stream has long"),
        ([("shop", "string"), ("cents", "long")], ["shop"], r"partitioned by \['shop'\], but the sink by \[\]"),
    ],
)
def test_a_table_of_another_schema_is_refused_before_the_job_runs(
    tmp_path: Path, columns: list[tuple[str, str]], partition_by: list[str], words: str
) -> None:
    DeltaTable.create(tmp_path, Schema([Field(n, PrimitiveType(t)) for n, t in columns]), partition_by=partition_by)
    with pytest.raises(ProgramError, match=words):
        DeltaTableSink(str(tmp_path), SALE).opened(None)


@pytest.mark.parametrize(
    "configuration",
    [{"delta.setTransactionRetentionDuration": "interval 1 day"}, {"delta.enableRowTracking": "true"}],
)
def test_a_table_that_requires_unsupported_work_is_refused(tmp_path: Path, configuration: dict[str, str]) -> None:
    log = tmp_path / "_delta_log"
    DeltaTable.create(tmp_path, Schema([Field("shop", PrimitiveType("string")), Field("cents", PrimitiveType("long"))]))
    [first] = log.glob("*.json")
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] = configuration
    first.write_text("\n".join(json.dumps(action) for action in actions))
    with pytest.raises(MillstreamError, match=next(iter(configuration))):
        DeltaTableSink(str(tmp_path), SALE).opened(None)


def test_a_column_that_takes_no_null_is_held_before_the_epoch_is_committed(tmp_path: Path) -> None:
    DeltaTable.create(
        tmp_path,
        Schema([Field("shop", PrimitiveType("string"), nullable=False), Field("cents", PrimitiveType("long"))]),
    )
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    staged = stage(sink, [(None, 1)], epoch=1)
    with pytest.raises(ProgramError, match="column 'shop' is not nullable"):
        sink.plan_commit(staged, None, 0, False)
    commit(sink, stage(sink, [("a", 1)], epoch=2), 2)
    assert cents(tmp_path) == [1]


def test_a_concurrently_altered_table_is_reported_and_nothing_is_added(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    staged = stage(sink, [("a", 1)], epoch=1)
    table = pa.table({"shop": ["x"], "cents": ["text"]})
    write_deltalake(tmp_path, table, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ProgramError, match="column 'cents' is string, but the stream has long"):
        commit(sink, staged, 1)
    write_deltalake(tmp_path, pa.table({"shop": ["x"], "cents": [1]}), mode="overwrite", schema_mode="overwrite")
    DeltaTable(tmp_path).alter.add_columns([Field("note", PrimitiveType("string"))])
    commit(sink, staged, 1)
    assert cents(tmp_path) == [1, 1]


def test_updates_and_deletions_are_refused(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    gone = Row("a", 1)
    gone.set_row_kind(RowKind.DELETE)
    with pytest.raises(ProgramError, match="updates or deletions"):
        stage(sink, [gone], epoch=1)


@pytest.mark.parametrize(
    ("row_type", "partition_columns", "words"),
    [
        (Types.ROW_NAMED(["a b"], [Types.LONG()]), (), "named 'a b'"),
        (Types.ROW_NAMED(["a", "A"], [Types.LONG(), Types.LONG()]), (), "differ only in case"),
        (SALE, ("day",), "'day' is not among the fields"),
        (SALE, ("shop", "cents"), "all columns are partition columns"),
        (Types.ROW_NAMED(["a", "x"], [Types.LONG(), Types.DOUBLE()]), ("x",), "expected text, a whole number"),
    ],
)
def test_a_sink_that_cannot_work_is_refused_where_it_is_made(
    tmp_path: Path, row_type: RowTypeInfo, partition_columns: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ProgramError, match=words):
        DeltaTableSink(str(tmp_path), row_type, partition_columns)


def test_a_type_that_delta_has_not_is_named(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["at"], [Types.SQL_TIME()])
    with pytest.raises(ProgramError, match="column 'at' is time64"):
        DeltaTableSink(str(tmp_path), row_type).opened(None)
    with pytest.raises(ProgramError, match="neither a folder nor an object store"):
        DeltaTableSink("memory://x", SALE)


def test_a_restored_job_reports_which_versions_are_repeated(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path), SALE).opened(None)
    for epoch in (1, 2, 3):
        commit(sink, stage(sink, [("a", epoch)], epoch), epoch)
    store = open_store("memory://delta-tests")
    point = RestorePoint(1, "out", store, "j1", "j1")
    assert "versions 2 to 3 of the table" in DeltaTableSink(str(tmp_path), SALE).after_restore(None, point)[1]
    assert "restore(1)" in DeltaTableSink(str(tmp_path), SALE).after_restore(None, point)[1]
    assert DeltaTableSink(str(tmp_path), SALE).after_restore(None, RestorePoint(3, "out", store, "j1", "j1"))[1] == ""
    fork = RestorePoint(1, "out", store, "j2", "j1")
    assert "another table" in DeltaTableSink(str(tmp_path), SALE).after_restore(None, fork)[1]


def test_a_table_that_was_deleted_and_created_again_is_refused(tmp_path: Path) -> None:
    sink = DeltaTableSink(str(tmp_path / "t"), SALE).opened(None)
    plan = sink.plan_commit(stage(sink, [("a", 1)], epoch=5), None, 0, False)
    shutil.rmtree(tmp_path / "t" / "_delta_log")
    anew = DeltaTableSink(str(tmp_path / "t"), SALE).opened(None)
    with pytest.raises(StoreDamagedError, match="is not the table that this job wrote to"):
        anew.commit(CommitId("j1", "out", 5), plan.publish, open_store("memory://delta-tests"))
    assert cents(tmp_path / "t") == []


def test_a_folder_may_be_called_anything_but_what_deltalake_misreads(tmp_path: Path) -> None:
    for name in ("sp ace", "äöü#?", "a=b&c'd"):
        sink = DeltaTableSink(str(tmp_path / name), SALE).opened(None)
        commit(sink, stage(sink, [("a", 1)], epoch=1), 1)
        assert cents(tmp_path / name) == [1]
    with pytest.raises(ProgramError, match="contains '%'"):
        DeltaTableSink(str(tmp_path / "a%41"), SALE)
