"""The windowed golden programs test their subject: they run in columns, and some of their records are late."""

from __future__ import annotations

import pytest
from programs.plain import PROGRAMS, numbers
from programs.windows import LATE, NUMBERS, late_windows

from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import Collect, run


@pytest.mark.parametrize(
    "name", ["every ready aggregate", "sliding windows in columns", "cumulative windows in columns"]
)
def test_ready_aggregates_are_planned_in_columns(name: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    PROGRAMS[name].add(env, Collect())
    plan = env.explain()
    assert "keeps per key and pane: count, sum" in plan and "in columns, for windows" in plan


def test_in_short_epochs_some_windows_fire_again_and_some_records_are_dropped() -> None:
    results, missed = Collect("results"), Collect("missed")

    def build(env: StreamExecutionEnvironment) -> None:
        results_stream = late_windows(env.add_source(numbers()))
        results_stream.sink_to(results)
        results_stream.get_side_output(LATE).sink_to(missed)

    result = run(build, parallelism=2, epoch_records=4)
    fired = [record[:3] for record in result[results]]
    assert len(fired) > len(set(fired)), "no window fired again"
    assert 0 < len(result[missed]) < len(NUMBERS), "no record was late"
