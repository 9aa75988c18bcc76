"""One program with every kind of state, in four versions that declare different types, produces the answer of a single
version: at any parallelism, in many epochs and in few, killed in the middle of each version and when the next one
starts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from programs.versions import Story

from millstream.common import Types
from millstream.datastream.functions import AggregateFunction, KeyedProcessFunction
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.errors import JobFailedError
from millstream.testing import CRASH, EPOCH, Collect

NUMBERS = range(48)
INT, LONG, STRING = Types.INT(), Types.LONG(), Types.STRING()


class Total(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class EveryKind(KeyedProcessFunction):
    """Stores a number's predecessors in five kinds of state, and emits them. `version` declares types."""

    def __init__(self, version: int) -> None:
        self.version = version

    def open(self, runtime_context: Any) -> None:
        number = (INT, LONG, Types.BIG_DEC(), STRING)[self.version]
        text = {"upgrade": {Types.BIG_DEC(): _as_text}} if self.version == 3 else {}
        names = (["n"], ["n", "twice"], ["twice", "number"], ["number"])[self.version]
        item = Types.ROW_NAMED(names, [INT if self.version < 2 else LONG for _ in names])
        listed = ListStateDescriptor("seen", item)
        if self.version >= 1:
            listed.evolve(renames={"n": "number"} if self.version >= 2 else {})
        self.last = runtime_context.get_state(ValueStateDescriptor("last", number, **text))
        self.seen = runtime_context.get_list_state(listed)
        self.rests = runtime_context.get_map_state(MapStateDescriptor("rests", INT, number, **text))
        kind = (INT, LONG, Types.BIG_INT(), Types.BIG_INT())[self.version]
        self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("largest", max, kind))
        pair = Types.TUPLE([kind, INT if self.version < 2 else LONG])
        self.total = runtime_context.get_aggregating_state(AggregatingStateDescriptor("total", Total(), pair))

    def process_element(self, value: Any, ctx: Any) -> Any:
        field = "n" if self.version < 2 else "number"
        last, rests = self.last.value(), dict(self.rests.items())
        seen = [row[field] for row in self.seen.get()]
        yield value, _number(last), seen, {key: _number(rest) for key, rest in rests.items()}, self.largest.get()
        self.total.add(value)
        yield value, self.total.get()
        written = (value, value, Decimal(value), _as_text(value))[self.version]
        self.last.update(written)
        self.seen.add(((value,), (value, 2 * value), (2 * value, value), (value,))[self.version])
        self.rests.put(value % 3, written)
        self.largest.add(value)


def _as_text(number: Any) -> str:
    return f"#{int(number)}"


def _number(stored: Any) -> Any:
    return int(stored[1:]) if isinstance(stored, str) else stored


def golden() -> list[Any]:
    answers: list[Any] = []
    for value in NUMBERS:
        before = [n for n in range(value) if n % 5 == value % 5]
        last = before[-1] if before else None
        rests = {n % 3: n for n in before}
        answers.append((value, last, before, rests, last))
        answers.append((value, (sum(before) + value, len(before) + 1)))
    return answers


def version(number: int) -> Callable[[Any, Collect], Any]:
    return lambda stream, out: (
        stream.key_by(lambda value: value % 5, INT).process(EveryKind(number)).uid("every").sink_to(out).uid("out")
    )


def act(first: int, epoch_size: int, crashes: bool) -> list[Any]:
    """A quarter of the numbers; the task crashes at its first one and in the middle."""
    numbers = list(NUMBERS)[first * 12 : first * 12 + 12]
    items: list[Any] = []
    for at, number in enumerate(numbers):
        items += [EPOCH] if at and at % epoch_size == 0 else []
        items += [number, CRASH] if crashes and at in (0, 7) else [number]
    return items


@pytest.mark.parametrize("crashes", [False, True], ids=["undisturbed", "killed"])
@pytest.mark.parametrize("parallelism", [(1,), (2, 3, 1, 4), (4, 1, 2, 1)], ids=["same", "up", "down"])
@pytest.mark.parametrize("epoch_size", [1, 12])
def test_four_versions_produce_the_answer_of_one(epoch_size: int, parallelism: tuple[int, ...], crashes: bool) -> None:
    story = Story(*(act(number, epoch_size, crashes) for number in range(4)))
    found: list[Any] = []
    for number in range(4):
        tasks = parallelism[number % len(parallelism)]
        for _ in range(2 if crashes else 0):
            found += story.act(version(number), tasks)
        found += story.act(version(number), tasks, is_last=number == 3)
    assert sorted(found, key=repr_of) == sorted(golden(), key=repr_of)


def repr_of(answer: Any) -> tuple[int, int]:
    return answer[0], len(answer)


def test_a_version_that_cannot_read_the_saved_state_changes_nothing() -> None:
    story = Story(act(0, 5, False), act(1, 5, False))
    found = story.act(version(0), 2)
    for wrong in itertools.repeat(version(3), 2):
        with pytest.raises(JobFailedError, match=r"state 'last' of .* was saved as int32, is now string"):
            story.act(wrong, 2, is_last=True)
    found += story.act(version(0), 2, is_last=True)
    assert sorted(found, key=repr_of) == sorted(golden()[:48], key=repr_of)
