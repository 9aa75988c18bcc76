"""Random small programs: the engine's answer equals that of a few lines of plain Python, however it runs.

A program is a tree of steps over scripted input; `evaluate` is the slow reference. Parallelism, epoch size, crashes and
typed streams are drawn as well: none of them may change the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from programs.plain import multiset

from millstream.common import Types
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Script, run


@dataclass(frozen=True)
class Input:
    items: tuple[Any, ...]


@dataclass(frozen=True)
class Step:
    kind: str
    number: int
    typed: bool
    parallelism: int | None
    before: Program


@dataclass(frozen=True)
class United:
    first: Program
    second: Program


@dataclass(frozen=True)
class Diamond:
    """The stream, united with a changed copy of itself."""

    before: Program
    number: int


Program = Input | Step | United | Diamond

EXCHANGES = ("rebalance", "rescale", "shuffle", "global", "key_by", "custom", "forward")
STEPS = ("map", "filter", "flat_map", *EXCHANGES)


def evaluate(program: Program) -> list[int]:
    """The reference."""
    if isinstance(program, Input):
        return [item for item in program.items if isinstance(item, int)]
    if isinstance(program, United):
        return evaluate(program.first) + evaluate(program.second)
    values = evaluate(program.before)
    if isinstance(program, Diamond):
        return values + [value * program.number for value in values]
    if program.kind == "map":
        return [value + program.number for value in values]
    if program.kind == "filter":
        return [value for value in values if value % 3 != program.number % 3]
    if program.kind == "flat_map":
        return [value * 2 + i for value in values for i in range(program.number % 3)]
    return values


def build(program: Program, env: StreamExecutionEnvironment) -> DataStream:
    if isinstance(program, Input):
        return env.add_source(Script(program.items, type_info=Types.LONG()))
    if isinstance(program, United):
        first, second = build(program.first, env), build(program.second, env)
        return first.map(lambda n: n, Types.LONG()).union(second.map(lambda n: n, Types.LONG()))
    stream = build(program.before, env)
    number = program.number
    if isinstance(program, Diamond):
        plain = stream.map(lambda n: n, Types.LONG())
        return plain.union(plain.map(lambda n: n * number, Types.LONG()))
    changed = transformed(stream, program)
    return changed if program.parallelism is None else changed.set_parallelism(program.parallelism)


def transformed(stream: DataStream, step: Step) -> DataStream:
    number, output_type = step.number, Types.LONG() if step.typed else None
    if step.kind == "map":
        return stream.map(lambda n: n + number, output_type)
    if step.kind == "filter":
        return stream.filter(lambda n: n % 3 != number % 3)
    if step.kind == "flat_map":
        return stream.flat_map(lambda n: [n * 2 + i for i in range(number % 3)], output_type)
    return exchanged(stream, step.kind, number).map(lambda n: n, output_type)


def exchanged(stream: DataStream, kind: str, number: int) -> DataStream:
    if kind == "key_by":
        return stream.key_by(lambda n: n % (abs(number) + 1))
    if kind == "custom":
        return stream.partition_custom(lambda key, n: key % n, lambda n: n + number)
    if kind == "forward":
        return stream
    return getattr(stream, "global_" if kind == "global" else kind)()  # type: ignore[no-any-return]


ITEMS = st.lists(st.integers(-20, 20) | st.sampled_from([EPOCH, CRASH]), max_size=12).map(tuple)
PROGRAMS = st.recursive(
    st.builds(Input, ITEMS),
    lambda programs: st.one_of(
        st.builds(
            Step,
            st.sampled_from(STEPS),
            st.integers(-5, 5),
            st.booleans(),
            st.none() | st.integers(1, 4),
            programs,
        ),
        st.builds(United, programs, programs),
        st.builds(Diamond, programs, st.integers(-5, 5)),
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(program=PROGRAMS, parallelism=st.integers(1, 4), epoch_records=st.none() | st.integers(1, 20))
def test_a_random_program_matches_plain_python(program: Program, parallelism: int, epoch_records: int | None) -> None:
    out = Collect()
    result = run(lambda env: build(program, env).sink_to(out), parallelism=parallelism, epoch_records=epoch_records)
    assert multiset(result[out]) == multiset(evaluate(program))
    assert out.publications == sorted(out.publications)
