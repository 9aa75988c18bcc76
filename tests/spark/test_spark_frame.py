"""Spark DataFrames in and out: computed once, stored once, read as often as needed."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from waits.patience import PATIENCE_S

from millstream.common.time import Instant
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row
from millstream.connectors.contracts import CommitId, Json, Source, SourceContext, WriterContext
from millstream.connectors.spark_frame import SparkFrameSource, type_of_spark_schema
from millstream.connectors.spark_store import SparkWriterSink
from millstream.connectors.two_phase import TwoPhaseSink
from millstream.errors import JobFailedError, ProgramError, StoreDamagedError, StoreError
from millstream.records.batch import Batch
from millstream.records.columns import from_record_batch
from millstream.storage.store import Store, open_store
from millstream.testing.connectors import check_source

NOW = SourceContext(now_ms=0, run_started_ms=0, parallelism=2)


@pytest.fixture(autouse=True)
def _clock_far_from_utc(spark: SparkSession) -> Iterator[None]:
    """A session time zone must not move any timestamp."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.unset("spark.sql.session.timeZone")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


def read_all(source: Source, offsets: dict[str, int]) -> list[Any]:
    """One epoch: everything that is there beyond `offsets`, read as a task does, and committed."""
    records: list[Any] = []
    task = pickle.loads(pickle.dumps(source))
    assert source.type_info is not None
    for split in source.splits(NOW):
        start = offsets.get(split.name, split.start)
        stop = source.reach(split, start, 10**9, NOW)
        for batch in task.read(split, start, stop):
            records += from_record_batch(batch, source.type_info)
        offsets[split.name] = stop
    source.committed(dict(offsets))
    source.released([dict(offsets)])
    return records


def drain(source: Source, offsets: dict[str, int]) -> list[Any]:
    """Epoch after epoch until a bounded source is complete."""
    records: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        records += read_all(source, offsets)
        if source.complete(NOW) and all(source.finished(s, offsets.get(s.name, 0)) for s in source.splits(NOW)):
            return records
        time.sleep(0.02)
    raise AssertionError(f"still not complete, {len(records)} records")


def test_every_type_of_spark_that_has_a_counterpart_arrives_as_it_was(spark: SparkSession, store: Store) -> None:
    df = spark.sql(
        """select 'text' s, true b, 1Y t, 2S h, 3 i, 4L l, cast(0.5 as float) f, 0.25D d, 1.10BD dec, X'0102' bin,
           date'2024-02-29' day, timestamp'1969-12-31 23:59:59.500001 UTC' at, timestamp_ntz'2024-02-29 10:00:00' ntz,
           array(1, null) list, map('k', array(timestamp'1970-01-01 00:00:01 UTC')) map,
           named_struct('x', 1.50BD, 'y', cast(null as int)) row, cast(null as string) nothing"""
    )
    source = SparkFrameSource(df).opened(store, spark)
    [row] = drain(source, {})
    assert row == Row(
        s="text",
        b=True,
        t=1,
        h=2,
        i=3,
        l=4,
        f=0.5,
        d=0.25,
        dec=Decimal("1.10"),
        bin=b"\x01\x02",
        day=dt.date(2024, 2, 29),
        at=Instant(-1, 500_001_000),
        ntz=dt.datetime(2024, 2, 29, 10),
        list=[1, None],
        map={"k": [Instant(1, 0)]},
        row=Row(x=Decimal("1.50"), y=None),
        nothing=None,
    )
    source.close()


def test_a_type_without_a_counterpart_is_refused_with_the_column(spark: SparkSession) -> None:
    df = spark.sql("select named_struct('x', interval '1' day) row")
    with pytest.raises(ProgramError, match=r"'row\.x' of the DataFrame has Spark's type interval day"):
        type_of_spark_schema(df.schema)
    with pytest.raises(ProgramError, match="'a' twice"):
        SparkFrameSource(spark.sql("select 1 a, 2 a"))
    with pytest.raises(ProgramError, match=r"not \['b'\]"):
        SparkFrameSource(spark.sql("select 1 a"), Types.ROW_NAMED(["b"], [Types.INT()]))


def test_a_random_dataframe_is_computed_once_and_a_restarted_job_reads_the_same_rows(
    spark: SparkSession, store: Store
) -> None:
    def frame() -> DataFrame:
        # A program that is started again makes its DataFrame again, and Spark chooses another seed.
        return spark.sql("select id, rand() r from range(1000)")

    first = SparkFrameSource(frame()).opened(store, spark)
    rows = drain(first, {})
    first.close()
    again = SparkFrameSource(frame()).opened(store, spark)
    assert drain(again, {}) == rows and len(rows) == 1000
    again.close()


def test_a_frame_whose_writing_was_cut_is_written_anew(spark: SparkSession, store: Store) -> None:
    df = spark.range(10)
    source = SparkFrameSource(df).opened(store, spark)
    source.close()
    [marker] = store.list("input/frame/markers")
    store.delete(marker)
    resumed = SparkFrameSource(df).opened(store, spark)
    assert sorted(row.id for row in drain(resumed, {})) == list(range(10))
    resumed.close()


def test_two_frames_need_two_names_and_a_store_that_spark_can_reach(spark: SparkSession, store: Store) -> None:
    source = SparkFrameSource(spark.range(1)).opened(store, spark)
    with pytest.raises(ProgramError, match="have the name 'frame'"):
        SparkFrameSource(spark.range(2)).opened(store, spark)
    other = SparkFrameSource(spark.range(2), name="other").opened(store, spark)
    assert len(drain(source, {})) == 1 and len(drain(other, {})) == 2
    source.close()
    other.close()
    with pytest.raises(StoreError, match="memory, where Spark cannot"):
        SparkFrameSource(spark.range(1)).opened(open_store("memory://spark-frame"), spark)
    with pytest.raises(ProgramError, match="this DataFrame is static"):
        SparkFrameSource(spark.range(1), trigger={"availableNow": True})


def lines_in(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(folder))


def drop(folder: Path, numbers: list[int]) -> None:
    """Let a file appear in a folder, whole."""
    hidden = folder / f".{numbers[0]}"
    hidden.write_text("".join(f'{{"n":{n}}}\n' for n in numbers))
    hidden.rename(folder / f"{numbers[0]}.json")


def test_a_stream_that_ends_gives_every_row_once_and_removes_what_no_epoch_needs(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for start in range(0, 50, 10):
        drop(folder, list(range(start, start + 10)))
    # Two batches at most are unread: the query must wait for the reader and go on.
    source = SparkFrameSource(lines_in(spark, folder), trigger={"availableNow": True}, unread_batches_max=2)
    assert source.bounded
    opened = source.opened(store, spark)
    assert sorted(row.n for row in drain(opened, {})) == list(range(50))
    opened.close()
    assert len([name for name in store.list("input") if name.endswith(".parquet")]) == 1, "all but the newest batch"


def test_a_stream_killed_with_stored_and_offered_batches_goes_on_exactly_once(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    seen: list[int] = []
    offsets: dict[str, int] = {}
    trigger = {"processingTime": "0 seconds"}
    for round_ in range(3):
        drop(folder, list(range(round_ * 10, round_ * 10 + 10)))
        source = SparkFrameSource(lines_in(spark, folder), trigger=trigger).opened(store, spark)
        source.committed(dict(offsets))  # as a driver says before all else
        assert not source.bounded
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < (round_ + 1) * 10 and time.monotonic() < deadline:
            seen += [row.n for row in read_all(source, offsets)]
            assert not source.complete(NOW)
        source.close()
        # Forget Spark's own record of its last batch, if it got that far: after the restart the batch is offered again.
        [checkpoint] = (tmp_path / "store" / "input" / "frame").glob("checkpoint-*")
        commits = checkpoint / "commits"
        for newest in sorted((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))[-1:]:
            newest.unlink()
            (commits / f".{newest.name}.crc").unlink(missing_ok=True)
    assert sorted(seen) == list(range(30))


def test_a_failing_query_fails_the_job_with_its_reason(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    drop(folder, [1])
    df = lines_in(spark, folder).selectExpr("assert_true(n > 1, 'too small') as a", "n")
    source = SparkFrameSource(df.select("n", df.a.cast("string").alias("a"))).opened(store, spark)
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(JobFailedError, match="streaming query that feeds DataFrame 'frame' failed") as caught:
        while time.monotonic() < deadline:
            source.splits(NOW)
            time.sleep(0.05)
    assert "too small" in caught.value.report
    source.close()


def staged(sink: Any, store: Store, subtask: int, values: list[Any], type_info: TypeInformation) -> list[Json]:
    writer = pickle.loads(pickle.dumps(sink)).writer(
        WriterContext("to spark/1", 7, subtask, 2, f"a{subtask}", store, 0, type_info, "a-job")
    )
    writer.write(Batch.of_values(values, type_info))
    return list(writer.stage())


def test_a_spark_writer_gets_the_epochs_rows_as_a_dataframe(spark: SparkSession, store: Store) -> None:
    type_info = Types.ROW_NAMED(["name", "at", "price"], [Types.STRING(), Types.INSTANT(), Types.BIG_DEC()])
    calls: list[tuple[CommitId, list[Any]]] = []
    sink = SparkWriterSink(lambda df, commit: calls.append((commit, sorted(df.collect()))), type_info).opened(spark)
    rows = [("a", Instant(1, 5000), Decimal("1.5")), ("b", None, None)]
    publish = [*staged(sink, store, 0, rows[:1], type_info), *staged(sink, store, 1, rows[1:], type_info)]
    sink.commit(CommitId("a-job", "out", 7), publish, store)
    sink.commit(CommitId("a-job", "out", 8), [], store)
    [(commit, found)] = calls
    assert commit == CommitId("a-job", "out", 7) and [row.asDict()["name"] for row in found] == ["a", "b"]
    assert found[0]["price"] == Decimal("1.5") and found[0]["at"].timestamp() == 1.000005
    store.delete(publish[0]["file"])
    with pytest.raises(StoreDamagedError, match="has no file"):
        sink.commit(CommitId("a-job", "out", 7), publish, store)


class Marks(TwoPhaseSink):
    commit_in = "tasks"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, context: WriterContext) -> None:
        self.values: list[Any] = []

    def write(self, values: list[Any]) -> None:
        self.values += values

    def stage(self) -> Json | None:
        return self.values

    def commit(self, commit: CommitId, staged: Any) -> None:  # type: ignore[override]
        for values in staged:
            Path(self.folder, f"{commit}-{values[0]}").write_text(str(os.getpid()))


def test_a_two_phase_sink_can_commit_in_tasks(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    sink = Marks(str(tmp_path))
    ready = sink.opened(spark)
    ready.commit(CommitId("a-job", "out", 3), [["a"], ["b"]], store)
    marks = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert sorted(marks) == ["a-job.out.0.000000000003-a", "a-job.out.1.000000000003-b"]
    assert str(os.getpid()) not in marks.values()


def test_a_frame_passes_the_kit(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(n, f"t{n}") for n in range(24)], "n long, text string").repartition(3)
    expected = [Row(n=n, text=f"t{n}") for n in range(24)]
    check_source(SparkFrameSource(frame), expected=expected, session=spark)
