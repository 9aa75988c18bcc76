"""Window joins and coGroups, through the public API, compared with slow references on random programs and input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    DeltaEvictor,
    EventTimeSessionWindows,
    MergingWindowAssigner,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from millstream.graph.tagged_rows import split_by_side, tag_records
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.joins.co_group_reference import CoGroupReference, TwoSidedEpoch
from millstream.runtime.windows.reference import Epoch, WindowReference
from millstream.testing import CRASH, EPOCH, Collect, Result, Script, Watermark, run

LEFT_LATE, RIGHT_LATE = OutputTag("left late"), OutputTag("right late")
RECORD = Types.ROW_NAMED(["key", "number", "at_ms"], [Types.STRING(), Types.LONG(), Types.LONG()])


def ms(length: int) -> Duration:
    return Duration.of_millis(length)


def gap_of(record: Row) -> int:
    """The gap of a tagged record, as windows of two streams store it."""
    return 2 + (record.one or record.two).number % 3 * 4


def distance(old: Row, new: Row) -> int:
    return abs((old.one or old.two).at_ms - (new.one or new.two).at_ms)


FIXED: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: TumblingEventTimeWindows.of(ms(10)),
    "tumbling, shifted": lambda: TumblingEventTimeWindows.of(ms(10), ms(3)),
    "sliding": lambda: SlidingEventTimeWindows.of(ms(12), ms(4)),
    "sliding, uneven": lambda: SlidingEventTimeWindows.of(ms(10), ms(4)),
    "cumulative": lambda: CumulativeEventTimeWindows.of(ms(30), ms(10)),
}
ASSIGNERS = FIXED | {
    "session": lambda: EventTimeSessionWindows.with_gap(ms(5)),
    "session, dynamic": lambda: EventTimeSessionWindows.with_dynamic_gap(gap_of),  # type: ignore[arg-type]
}
TRIGGERS: dict[str, Callable[[], Any]] = {
    "its own": lambda: None,
    "count": lambda: CountTrigger.of(2),
    "count, purging": lambda: PurgingTrigger.of(CountTrigger.of(2)),
    "continuous": lambda: ContinuousEventTimeTrigger.of(ms(4)),
}
EVICTORS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "count": lambda: CountEvictor.of(2),
    "time": lambda: TimeEvictor.of(ms(4)),
    "delta": lambda: DeltaEvictor.of(4, distance),
}
CRASHES = st.none() | st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 5))  # side, part, record


@dataclass(frozen=True)
class Part:
    """The input of both streams in one epoch, and their watermarks after it."""

    lefts: tuple[Row, ...]
    rights: tuple[Row, ...]
    watermarks: tuple[int, int]

    @property
    def watermark(self) -> int:
        return min(self.watermarks)


@st.composite
def inputs(draw: st.DrawFn) -> list[Part]:
    """Records out of order, some of them late; watermarks only rise."""
    parts, number, watermarks = [], 0, (0, 0)
    for _ in range(draw(st.integers(1, 4))):
        sides: tuple[list[Row], list[Row]] = ([], [])
        for _ in range(draw(st.integers(0, 8))):
            at_ms = max(0, min(watermarks) + draw(st.integers(-20, 25)))
            side = sides[draw(st.integers(0, 1))]
            side.append(Row(key=draw(st.sampled_from("ab")), number=number, at_ms=at_ms))
            number += 1
        watermarks = (watermarks[0] + draw(st.integers(0, 15)), watermarks[1] + draw(st.integers(0, 15)))
        parts.append(Part(tuple(sides[0]), tuple(sides[1]), watermarks))
    return parts


def sources(
    env: StreamExecutionEnvironment, parts: list[Part], typed: bool, crash: tuple[int, int, int] | None = None
) -> tuple[DataStream, DataStream]:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda record, _: record.at_ms)
    streams = []
    for side, name in enumerate(("left", "right")):
        items: list[Any] = []
        for number, part in enumerate(parts):
            records: list[Any] = list((part.lefts, part.rights)[side])
            if crash is not None and crash[:2] == (side, number):
                records.insert(min(crash[2], len(records)), CRASH)
            items += [*records, Watermark(part.watermarks[side])]
        streams.append(env.from_source(Script(items, type_info=RECORD if typed else None), strategy, name))
    return streams[0], streams[1]


def two_sided(parts: list[Part]) -> list[TwoSidedEpoch]:
    return [
        TwoSidedEpoch(
            [(row.key, row.number, row.at_ms) for row in part.lefts],
            [(row.key, row.number, row.at_ms) for row in part.rights],
            MAX_WATERMARK if number == len(parts) - 1 else part.watermark,
        )
        for number, part in enumerate(parts)
    ]


def numbers(records: list[Row]) -> tuple[int, ...]:
    return tuple(record.number for record in records)


def joined_pairs(lefts: list[Row], rights: list[Row]) -> list[Any]:
    return [(numbers(lefts), numbers(rights))]


def key_of(record: Row) -> Any:
    return record.key


def emitted(result: Result, out: Collect) -> Counter[Any]:
    return Counter((found.epoch, tuple(found.value), found.timestamp) for found in result.of(out))


@dataclass(frozen=True)
class Program:
    assigner: str
    trigger: str = "its own"
    evictor: str = "none"
    lateness_ms: int = 0
    parallelism: int = 1
    typed: bool = False


PROGRAMS = st.builds(
    Program,
    assigner=st.sampled_from(sorted(ASSIGNERS)),
    trigger=st.sampled_from(sorted(TRIGGERS)),
    evictor=st.sampled_from(sorted(EVICTORS)),
    lateness_ms=st.sampled_from([0, 0, 6, 25]),
    parallelism=st.integers(1, 3),
    typed=st.booleans(),
)
PLAIN = st.builds(Program, assigner=st.sampled_from(sorted(FIXED)), parallelism=st.integers(1, 3), typed=st.booleans())


def described(windows: Any, program: Program) -> Any:
    trigger, evictor = TRIGGERS[program.trigger](), EVICTORS[program.evictor]()
    if trigger is not None:
        windows = windows.trigger(trigger)
    if evictor is not None:
        windows = windows.evictor(evictor)
    windows = windows.allowed_lateness(program.lateness_ms)
    return windows.side_output_left_late_data(LEFT_LATE).side_output_right_late_data(RIGHT_LATE)


@settings(deadline=None)
@given(program=PROGRAMS, parts=inputs(), crash=CRASHES)
def test_co_groups_match_the_window_reference_on_tagged_records(
    program: Program, parts: list[Part], crash: tuple[int, int, int] | None
) -> None:
    out, left_late, right_late = Collect(), Collect(), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        left, right = sources(env, parts, program.typed, crash)
        windows = left.co_group(right).where(key_of).equal_to(key_of).window(ASSIGNERS[program.assigner]())
        results = described(windows, program).apply(joined_pairs)
        results.sink_to(out)
        results.get_side_output(LEFT_LATE).sink_to(left_late)
        results.get_side_output(RIGHT_LATE).sink_to(right_late)

    result = run(build, parallelism=program.parallelism)
    assigner = ASSIGNERS[program.assigner]()
    trigger = TRIGGERS[program.trigger]() or assigner.get_default_trigger(None)
    merges = isinstance(assigner, MergingWindowAssigner)
    reference = WindowReference(assigner, trigger, EVICTORS[program.evictor](), program.lateness_ms, merges)
    reference.run(
        [
            Epoch([((row.one or row.two).key, row, (row.one or row.two).at_ms) for row in rows], watermark)
            for rows, watermark in (
                (
                    tag_records(part.lefts, True) + tag_records(part.rights, False),
                    MAX_WATERMARK if number == len(parts) - 1 else part.watermark,
                )
                for number, part in enumerate(parts)
            )
        ]
    )
    expected = Counter(
        (fired.epoch + 1, tuple(map(numbers, split_by_side(fired.values))), fired.window.max_timestamp())
        for fired in reference.fired
    )
    assert emitted(result, out) == expected
    late = split_by_side(reference.late)
    assert Counter(numbers(result[left_late])) == Counter(numbers(late[0]))
    assert Counter(numbers(result[right_late])) == Counter(numbers(late[1]))


@settings(deadline=None)
@given(program=PLAIN, parts=inputs(), crash=CRASHES)
def test_joins_and_co_groups_of_fixed_windows_match_nested_loops(
    program: Program, parts: list[Part], crash: tuple[int, int, int] | None
) -> None:
    pairs, groups = Collect(), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        left, right = sources(env, parts, program.typed, crash)
        joined = left.join(right).where(key_of).equal_to(key_of).window(FIXED[program.assigner]())
        joined.apply(lambda one, two: (one.number, two.number)).sink_to(pairs)
        grouped = left.co_group(right).where(key_of).equal_to(key_of).window(FIXED[program.assigner]())
        grouped.apply(joined_pairs).sink_to(groups)

    result = run(build, parallelism=program.parallelism)
    reference = CoGroupReference(FIXED[program.assigner]()).run(two_sided(parts))
    assert emitted(result, pairs) == Counter(
        (joined_pairs.epoch + 1, pair, joined_pairs.window.max_timestamp())
        for joined_pairs, *pair in reference.pairs()
        for pair in (tuple(pair),)
    )
    assert emitted(result, groups) == Counter(
        (joined_pairs.epoch + 1, (joined_pairs.lefts, joined_pairs.rights), joined_pairs.window.max_timestamp())
        for joined_pairs in reference.met
    )


@settings(deadline=None)
@given(program=PLAIN, parts=inputs(), crash=CRASHES, by_field=st.booleans())
def test_columnar_joins_match_nested_loops(
    program: Program, parts: list[Part], crash: tuple[int, int, int] | None, by_field: bool
) -> None:
    pairs, left_late, right_late = Collect(), Collect(), Collect()
    selector: Any = "key" if by_field else key_of

    def build(env: StreamExecutionEnvironment) -> None:
        left, right = sources(env, parts, True, crash)
        joined = left.join(right).where(selector).equal_to(selector).window(FIXED[program.assigner]())
        joined.side_output_left_late_data(LEFT_LATE).side_output_right_late_data(RIGHT_LATE)
        results = joined.project(["key", "number"], ["number"], names=["key", "left", "right"])
        results.sink_to(pairs)
        results.get_side_output(LEFT_LATE).sink_to(left_late)
        results.get_side_output(RIGHT_LATE).sink_to(right_late)
        assert "joined in columns" in env.explain()

    result = run(build, parallelism=program.parallelism)
    reference = CoGroupReference(FIXED[program.assigner]()).run(two_sided(parts))
    assert emitted(result, pairs) == Counter(
        (joined_pairs.epoch + 1, (joined_pairs.key, left, right), joined_pairs.window.max_timestamp())
        for joined_pairs, left, right in reference.pairs()
    )
    assert Counter(numbers(result[left_late])) == Counter(reference.late[0])
    assert Counter(numbers(result[right_late])) == Counter(reference.late[1])


@settings(deadline=None, max_examples=20)
@given(program=PLAIN, parts=inputs())
def test_batch_mode_has_no_late_records_and_joins_every_window_once(program: Program, parts: list[Part]) -> None:
    pairs, in_columns = Collect(), Collect()
    env = StreamExecutionEnvironment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    whole = Part(
        tuple(row for part in parts for row in part.lefts), tuple(row for part in parts for row in part.rights), (0, 0)
    )
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda record, _: record.at_ms)
    left, right = (
        env.from_source(Script([item for row in rows for item in (row, EPOCH)], type_info=RECORD), strategy, name)
        for name, rows in (("left", whole.lefts), ("right", whole.rights))
    )
    joined = left.join(right).where(key_of).equal_to(key_of).window(FIXED[program.assigner]())
    joined.apply(lambda one, two: (one.number, two.number)).sink_to(pairs)
    joined.project(["number"], ["number"], names=["left", "right"]).sink_to(in_columns)
    result = run(env, parallelism=program.parallelism)
    reference = CoGroupReference(FIXED[program.assigner]()).run(two_sided([whole]))
    assert Counter(result[pairs]) == Counter((left, right) for _, left, right in reference.pairs())
    assert Counter(map(tuple, result[in_columns])) == Counter(result[pairs])
