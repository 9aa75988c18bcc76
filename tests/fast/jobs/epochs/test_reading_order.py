"""Files with known time ranges: the order in which they are read, and the resulting watermarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.ten_records import TenRecords

from millstream.checkpoint.manifest import ManifestLog, SplitPosition
from millstream.connectors.contracts import Offset, Outlook, Read, Source, SourceContext, Split
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.connectors.tables.filesystem.file_rows import FileChoice, FileColumn, table_file_source
from millstream.datastream.environment.launch_defaults import with_job_receiver
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Column
from millstream.expressions.types import TimestampType
from millstream.graph.nodes import Graph
from millstream.graph.table_nodes import ColumnWatermarks
from millstream.jobs.clock import SystemClock
from millstream.jobs.epochs.input_plan import InputPlan, LiveSplit, PlannedSource
from millstream.jobs.epochs.input_planner import plan_input
from millstream.jobs.epochs.reading_order import earliest_first
from millstream.jobs.epochs.watermarks import floors
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.jobs.replay.replay import replay
from millstream.jobs.settings.job_settings import JobSettings
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.task.local import LocalRunner
from millstream.state.stored.accounts import accounts_of
from millstream.state.stored.times import EventTimeState
from millstream.storage import open_store
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

CONTEXT = SourceContext(now_ms=0, run_started_ms=0, parallelism=2)
TIME = TimestampType(3)
STRATEGY = ColumnWatermarks(Column(TIME, 0), Column(TIME, 0), (TIME,), None, "at")  # type: ignore[arg-type]


class SplitsWithStartTimes(TenRecords):
    """Splits that know their earliest time."""

    def __init__(self, begins: Mapping[str, int | None]) -> None:
        super().__init__(begins, sequential=True)
        self.begins = begins

    def read_within(self, split: Split, start: int, stop: int, bytes_max: int) -> Read:
        return self.read(split, start, stop)

    def outlook(self, split: Split, offset: Offset, column: int) -> Outlook | None:
        begin = self.begins[split.name]
        return None if begin is None else Outlook(10 - offset, begin + offset)


def plan_of(
    source: Source, budget: int, positions: Mapping[str, SplitPosition] | None = None, *, uses_outlooks: bool = True
) -> InputPlan:
    planned = (PlannedSource("in", source, 2),)
    return plan_input(planned, {"in": positions or {}}, budget, CONTEXT, {"in": STRATEGY}, uses_outlooks=uses_outlooks)


def ranges(plan: InputPlan) -> dict[str, tuple[int, int]]:
    return {range_.split.name: (range_.start, range_.stop) for range_ in plan.reads["in"]}


def test_each_subtask_reads_its_earliest_splits_and_later_ones_hold_the_watermark_just_before_their_start() -> None:
    plan = plan_of(SplitsWithStartTimes({"d": 400, "a": 100, "c": 300, "b": 200}), budget=16)
    assert {split.subtask for split in plan.reads["in"]} == {0, 1}
    assert ranges(plan) == {"a": (0, 8), "c": (0, 8)} or ranges(plan) == {"a": (0, 8), "b": (0, 8)}
    waiting = {split.split: split.time.watermark for split in plan.waiting["in"]}
    assert waiting == {name: begin - 2 for name, begin in (("d", 400), ("b", 200), ("c", 300)) if name in waiting}
    assert len(waiting) == 2 and floors(plan, {"in": STRATEGY}, {}, 0)["in"] == min(waiting.values())
    assert all(range_.watermark == {"a": 98, "b": 198, "c": 298}[range_.split.name] for range_ in plan.reads["in"])


def test_the_unread_rest_of_a_split_determines_its_earliest_time() -> None:
    plan = plan_of(SplitsWithStartTimes({"a": 100, "b": 200}), 100, {"a": SplitPosition(4, False, 101)})
    assert {range_.split.name: range_.watermark for range_ in plan.reads["in"]} == {"a": 102, "b": 198}


def test_one_split_without_a_known_time_makes_all_be_read_in_parallel() -> None:
    plan = plan_of(SplitsWithStartTimes({"a": 100, "b": None, "c": 300, "d": 400}), budget=16)
    assert len(ranges(plan)) == 4 and not plan.by_time
    assert {range_.watermark for range_ in plan.reads["in"]} == {MIN_WATERMARK}
    watched = SplitsWithStartTimes({"a": 100, "b": 200})
    watched.bounded = False  # a file that appears later may begin before these
    assert not plan_of(watched, 4).by_time
    # A job that is to be replayed without its sources must not depend on facts that only they know.
    assert not plan_of(SplitsWithStartTimes({"a": 100, "b": 200}), 4, uses_outlooks=False).by_time


def test_an_outlook_of_another_type_is_rejected() -> None:
    class InvalidOutlook(SplitsWithStartTimes):
        def outlook(self, split: Split, offset: Offset, column: int) -> Outlook | None:
            return Outlook(3, "soon")  # type: ignore[arg-type]

    with pytest.raises(ProgramError, match=r"outlook.*an Outlook of a number of records and an int in ms"):
        plan_of(InvalidOutlook({"a": 1}), 5)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1_000), st.integers(0, 2)), max_size=12), st.integers(1, 300)
)
def test_shares_by_time_respect_the_budget_and_skip_no_earlier_split(
    splits: list[tuple[int, int, int]], budget: int
) -> None:
    live = [LiveSplit(Split(f"{at}"), 0, EventTimeState(), subtask) for at, (_, _, subtask) in enumerate(splits)]
    outlooks = {f"{at}": Outlook(records, begin) for at, (records, begin, _) in enumerate(splits)}
    shares = earliest_first(live, outlooks, budget, 3)
    assert sum(shares.values()) <= max(budget, 3) + len(splits)
    for each in live:
        name, own = each.split.name, [other for other in live if other.subtask == each.subtask]
        earlier = [other for other in own if outlooks[other.split.name].earliest_ms < outlooks[name].earliest_ms]
        if name in shares:
            assert all(shares.get(other.split.name, 0) >= outlooks[other.split.name].records for other in earlier)
    for subtask in {each.subtask for each in live}:
        assert any(each.split.name in shares for each in live if each.subtask == subtask)


def test_the_last_ranges_of_a_source_are_marked_and_only_those() -> None:
    assert not any(range_.is_last for range_ in plan_of(SplitsWithStartTimes({"a": 100, "b": 200}), 16).reads["in"])
    last = plan_of(SplitsWithStartTimes({"a": 100, "b": 200}), 100)
    assert all(range_.is_last for range_ in last.reads["in"]) and not last.exhausted


# --- Parquet files -----------------------------------------------------------------------------------------------


def outlook_of_file(tmp_path: Path, times: pa.Array, offset: int = 0, **options: object) -> Outlook | None:
    path = tmp_path / "times.parquet"
    pq.write_table(pa.table({"at": times}), path, row_group_size=2, **options)
    rows = ParquetRows(TableRowType(RowType.of(["at"], [TIME], nullable=False)))
    source = table_file_source(str(path), rows, [FileColumn("at", TIME, 0)], None, FileChoice())
    [split] = source.splits(CONTEXT)
    return source.outlook(split, offset, 0)


def test_a_parquet_file_reports_the_earliest_time_of_its_unread_row_groups(tmp_path: Path) -> None:
    times = [5_000, 7_000, 4_000, 9_000, 8_000, 6_500]
    for unit, per_ms in (("ms", 1), ("us", 1_000), ("ns", 1_000_000)):
        column = pa.array([time * per_ms + (per_ms > 1) for time in times], pa.timestamp(unit))
        assert outlook_of_file(tmp_path, column) == Outlook(6, 4_000)
        assert outlook_of_file(tmp_path, column, offset=3) == Outlook(3, 4_000)
        assert outlook_of_file(tmp_path, column, offset=4) == Outlook(2, 6_500)


def test_a_parquet_file_without_time_statistics_has_no_outlook(tmp_path: Path) -> None:
    assert outlook_of_file(tmp_path, pa.array([1, 2], pa.timestamp("ms")), write_statistics=False) is None
    assert (
        outlook_of_file(tmp_path, pa.array([1, 2], pa.timestamp("ms", "UTC"))) is None
    )  # instants are not local times
    assert outlook_of_file(tmp_path, pa.array([1, 2])) is None
    assert outlook_of_file(tmp_path, pa.array([None, None], pa.timestamp("ms"))) is None


# --- whole jobs --------------------------------------------------------------------------------------------------


SEEN = "FROM TABLE(TUMBLE(TABLE seen, DESCRIPTOR(`at`), INTERVAL '1' SECOND)) GROUP BY k, window_start, window_end"


@contextmanager
def tables(folder: Path, epoch_records: int, **options: str) -> Iterator[TableEnvironment]:
    """An environment that runs jobs here, with the files of a folder as a table."""
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        more = {"millstream.epoch.max-records": str(epoch_records), "parallelism.default": "2", **options}
        for name, value in more.items():
            t_env.get_config().set(name, value)
        t_env.execute_sql(f"""CREATE TABLE seen (
            `at` TIMESTAMP(3), k BIGINT, WATERMARK FOR `at` AS `at` - INTERVAL '1' SECOND
            ) WITH ('connector' = 'filesystem', 'path' = 'file://{folder}', 'format' = 'parquet')""")
        yield t_env


def write_files(folder: Path, files: list[list[int]]) -> Counter[tuple[int, int]]:
    """Files of rows at these times, in this order, and the row count of each key and second."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, times in enumerate(files):
        keys = [time % 3 for time in times]
        columns = {"at": pa.array(times, pa.timestamp("ms")), "k": pa.array(keys, pa.int64())}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=4)
    return Counter((time % 3, time // 1_000) for times in files for time in times)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 20_000), min_size=1, max_size=15).map(sorted), min_size=1, max_size=6),
    st.integers(1, 40),
)
def test_windows_over_files_in_any_time_order_include_every_row(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]], epoch_records: int
) -> None:
    folder = tmp_path_factory.mktemp("files")
    expected = write_files(folder, files)
    query = f"SELECT k, UNIX_TIMESTAMP(CAST(window_start AS STRING)), COUNT(*) {SEEN}"
    with tables(folder, epoch_records) as t_env, t_env.execute_sql(query).collect() as rows:
        counts = [tuple(row) for row in rows]
    assert sorted(counts) == sorted((*group, count) for group, count in expected.items())


@pytest.mark.slow
def test_the_watermark_passes_unread_files_and_the_epochs_can_be_replayed(tmp_path: Path) -> None:
    write_files(tmp_path / "in", [[start * 1_000 + at for at in range(0, 2_000, 50)] for start in (6, 0, 4, 2)])
    store = f"file://{tmp_path / 'store'}"
    programs: list[tuple[Graph, JobSettings]] = []

    def started(graph: Graph, settings: JobSettings) -> Job:
        programs.append((graph, settings))
        return Launch(SystemClock(), LocalRunner(), open_store(store)).prepare(graph, settings).start()

    with tables(tmp_path / "in", 20, **{"millstream.retention.epochs": "1000"}) as t_env, with_job_receiver(started):
        t_env.execute_sql("CREATE TABLE counts (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole')")
        t_env.execute_sql(f"INSERT INTO counts SELECT k, COUNT(*) {SEEN}").wait()
    log = ManifestLog(open_store(store))
    times, passed = [], []
    for manifest in map(log.read, log.epochs()):
        for uid, source in accounts_of(manifest).items():
            if source.by_time:
                times.append(source.event_time)
                passed += [source.event_time for split in source.splits if split not in manifest.sources[uid]]
                outcome = replay(*programs[0], f"{store}@{manifest.epoch}", manifest.operator_name(uid))
                assert outcome.is_same, outcome.text()
    assert times == sorted(times) and max(passed) > 1_000


def test_files_rewritten_between_two_jobs_of_a_process_report_their_new_times(tmp_path: Path) -> None:
    def counts(start: int) -> int:
        # Neither compressed nor encoded: whatever their times, the files have the same size.
        columns = {"at": pa.array(range(start, start + 8_000, 500), pa.timestamp("ms")), "k": pa.array(range(16))}
        for name in ("a", "b"):
            path = tmp_path / f"{name}.parquet"
            pq.write_table(pa.table(columns), path, row_group_size=4, compression="none", use_dictionary=False)
        sizes.add(path.stat().st_size)
        with tables(tmp_path, 4) as t_env, t_env.execute_sql(f"SELECT COUNT(*) {SEEN}").collect() as rows:
            return sum(row[0] for row in rows)

    sizes: set[int] = set()
    assert [counts(100_000), counts(1_000)] == [32, 32] and len(sizes) == 1


def test_a_session_waits_for_the_file_that_starts_at_its_end(tmp_path: Path) -> None:
    write_files(tmp_path, [[0], [1, 9_001], [3_000]])  # the first and the last have one key, and are the gap apart
    query = """SELECT k, COUNT(*) FROM TABLE(SESSION(TABLE seen PARTITION BY k, DESCRIPTOR(`at`), INTERVAL '3' SECOND))
        GROUP BY k, window_start, window_end"""
    one = {"parallelism.default": "1"}
    with tables(tmp_path, 1, **one) as t_env, t_env.execute_sql(query).collect() as rows:
        assert sorted(tuple(row) for row in rows) == [(0, 2), (1, 1), (1, 1)]
