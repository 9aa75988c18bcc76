"""Tasks report increments; merged in any split, they add up to the same totals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ProgramError
from millstream.metrics.registry import MetricRegistry, merge


def test_names_are_the_path_of_groups() -> None:
    registry = MetricRegistry()
    group = registry.group("parse")
    group.counter("lines").inc(2)
    group.add_group("errors").counter("bad").inc()
    group.add_group("country", "de").counter("seen").inc()
    assert set(registry.snapshot()) == {"parse.lines", "parse.errors.bad", "parse.country.de.seen"}


def test_a_snapshot_has_only_increments_since_the_last_one() -> None:
    registry = MetricRegistry()
    group = registry.group("op")
    counter, meter, sizes = group.counter("n"), group.meter("rate", 30), group.distribution("size")
    group.gauge("level", lambda: 7)
    assert registry.snapshot() == {
        "op.n": {"counter": 0},
        "op.rate": {"meter": 0, "span_s": 30},
        "op.size": {"distribution": [0, 0, None, None]},
        "op.level": {"gauge": 7},
    }
    counter.inc(3)
    counter.dec()
    meter.mark_event(2)
    sizes.update(5)
    sizes.update(-1)
    snapshot = registry.snapshot()
    assert snapshot["op.n"] == {"counter": 2}
    assert snapshot["op.rate"] == {"meter": 2, "span_s": 30}
    assert snapshot["op.size"] == {"distribution": [2, 4, -1, 5]}
    assert registry.snapshot() == {"op.level": {"gauge": 7}}
    assert (counter.get_count(), meter.get_count()) == (2, 2)


def test_registering_again_returns_the_same_metric_and_another_kind_is_rejected() -> None:
    group = MetricRegistry().group("op")
    assert group.counter("n") is group.counter("n")
    with pytest.raises(ProgramError, match=r"'op\.n' is already a counter, found a request for a meter"):
        group.meter("n")


def test_a_gauge_registered_again_calls_the_new_function() -> None:
    registry = MetricRegistry()
    registry.group("op").gauge("g", lambda: 1)
    registry.group("op").gauge("g", lambda: 2)
    assert registry.snapshot() == {"op.g": {"gauge": 2}}


@pytest.mark.parametrize(
    ("read_gauge", "expected"),
    [(lambda: 1 / 0, "failed: ZeroDivisionError: division by zero"), (lambda: {1}, "{1}"), (lambda: None, None)],
)
def test_a_failing_gauge_never_fails_the_task(read_gauge: Callable[[], Any], expected: Any) -> None:
    registry = MetricRegistry()
    registry.group("op").gauge("g", read_gauge)
    snapshot = registry.snapshot()
    assert snapshot == {"op.g": {"gauge": expected}}
    json.dumps(snapshot)


def test_merging_entries_of_different_kinds_is_refused() -> None:
    with pytest.raises(ProgramError, match="was a counter and is now a gauge"):
        merge({"n": {"counter": 1}}, {"n": {"gauge": 1}})


NUMBERS = st.integers(-100, 100)


@given(st.lists(st.tuples(NUMBERS, st.booleans())))
def test_totals_do_not_depend_on_where_the_snapshots_were_taken(updates: list[tuple[int, bool]]) -> None:
    registry, totals = MetricRegistry(), dict[str, Any]()
    group = registry.group("op")
    counter, meter, sizes = group.counter("n"), group.meter("rate"), group.distribution("size")
    for number, snapshot_now in updates:
        counter.inc(number)
        meter.mark_event(abs(number))
        sizes.update(number)
        if snapshot_now:
            before = json.dumps(totals)
            merged = merge(totals, registry.snapshot())
            assert json.dumps(totals) == before, "merge changes neither argument"
            totals = merged
    totals = merge(totals, registry.snapshot())
    numbers = [number for number, _ in updates]
    assert totals["op.n"] == {"counter": sum(numbers)}
    assert totals["op.rate"] == {"meter": sum(map(abs, numbers)), "span_s": 60}
    low, high = (min(numbers), max(numbers)) if numbers else (None, None)
    assert totals["op.size"] == {"distribution": [len(numbers), sum(numbers), low, high]}
