"""Operators of two connected streams: one function with a method for the records of each.

Order: within an epoch all records of the first input come before all of the second. Which of two streams is faster, or
in which order the shuffle delivers, then makes no difference: a repeated epoch does the same again. The first input is
worked on as it comes; the second is kept, as columns where it is typed, until the epoch's input is in, and then taken
sender by sender. So the order within each sender is kept in either.

On keyed streams each input is visited key by key like any keyed stream (`keyed_operator`): first all records of the
first input, then all of the second, with the states and timers they share. Timers fire after both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from millstream.records.batch import Batch
from millstream.runtime.exchange.routing import Keying
from millstream.runtime.operators.function_operators import FlatMapOperator, MapOperator, ProcessOperator
from millstream.runtime.operators.keyed_function_operators import KeyedFlatMapOperator, KeyedMapOperator
from millstream.runtime.operators.keyed_operator import KeyedProcessOperator, PerRecordOperator
from millstream.runtime.operators.operator import Operator, OperatorSetting, Origin, Output
from millstream.runtime.task.spec import EpochSpec

__all__ = [
    "CoFlatMapOperator",
    "CoMapOperator",
    "CoProcessOperator",
    "KeyedCoFlatMapOperator",
    "KeyedCoMapOperator",
    "KeyedCoProcessOperator",
    "TwoInputs",
    "TwoKeyedInputs",
]


class TwoInputs(Operator):
    """An operator with two inputs: it *faces* one of them at a time, and calls that one's method."""

    methods: tuple[str, str]
    _function: Callable[..., Any]
    order = (1, 2)  # in which the inputs of an epoch are worked on

    def __init__(self, setting: OperatorSetting) -> None:
        self.method = self.methods[0]
        super().__init__(setting)
        self._functions: list[Callable[..., Any]] = [
            self.call.bind(self.user_function(), method, self.role) for method in self.methods
        ]
        self._waiting: dict[int, dict[Origin, list[Batch]]] = {}
        self.facing = self.order[0]

    def face(self, number: int) -> None:
        """From now on records are those of this input."""
        self.facing = number
        self.method, self._function = self.methods[number - 1], self._functions[number - 1]

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._waiting = {1: {}, 2: {}}
        self.face(self.order[0])

    def input(self, number: int, origin: Origin) -> Output:
        return self.take if number == self.order[0] else partial(self.hold, number, origin)

    def hold(self, number: int, origin: Origin, batch: Batch) -> None:
        """Keep a batch until its input's turn."""
        self._waiting[number].setdefault(origin, []).append(batch)

    def _release(self, number: int) -> Iterator[Batch]:
        """The batches that wait of an input, sender by sender. Each is forgotten when it has been given out."""
        batches = self._waiting[number]
        for origin in sorted(batches):
            yield from batches.pop(origin)

    def advance(self, watermark: int) -> int:
        for number in self.order[self.order.index(self.facing) :]:
            self.face(number)
            self.work_on(number)
        return super().advance(watermark)

    def work_on(self, number: int) -> None:
        """Take the batches that wait of an input."""
        for batch in self._release(number):
            self.take(batch)
        self.finish_input()

    def finish_input(self) -> None:
        """All records of the input were taken. What has gathered must be worked on before the next one's."""


class TwoKeyedInputs(TwoInputs, PerRecordOperator):
    """The same where both inputs are keyed; each has a selector of its own, and their keys have one type."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        second = next(edge for edge in setting.node.inputs if edge.input == 2)
        self._keyings = (self.keying, Keying.of_edge(second, self.call, self._owned))

    def face(self, number: int) -> None:
        super().face(number)
        self.keying = self._keyings[number - 1]

    def finish_input(self) -> None:
        self._work()


class CoMapOperator(TwoInputs, MapOperator):
    """A `CoMapFunction`."""

    methods = ("map1", "map2")


class CoFlatMapOperator(TwoInputs, FlatMapOperator):
    """A `CoFlatMapFunction`."""

    methods = ("flat_map1", "flat_map2")


class CoProcessOperator(TwoInputs, ProcessOperator):
    """A `CoProcessFunction`."""

    methods = ("process_element1", "process_element2")


class KeyedCoMapOperator(TwoKeyedInputs, KeyedMapOperator):
    """A `CoMapFunction` that may hold state of the key."""

    methods = ("map1", "map2")


class KeyedCoFlatMapOperator(TwoKeyedInputs, KeyedFlatMapOperator):
    """A `CoFlatMapFunction` that may hold state of the key."""

    methods = ("flat_map1", "flat_map2")


class KeyedCoProcessOperator(TwoKeyedInputs, KeyedProcessOperator):
    """A `KeyedCoProcessFunction`: elements of the first input, of the second, then the timers that are due. (A
    `CoProcessFunction` has no timers to fire.)"""

    methods = ("process_element1", "process_element2")
