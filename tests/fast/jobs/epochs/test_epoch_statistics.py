"""The statistics of an epoch, in the manifest and on the screen."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.restoring import restored_manifest
from millstream.cli.checkpoints import show_checkpoints
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import CheckpointedFunction, KeyedProcessFunction, MapFunction
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.jobs.epochs.epoch_history import history, summary
from millstream.jobs.epochs.epoch_statistics import TASK_COLUMNS, TASKS_MAX, statistics_of
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.store import open_store
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Result, Script, run

_STORES = itertools.count()
NUMBERS = [*range(10), EPOCH, *range(10, 30), EPOCH, *range(30)]


class Total(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value)
        yield self.total.value()


def totals(env: StreamExecutionEnvironment, script: list[Any] = NUMBERS, out: Collect | None = None) -> None:
    numbers = env.add_source(Script(script, type_info=Types.LONG()), "numbers").uid("numbers")
    keyed = numbers.key_by(lambda n: n % 7, Types.LONG())
    keyed.process(Total()).uid("totals").sink_to(out or Collect()).uid("out")


def run_statistics(result: Result) -> list[dict[str, Any]]:
    """The statistics of the epochs that ran."""
    statistics = [statistics_of(manifest) for manifest in result.manifests]
    assert None not in statistics
    return [entry for entry in statistics if entry is not None and "run_ms" in entry]


# --- collected statistics -------------------------------------------------------------------------------------


def test_an_epoch_reports_its_input_output_and_state_changes() -> None:
    first, second, third = run_statistics(run(totals, parallelism=2))
    assert [(one["in"], one["out"]) for one in (first, second, third)] == [(10, 10), (20, 20), (30, 30)]
    assert [one["rounds"] for one in (first, second, third)] == [1, 1, 1]
    assert (first["new_rows"], first["rows"]) == (7, 7)
    assert (second["new_rows"], second["rows"]) == (7, 14)
    assert 0 < second["new_bytes"] < second["bytes"]


def test_times_are_reported_by_operator_and_kind() -> None:
    operators = run_statistics(run(totals))[1]["operators"]
    keyed, sink, source = operators["totals"], operators["out"], operators["numbers"]
    assert keyed["user_us"] > 0 and keyed["read_us"] > 0 and keyed["write_us"] > 0 and keyed["staging_us"] == 0
    assert sink["staging_us"] > 0 and sink["user_us"] == sink["read_us"] == sink["write_us"] == 0
    assert source["user_us"] > 0 and source["read_us"] == source["new_bytes"] == 0


def test_the_tasks_of_an_operator_add_up_to_its_total() -> None:
    keyed = run_statistics(run(totals, parallelism=3))[1]["operators"]["totals"]
    assert [row[0] for row in keyed["tasks"]] == [0, 1, 2]
    for number, column in enumerate(TASK_COLUMNS, start=1):
        parts = sum(row[number] for row in keyed["tasks"])
        assert abs(keyed[column] - parts) <= 3  # each task's time is rounded down


def test_many_tasks_are_stored_as_their_spread() -> None:
    few, many = (
        run_statistics(run(totals, parallelism=n))[1]["operators"]["totals"] for n in (TASKS_MAX, 2 * TASKS_MAX)
    )
    assert len(few["tasks"]) == TASKS_MAX and "spread" not in few
    assert many["count"] == 2 * TASKS_MAX and "tasks" not in many
    spread = many["spread"]["in"]
    assert spread["min"] == 0 and 0 < spread["max"] <= 20 and 0 <= spread["slowest"] < 2 * TASKS_MAX
    assert len(json.dumps(many)) < 2 * len(json.dumps(few))


def test_every_stage_reports_the_run_and_barrier_wait_times_of_its_tasks() -> None:
    stages = run_statistics(run(totals, parallelism=2))[0]["stages"]
    assert [stage["tasks"] for stage in stages] == [1, 2]
    assert all(0 < stage["took_us"]["min"] <= stage["took_us"]["max"] for stage in stages)
    assert stages[0]["alignment_us"]["max"] == 0


def test_the_next_manifest_reports_commit_and_publishing_times() -> None:
    result = run(totals)
    entries = history(result.manifests)
    assert [entry.status for entry in entries] == ["published"] * 3 + ["finished"]
    assert all(entry.commit_ms is not None and entry.publish_ms is not None for entry in entries[:3])
    assert all(entry.duration_ms is not None and entry.duration_ms >= (entry.run_ms or 0) for entry in entries[:3])
    assert entries[3].run_ms is None and entries[3].duration_ms is None


def test_failed_attempts_of_an_epoch_are_counted_until_it_is_committed() -> None:
    result = run(lambda env: totals(env, [1, 2, EPOCH, 3, CRASH, 4, EPOCH, 5]))
    assert result.restarts == 1
    assert sum(one["failures"] for one in run_statistics(result)) == 1 and run_statistics(result)[-1]["failures"] == 0


def test_an_epoch_that_used_its_whole_budget_reports_lagging_input() -> None:
    lags = [one["lags"] for one in run_statistics(run(lambda env: totals(env, list(range(25))), epoch_records=10))]
    assert lags == [True, True, False]
    assert [one["lags"] for one in run_statistics(run(totals))] == [False, False, False]


class ListOfRecords(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        descriptor = ListStateDescriptor("seen", Types.LONG())
        self.seen = context.get_operator_state_store().get_list_state(descriptor)

    def map(self, value: int) -> int:
        self.seen.add(value)
        return value

    def snapshot_state(self, context: Any) -> None:
        """The list is up to date."""


def test_operator_state_counts_as_state_too() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([1, 2, EPOCH, 3]), "numbers")
        numbers.map(ListOfRecords()).uid("seen").sink_to(Collect())

    first, second = (one["operators"]["seen"] for one in run_statistics(run(build)))
    assert (first["rows"], second["rows"], second["new_rows"]) == (2, 3, 3)  # the list is stored in full
    assert second["bytes"] > 0 and second["write_us"] > 0


def test_the_rounds_of_a_loop_are_counted_and_summed() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        loop = env.add_source(Script([3, 1], type_info=Types.LONG())).iterate()
        less = loop.map(lambda n: n - 1, Types.LONG()).uid("less")
        loop.close_with(less.filter(lambda n: n > 0))
        less.filter(lambda n: n == 0).sink_to(Collect()).uid("out")

    first = run_statistics(run(build))[0]
    assert first["rounds"] >= 3 and first["out"] == 2
    less = first["operators"]["less"]
    assert less["in"] == 4 and [row[:2] for row in less["tasks"]] == [[0, 4]]


# --- ownership ------------------------------------------------------------------------------------------------


def test_a_restored_or_older_manifest_has_no_statistics_of_its_own() -> None:
    committed = run(totals).manifests[1]
    restored = restored_manifest(committed, job="j", job_id="i", run="a", epoch=9, now_ms=5, parent=4)
    assert statistics_of(committed) is not None and statistics_of(restored) is None
    older = replace(committed, counters={"operators": {}})
    assert statistics_of(older) is None
    (entry,) = history([older])
    assert entry.epoch == 2 and entry.status == "committed" and entry.run_ms is None and not summary([entry])


# --- on the screen --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("jobs") / "clicks")
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    totals(env)
    Launch(ManualClock(), LocalRunner(), open_store(folder)).start(env._graph("clicks"), env._job_settings()).result()
    return folder


def print_statistics(job: str, **options: Any) -> str:
    screen = io.StringIO()
    assert show_checkpoints(job, screen=screen, now_ms=0, **options) == 0
    return screen.getvalue()


def test_the_history_lists_every_epoch_and_their_totals(store: str) -> None:
    lines = print_statistics(store).splitlines()
    assert lines[0].split()[:4] == ["epoch", "triggered", "took", "run"]
    assert [line.split()[0] for line in lines[1:5]] == ["1", "2", "3", "4"]
    assert lines[1].endswith("published") and lines[4].endswith("finished")
    assert lines[6].split()[3:] == ["min", "avg", "p99", "max"]
    assert next(line for line in lines if line.startswith("in ")).split() == ["in", "10", "20", "30", "30"]


def test_a_limit_lists_the_newest_epochs_but_the_summary_covers_all(store: str) -> None:
    shown = json.loads(print_statistics(store, last=2, as_json=True))
    assert [one["epoch"] for one in shown["epochs"]] == [3, 4]
    assert shown["summary"]["records_in"] == {"min": 10, "avg": 20.0, "p99": 30, "max": 30}


def test_one_epoch_is_shown_by_operator_and_task(store: str) -> None:
    text = print_statistics(store, epoch=2)
    assert text == print_statistics(f"{store}@2")
    rows = [line.split() for line in text.splitlines()]
    at = next(number for number, row in enumerate(rows) if row[:1] == ["KEYED"])
    assert rows[at][2:5] == ["all", "20", "20"]
    assert [row[0] for row in rows[at + 1 : at + 3]] == ["0", "1"]
    keyed = json.loads(print_statistics(store, epoch=2, as_json=True))["statistics"]["operators"]["totals"]
    assert sum(task["in"] for task in keyed["tasks"]) == 20


def test_the_closing_epoch_reports_that_it_ran_no_task(store: str) -> None:
    assert print_statistics(store, epoch=4) == "epoch 4: finished; it has no statistics of its own\n"


def test_an_unknown_epoch_or_operator_is_reported_with_the_existing_ones(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_checkpoints(store, epoch=77) == 2
    assert "has no epoch 77; retained are 1 to 4" in capsys.readouterr().err
    assert show_checkpoints(str(tmp_path)) == 2
    assert "holds no job" in capsys.readouterr().err


def test_manifests_written_without_statistics_are_listed_with_gaps(store: str) -> None:
    log = ManifestLog(open_store(store))
    bare = [replace(log.read(epoch), counters={}) for epoch in log.epochs()]
    assert all(isinstance(manifest, Manifest) for manifest in bare)
    assert [entry.records_in for entry in history(bare)] == [None] * 4
