"""Interval joins with a known answer, run by the engine's tests in addition to `programs/plain.py`.

The input is the numbers 0 … 29 in three splits; number n has the timestamp n * 10 ms, and watermarks have sufficient
delay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common import Row, Time, Types
from millstream.datastream import DataStream, OutputTag, ProcessJoinFunction
from millstream.testing import Collect
from programs.windows import NUMBERS, stamped

KEYED = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])
FAR = OutputTag("far", Types.STRING())


def rows(stream: DataStream) -> DataStream:
    return stamped(stream).map(lambda n: Row(n % 3, n), KEYED)


def projected(stream: DataStream, out: Collect) -> None:
    """Each number with those of its key up to 60 ms before and 30 ms after it."""
    left, right = rows(stream).key_by("key"), rows(stream.rebalance()).key_by("key")
    joined = left.interval_join(right).between(Time.milliseconds(-60), Time.milliseconds(30))
    joined.project(["key", "n"], ["n"], names=["key", "n", "other"]).sink_to(out)


class Distances(ProcessJoinFunction):
    """Emits distant pairs to a side output."""

    def process_element(self, left: int, right: str, ctx: Any) -> Iterable[Any]:
        distance = ctx.get_right_timestamp() - ctx.get_left_timestamp()
        if distance > 40:
            yield FAR, f"{left} {right}"
        else:
            yield left, right, ctx.get_timestamp()


def processed(stream: DataStream, out: Collect) -> None:
    """Untyped records and keys, and a right side with a positive lower bound."""
    left = stamped(stream).map(lambda n: n).key_by(lambda n: ("rest", n % 4))
    right = stamped(stream).filter(lambda n: n % 2 == 0).map(str, Types.STRING())
    joining = left.interval_join(right.key_by(lambda text: ("rest", int(text) % 4))).between(0, 90)
    joined = joining.lower_bound_exclusive().upper_bound_exclusive().process(Distances())
    joined.get_side_output(FAR).map(lambda text: text).union(joined).sink_to(out)


def applied(stream: DataStream, out: Collect) -> None:
    """A stream with itself: the next but one of each key."""
    keyed = stamped(stream).key_by(lambda n: n % 2, Types.LONG())
    keyed.interval_join(keyed).between(40, 40).apply(lambda a, b: b - a + a * 100, Types.LONG()).sink_to(out)


_PAIRS = [(a, b) for a in NUMBERS for b in NUMBERS]
_LATER = [(a, b) for a, b in _PAIRS if b % 2 == 0 and a % 4 == b % 4 and 0 < b - a < 9]

INTERVAL_JOINS: dict[str, Any] = {
    "interval join in columns": (
        projected,
        [Row(key=a % 3, n=a, other=b) for a, b in _PAIRS if a % 3 == b % 3 and -6 <= b - a <= 3],
    ),
    "interval join with a function": (
        processed,
        [(a, str(b), b * 10) if b - a <= 4 else f"{a} {b}" for a, b in _LATER],
    ),
    "interval join with itself": (applied, [a * 100 + 4 for a in NUMBERS[:-4]]),
}
