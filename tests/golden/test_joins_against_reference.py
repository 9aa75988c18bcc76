"""Interval joins, through the public API, compared with the slow reference on random programs and input: out of order,
late, cut into epochs anywhere, at any parallelism, through a crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Types, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag, ProcessJoinFunction, StreamExecutionEnvironment
from millstream.records.watermarks import MAX_WATERMARK
from millstream.runtime.joins import buffer, interval_join
from millstream.runtime.joins.reference import IntervalJoinReference, Timed
from millstream.testing import CRASH, Collect, Script, Watermark, run

Record = tuple[Any, int, int]  # key, number, timestamp

LATE = OutputTag("late left"), OutputTag("late right")
KEYS: dict[str, list[Any]] = {
    "texts": ["a", "b", "c"],
    "numbers": [1, 2, 3],
    "undeclared": ["a", ("b", 1), None],
    "rows": [("a", 1), ("a", None), ("b", 1)],
}
KEY_TYPES = {
    "texts": Types.STRING(),
    "numbers": Types.LONG(),
    "undeclared": None,
    "rows": Types.TUPLE([Types.STRING(), Types.LONG()]),
}


@dataclass(frozen=True)
class Program:
    keys: str
    lower_ms: int
    length_ms: int
    exclusive: tuple[bool, bool]
    form: str
    parallelism: int

    @property
    def bounds_ms(self) -> tuple[int, int]:
        """As passed to the API; the effective interval leaves out exclusive bounds."""
        lower_ms, upper_ms = self.lower_ms, self.lower_ms + self.length_ms
        return lower_ms - self.exclusive[0], upper_ms + self.exclusive[1]


@dataclass(frozen=True)
class Part:
    """The input of one side in one epoch, and its watermark after."""

    records: tuple[Record, ...]
    watermark: int


class Numbers(ProcessJoinFunction):
    def process_element(self, left: Record, right: Record, ctx: Any) -> Iterable[Any]:
        assert ctx.get_timestamp() == max(ctx.get_left_timestamp(), ctx.get_right_timestamp())
        assert (ctx.get_left_timestamp(), ctx.get_right_timestamp()) == (left[2], right[2])
        yield left[1], right[1]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    return Program(
        keys=draw(st.sampled_from(sorted(KEYS))),
        lower_ms=draw(st.integers(-12, 12)),
        length_ms=draw(st.sampled_from([0, 1, 5, 12, 30])),
        exclusive=(draw(st.booleans()), draw(st.booleans())),
        form=draw(st.sampled_from(["process", "apply", "project"])),
        parallelism=draw(st.integers(1, 3)),
    )


@st.composite
def sides(draw: st.DrawFn) -> tuple[list[Part], list[Part]]:
    """Both sides in the same number of epochs, out of order, some records late; watermarks only rise."""
    both: tuple[list[Part], list[Part]] = ([], [])
    number, watermarks = 0, [0, 0]
    for _ in range(draw(st.integers(1, 6))):
        before = min(watermarks)
        for side in (0, 1):
            records = []
            for _ in range(draw(st.integers(0, 7))):
                timestamp = before + draw(st.integers(-6, 25))
                records.append((draw(st.integers(0, 2)), number, timestamp))
                number += 1
            watermarks[side] += draw(st.integers(0, 15))
            both[side].append(Part(tuple(records), watermarks[side]))
    return both


CRASHES = st.none() | st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 7))


def script_of(parts: list[Part], program: Program, crash: tuple[int, int] | None) -> Script:
    keys, items = KEYS[program.keys], []
    for number, part in enumerate(parts):
        records: list[Any] = [(keys[key], n, time) for key, n, time in part.records]
        if crash is not None and crash[0] == number:
            records.insert(min(crash[1], len(records)), CRASH)
        items += [*records, Watermark(part.watermark)]
    key_type = KEY_TYPES[program.keys]
    type_info = None if key_type is None else Types.TUPLE([key_type, Types.LONG(), Types.LONG()])
    return Script(items, type_info=type_info)


def joined(streams: list[DataStream], program: Program) -> DataStream:
    left, right = (stream.key_by(0) for stream in streams)
    joining = left.interval_join(right).between(*program.bounds_ms)
    if program.exclusive[0]:
        joining = joining.lower_bound_exclusive()
    if program.exclusive[1]:
        joining = joining.upper_bound_exclusive()
    joining = joining.side_output_left_late_data(LATE[0]).side_output_right_late_data(LATE[1])
    if program.form == "project" and program.keys != "undeclared":
        return joining.project([1], ["f1"])
    return joining.process(Numbers()) if program.form == "process" else joining.apply(lambda a, b: (a[1], b[1]))


def check(program: Program, both: tuple[list[Part], list[Part]], crash: tuple[int, int, int] | None) -> None:
    """Run the program, and compare its whole output with the reference."""
    out, late = Collect(), (Collect(), Collect())
    env = StreamExecutionEnvironment()
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda record, _: record[2])
    crashes = [crash[1:] if crash is not None and crash[0] == side else None for side in (0, 1)]
    scripts = [script_of(parts, program, at) for parts, at in zip(both, crashes, strict=True)]
    streams = [env.from_source(script, strategy, f"side {side}") for side, script in enumerate(scripts)]
    stream = joined(streams, program)
    stream.map(tuple).sink_to(out)
    for tag, sink in zip(LATE, late, strict=True):
        stream.get_side_output(tag).sink_to(sink)
    result = run(env, parallelism=program.parallelism)

    reference = IntervalJoinReference(program.lower_ms, program.lower_ms + program.length_ms)
    expected: Counter[Any] = Counter()
    for epoch, parts in enumerate(zip(*both, strict=True), start=1):
        watermark = min(part.watermark for part in parts) if epoch < len(both[0]) else MAX_WATERMARK
        left, right = ([Timed(key, time, n) for key, n, time in part.records] for part in parts)
        pairs = reference.epoch(left, right, watermark)
        expected.update((epoch, (a, b), time) for a, b, time in pairs)
    assert Counter((found.epoch, found.value, found.timestamp) for found in result.of(out)) == expected
    assert Counter(record[1] for record in result[late[0]]) == Counter(reference.late_left)
    assert Counter(record[1] for record in result[late[1]]) == Counter(reference.late_right)
    # All stored rows expire when event time ends.
    assert not any(
        account["tables"]
        for uid, state in result.manifests[-1].states.items()
        if uid.startswith("interval-join")
        for account in state["subtasks"].values()
    )


@settings(deadline=None)
@given(program=programs(), both=sides(), crash=CRASHES)
def test_an_interval_join_matches_the_reference(
    program: Program, both: tuple[list[Part], list[Part]], crash: tuple[int, int, int] | None
) -> None:
    check(program, both, crash)


@pytest.fixture(scope="module")
def _small_batches_and_key_lookups() -> Iterable[None]:
    """Stored rows are always looked up by key, and pairs are emitted three at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffer, "_ROWS_PER_LOOKUP", 0)
        for operator in (interval_join.ProcessJoinOperator, interval_join.ProjectedJoinOperator):
            patch.setattr(operator, "pairs_max", 3)
        yield


@pytest.mark.usefixtures("_small_batches_and_key_lookups")
@settings(deadline=None)
@given(program=programs(), both=sides(), crash=CRASHES)
def test_key_lookups_and_small_batches_do_not_change_results(
    program: Program, both: tuple[list[Part], list[Part]], crash: tuple[int, int, int] | None
) -> None:
    check(program, both, crash)
