"""The window operator, through the public API, compared with the slow reference on random programs and input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from millstream.common import Duration, Types, WatermarkStrategy
from millstream.datastream import OutputTag, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.functions import AggregateFunction, ProcessWindowFunction
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.windows.reference import Epoch, Fired, WindowReference
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Pause, Result, Script, Watermark, run

LATE = OutputTag("late")
EXAMPLES = 60

Record = tuple[str, int, int]  # key, number, timestamp


def ms(length: int) -> Duration:
    return Duration.of_millis(length)


def gap_of(record: Record) -> int:
    return record[1] % 3 * 4 + 2


def distance(old: Record, new: Record) -> int:
    return abs(new[2] - old[2])


EVENT_TIME: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: TumblingEventTimeWindows.of(ms(10)),
    "tumbling, shifted": lambda: TumblingEventTimeWindows.of(ms(10), ms(3)),
    "sliding": lambda: SlidingEventTimeWindows.of(ms(12), ms(4)),
    "cumulative": lambda: CumulativeEventTimeWindows.of(ms(30), ms(10)),
    "session": lambda: EventTimeSessionWindows.with_gap(ms(5)),
    "session, dynamic": lambda: EventTimeSessionWindows.with_dynamic_gap(gap_of),  # type: ignore[arg-type]
    "global": GlobalWindows.create,
}
CLOCK: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: TumblingProcessingTimeWindows.of(ms(10)),
    "sliding": lambda: SlidingProcessingTimeWindows.of(ms(12), ms(4)),
    "session": lambda: ProcessingTimeSessionWindows.with_gap(ms(5)),
}
TRIGGERS: dict[str, Callable[[], Any]] = {
    "its own": lambda: None,
    "count": lambda: CountTrigger.of(2),
    "count, purging": lambda: PurgingTrigger.of(CountTrigger.of(2)),
    "continuous": lambda: ContinuousEventTimeTrigger.of(ms(4)),
    "continuous, purging": lambda: PurgingTrigger.of(ContinuousEventTimeTrigger.of(ms(4))),
    "delta": lambda: DeltaTrigger.of(3, distance),
}
CLOCK_TRIGGERS: dict[str, Callable[[], Any]] = {
    "its own": lambda: None,
    "count": lambda: CountTrigger.of(2),
    "continuous": lambda: ContinuousProcessingTimeTrigger.of(ms(4)),
}
EVICTORS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "count": lambda: CountEvictor.of(2),
    "count, after": lambda: CountEvictor.of(1, True),
    "time": lambda: TimeEvictor.of(ms(4)),
    "delta": lambda: DeltaEvictor.of(4, distance),
}
CRASHES = st.none() | st.tuples(st.integers(0, 4), st.integers(0, 6))  # in which part, before which record
CANNOT_MERGE = ("delta",)
NEED_AN_END = ("continuous", "continuous, purging")


@dataclass(frozen=True)
class Program:
    assigner: str
    trigger: str
    evictor: str
    lateness_ms: int
    parallelism: int = 1
    typed: bool = False
    folds: bool = False
    in_order: bool = False


@dataclass(frozen=True)
class Part:
    """The input of one epoch: records, preceded by some processing time, and the watermark after."""

    records: tuple[Record, ...]
    watermark: int
    pause_ms: int = 0


TWO_SESSIONS_AND_A_LATE_RECORD_BETWEEN = [Part((("a", 0, 0), ("a", 1, 8)), 14), Part((("a", 2, 4),), 14)]


class Contents(ProcessWindowFunction):  # Emits a window's key, bounds and the numbers of its records.
    """A window's key, itself and the numbers of its records."""

    def process(self, key: str, context: Any, elements: Iterable[Record]) -> Iterable[Any]:
        yield key, repr(context.window()), tuple(element[1] for element in elements)


class Summed(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: str, context: Any, elements: Iterable[int]) -> Iterable[Any]:
        yield key, repr(context.window()), tuple(elements)


class SumOfNumbers(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return [0]

    def add(self, value: Record, accumulator: list[int]) -> list[int]:
        accumulator[0] += value[1]  # in place, as the interface allows
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return accumulator[0]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0]]


class NumbersInOrder(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Record, accumulator: list[int]) -> list[int]:
        return [*accumulator, value[1]]

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        raise AssertionError("windows that stand fixed never merge")


class KeyAndWindow(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        (numbers,) = elements
        yield key, repr(context.window()), numbers


FIXED = {name: EVENT_TIME[name] for name in ("tumbling", "tumbling, shifted", "sliding", "cumulative")} | {
    "sliding, with gaps": lambda: SlidingEventTimeWindows(5, 10, 0)
}
FIXED_CLOCK = {name: CLOCK[name] for name in ("tumbling", "sliding")}


def windowed(stream: Any, program: Program, assigners: Any, triggers: Any) -> Any:
    windows = stream.key_by(lambda record: record[0]).window(assigners[program.assigner]())
    trigger, evictor = triggers[program.trigger](), EVICTORS[program.evictor]()
    if trigger is not None:
        windows = windows.trigger(trigger)
    if evictor is not None:
        windows = windows.evictor(evictor)
    windows = windows.allowed_lateness(program.lateness_ms).side_output_late_data(LATE)
    if program.in_order:
        return windows.aggregate(NumbersInOrder(), KeyAndWindow())
    if program.folds:
        return windows.aggregate(SumOfNumbers(), Summed())
    return windows.process(Contents())


def executed(
    program: Program, items: list[Any], assigners: Any, triggers: Any, batch: bool = False, **how: Any
) -> tuple[Result, Collect, Collect]:
    out, late = Collect(), Collect()
    type_info = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()]) if program.typed else None
    env = StreamExecutionEnvironment()
    if batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda record, _: record[2])
    source = Script(items, type_info=type_info, clock=how.get("clock"))
    result = windowed(env.from_source(source, strategy, "records"), program, assigners, triggers)
    result.sink_to(out)
    result.get_side_output(LATE).sink_to(late)
    return run(env, parallelism=program.parallelism, **how), out, late


def script_of(parts: list[Part], crash: tuple[int, int] | None = None) -> list[Any]:
    items: list[Any] = []
    for number, part in enumerate(parts):
        records: list[Any] = list(part.records)
        if crash is not None and crash[0] == number:
            records.insert(min(crash[1], len(records)), CRASH)
        items += [Pause(part.pause_ms)] * bool(part.pause_ms) + records + [Watermark(part.watermark)]
    return items


def epochs_of(parts: list[Part]) -> list[Epoch]:
    epochs, now_ms = [], 0
    for number, part in enumerate(parts):
        now_ms += part.pause_ms
        watermark = MAX_WATERMARK if number == len(parts) - 1 else part.watermark
        epochs.append(Epoch([(record[0], record, record[2]) for record in part.records], watermark, now_ms))
    return epochs


def reference_of(program: Program, parts: list[Part], assigners: Any, triggers: Any) -> WindowReference:
    assigner = assigners[program.assigner]()
    trigger = triggers[program.trigger]() or assigner.get_default_trigger(None)
    merges = isinstance(assigner, MergingWindowAssigner)
    reference = WindowReference(assigner, trigger, EVICTORS[program.evictor](), program.lateness_ms, merges)
    return reference.run(epochs_of(parts))


def shown(program: Program, fired: list[Fired]) -> Counter[Any]:
    def joined(values: tuple[Any, ...]) -> tuple[int, ...]:
        numbers = tuple(value[1] for value in values)
        return (sum(numbers),) if program.folds else numbers

    return Counter((f.epoch + 1, f.key, repr(f.window), joined(f.values), f.window.max_timestamp()) for f in fired)


def emitted(result: Result, out: Collect) -> Counter[Any]:
    return Counter((found.epoch, *found.value, found.timestamp) for found in result.of(out))


def fits(program: Program) -> bool:
    """Whether the API accepts the program."""
    if program.trigger in CANNOT_MERGE and "session" in program.assigner:
        return False
    return not (program.assigner == "global" and program.trigger in (*NEED_AN_END, "its own"))


def programs(assigners: Any, triggers: Any) -> st.SearchStrategy[Program]:
    return st.builds(
        Program,
        assigner=st.sampled_from(sorted(assigners)),
        trigger=st.sampled_from(sorted(triggers)),
        evictor=st.sampled_from(sorted(EVICTORS)),
        lateness_ms=st.sampled_from([0, 0, 6, 25]),
        parallelism=st.integers(1, 3),
        typed=st.booleans(),
        folds=st.booleans(),
    ).filter(fits)


@st.composite
def inputs(draw: st.DrawFn, pauses: bool = False) -> list[Part]:
    """Records out of order, some of them late; watermarks only rise."""
    parts, number, watermark = [], 0, 0
    for _ in range(draw(st.integers(1, 5))):
        records = []
        for _ in range(draw(st.integers(0, 6))):
            timestamp = max(0, watermark + draw(st.integers(-20, 25)))
            records.append((draw(st.sampled_from("ab")), number, timestamp))
            number += 1
        watermark += draw(st.integers(0, 15))
        pause_ms = draw(st.sampled_from([0, 3, 7, 20])) if pauses else 0
        parts.append(Part(tuple(records), watermark, pause_ms))
    return parts


@settings(max_examples=EXAMPLES, deadline=None)
@given(program=programs(EVENT_TIME, TRIGGERS), parts=inputs(), crash=CRASHES)
@example(Program("session", "its own", "none", 25), TWO_SESSIONS_AND_A_LATE_RECORD_BETWEEN, None)
def test_event_time_windows_match_the_reference(
    program: Program, parts: list[Part], crash: tuple[int, int] | None
) -> None:
    expected = reference_of(program, parts, EVENT_TIME, TRIGGERS)
    result, out, late = executed(program, script_of(parts, crash), EVENT_TIME, TRIGGERS)
    assert emitted(result, out) == shown(program, expected.fired)
    assert Counter(result[late]) == Counter(expected.late)


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(program=programs(CLOCK, CLOCK_TRIGGERS), parts=inputs(pauses=True))
def test_processing_time_windows_match_the_reference(program: Program, parts: list[Part]) -> None:
    expected = reference_of(program, parts, CLOCK, CLOCK_TRIGGERS)
    result, out, _ = executed(program, script_of(parts), CLOCK, CLOCK_TRIGGERS, clock=ManualClock(0))
    assert emitted(result, out) == shown(program, expected.fired)


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(program=programs(EVENT_TIME, TRIGGERS), parts=inputs())
def test_batch_mode_emits_the_last_firing_of_each_window_without_late_records(
    program: Program, parts: list[Part]
) -> None:
    # A session that grows after it fired has no last firing of its own: other tests of BATCH cover it.
    assume("session" not in program.assigner or "count" not in program.trigger)
    records = tuple(record for part in parts for record in part.records)
    expected = reference_of(program, [Part(records, 0)], EVENT_TIME, TRIGGERS)
    finals = {(f.key, repr(f.window)): f for f in expected.fired}
    wanted = list(finals.values()) if program.assigner != "global" else expected.fired
    items = [item for part in parts for item in (*part.records, EPOCH)]
    result, out, late = executed(program, items, EVENT_TIME, TRIGGERS, batch=True)
    assert Counter(value[1:] for value in emitted(result, out).elements()) == Counter(
        value[1:] for value in shown(program, wanted).elements()
    )
    assert result[late] == []


def folded(assigners: Any) -> st.SearchStrategy[Program]:
    """Programs whose records are folded into their windows in bulk (`runtime.windows.folding`)."""
    return st.builds(
        Program,
        assigner=st.sampled_from(sorted(assigners)),
        trigger=st.just("its own"),
        evictor=st.just("none"),
        lateness_ms=st.sampled_from([0, 6, 25]),
        parallelism=st.integers(1, 3),
        typed=st.booleans(),
        in_order=st.just(True),
    )


@settings(max_examples=EXAMPLES, deadline=None)
@given(program=folded(FIXED), parts=inputs(), crash=CRASHES)
def test_event_time_windows_folded_in_bulk_match_the_reference(
    program: Program, parts: list[Part], crash: tuple[int, int] | None
) -> None:
    expected = reference_of(program, parts, FIXED, TRIGGERS)
    result, out, late = executed(program, script_of(parts, crash), FIXED, TRIGGERS)
    assert emitted(result, out) == shown(program, expected.fired)
    assert Counter(result[late]) == Counter(expected.late)


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(program=folded(FIXED_CLOCK), parts=inputs(pauses=True))
def test_processing_time_windows_folded_in_bulk_match_the_reference(program: Program, parts: list[Part]) -> None:
    expected = reference_of(program, parts, FIXED_CLOCK, CLOCK_TRIGGERS)
    result, out, _ = executed(program, script_of(parts), FIXED_CLOCK, CLOCK_TRIGGERS, clock=ManualClock(0))
    assert emitted(result, out) == shown(program, expected.fired)
