"""What users' sources, sinks and functions return by mistake: each is told with class or operator, value and remedy.

One table for each kind. Without these checks such a program fails somewhere inside the engine, or only after a restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.checkpoint.pins import Pin, pin_epoch, unpin
from millstream.common import Configuration, RestartStrategies, Types
from millstream.common.time import Time
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.connectors.contracts import CommitId, CommitPlan, Sink, SinkWriter
from millstream.connectors.files.parts import EncodedParts
from millstream.connectors.files.sink import FileSink
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.connectors.python import PythonSource, Split, TwoPhaseSink
from millstream.datastream.functions import (
    CoProcessFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from millstream.datastream.window import (
    EventTimeTrigger,
    TimeWindowSerializer,
    Trigger,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from millstream.errors import JobFailedError, MillstreamError, ProgramError
from millstream.storage.memory import MemoryStore
from millstream.testing import EPOCH, Collect, Script, run

HERE = __file__.rpartition("/")[2]


class Numbers(PythonSource):
    """0 to 9 in one split; each method can be made to return something else."""

    bounded = True

    def __init__(self, **slips: Any) -> None:
        self.slips = slips

    def slip(self, method: str, right: Any) -> Any:
        wrong = self.slips.get(method, right)
        return wrong() if isinstance(wrong, type(lambda: 0)) else wrong

    def opened(self, store: Any, session: Any) -> Any:
        return self.slip("opened", self)

    def splits(self, context: Any) -> Any:
        return self.slip("splits", [Split("numbers")])

    def reach(self, split: Any, offset: Any, budget: int, context: Any) -> Any:
        return self.slip("reach", 10)

    def finished(self, split: Any, offset: Any) -> Any:
        return self.slip("finished", offset == 10)

    def complete(self, context: Any) -> Any:
        return self.slip("complete", True)

    def read(self, split: Any, start: Any, stop: Any) -> Any:
        return self.slip("read", lambda: iter([list(range(start, stop))]))

    def watermark(self, split: Any, offset: Any) -> Any:
        return self.slip("watermark", None)


def ended_at(offset: Any) -> Callable[[], Any]:
    def read() -> Any:
        yield [1]
        return offset

    return read


def failure(build: Callable[[StreamExecutionEnvironment], Any]) -> str:
    with pytest.raises(MillstreamError) as caught:
        run(build, restart=RestartStrategies.no_restart(), timeout_s=20)
    assert isinstance(caught.value, (ProgramError, JobFailedError))
    return str(caught.value)


SOURCES = {
    "opened gives another thing": ({"opened": "yes"}, r"Numbers\.opened returned 'yes' \(str\), expected the source"),
    "splits forgets its return": ({"splits": None}, r"Numbers\.splits returned None, expected a list of Split"),
    "splits gives one": ({"splits": Split("a")}, r"Numbers\.splits returned Split\(.*expected a list of Split"),
    "splits gives names": ({"splits": ["a"]}, r"Numbers\.splits lists 'a' \(str\), expected nothing but Split"),
    "splits gives a text": ({"splits": "abc"}, r"Numbers\.splits returned 'abc'"),
    "two splits of one name": ({"splits": [Split("a"), Split("a")]}, r"Numbers\.splits lists 'a' twice"),
    "a split without a name": ({"splits": [Split("")]}, r"a split whose name is '' \(str\), expected a string"),
    "a name that is a number": ({"splits": [Split(7)]}, r"a split whose name is 7 \(int\)"),  # type: ignore[arg-type]
    "a start that is no JSON": ({"splits": [Split("a", {1})]}, r"lists split 'a' with the start \{1\} \(set\)"),
    "a start with a key of numbers": (
        {"splits": [Split("a", {1: 2})]},
        r"\{1: 2\} \(dict\).*turns the key 1 into a string",
    ),
    "an info that is no JSON": ({"splits": [Split("a", 0, {1})]}, r"lists split 'a' with the info \{1\} \(set\)"),
    "an info with a key of numbers": (
        {"splits": [Split("a", 0, {1: 2})]},
        r"with the info.*turns the key 1 into a string",
    ),
    "reach gives a tuple": ({"reach": (0, 1)}, r"reach .*\(0, 1\) \(tuple\).*turns the tuple \(0, 1\) into a list"),
    "reach forgets its return": ({"reach": None}, r"reach of split 'numbers' from 0 returned None, expected how far"),
    "reach goes backwards": ({"reach": -1}, r"reach of split 'numbers' from 0 returned -1 \(int\), expected an offset"),
    "reach gives numpy's": ({"reach": np.int64(10)}, r"Numbers\.reach .*\(int64\), expected a JSON value"),
    "reach gives bytes": ({"reach": b"x"}, r"Numbers\.reach .*b'x' \(bytes\), expected a JSON value"),
    "reach gives NaN": ({"reach": float("nan")}, r"Numbers\.reach .*nan \(float\), expected a JSON value"),
    "finished forgets its return": ({"finished": None}, r"Numbers\.finished returned None, expected True or False"),
    "finished gives a number": ({"finished": 10}, r"Numbers\.finished returned 10 \(int\), expected True or False"),
    "complete forgets its return": ({"complete": None}, r"Numbers\.complete returned None, expected True or False"),
    "read forgets to yield": ({"read": None}, r"Numbers\.read returned None, expected a generator: yield lists"),
    "read gives a text": ({"read": "abc"}, r"Numbers\.read returned 'abc' \(str\), expected a generator"),
    "read gives records": ({"read": [1, 2]}, r"Numbers\.read yields 1 \(int\), expected lists.*Yield \[1\]"),
    "read yields a tuple": ({"read": [(1, 2)]}, r"Numbers\.read yields \(1, 2\) \(tuple\)"),
    "read yields a table": ({"read": [pa.table({"a": [1]})]}, r"\(Table\), expected lists.*table\.to_batches\(\)"),
    "read ends nowhere": ({"read": ended_at({1})}, r"Numbers\.read of split 'numbers' returned \{1\} \(set\)"),
    "read ends at a tuple": ({"read": ended_at([(1,)])}, r"Numbers\.read .*turns the tuple \(1,\) into a list"),
    "read ends before": ({"read": ended_at(-5)}, r"Numbers\.read of split 'numbers' from 0 returned -5"),
    "watermark is beyond time": ({"watermark": 2**70}, r"Numbers\.watermark returned \d+ \(int\), expected an int"),
    "watermark gives a float": ({"watermark": 1.5}, r"Numbers\.watermark returned 1\.5 \(float\), expected an int"),
}


@pytest.mark.parametrize(("slips", "told"), SOURCES.values(), ids=SOURCES)
def test_a_source_that_returns_the_wrong_thing_is_reported_with_its_class_and_line(slips: Any, told: str) -> None:
    message = failure(lambda env: env.add_source(Numbers(**slips)).sink_to(Collect()))
    assert re.search(told, message), message
    assert f"({HERE}:" in message


def raised() -> Any:
    return {}["a key of mine"]


@pytest.mark.parametrize("method", ["splits", "reach", "finished", "complete"])
def test_an_error_in_a_source_on_the_driver_is_reported_with_its_kind_and_line(method: str) -> None:
    message = failure(lambda env: env.add_source(Numbers(**{method: raised})).sink_to(Collect()))
    line = raised.__code__.co_firstlineno + 1
    assert f"KeyError: 'a key of mine' ({HERE}:{line})" in message


def test_an_error_while_publishing_is_reported_with_its_kind_and_line() -> None:
    class Failing(Staging):
        def stage(self) -> Any:
            return 1

        def commit(self, commit: CommitId, staged: Any) -> None:
            raised()

    message = failure(lambda env: env.add_source(Script([1])).sink_to(Failing()))
    line = raised.__code__.co_firstlineno + 1
    assert f"epoch 1 could not be published: KeyError: 'a key of mine' ({HERE}:{line})" in message


@pytest.mark.parametrize("slips", [{}, {"opened": None}, {"splits": lambda: (s for s in [Split("numbers")])}])
def test_a_source_that_opens_with_nothing_or_lists_by_a_generator_is_understood(slips: Any) -> None:
    out = Collect()
    run(lambda env: env.add_source(Numbers(**slips)).sink_to(out))
    assert out.values == list(range(10))


def test_numpys_truth_is_truth() -> None:
    class Asked(Numbers):
        def finished(self, split: Any, offset: Any) -> Any:
            return np.bool_(offset == 10)

    out = Collect()
    run(lambda env: env.add_source(Asked()).sink_to(out))
    assert len(out.values) == 10


def test_a_bounded_source_without_finished_is_refused_at_once() -> None:
    class Endless(PythonSource):
        bounded = True

        def splits(self, context: Any) -> Any:
            return [Split("a")]

        def reach(self, split: Any, offset: Any, budget: int, context: Any) -> Any:
            return offset

        def read(self, split: Any, start: Any, stop: Any) -> Any:
            yield []

    message = failure(lambda env: env.add_source(Endless()).sink_to(Collect()))
    assert "Endless is bounded and never says where a split ends" in message and f"({HERE}:" in message


def test_a_split_that_was_begun_and_is_no_longer_listed_stops_the_job() -> None:
    class Vanishing(Numbers):
        def splits(self, context: Any) -> Any:
            return self.splits_now

        def reach(self, split: Any, offset: Any, budget: int, context: Any) -> Any:
            return min(10, offset + budget)

        def read(self, split: Any, start: Any, stop: Any) -> Any:
            yield list(range(start, stop))

    source, out = Vanishing(), Collect()
    source.splits_now = [Split("a"), Split("b")]
    run(lambda env: env.add_source(source).uid("in").sink_to(out), store="vanishing", epoch_records=4, epochs=2)
    assert len(out.values) < 20
    source.splits_now = [Split("b")]
    with pytest.raises(MillstreamError, match=r"source 'in' \(Vanishing\) no longer lists split 'a'.*read to \d"):
        run(lambda env: env.add_source(source).uid("in").sink_to(out), store="vanishing")
    source.splits_now = [Split("b"), Split("a")]
    run(lambda env: env.add_source(source).uid("in").sink_to(out), store="vanishing")
    source.splits_now = []  # both are finished, and may go
    run(lambda env: env.add_source(source).uid("in").sink_to(out), store="vanishing")


class Releasing(Numbers):
    """Writes down which positions it is told are kept."""

    kept: list[list[Any]] = []  # noqa: RUF012 (shared on purpose: by the copies)

    def reach(self, split: Any, offset: Any, budget: int, context: Any) -> Any:
        return min(10, offset + 2)

    def read(self, split: Any, start: Any, stop: Any) -> Any:
        yield list(range(start, stop))

    def released(self, kept: Any) -> None:
        self.kept.append(sorted(positions.get("numbers", 0) for positions in kept))


def test_a_source_may_remove_only_input_before_every_retained_epoch() -> None:
    Releasing.kept = []

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_integer("millstream.retention.epochs", 2))
        env.add_source(Releasing()).uid("in").sink_to(Collect()).uid("out")

    run(build, store="released", epochs=3)
    pin_epoch(MemoryStore("released"), Pin("early", 1, "savepoint", created_ms=0))
    run(build, store="released")
    assert Releasing.kept[0][0] == 2 and 4 not in Releasing.kept[0], "epoch 1 is pinned, epoch 2 is not kept"
    unpin(MemoryStore("released"), "early")
    run(build, store="released")
    assert Releasing.kept[-1] == [10, 10]


class Storing(Numbers):
    def released(self, kept: Any) -> None:
        """There is nothing to remove."""


def test_every_position_of_a_source_that_removes_input_stays_in_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.checkpoint.finished_splits.LISTED_MAX", 3)
    splits = [Split(f"{n}") for n in range(4)]

    def build(env: StreamExecutionEnvironment) -> None:
        slow = env.add_source(Script([1, EPOCH, 2, EPOCH, 3])).uid("slow")
        for uid, source in (("plain", Numbers(splits=splits)), ("storing", Storing(splits=splits))):
            slow = slow.union(env.add_source(source).uid(uid))
        slow.sink_to(Collect()).uid("out")

    newest = run(build).manifests[-1]
    assert "plain" in newest.finished, "this is what a source that removes input must be spared"
    assert "storing" not in newest.finished and len(newest.sources["storing"]) == 4


class Stub(SinkWriter):
    def __init__(self, staged: Any = ()) -> None:
        self.staged = staged

    def write(self, batch: Any) -> None:
        """Forget it."""

    def stage(self) -> Any:
        return self.staged


class Output(Sink):
    """Takes everything and publishes nothing; each method can be made to return something else."""

    def __init__(self, **slips: Any) -> None:
        self.slips = slips

    def writer(self, context: Any) -> Any:
        return self.slips.get("writer", Stub(self.slips.get("stage", ())))

    def opened(self, session: Any) -> Any:
        return self.slips.get("opened", self)

    def plan_commit(self, staged: Any, pending: Any, now_ms: int, final: bool) -> Any:
        return self.slips.get("plan_commit", CommitPlan(()))

    def due_ms(self, pending: Any) -> Any:
        return self.slips.get("due_ms")

    def commit(self, commit: CommitId, publish: Any, store: Any) -> None:
        """Nothing."""

    def after_restore(self, pending: Any, point: Any) -> Any:
        return self.slips.get("after_restore", (pending, ""))


class Staging(TwoPhaseSink):
    def write(self, values: Any) -> None:
        """Forget it."""

    def stage(self) -> Any:
        return {1, 2}

    def commit(self, commit: CommitId, staged: Any) -> None:  # type: ignore[override]
        """Nothing."""


class Signature(TwoPhaseSink):
    def write(self, values: Any) -> None:
        """Forget it."""

    def stage(self) -> Any:
        return 1

    def commit(self, staged: Any) -> None:  # type: ignore[override]
        """Nothing."""


class Text:
    def encode(self, value: Any) -> Any:
        return str(value)


SINKS = {
    "commit with too few": (Signature(), r"Signature\.commit\(staged.*cannot be called with \(commit, staged\)"),
    "opened gives another thing": (Output(opened="yes"), r"Output\.opened returned 'yes' \(str\), expected the sink"),
    "writer forgets its return": (Output(writer=None), r"Output\.writer returned None, expected a SinkWriter"),
    "stage forgets its return": (
        Output(stage=None),
        r"Stub\.stage returned None, expected a list of the JSON values",
    ),
    "stage gives a text": (Output(stage="file"), r"Stub\.stage returned 'file' \(str\), expected a list"),
    "stage gives no JSON": (Output(stage=[b"x"]), r"Stub\.stage returned b'x' \(bytes\), expected a JSON value"),
    "stage gives keys of numbers": (
        Output(stage=[{1: 2}]),
        r"Stub\.stage returned \{1: 2\}.*turns the key 1 into a string",
    ),
    "a two-phase sink stages no JSON": (Staging(), r"Staging\.stage returned \{1, 2\} \(set\), expected a JSON value"),
    "plan_commit forgets its return": (Output(plan_commit=None), r"Output\.plan_commit returned None, expected Commit"),
    "plan_commit gives a list": (Output(plan_commit=[]), r"Output\.plan_commit returned \[\] \(list\)"),
    "plan_commit publishes no JSON": (
        Output(plan_commit=CommitPlan((b"x",))),
        r"plan_commit returned as publish",
    ),
    "plan_commit keeps no JSON": (Output(plan_commit=CommitPlan((), {1})), r"plan_commit returned as pending \{1\}"),
    "plan_commit keeps at the end": (
        Output(plan_commit=CommitPlan((), 1)),
        r"as pending 1 \(int\), expected pending=None",
    ),
    "due_ms gives a text": (Output(plan_commit=CommitPlan((), 1), due_ms="now"), r"Output\.due_ms returned 'now'"),
}


@pytest.mark.parametrize(("sink", "told"), SINKS.values(), ids=SINKS)
def test_a_sink_that_returns_the_wrong_thing_is_reported_with_its_class_and_line(sink: Sink, told: str) -> None:
    source = Numbers(reach=5) if "due_ms" in vars(sink).get("slips", {}) else Script([1])
    message = failure(lambda env: env.add_source(source).sink_to(sink))
    assert re.search(told, message), message
    assert f"({HERE}:" in message


def test_a_sink_may_open_without_a_result_and_a_restore_must_return_a_pair() -> None:
    run(
        lambda env: env.add_source(Script([1])).uid("in").sink_to(Output(opened=None)).uid("out"), store="slip-restored"
    )

    def again(env: StreamExecutionEnvironment) -> None:
        env._configuration.set_string("execution.state-recovery.path", "memory://slip-restored@1")
        env.add_source(Script([1])).uid("in").sink_to(Output(after_restore=None)).uid("out")

    assert "Output.after_restore returned None, expected (the entries of `pending`" in failure(again)


def test_an_encoder_of_a_file_sink_that_returns_text_is_reported(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), EncodedParts(Text()))
    message = failure(lambda env: env.add_source(Script([1])).sink_to(sink))
    assert "Text.encode returned '1' (str), expected bytes" in message


class Returns:
    """A function of any kind that returns one thing."""

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def _answer(self, *_: Any) -> Any:
        return self.returned


class Flat(Returns, FlatMapFunction):
    flat_map = Returns._answer


class Process(Returns, ProcessFunction):
    process_element = Returns._answer


class KeyedProcess(Returns, KeyedProcessFunction):
    process_element = Returns._answer


class CoProcess(Returns, CoProcessFunction):
    process_element1 = process_element2 = Returns._answer


class OnTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return 5


class WindowProcess(Returns, ProcessWindowFunction):
    process = Returns._answer


class Assigner(Returns, WindowAssigner):
    assign_windows = Returns._answer

    def get_default_trigger(self, env: Any) -> Any:
        return EventTimeTrigger.create()

    def get_window_serializer(self) -> Any:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True


class Asked(Returns, Trigger):
    on_element = on_event_time = on_processing_time = on_merge = clear = Returns._answer


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


SECOND = TumblingEventTimeWindows.of(Time.seconds(1))


def keyed(stream: DataStream) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
    return stream.assign_timestamps_and_watermarks(strategy).key_by(lambda n: n, Types.LONG())


_RECORDS = r"function returned an int, expected records, one by one: yield them"
FUNCTIONS: dict[str, tuple[Callable[[DataStream], DataStream], str]] = {
    "flat_map": (lambda s: s.flat_map(Flat(5)), f"flat_map {_RECORDS}"),
    "a lambda for flat_map": (lambda s: s.flat_map(lambda n: n), f"flat_map {_RECORDS}"),
    "process": (lambda s: s.process(Process(5)), _RECORDS),
    "keyed process": (lambda s: keyed(s).process(KeyedProcess(5)), _RECORDS),
    "on_timer": (lambda s: keyed(s).process(OnTimer()), f"on_timer {_RECORDS}"),
    "co-process": (lambda s: s.connect(s).process(CoProcess(5)), _RECORDS),
    "window function": (lambda s: keyed(s).window(SECOND).process(WindowProcess(5)), _RECORDS),
    "assigner without a return": (
        lambda s: keyed(s).window(Assigner(None)).process(WindowProcess(None)),
        "window assigner returned None, expected a collection of windows",
    ),
    "assigner of numbers": (
        lambda s: keyed(s).window(Assigner([5])).process(WindowProcess(None)),
        r"window assigner returned a window 5 \(int\)",
    ),
    "trigger without a return": (
        lambda s: keyed(s).window(SECOND).trigger(Asked(None)).process(WindowProcess(None)),
        r"trigger returned None .*expected a TriggerResult",
    ),
    "trigger of a text": (
        lambda s: keyed(s).window(SECOND).trigger(Asked("fire")).process(WindowProcess(None)),
        r"trigger returned 'fire' \(str\), expected a TriggerResult",
    ),
    "partitioner": (lambda s: s.partition_custom(lambda key, n: None, lambda n: n).map(lambda n: n), "returned None"),
    "reduce": (lambda s: keyed(s).reduce(lambda a, b: None), "reduce function returned None"),
}


@pytest.mark.parametrize(("build", "told"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_that_returns_the_wrong_thing_is_reported_with_its_line(build: Any, told: str) -> None:
    message = failure(lambda env: build(env.add_source(Script([1, 1, 2]))).sink_to(Collect()))
    assert re.search(told, message), message
    assert f"({HERE}:" in message


def test_an_error_of_the_users_own_is_left_as_it_is() -> None:
    message = failure(lambda env: env.add_source(Script([1])).flat_map(lambda n: [m + 1 for m in n]).sink_to(Collect()))
    assert "TypeError: 'int' object is not iterable" in message
