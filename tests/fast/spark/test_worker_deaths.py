"""Spark's message about a dead Python worker becomes a failure that names the operators that may have caused it."""

from __future__ import annotations

from millstream.compiler.passes import compile_graph
from millstream.datastream import StreamExecutionEnvironment
from millstream.plan.stages import Plan
from millstream.spark.worker_deaths import worker_death

DEATH = (
    "Job aborted due to stage failure: Task 1 in stage {stage}.0 failed 1 times, most recent failure: Lost task 1.0 in "
    "stage {stage}.0 (TID 9): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat …"
)


def plan_of_two_stages() -> Plan:
    env = StreamExecutionEnvironment().set_parallelism(2)
    before = env.from_collection([1]).map(lambda n: n).name("before")
    before.key_by(lambda n: n).map(lambda n: n).name("behind").filter(bool).name("last").print()
    return compile_graph(env._graph("dying"))


def message_of(text: str, stage_ids: list[int]) -> str:
    death = worker_death(RuntimeError(text), plan_of_two_stages(), stage_ids, epoch=4)
    assert death is not None and death.report.epoch == 4
    return death.report.message


def test_the_stage_of_the_worker_names_the_operator() -> None:
    assert len(plan_of_two_stages().stages) == 3  # one subtask reads the collection, two continue
    message = message_of(DEATH.format(stage=11), [10, 11, 12])
    assert message.startswith("the worker of 'before' (test_worker_deaths.py:")
    assert "died: the function ended it, or memory ran out" in message


def test_the_stage_is_identified_after_attempts_on_every_executor() -> None:
    nowhere = "Aborting TaskSet 11.0 because task 1 (partition 1)\ncannot run anywhere due to node and executor "
    nowhere += (
        "excludeOnFailure.\nMost recent failure:\n" + DEATH.format(stage=11).partition("most recent failure: ")[2]
    )
    assert message_of(nowhere, [10, 11, 12]) == message_of(DEATH.format(stage=11), [10, 11, 12])


def test_several_operators_of_a_stage_are_all_named() -> None:
    message = message_of(DEATH.format(stage=12), [10, 11, 12])
    assert "'behind'" in message and "'last'" in message and "'before'" not in message
    assert "died: one of the functions ended it" in message


def test_without_stage_information_all_operators_are_named() -> None:
    message = message_of(DEATH.format(stage=12), [])
    assert "'before'" in message and "'behind'" in message


def test_the_signal_of_a_crash_is_reported() -> None:
    text = DEATH.format(stage=11) + "\nFatal Python error: Segmentation fault\n"
    assert "died (Segmentation fault): " in message_of(text, [10, 11, 12])


def test_other_failures_are_not_deaths() -> None:
    plan = plan_of_two_stages()
    lost = DEATH.format(stage=11) + "ExecutorLostFailure (executor 1 exited)"
    assert worker_death(RuntimeError(lost), plan, [10, 11, 12], 1) is None
    assert worker_death(RuntimeError("the store is away"), plan, [10, 11, 12], 1) is None
