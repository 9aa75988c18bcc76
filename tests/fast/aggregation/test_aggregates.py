"""Ready aggregates: in columns, in any cuts and groups, they give what one record after another gives."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.aggregation.aggregate_columns import Kernel
from millstream.aggregation.aggregate_records import RecordMeasure
from millstream.aggregation.groups import Groups, groups_of, pair_groups
from millstream.aggregation.kernels import kernels_of, runs_in_columns
from millstream.common import Row, Types
from millstream.common.typeinfo import TypeInformation
from millstream.datastream import aggregates as agg
from millstream.errors import ProgramError
from millstream.records.columns import arrow_type, as_declared, from_record_batch, to_record_batch
from millstream.state.windows.bound_aggregates import KINDS, AggregateArgument, BoundAggregate
from millstream.state.windows.pane_windows import PaneWindows


def whole(bits: int) -> st.SearchStrategy[int]:
    top = 1 << (bits - 1)
    return st.integers(-top, top - 1) | st.sampled_from([top - 1, -top, 1, -1, 0])


NUMBERS: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    "BYTE": (Types.BYTE(), whole(8)),
    "SHORT": (Types.SHORT(), whole(16)),
    "INT": (Types.INT(), whole(32)),
    "LONG": (Types.LONG(), whole(64)),
    "FLOAT": (Types.FLOAT(), st.floats(-1e6, 1e6, width=32)),
    "DOUBLE": (Types.DOUBLE(), st.floats(-1e6, 1e6)),
}
ORDERED: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    **NUMBERS,
    "FLOAT": (Types.FLOAT(), st.floats(width=32)),
    "DOUBLE": (Types.DOUBLE(), st.floats()),
    "STRING": (Types.STRING(), st.text(max_size=2)),
    "BOOLEAN": (Types.BOOLEAN(), st.booleans()),
    "DATE": (Types.SQL_DATE(), st.dates()),
}
ANY: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    **ORDERED,
    "ROW": (Types.TUPLE([Types.INT(), Types.STRING()]), st.tuples(st.integers(0, 3), st.sampled_from("xy"))),
    "LIST": (Types.LIST(Types.LONG()), st.lists(st.integers(0, 3), max_size=2)),
}
OF_KIND = {"sum": NUMBERS, "avg": NUMBERS, "min": ORDERED, "max": ORDERED, "top_n": ORDERED}


@st.composite
def histories(draw: st.DrawFn) -> tuple[BoundAggregate, TypeInformation, list[tuple[int, int, Any]], list[int]]:
    """A measure, the type of its records, records as (group, time, record), and a partial number for every record."""
    kind = draw(st.sampled_from(KINDS))
    value_type, values = draw(st.sampled_from(list(OF_KIND.get(kind, ANY).values())))
    other_type, others = draw(st.sampled_from(list(ANY.values())))
    stream_type = Types.TUPLE([value_type, other_type])
    looks: tuple[AggregateArgument, ...] = (AggregateArgument(value_type, 0),)
    if kind == "top_n" and draw(st.booleans()):
        looks += (AggregateArgument(other_type, 1),)
    if kind == "count" and draw(st.booleans()):
        looks = ()
    row = st.tuples(st.integers(0, 3), st.integers(0, 5), st.tuples(values | st.none(), others | st.none()))
    rows = draw(st.lists(row, min_size=1, max_size=25))
    partial = draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    return BoundAggregate("it", kind, looks, draw(st.integers(1, 4))), stream_type, rows, sorted(partial)


Seen = tuple[list[pa.Array], Any]


def seen_by(kernel: Kernel, rows: list[tuple[int, int, Any]], stream_type: TypeInformation) -> Seen:
    """The columns that a kernel looks at, and the times of the rows."""
    columns = to_record_batch([record for _, _, record in rows], stream_type)
    looked = [columns.column(look.field) for look in kernel.measure.arguments]
    return looked, np.array([at for _, at, _ in rows], dtype=np.int64)


def parts_of(kernel: Kernel, rows: list[tuple[int, int, Any]], stream_type: TypeInformation) -> list[pa.Array]:
    return kernel.lift(*seen_by(kernel, rows, stream_type))


def results_of(kernel: Kernel, parts: list[pa.Array]) -> list[Any]:
    for part, kind in zip(parts, kernel.part_kinds, strict=True):
        part.validate(full=True)
        assert part.type == kind
    column = kernel.results(parts)
    column.validate(full=True)
    batch = pa.RecordBatch.from_arrays([column], names=["f0"])
    return [value for (value,) in from_record_batch(batch, Types.TUPLE([kernel.measure.result_type]))]


def agree(found: Any, expected: Any) -> bool:
    if isinstance(found, float) and isinstance(expected, float):
        both_nan = math.isnan(found) and math.isnan(expected)
        return both_nan or math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-3) or found == expected
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(agree, found, expected))
    return bool(found == expected)


def one_by_one(
    measure: BoundAggregate, stream_type: TypeInformation, rows: list[tuple[int, int, Any]]
) -> dict[int, Any]:
    record_measure = RecordMeasure(measure, stream_type)
    accumulators: dict[int, Any] = defaultdict(record_measure.empty)
    consolidated = as_declared([record for _, _, record in rows], stream_type)
    for (group, at, _), record in zip(rows, consolidated, strict=True):
        accumulators[group] = record_measure.add(accumulators[group], record, at)
    return {group: record_measure.result(accumulator) for group, accumulator in accumulators.items()}


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(histories())
def test_kernels_agree_with_the_record_reference_for_any_cuts(
    history: tuple[BoundAggregate, TypeInformation, list[tuple[int, int, Any]], list[int]],
) -> None:
    measure, stream_type, rows, partial_of = history
    assert runs_in_columns(measure)
    (kernel,) = kernels_of([measure])
    # First within partials, then over them: as before and behind the exchange.
    partials: list[list[pa.Array]] = []
    groups: list[int] = []
    for number in sorted(set(partial_of)):
        mine = [row for row, partial in zip(rows, partial_of, strict=True) if partial == number]
        own = groups_of(pa.array([group for group, _, _ in mine]))
        partials.append(kernel.combine(parts_of(kernel, mine, stream_type), own))
        groups += [mine[row][0] for row in own.firsts()]
    whole_parts = [pa.concat_arrays(pieces) for pieces in zip(*partials, strict=True)]
    together = groups_of(pa.array(groups))
    found = results_of(kernel, kernel.combine(whole_parts, together))
    expected = one_by_one(measure, stream_type, rows)
    for row, number in zip(together.firsts(), range(together.count), strict=True):
        assert agree(found[number], expected[groups[row]]), (found[number], expected[groups[row]])


@settings(max_examples=40, deadline=None)
@given(histories())
def test_records_that_are_gathered_at_once_come_to_what_their_accumulators_come_to(
    history: tuple[BoundAggregate, TypeInformation, list[tuple[int, int, Any]], list[int]],
) -> None:
    measure, stream_type, rows, _ = history
    (kernel,) = kernels_of([measure])
    groups = groups_of(pa.array([group for group, _, _ in rows]))
    gathered = kernel.gather(*seen_by(kernel, rows, stream_type), groups)
    combined = kernel.combine(parts_of(kernel, rows, stream_type), groups)
    assert [str(part) for part in gathered] == [str(part) for part in combined]  # as texts: NaN is NaN


def test_what_is_null_is_not_counted_when_records_are_gathered_at_once() -> None:
    groups = Groups(np.array([0, 1, 0, 0]), 2)
    values, at = pa.array([1, None, None, 4]), np.zeros(4, dtype=np.int64)
    of_values, of_records = kernels_of(
        [BoundAggregate("n", "count", (AggregateArgument(Types.LONG(), 0),)), BoundAggregate("all", "count")]
    )
    assert of_values.gather([values], at, groups)[0].to_pylist() == [2, 0]
    assert of_records.gather([], at, groups)[0].to_pylist() == [3, 1]


@settings(max_examples=25, deadline=None)
@given(histories(), st.lists(st.tuples(st.integers(0, 24), st.integers(1, 24)), min_size=1, max_size=8))
def test_ranged_agrees_with_combine_for_each_run(
    history: tuple[BoundAggregate, TypeInformation, list[tuple[int, int, Any]], list[int]], asked: list[tuple[int, int]]
) -> None:
    measure, stream_type, rows, _ = history
    (kernel,) = kernels_of([measure])
    rows = sorted(rows, key=lambda row: row[1])  # panes stand in the order of time
    starts = np.array([start % len(rows) for start, _ in asked])
    stops = np.minimum(starts + [length for _, length in asked], len(rows))
    parts = kernel.ranged(parts_of(kernel, rows, stream_type))(starts, stops)
    found = results_of(kernel, parts)
    for result, start, stop in zip(found, starts.tolist(), stops.tolist(), strict=True):
        run = [(0, at, record) for _, at, record in rows[start:stop]]
        assert agree(result, one_by_one(measure, stream_type, run)[0])


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0.0, -0.0, math.nan, None])), min_size=1))
def test_groups_are_equal_values_whatever_they_are(rows: list[tuple[Any, Any]]) -> None:
    groups = pair_groups(
        groups_of(pa.array([a for a, _ in rows], pa.string())), groups_of(pa.array([b for _, b in rows]))
    )
    struct = groups_of(pa.array([{"a": a, "b": b} for a, b in rows]))
    names = [repr((a, b if b is None or b != b else b + 0.0)) for a, b in rows]
    for found in (groups, struct):
        assert sorted(set(found.codes.tolist())) == list(range(found.count))
        assert len(set(zip(found.codes.tolist(), names, strict=True))) == found.count == len(set(names))


@pytest.mark.parametrize("true_count", [0, 1, 10, 500, 3_000, 20_000, 200_000])
def test_approx_distinct_is_about_right_at_any_size(true_count: int) -> None:
    (kernel,) = kernels_of([BoundAggregate("it", "approx_distinct", (AggregateArgument(Types.LONG(), 0),))])
    values = pa.array(np.arange(true_count, dtype=np.int64) * 7919)
    twice = pa.concat_arrays([values, values, pa.nulls(1, pa.int64())])
    lifted = kernel.lift([twice], np.zeros(len(twice), dtype=np.int64))
    halves = kernel.combine(lifted, Groups(np.arange(len(twice)) % 2, min(2, len(twice))))
    (sketch,) = kernel.combine(halves, Groups(np.zeros(len(halves[0]), dtype=np.int64), 1))
    assert len(sketch[0].as_py()) <= 4_096
    (found,) = kernel.results([sketch]).to_pylist()
    assert abs(found - true_count) <= 0.05 * true_count


def test_sketches_do_not_depend_on_the_order_of_merging() -> None:
    (kernel,) = kernels_of([BoundAggregate("it", "approx_distinct", (AggregateArgument(Types.STRING(), 0),))])
    lifted = kernel.lift([pa.array([str(n) for n in range(5_000)])], np.zeros(5_000, dtype=np.int64))
    one = Groups(np.zeros(5_000, dtype=np.int64), 1)
    backwards = [part.take(pa.array(np.arange(5_000)[::-1])) for part in lifted]
    assert kernel.combine(lifted, one)[0].equals(kernel.combine(backwards, one)[0])


# --- Aggregates as an AggregateFunction -----------------------------------------------------------------------------

CLICK = Types.ROW_NAMED(["ad", "price", "n"], [Types.STRING(), Types.DOUBLE(), Types.INT()])


def fold(function: agg.Aggregates, records: list[Any]) -> Any:
    accumulator = function.create_accumulator()
    for at, record in enumerate(records):
        accumulator = function.add_at(record, at, accumulator)
    return function.get_result(accumulator)


def test_several_at_once_over_fields_and_expressions() -> None:
    both = agg.Aggregates(
        clicks=agg.count(),
        spend=agg.sum(lambda columns: pc.multiply(columns["price"], columns["n"]), Types.DOUBLE()),
        best=agg.top_n(2, "price", "ad"),
        dearest=agg.top_n(1, by=1),
        ads=agg.approx_distinct("ad"),
    ).bound(CLICK)
    rows = [Row("a", 2.0, 3), Row("b", 5.0, 1), Row("a", None, 7), Row("c", 4.0, 2)]
    assert fold(both, rows) == Row(clicks=4, spend=19.0, best=["b", "c"], dearest=[5.0], ads=3)
    assert both.result_type(("ad", Types.STRING())) == Types.ROW_NAMED(
        ["ad", "window_start", "window_end", "clicks", "spend", "best", "dearest", "ads"],
        [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.LIST(Types.STRING()),
         Types.LIST(Types.DOUBLE()), Types.LONG()],
    )  # fmt: skip


def test_untyped_records_have_fields_by_name_or_position_and_pythons_numbers() -> None:
    totals = agg.Aggregates(total=agg.sum("n"), mean=agg.avg("n"))
    assert fold(totals, [{"n": 2**70}, {"n": 2}, {"n": None}]) == Row(total=2**70 + 2, mean=float(2**69 + 1))
    assert fold(agg.Aggregates(it=agg.max()), [3, 9, 4]) == Row(it=9)


def test_numbers_without_bounds_are_exact() -> None:
    prices = agg.Aggregates(total=agg.sum(), least=agg.min()).bound(Types.BIG_DEC())
    assert fold(prices, [decimal.Decimal("0.1")] * 3) == Row(total=decimal.Decimal("0.3"), least=decimal.Decimal("0.1"))
    assert not any(map(runs_in_columns, prices.measures))


def test_no_values_have_no_sum_but_a_count_and_an_empty_list() -> None:
    every = agg.Aggregates(
        records=agg.count(), values=agg.count(1), total=agg.sum(1), mean=agg.avg(1), least=agg.min(1),
        earliest=agg.first(1), different=agg.approx_distinct(1), all=agg.collect(1), top=agg.top_n(3, 1),
    ).bound(CLICK)  # fmt: skip
    expected = Row(records=1, values=0, total=None, mean=None, least=None, earliest=None, different=0, all=[], top=[])
    assert fold(every, [Row("a", None, 1)]) == expected


def test_first_and_last_go_by_event_time_then_by_arrival() -> None:
    edges = agg.Aggregates(first=agg.first(), last=agg.last(), all=agg.collect())
    accumulator = edges.create_accumulator()
    for value, at in (("b", 5), ("a", 2), ("c", 5), ("a2", 2)):
        accumulator = edges.add_at(value, at, accumulator)
    assert edges.get_result(accumulator) == Row(first="a", last="c", all=["a", "a2", "b", "c"])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: agg.Aggregates(), "Aggregates: found none"),
        (lambda: agg.Aggregates(it=3), "expected an aggregate"),
        (lambda: agg.sum(lambda columns: columns["n"]), "needs its result type"),
        (lambda: agg.collect(lambda columns: columns["n"], Types.LIST(Types.PICKLED_BYTE_ARRAY())), "cannot hold"),
        (lambda: agg.sum("n", Types.LONG()), "has the type that its stream declares"),
        (lambda: agg.top_n(0), "at least 1"),
        (lambda: agg.Aggregates(it=agg.sum("ad")).bound(CLICK), "expected a number"),
        (lambda: agg.Aggregates(it=agg.sum("cost")).bound(CLICK), "no such field"),
        (lambda: agg.Aggregates(it=agg.sum(1)).bound(Types.LONG()), "single value"),
        (lambda: agg.Aggregates(it=agg.min()).bound(Types.LIST(Types.LONG())), "cannot be ordered"),
        (lambda: agg.Aggregates(ad=agg.count()).bound(CLICK).result_type(("ad", Types.STRING())), "another name"),
        (lambda: agg.Aggregates(it=agg.sum(lambda c: c[0], Types.LONG())).bound(None), "untyped"),
    ],
)
def test_what_can_never_work_is_refused_at_the_users_line(build: Any, said: str) -> None:
    with pytest.raises(ProgramError, match=said) as refused:
        build()
    assert "test_aggregates.py" in str(refused.value)


# --- the arithmetic of panes ------------------------------------------------------------------------------------------

SIZES = st.integers(1, 40)
WINDOWS = st.builds(PaneWindows, SIZES, SIZES, st.integers(-5, 5)) | st.builds(
    lambda step, count, offset: PaneWindows(step * count, step * count, offset, step),
    st.integers(1, 9), st.integers(1, 5), st.integers(-5, 5),
)  # fmt: skip


@given(WINDOWS, st.integers(-200, 200))
def test_the_windows_of_a_pane_are_those_that_hold_each_of_its_times(windows: PaneWindows, time: int) -> None:
    pane = windows.pane_of(time)
    assert pane <= time < pane + windows.pane_ms
    near = range(windows.last_window(pane) - 60, windows.last_window(pane) + 60)
    holding = [number for number in near if windows.starts(number) <= time < windows.ends(number)]
    assert holding == list(range(windows.first_window(pane), windows.last_window(pane) + 1))
    if holding:
        assert windows.expiry_ms(np.array([pane]))[0] == windows.ends(holding[-1]) - 1


@given(WINDOWS, st.integers(-200, 200))
def test_windows_are_numbered_in_the_order_of_their_ends(windows: PaneWindows, time: int) -> None:
    fired = windows.fired_through(time)
    assert windows.ends(fired) - 1 <= time < windows.ends(fired + 1) - 1


def test_dates_are_compared_and_collected_as_dates() -> None:
    days = agg.Aggregates(least=agg.min(), all=agg.collect()).bound(Types.SQL_DATE())
    assert all(map(runs_in_columns, days.measures))
    assert fold(days, [dt.date(2024, 2, 1), dt.date(2023, 1, 1)]).least == dt.date(2023, 1, 1)


@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize("type_info", [Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG()])
@given(st.data())
def test_the_extremes_of_whole_numbers_are_those_of_python(
    kind: str, type_info: TypeInformation, data: st.DataObject
) -> None:
    arrow = arrow_type(type_info)
    assert arrow is not None
    most = 2 ** (arrow.bit_width - 1)
    codes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=20))
    values = data.draw(st.lists(st.integers(-most, most - 1), min_size=len(codes), max_size=len(codes)))
    present = sorted(set(codes))
    (kernel,) = kernels_of([BoundAggregate("it", kind, (AggregateArgument(type_info, 0),))])
    groups = Groups(np.array([present.index(code) for code in codes]), len(present))
    (column,) = kernel.combine(kernel.lift([pa.array(values, arrow)], np.zeros(len(codes), dtype=np.int64)), groups)
    best = min if kind == "min" else max
    expected = [best(value for code, value in zip(codes, values, strict=True) if code == one) for one in present]
    assert column.type == arrow and column.to_pylist() == expected
