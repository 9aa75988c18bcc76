"""Windows changed between two runs continue unchanged or are rejected: none is lost or mixed up."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from millstream.common import Configuration, Duration, Time, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.aggregates import Aggregates
from millstream.datastream.aggregates import sum as total
from millstream.datastream.functions import ProcessWindowFunction
from millstream.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import StateSchemaError
from millstream.testing import EPOCH, Collect, Script, run

SALE = Types.ROW_NAMED(["shop", "at", "cents"], [Types.STRING(), Types.LONG(), Types.LONG()])
TIMES = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
OPEN = [("a", 1, 1), ("a", 2, 2), EPOCH, ("a", 13, 3), ("b", 14, 4), EPOCH, ("a", 16, 5), ("a", 31, 8)]
STORES = itertools.count()

Windows = Callable[[Any], Any]


class Sums(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, sum(each.cents for each in elements)


def plus(a: Any, b: Any) -> Any:
    return type(a)(shop=a.shop, at=b.at, cents=a.cents + b.cents)


def tumbling(ms: int, offset_ms: int = 0) -> Any:
    return TumblingEventTimeWindows.of(Time.milliseconds(ms), Time.milliseconds(offset_ms))


CHANGES: dict[str, tuple[Windows, Windows, str]] = {
    "another size": (
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        lambda sales: sales.window(tumbling(20)).reduce(plus),
        r"are of 10 ms every 10 ms from 0 ms on, and would now be of 20 ms every 20 ms",
    ),
    "another offset": (
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        lambda sales: sales.window(tumbling(10, 3)).reduce(plus),
        r"would now be of 10 ms every 10 ms from 3 ms on",
    ),
    "by the clock": (
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        lambda sales: sales.window(TumblingProcessingTimeWindows.of(Time.milliseconds(10))).reduce(plus),
        r"are of event time, and would now be of processing time",
    ),
    "sliding": (
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        lambda sales: sales.window(SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10))).reduce(
            plus
        ),
        r"would now be of 20 ms every 10 ms",
    ),
    "all records": (
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        lambda sales: sales.window(tumbling(10)).process(Sums()),
        r"one value by the number of a window, and would now be stored as windows one by one",
    ),
    "a trigger": (
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        lambda sales: sales.window(tumbling(10)).trigger(CountTrigger.of(2)).reduce(plus),
        r"would now be stored as windows one by one",
    ),
    "an evictor no more": (
        lambda sales: sales.window(tumbling(10)).evictor(CountEvictor.of(1)).reduce(plus),
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        r"windows one by one, and would now be stored as one value",
    ),
    "sessions": (
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        lambda sales: sales.window(EventTimeSessionWindows.with_gap(Duration.of_millis(10))).reduce(plus),
        r"would now be stored as windows one by one",
    ),
    "ready aggregates": (
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        lambda sales: sales.window(tumbling(10)).aggregate(Aggregates(cents=total("cents"))),
        r"would now be stored as ready aggregates by pane",
    ),
    "ready aggregates by the clock": (
        lambda sales: sales.window(tumbling(10)).aggregate(Aggregates(cents=total("cents"))),
        lambda sales: sales.window(TumblingProcessingTimeWindows.of(Time.milliseconds(10))).aggregate(
            Aggregates(cents=total("cents"))
        ),
        r"are of event time, and would now be of processing time",
    ),
    "ready aggregates no more": (
        lambda sales: sales.window(tumbling(10)).aggregate(Aggregates(cents=total("cents"))),
        lambda sales: sales.window(tumbling(10)).reduce(plus),
        r"ready aggregates by pane, and would now be stored as one value",
    ),
}


def program(windows: Windows, out: Collect, script: list[Any], uid: str = "windows", drops: bool = False) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        if drops:
            flag = Configuration().set_string("execution.state-recovery.ignore-unclaimed-state", "true")
            env.configure(flag)
        sales = env.from_source(Script(script, type_info=SALE), TIMES, "sales").uid("sales").key_by("shop")
        windows(sales).uid(uid).sink_to(out).uid("out")

    return build


@pytest.mark.parametrize("change", CHANGES)
def test_incompatible_windows_are_rejected_while_some_are_open(change: str) -> None:
    before, after, words = CHANGES[change]
    store, out = f"changed-windows-{next(STORES)}", Collect()
    run(program(before, out, OPEN), store=store, epochs=2)
    with pytest.raises(StateSchemaError, match=rf"has open windows of .*\(uid windows\).*{words}.*another uid"):
        run(program(after, out, OPEN), store=store)
    # Nothing was changed: the original windows continue.
    whole = Collect()
    run(program(before, whole, OPEN))
    assert run(program(before, out, OPEN), store=store)[out] == whole.values[-len(out.values) :] != []


def test_windows_that_have_all_ended_may_be_changed() -> None:
    store, out = f"changed-windows-{next(STORES)}", Collect()
    before, after, _ = CHANGES["another size"]
    run(program(before, out, OPEN), store=store)  # to the end of its input, which ends every window
    assert [row.cents for row in out.values] == [3, 8, 4, 8]
    assert run(program(after, out, OPEN), store=store).status == "FINISHED"


def test_windows_of_another_uid_start_empty_if_old_state_may_be_dropped() -> None:
    store, out = f"changed-windows-{next(STORES)}", Collect()
    before, after, _ = CHANGES["another size"]
    run(program(before, out, OPEN), store=store, epochs=2)
    run(program(after, out, OPEN, uid="larger windows", drops=True), store=store)
    assert [(row.shop, row.cents) for row in out.values] == [("a", 5), ("a", 8)]


def test_open_windows_continue_with_more_allowed_lateness() -> None:
    store, out = f"changed-windows-{next(STORES)}", Collect()
    run(program(lambda sales: sales.window(tumbling(10)).reduce(plus), out, OPEN), store=store, epochs=2)
    later: Windows = lambda sales: sales.window(tumbling(10)).allowed_lateness(100).reduce(plus)  # noqa: E731
    run(program(later, out, OPEN), store=store)
    assert [(row.shop, row.cents) for row in out.values] == [("a", 8), ("b", 4), ("a", 8)]
