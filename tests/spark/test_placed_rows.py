"""The plan with places: the same shuffles, the same rows, and tasks that prefer an executor."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from waits.patience import PATIENCE_S

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.runtime.exchange.messages import ENVELOPE_DDL, ENVELOPE_SCHEMA
from millstream.spark.placed_rows import join_places, placed_rows
from millstream.spark.placement import Executor
from millstream.spark.session import separate_session
from millstream.spark.stickiness import Stickiness, stickiness_of
from millstream.spark.warm_up import WarmUp
from millstream.testing import Collect, Script

GONE = Executor("7", "10.1.2.3")
HERE = Executor("driver", "localhost")


def exchange(session: Any, rows: DataFrame | None) -> DataFrame:
    """An exchange between three tasks and three; what they run is not imported by workers, but sent."""

    def send(rows: Any) -> Any:
        """To each of three targets a row with who sent it."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for _ in rows:
            pass
        for target in range(3):
            head = [pa.array([number], pa.int32()) for number in (target, 0, 0, 0, context.partitionId(), target)]
            yield pa.RecordBatch.from_arrays([*head, pa.array([b"x" * 8], pa.binary())], schema=ENVELOPE_SCHEMA)

    def receive(rows: Any) -> Any:
        """What arrived, with the number of the task that got it in place of the channel."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in rows:
            columns = [batch.column(number) for number in range(7)]
            columns[2] = pa.array([context.partitionId()] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays(columns, schema=ENVELOPE_SCHEMA)

    first = session.range(0, 3, 1, 3) if rows is None else rows
    sent = first.mapInArrow(send, ENVELOPE_DDL).repartitionById(3, f.col("target"))
    return (sent if rows is None else join_places(sent, rows)).mapInArrow(receive, ENVELOPE_DDL)


def test_a_join_with_places_adds_no_shuffle_and_changes_no_row(spark: Any) -> None:
    session = separate_session(spark)
    rows = placed_rows(session, [GONE, HERE, GONE])
    plain, placed = exchange(session, None), exchange(session, rows)
    plan = placed._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange ") == plain._jdf.queryExecution().executedPlan().toString().count("Exchange ") == 1
    assert plan.count("LeftOuter, BuildRight") == 1, "the side with the places is the one that is held in memory"
    expected = sorted((target, target, sender) for target in range(3) for sender in range(3))
    for frame in (plain, placed):
        assert sorted((row.target, row.channel, row.sender) for row in frame.collect()) == expected


def test_both_stages_prefer_the_executors_they_were_given(spark: Any) -> None:
    session = separate_session(spark)
    rdd = exchange(session, placed_rows(session, [GONE, HERE, GONE]))._jdf.queryExecution().toRdd()
    context = session.sparkContext._jsc.sc()
    rdd.count()  # from now on Spark knows where the second stage's input lies, which it would prefer by default
    preferred = [context.getPreferredLocs(rdd, subtask).mkString(",") for subtask in range(3)]
    assert preferred == ["executor_10.1.2.3_7", "executor_localhost_driver", "executor_10.1.2.3_7"]


def test_a_job_whose_places_are_gone_gives_the_same_answer(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = (GONE, Executor("8", "10.1.2.4"))
    made: list[Stickiness] = []

    def make(session: Any, *, wait_ms: int) -> Stickiness:
        made.append(Stickiness(session, lambda: gone))
        return made[0]

    monkeypatch.setattr("millstream.spark.stickiness.stickiness_of", make)
    out = Collect()
    numbers = env.add_source(Script(range(50), range(50, 100), type_info=Types.LONG())).rebalance()
    numbers.map(lambda n: n + 1, Types.LONG()).key_by(lambda n: n % 7).map(lambda n: n, Types.LONG()).sink_to(out)
    env.execute("gone")
    assert sorted(out.values) == list(range(1, 101))
    [stickiness] = made
    assert stickiness.row_factory() is not None, "it gave up"


def test_in_one_process_there_is_nothing_to_choose(spark: Any) -> None:
    assert stickiness_of(separate_session(spark), wait_ms=1_000) is None


def test_an_executor_is_made_ready_by_tasks_of_its_own_whether_it_lives_or_not(spark: Any) -> None:
    warm_up, woken = WarmUp(separate_session(spark)), []
    for executor in (HERE, GONE):
        assert not warm_up.is_ready(executor)
        deadline = time.monotonic() + PATIENCE_S
        while not warm_up.is_ready(executor) and time.monotonic() < deadline:
            time.sleep(0.02)
        woken.append(warm_up.is_ready(executor))
    warm_up.close()
    assert woken == [True, True]
