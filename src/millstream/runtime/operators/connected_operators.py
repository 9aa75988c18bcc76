"""Operators of two connected streams: one function with a method for each input.

Order: within an epoch all records of the first input come before all records of the second. So results do not depend on
the relative speed of the streams or the delivery order of the shuffle, and a repeated epoch produces the same result.
The first input is processed as it arrives; the second is buffered (as columns if it is typed) until the epoch's input
has arrived, and then processed sender by sender. The order within each sender is retained in both.

On keyed streams each input is visited key by key (`keyed_operator`): first all records of the first input, then all
records of the second, with shared states and timers. Timers fire after both.
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
    """An operator with two inputs. It processes one of them at a time, by that input's method."""

    methods: tuple[str, str]
    _function: Callable[..., Any]
    order = (1, 2)  # of the inputs within an epoch

    def __init__(self, setting: OperatorSetting) -> None:
        self.method = self.methods[0]
        super().__init__(setting)
        self._functions: list[Callable[..., Any]] = [
            self.call.bind(self.user_function(), method, self.role) for method in self.methods
        ]
        self._waiting: dict[int, dict[Origin, list[Batch]]] = {}
        self.current_input = self.order[0]

    def select_input(self, number: int) -> None:
        """Subsequent records are those of this input."""
        self.current_input = number
        self.method, self._function = self.methods[number - 1], self._functions[number - 1]

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._waiting = {1: {}, 2: {}}
        self.select_input(self.order[0])

    def input(self, number: int, origin: Origin) -> Output:
        return self.take if number == self.order[0] else partial(self.buffer, number, origin)

    def buffer(self, number: int, origin: Origin, batch: Batch) -> None:
        """Buffers a batch until its input is processed."""
        self._waiting[number].setdefault(origin, []).append(batch)

    def _release(self, number: int) -> Iterator[Batch]:
        """Yields the buffered batches of an input, sender by sender, and releases each."""
        batches = self._waiting[number]
        for origin in sorted(batches):
            yield from batches.pop(origin)

    def advance(self, watermark: int) -> int:
        for number in self.order[self.order.index(self.current_input) :]:
            self.select_input(number)
            self.process_input(number)
        return super().advance(watermark)

    def process_input(self, number: int) -> None:
        """Processes the buffered batches of an input."""
        for batch in self._release(number):
            self.take(batch)
        self.finish_input()

    def finish_input(self) -> None:
        """All records of the input have arrived. Gathered records must be processed before those of the next input."""


class TwoKeyedInputs(TwoInputs, PerRecordOperator):
    """Two keyed inputs; each has its own selector, and their keys have the same type."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        second = next(edge for edge in setting.node.inputs if edge.input == 2)
        self._keyings = (self.keying, Keying.of_edge(second, self.call, self._owned))

    def select_input(self, number: int) -> None:
        super().select_input(number)
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
    """A `CoMapFunction` that may have keyed state."""

    methods = ("map1", "map2")


class KeyedCoFlatMapOperator(TwoKeyedInputs, KeyedFlatMapOperator):
    """A `CoFlatMapFunction` that may have keyed state."""

    methods = ("flat_map1", "flat_map2")


class KeyedCoProcessOperator(TwoKeyedInputs, KeyedProcessOperator):
    """A `KeyedCoProcessFunction`: elements of the first input, of the second, then the timers that are due. (A
    `CoProcessFunction` has no `on_timer`.)"""

    methods = ("process_element1", "process_element2")
