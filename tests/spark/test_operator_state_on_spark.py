"""Operator state on Spark, where subtasks really move from worker to worker and nobody asks the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common import Configuration, RestartStrategies, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import CheckpointedFunction, ProcessFunction
from millstream.datastream.state import ListStateDescriptor
from millstream.testing import CRASH, Collect, Script


class Numbered(ProcessFunction, CheckpointedFunction):
    """Every record with its number among those of its subtask."""

    def __init__(self) -> None:
        self.parts: list[int] = []

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("count", Types.LONG()))
        self.parts.extend(self.state)

    def snapshot_state(self, context: Any) -> None:
        self.state.update([sum(self.parts)])

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.parts.append(1)
        yield value, sum(self.parts)


def test_counts_per_subtask_are_exact_through_moves_and_a_crash(
    new_env: Callable[[], StreamExecutionEnvironment],
) -> None:
    numbers: list[Any] = list(range(60))
    env, out = new_env(), Collect()
    env.configure(Configuration().set_integer("millstream.epoch.max-records", 4))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    script = Script([*numbers[:30], CRASH, *numbers[30:]])
    dealt = env.add_source(script).partition_custom(lambda key, n: key % n, lambda value: value)
    dealt.process(Numbered()).set_parallelism(3).sink_to(out)
    env.execute()
    assert sorted(out.values) == [(n, n // 3 + 1) for n in numbers]
