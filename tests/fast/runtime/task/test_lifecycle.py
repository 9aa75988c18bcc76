"""Every operator follows the lifecycle diagram of `runtime.operators.operator`, in tasks and in the harness."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from programs.plain import LOOPS, PROGRAMS
from programs.relations import by_key, calculated_and_enforced, changing

from millstream.common import Time, Types
from millstream.compiler.passes import compile_graph
from millstream.datastream import AsyncDataStream, DataStream, StreamExecutionEnvironment
from millstream.datastream.functions import (
    AsyncFunction,
    BroadcastProcessFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBatchFunction,
    KeyedBatchResult,
    KeyedProcessFunction,
    MapFunction,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.errors import JobFailedError
from millstream.runtime.operators import operator as operator_module
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.task import residents
from millstream.runtime.task.registry import OPERATORS, operator_for
from millstream.testing import EPOCH, Collect, OperatorHarness, Script, operator_harness, run

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
RULES = MapStateDescriptor("rules", Types.STRING(), Types.STRING())

STEPS = {
    "open": "O",
    "begin": "B",
    "wake": "w",
    "take": "t",
    "receive_end": "e",
    "read": "r",
    "advance": "a",
    "acknowledge": "k",
    "abort": "X",
    "close": "C",
}
# The letters in the order in which the steps return: batches that arrive within a step precede its letter.
LIFE = re.compile("O(Bt*wt*et*rt*ak)+C?")


class Recorder:
    """Creates operators that record their lifecycle steps."""

    def __init__(self) -> None:
        self.steps: list[tuple[Operator, str]] = []

    def __call__(self, setting: OperatorSetting) -> Operator:
        operator = operator_for(setting)
        for step in STEPS:
            setattr(operator, step, self._recorded(operator, step))
        return operator

    def _recorded(self, operator: Operator, step: str) -> Callable[..., Any]:
        method = getattr(operator, step)

        def read() -> Iterator[None]:
            yield from method()
            self.steps.append((operator, step))

        def other(*arguments: Any) -> Any:
            result = method(*arguments)
            self.steps.append((operator, step))
            return result

        return read if step == "read" else other

    def lives(self) -> dict[Operator, str]:
        """The steps of each operator, a letter for each."""
        lives: dict[Operator, str] = {}
        for operator, step in self.steps:
            lives[operator] = lives.get(operator, "") + STEPS[step]
        return lives

    def life_of(self, name: str) -> str:
        """The steps of the operator of this name, without batches."""
        [life] = [life for operator, life in self.lives().items() if operator.node.name == name]
        return life.replace("t", "")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(residents, "operator_for", recorder)
    monkeypatch.setattr(operator_harness, "operator_for", recorder)
    return recorder


class _Sums(KeyedBatchFunction):
    def states(self) -> Any:
        return {"sum": Types.LONG()}

    def process_batch(self, batch: Any) -> KeyedBatchResult:
        return KeyedBatchResult(output=None, states={"sum": pa.array([1] * len(batch.keys))})


class _Twice(FlatMapFunction):
    def flat_map(self, value: Any) -> list[Any]:
        return [value, value]


class _All(FilterFunction):
    def filter(self, value: Any) -> bool:
        return True


class _Both(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    map2 = map1


def _others(env: StreamExecutionEnvironment, out: Collect) -> None:
    """Operations that no golden program has."""
    stream = env.add_source(Script([("a", 1), EPOCH, ("b", 2)], type_info=PAIR))
    keyed = stream.key_by(0)
    keyed.flat_map(_Twice()).sink_to(out)
    keyed.filter(_All()).sink_to(Collect())
    keyed.connect(keyed).map(_Both()).sink_to(Collect())
    keyed.reduce(lambda a, b: a).sink_to(Collect())
    keyed.sum(1).sink_to(Collect())
    keyed.process_batches(_Sums(), PAIR).sink_to(Collect())
    stream.cache().sink_to(Collect())
    calculated_and_enforced(env)
    changing(env)
    by_key(env)


def _operations(add: Callable[[StreamExecutionEnvironment, Collect], Any]) -> set[type]:
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    add(env, Collect())
    return {type(node.operation) for node in compile_graph(env._graph(None)).nodes()}


@pytest.mark.slow
def test_every_registered_operator_follows_the_lifecycle_diagram(recorder: Recorder) -> None:
    programs: Mapping[str, Any] = {
        **{name: program.add for name, program in {**PROGRAMS, **LOOPS}.items()},
        "others": _others,
    }
    seen: set[type] = set()
    for add in programs.values():
        if not _operations(add) <= seen:
            recorder.steps.clear()
            run(lambda env, add=add: add(env, Collect()), parallelism=2, epoch_records=9)  # type: ignore[misc]
            for operator, life in recorder.lives().items():
                assert LIFE.fullmatch(life), f"{operator.node.name}: {life}"
                seen.add(type(operator.node.operation))
    assert seen == set(OPERATORS)


class _Timers(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


class _Broadcast(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


class _Calls(AsyncFunction):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


class _Same(MapFunction):
    def map(self, value: Any) -> Any:
        return value


class _Fails(MapFunction):
    def map(self, value: Any) -> Any:
        raise ValueError("a bad record")


def _broadcast(env: StreamExecutionEnvironment, stream: DataStream) -> Any:
    return stream.connect(env.add_source(Script([1])).broadcast(RULES)).process(_Broadcast())


Arguments = dict[str, Any]
Add = Callable[[StreamExecutionEnvironment, DataStream], Any]
FUNCTIONS: Mapping[str, tuple[Arguments, Add]] = {
    "map": ({"function": _Same()}, lambda _, stream: stream.map(_Same())),
    "keyed process": ({"function": _Timers(), "key_by": str}, lambda _, stream: stream.key_by(str).process(_Timers())),
    "connected": ({"function": _Both()}, lambda _, stream: stream.connect(stream).map(_Both())),
    "broadcast": ({"function": _Broadcast(), "broadcast_states": [RULES]}, _broadcast),
    "async": (
        {"function": _Calls()},
        lambda _, stream: AsyncDataStream.unordered_wait(stream, _Calls(), Time.seconds(9)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_task_and_the_harness_run_the_same_lifecycle(name: str, recorder: Recorder) -> None:
    arguments, add = FUNCTIONS[name]
    with OperatorHarness(**arguments, name="it") as harness:
        harness.wake()
        harness.wake()
    in_harness = recorder.life_of("it")
    recorder.steps.clear()
    run(lambda env: add(env, env.add_source(Script([1, EPOCH, 2]))).name("it").sink_to(Collect()), parallelism=1)
    assert in_harness == recorder.life_of("it") == "OBwerakBwerakC"


def test_after_a_failure_every_operator_of_the_task_is_aborted_and_closed(recorder: Recorder) -> None:
    with pytest.raises(JobFailedError):
        run(lambda env: env.add_source(Script([1])).map(_Fails()).name("bad").sink_to(Collect()).name("out"))
    assert [life.replace("t", "") for life in recorder.lives().values()] == ["OBweXC"] * 3
    recorder.steps.clear()
    harness = OperatorHarness(_Fails(), name="bad")
    with pytest.raises(ValueError, match="a bad record"):
        harness.push(1)
    assert recorder.life_of("bad") == "OBwX"


def test_an_epoch_that_no_operator_has_begun_is_not_aborted(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("the store is away")

    harness = OperatorHarness(_Same(), name="it")
    harness.push(1)
    monkeypatch.setattr(harness._operator, "begin", fail)
    with pytest.raises(OSError, match="away"):
        harness.push(2)
    assert recorder.life_of("it") == "OBwerak"


def test_the_lifecycle_diagram_has_the_steps_of_an_operator() -> None:
    drawing = (operator_module.__doc__ or "").split("\n\n")[1]
    drawn = re.findall(r"[a-z_]+", drawing.replace("the next epoch", ""))
    assert set(drawn) == set(STEPS) - {"abort"}
    described = re.findall(r"^    ([a-z_]+)\(", operator_module.__doc__ or "", re.MULTILINE)
    assert described == [step for step in STEPS if step != "abort"]
    assert all(callable(getattr(Operator, step)) for step in STEPS)
