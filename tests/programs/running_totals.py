"""A small stateful job that the tests of snapshots save, restore and change: running totals by remainder modulo
three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.testing import EPOCH, Script

__all__ = ["Build", "Total", "expected", "numbers", "totals"]

Build = Callable[[StreamExecutionEnvironment], None]


def numbers(end: int = 60) -> Script:
    """0, 1, 2 …, ten per epoch."""
    items = [n for ten in range(0, end, 10) for n in (*range(ten, ten + 10), EPOCH)]
    return Script(items, type_info=Types.LONG())


class Total(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value)
        yield ctx.get_current_key(), self.total.value()


def totals(out: Any, start: str | None = None, uid: str | None = "totals", drops: bool = False, end: int = 60) -> Build:
    """The job, from a snapshot if one is named."""

    def build(env: StreamExecutionEnvironment) -> None:
        settings = Configuration().set_boolean("execution.state-recovery.ignore-unclaimed-state", drops)
        if start is not None:
            settings.set_string("execution.state-recovery.path", start)
        env.configure(settings)
        read = env.add_source(numbers(end), "numbers").uid("numbers")
        summed = read.key_by(lambda n: n % 3, Types.LONG()).process(Total())
        (summed if uid is None else summed.uid(uid)).sink_to(out).uid("out")

    return build


def expected(start: int = 0, already: int = 0, end: int = 60) -> list[tuple[int, int]]:
    """Its output if it starts with number `start`, with the totals of the numbers below `already`."""
    sums = [sum(range(rest, already, 3)) for rest in range(3)]
    told = []
    for n in range(start, end):
        sums[n % 3] += n
        told.append((n % 3, sums[n % 3]))
    return sorted(told)
