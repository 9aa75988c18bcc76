"""The loop of the job that is killed: every record goes round as often as its number says, and is counted on the way.

An epoch goes round twice at most and a record up to five times, so wherever a kill falls, records are on their way: in
the state of the last epoch, and in the rounds of the one that dies. A count per user in keyed state inside the loop
tells whether any passed twice, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from millstream.common import Row, Types
from millstream.datastream import DataStream
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor

ROUNDS_MAX = 2
END_MS = 10**12
_LAP = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])  # id, user, laps still to go
_NOBODY = -1


def laps(number: int) -> int:
    return number * 13 % 6


class Laps(KeyedProcessFunction):
    """Counts the records of a user that pass; tells the count when the input has ended and the loop is empty."""

    def open(self, runtime_context: Any) -> None:
        self.passed = runtime_context.get_state(ValueStateDescriptor("passed", Types.LONG()))

    def process_element(self, value: tuple[int, str, int], ctx: Any) -> Iterable[tuple[int, str, int]]:
        self.passed.update((self.passed.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(END_MS)
        yield value[0], value[1], value[2] - 1

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[tuple[int, str, int]]:
        yield _NOBODY, ctx.get_current_key(), self.passed.value()


def add_loop(events: DataStream) -> DataStream:
    """One line for every record that leaves the loop, and one count per user."""
    loop = events.map(lambda row: (row[0], row[1], laps(row[0])), _LAP).iterate(rounds_max=ROUNDS_MAX).uid("loop")
    passed = loop.key_by(lambda lap: lap[1], Types.STRING()).process(Laps(), _LAP).uid("laps")
    loop.close_with(passed.filter(lambda lap: lap[0] != _NOBODY and lap[2] >= 0))
    return passed.filter(lambda lap: lap[0] == _NOBODY or lap[2] < 0).map(_line, Types.STRING())


def _line(lap: tuple[int, str, int]) -> str:
    return f"passed {lap[1]} {lap[2]}" if lap[0] == _NOBODY else f"left {lap[0]}"


def expected(events: list[Row]) -> list[str]:
    """The lines, computed apart."""
    passed: Counter[str] = Counter()
    for row in events:
        passed[row[1]] += 1 + laps(row[0])
    return [*(f"left {row[0]}" for row in events), *(f"passed {user} {count}" for user, count in passed.items())]
