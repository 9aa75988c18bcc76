"""The engine on Spark gives what it gives in memory, and the world of the user's code is what it should be.

The programs and their answers are those of the fast tests (`programs.py`).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs.plain import LOOPS, NUMBERS, PROGRAMS, multiset, numbers
from programs.windows import WINDOWED

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, JobStatus, RestartStrategies, Row, Types
from millstream.connectors.program_sources import DataGeneratorSource
from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.functions import MapFunction
from millstream.errors import JobFailedError
from millstream.storage import open_store
from millstream.testing import CRASH, EPOCH, Collect, Script

NewEnv = Callable[[], StreamExecutionEnvironment]


def epoch_records(env: StreamExecutionEnvironment, records: int) -> None:
    env.configure(Configuration().set_integer("millstream.epoch.max-records", records))


@pytest.mark.parametrize("name", ["typed map", "side outputs", "relayed", "two sinks of one stream", "broadcast"])
def test_a_program_gives_the_answer_it_gives_in_memory(name: str, env: StreamExecutionEnvironment) -> None:
    out = Collect()
    epoch_records(env, 40)
    env.set_parallelism(3)
    PROGRAMS[name].add(env, out)
    env.execute()
    assert multiset(out.values) == multiset(PROGRAMS[name].golden(3))


def test_all_programs_in_one_job_give_their_answers(env: StreamExecutionEnvironment) -> None:
    outs = {name: Collect(name) for name in PROGRAMS}
    epoch_records(env, 15 * len(PROGRAMS))
    env.set_parallelism(3)
    for name, out in outs.items():
        PROGRAMS[name].add(env, out)
    env.execute()
    for name, out in outs.items():
        assert multiset(out.values) == multiset(PROGRAMS[name].golden(3)), name


def test_all_programs_in_one_job_go_on_at_another_parallelism(new_env: NewEnv) -> None:
    outs = {name: Collect(name) for name in PROGRAMS}

    def start(parallelism: int) -> Any:
        env = new_env()
        epoch_records(env, 12 * len(PROGRAMS))
        env.set_parallelism(parallelism)
        for name, out in outs.items():
            PROGRAMS[name].add(env, out)
        return env._launch("programs")

    job = start(3)
    while not outs["map"].publications:
        assert not job.wait(0.02), job.result()
    job.stop()
    job.result()
    assert job.status() is JobStatus.SUSPENDED
    start(2).result()
    for name, out in outs.items():
        # All answers are equal, but that of broadcast(): it has every record once per subtask of its epoch.
        fewer, more = (multiset(PROGRAMS[name].golden(parallelism)) for parallelism in (2, 3))
        assert fewer <= multiset(out.values) <= more, name


def test_loops_go_round_and_what_stands_beside_them_is_not_repeated(env: StreamExecutionEnvironment) -> None:
    programs = {**LOOPS, "diamond": PROGRAMS["diamond"]}
    outs = {name: Collect(name) for name in programs}
    epoch_records(env, 20 * len(programs))
    for name, out in outs.items():
        programs[name].add(env, out)
    env.execute()
    for name, out in outs.items():
        assert multiset(out.values) == multiset(programs[name].golden(2)), name


def test_many_epochs_run_over_one_plan(env: StreamExecutionEnvironment) -> None:
    out = Collect()
    epoch_records(env, 6)
    PROGRAMS["diamond"].add(env, out)
    env.execute()
    assert multiset(out.values) == multiset(PROGRAMS["diamond"].golden(2))
    assert len({record.epoch for record in out.records}) == 5


def test_batch_mode_reads_in_epochs_and_tells_windows_when_its_input_has_ended(env: StreamExecutionEnvironment) -> None:
    outs = {name: Collect(name) for name in ("diamond", *WINDOWED)}
    epoch_records(env, 6)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    for name, out in outs.items():
        PROGRAMS[name].add(env, out)
    env.execute()
    for name, out in outs.items():
        assert multiset(out.values) == multiset(PROGRAMS[name].golden(2)), name
    assert len({record.epoch for record in outs["diamond"].records}) > 1
    assert len({record.epoch for record in outs["tumbling windows"].records}) == 1


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy",
    [
        RestartStrategies.fixed_delay_restart(2, 10),
        RestartStrategies.failure_rate_restart(2, 600_000, 10),
        RestartStrategies.exponential_delay_restart(10, 100, 2.0, 600_000, 0.1),
    ],
    ids=["fixed delay", "failure rate", "exponential delay"],
)
def test_a_restart_strategy_resumes_in_the_same_process(env: StreamExecutionEnvironment, strategy: Any) -> None:
    out = Collect()
    env.set_restart_strategy(strategy)
    script = Script([1, 2, EPOCH, 3, CRASH, 4, EPOCH, 5, CRASH])
    env.add_source(script).rebalance().map(lambda n: n * 10).sink_to(out)
    env.execute()
    assert sorted(out.values) == [10, 20, 30, 40, 50]


def test_a_new_driver_resumes_from_the_store(new_env: NewEnv) -> None:
    out, script = Collect(), Script([1, 2, EPOCH, 3, CRASH, 4])

    def start() -> None:
        env = new_env()
        env.add_source(script).rebalance().map(lambda n: n).sink_to(out)
        env.execute("resumed")

    with pytest.raises(JobFailedError, match="the script crashes"):
        start()
    assert sorted(out.values) == [1, 2]
    start()
    assert sorted(out.values) == [1, 2, 3, 4]


def test_a_failing_function_shows_the_users_traceback_and_no_jvm_frames(env: StreamExecutionEnvironment) -> None:
    env.from_collection(["1", "x"]).rebalance().map(lambda text: int(text)).name("parse").sink_to(Collect())
    with pytest.raises(JobFailedError) as caught:
        env.execute()
    report = caught.value.report
    assert report.startswith("Traceback (most recent call last):")
    assert "ValueError: invalid literal for int() with base 10: 'x'" in report
    assert "  record    'x'" in report.splitlines()
    assert "'parse' (map)" in report
    for foreign in ("org.apache.spark", "py4j", "pyspark", "millstream/runtime"):
        assert foreign not in f"{report}{caught.value}"


class DiesOnce(MapFunction):
    """Takes its whole worker process down the first time it sees `value`."""

    def __init__(self, value: int, mark: Path) -> None:
        self.value, self.mark = value, str(mark)

    def map(self, value: int) -> int:
        if value == self.value and not os.path.exists(self.mark):
            with open(self.mark, "w"):
                os._exit(17)
        return value


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_worker_that_dies_is_sparks_retry_and_changes_no_answer(
    env: StreamExecutionEnvironment, tmp_path: Path, stage: int
) -> None:
    out = Collect()
    epoch_records(env, 15)
    stream = env.add_source(numbers())
    for number in range(3):
        if number == stage:
            stream = stream.map(DiesOnce(17, tmp_path / "died"), Types.LONG())
        stream = stream.rebalance().map(lambda n: n, Types.LONG())
    stream.sink_to(out)
    client = env.execute_async()
    client.get_job_execution_result().result()
    assert (tmp_path / "died").exists()
    assert sorted(out.values) == NUMBERS
    assert out.publications == sorted(set(out.publications)), "Spark's retry became a restart of ours"


# --- what user code sees and says ---------------------------------------------------------------------------


class Talks(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.context = runtime_context
        self.seen = runtime_context.get_metrics_group().counter("seen")
        logging.getLogger("talks").warning("opened %d", runtime_context.get_index_of_this_subtask())

    def map(self, value: int) -> tuple[int, int]:
        self.seen.inc()
        print(f"saw {value}")
        return value, self.context.get_index_of_this_subtask()


def test_prints_logs_and_metrics_of_tasks_reach_the_user(
    env: StreamExecutionEnvironment,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    out = Collect()
    env.from_collection(list(range(6))).rebalance().map(Talks()).uid("talks").sink_to(out)
    with caplog.at_level(logging.INFO):
        env.execute()
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("saw")]
    assert sorted(printed) == [f"saw {n}" for n in range(6)]
    opened = [record.getMessage() for record in caplog.records if record.name == "talks"]
    assert {"opened 0", "opened 1"} <= set(opened)
    assert {subtask for _, subtask in out.values} == {0, 1}
    newest = ManifestLog(open_store(str(tmp_path / "store"))).newest()
    assert newest is not None and newest.counters["metrics"]["talks.seen"] == {"counter": 6}


def test_prints_before_a_failure_reach_the_user(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    def speak(value: int) -> float:
        print(f"dividing by {value}")
        return 1 / value

    env.from_collection([1, 0]).map(speak).sink_to(Collect())
    with pytest.raises(JobFailedError):
        env.execute()
    assert "dividing by 0" in capsys.readouterr().out


class Lifecycle(MapFunction):
    """Leaves a file for every call of open and close."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def _note(self, what: str) -> None:
        path = os.path.join(self.folder, f"{what}-{self.subtask}-{os.getpid()}")
        with open(path, "a") as file:
            file.write("x")

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self._note("open")

    def close(self) -> None:
        self._note("close")

    def map(self, value: int) -> int:
        return value


def test_functions_are_opened_once_per_worker_and_closed_at_the_end(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    epoch_records(env, 3)
    env.from_collection(list(range(12))).rebalance().map(Lifecycle(tmp_path)).sink_to(Collect())
    env.execute()
    opened = {path.name: path.read_text() for path in tmp_path.glob("open-*")}
    closed = {path.name.replace("close", "open"): path.read_text() for path in tmp_path.glob("close-*")}
    assert {name.split("-")[1] for name in opened} == {"0", "1"}
    assert set(opened.values()) == {"x"}, "a function was opened again in a worker that had it open"
    assert closed and closed.items() <= opened.items(), "closed what was not open, or twice"


# --- running and stopping -----------------------------------------------------------------------------------


def test_execute_and_collect_ends_with_the_job(env: StreamExecutionEnvironment) -> None:
    with env.from_collection([1, 2, 3]).rebalance().map(lambda n: n * 2).execute_and_collect() as records:
        assert sorted(records) == [2, 4, 6]


def test_a_keyed_stream_is_collected_as_pairs_of_key_and_record(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("a", 1), ("b", 2)], Types.TUPLE([Types.STRING(), Types.INT()]))
    with pairs.key_by(lambda pair: pair[0], Types.STRING()).execute_and_collect() as records:
        assert sorted(map(tuple, records)) == [("a", ("a", 1)), ("b", ("b", 2))]


def test_execute_and_collect_with_a_limit_stops_an_endless_job(env: StreamExecutionEnvironment) -> None:
    epoch_records(env, 10)
    source = DataGeneratorSource(lambda index: index, splits=1, type_info=Types.LONG())
    assert env.add_source(source).map(lambda n: n, Types.LONG()).execute_and_collect(limit=25) == list(range(25))


def test_leaving_the_block_early_cancels_the_job(env: StreamExecutionEnvironment) -> None:
    epoch_records(env, 10)
    with env.add_source(DataGeneratorSource(lambda index: index, splits=1)).execute_and_collect() as records:
        assert next(records) == 0
    assert list(records) == []


def test_a_failure_is_raised_where_the_next_record_would_have_been(env: StreamExecutionEnvironment) -> None:
    records = env.add_source(Script([1, EPOCH, 0])).map(lambda n: 1 // n).execute_and_collect()
    assert next(records) == 1
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        next(records)


def test_an_endless_job_is_stopped_after_its_epoch_and_resumes(new_env: NewEnv) -> None:
    out = Collect()

    def start() -> Any:
        env = new_env()
        epoch_records(env, 20)
        env.add_source(DataGeneratorSource(lambda index: index, splits=2)).rebalance().map(lambda n: n).sink_to(out)
        return env._launch("endless")

    seen = 0
    for _ in range(2):
        job = start()
        while len(out.publications) < seen + 3:
            assert not job.wait(0.02), job.result()
        job.stop()
        job.result()
        assert job.status() is JobStatus.SUSPENDED
        seen = len(out.publications)
    values = sorted(out.values)
    assert values == list(range(len(values))), "the two runs do not meet"


# --- Spark's own data ---------------------------------------------------------------------------------------


def test_a_static_dataframe_is_a_source(env: StreamExecutionEnvironment, spark: Any) -> None:
    out = Collect()
    frame = spark.range(0, 100).selectExpr("id", "concat('n', id) as text")
    tens = env.from_spark(frame).filter(lambda row: row.id % 10 == 0)
    tens.rebalance().map(lambda row: (row.id, row.text)).sink_to(out)
    env.execute()
    assert sorted(out.values) == [(n, f"n{n}") for n in range(0, 100, 10)]


def test_a_streaming_dataframe_is_a_source_exactly_once(
    env: StreamExecutionEnvironment, spark: Any, tmp_path: Path
) -> None:
    out = Collect()
    folder = str(tmp_path / "input")
    spark.range(0, 50).write.parquet(folder)
    spark.range(50, 80).write.mode("append").parquet(folder)
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(folder)
    env.from_spark(frame, trigger={"availableNow": True}).rebalance().map(lambda row: row.id).sink_to(out)
    env.execute()
    assert sorted(out.values) == list(range(80))


def test_to_spark_hands_each_epoch_to_a_batch_writer(
    env: StreamExecutionEnvironment, spark: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    row = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])

    def write(frame: Any, commit: Any) -> None:
        frame.write.mode("overwrite").parquet(str(folder / f"epoch={commit}"))

    epoch_records(env, 10)
    env.add_source(numbers()).map(lambda n: Row(n, f"n{n}"), row).to_spark(write)
    env.execute()
    written = spark.read.parquet(str(folder)).orderBy("n").collect()
    assert [(r.n, r.text) for r in written] == [(n, f"n{n}") for n in NUMBERS]
    assert len({r.epoch for r in written}) > 1


def test_the_users_own_session_is_used_and_keeps_its_settings(env: StreamExecutionEnvironment, spark: Any) -> None:
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.adaptive.enabled", "true")
    theirs.conf.set("spark.sql.shuffle.partitions", "3")
    before = dict(theirs.conf.getAll)
    mine = StreamExecutionEnvironment.get_execution_environment().use_spark_session(theirs).set_parallelism(2)
    mine.set_store(env._configuration.get_string("millstream.store", ""))
    out = Collect()
    PROGRAMS["relayed"].add(mine, out)
    mine.execute()
    assert multiset(out.values) == multiset(PROGRAMS["relayed"].golden(2))
    assert dict(theirs.conf.getAll) == before


def test_an_environment_can_be_used_again_after_execute(spark: Any, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(spark).set_parallelism(2)
    first, second = Collect(), Collect()
    stream = env.from_collection([1, 2, 3])
    stream.map(lambda n: n + 1).sink_to(first)
    env.set_store(str(tmp_path / "first")).execute()
    stream.map(lambda n: n * 10).sink_to(second)
    env.set_store(str(tmp_path / "second")).execute()
    assert (sorted(first.values), sorted(second.values)) == ([2, 3, 4], [10, 20, 30])


def test_a_cached_stream_is_computed_by_the_first_job_only(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program of docs/datastream/several-streams.md."""
    monkeypatch.chdir(tmp_path)  # where the two jobs make their stores
    page = (Path(__file__).resolve().parents[2] / "docs" / "datastream" / "several-streams.md").read_text()
    names: dict[str, Any] = {}
    exec(next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "cache()" in block), names)
    calls = tmp_path / "calls"

    def noted(value: int) -> int:
        with calls.open("a") as file:
            file.write(".")
        return value

    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(spark).set_parallelism(2)
    readings = env.from_collection([-5, 1, 2, 9, -1, 8], Types.LONG()).rebalance().map(noted, Types.LONG())
    assert sorted(names["above_the_mean"](readings)) == [8, 9]
    assert calls.read_text() == "." * 6
    env.close()
