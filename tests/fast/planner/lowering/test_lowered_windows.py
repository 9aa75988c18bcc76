"""Windows of queries, run as jobs in memory: they agree with the reference, at any parallelism and epoch size."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.relations import add, aggregated, column, moment, rows_of, table, with_time

from millstream.aggregation.sql_reference import measured
from millstream.expressions import nested_types as nested
from millstream.expressions import types
from millstream.expressions.row_expressions import Call, Literal
from millstream.planner.lowering.aggregates import bound_aggregates
from millstream.planner.lowering.windows import panes_of
from millstream.planner.relations import (
    AggregateCall,
    Field,
    Filter,
    Project,
    Relation,
    Schema,
    TimeKind,
    WindowAggregate,
    WindowAssign,
    WindowKind,
    WindowProperty,
    WindowShape,
)
from millstream.records.table_type import TableRowType
from millstream.runtime.tables.references.windows import aggregated_rows, windows_of
from millstream.testing import EPOCH, Collect, ManualClock, Script, run

COLUMNS = {
    "k": types.IntType(),
    "name": types.VarCharType(3),
    "v": types.IntType(),
    "is_large": types.BooleanType(),
    "ts": types.TimestampType(3),
}
TIME = 4
BIGINT = types.BigIntType(False)
CALLS = (
    AggregateCall("COUNT", (), BIGINT, "rows"),
    AggregateCall("COUNT", (), BIGINT, "large", filter=3),
    AggregateCall("SUM", (2,), types.IntType(), "total"),
    AggregateCall("SUM", (2,), types.IntType(), "total_large", filter=3),
    AggregateCall("AVG", (2,), types.IntType(), "mean"),
    AggregateCall("MIN", (1,), types.VarCharType(3), "least"),
    AggregateCall("COUNT", (1,), BIGINT, "names", distinct=True),
)
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2),
        st.none() | st.sampled_from(["a", "b"]),
        st.none() | st.integers(-5, 5),
        st.none() | st.booleans(),
        st.integers(0, 400).map(lambda ms: moment(ms * 10)),
    ),
    max_size=25,
)
SHAPES = st.sampled_from(
    [
        WindowShape(WindowKind.TUMBLE, TIME, 1_000),
        WindowShape(WindowKind.TUMBLE, TIME, 1_000, offset_ms=-300),
        WindowShape(WindowKind.HOP, TIME, 1_500, 500),
        WindowShape(WindowKind.HOP, TIME, 1_000, 500, offset_ms=70),
        WindowShape(WindowKind.CUMULATE, TIME, 1_500, 500),
    ]
)


def results_of(calls: tuple[AggregateCall, ...]) -> list[Any]:
    """The calls as functions of the rows of a group."""

    def result(call: AggregateCall) -> Any:
        [measure] = bound_aggregates([call], list(COLUMNS.values()))

        def over(rows: list[Any]) -> Any:
            passed = [row for row in rows if call.filter is None or row[call.filter]]
            if not call.arguments:
                return len(passed)
            return measured(measure, [row[call.arguments[0]] for row in passed])

        return over

    return [result(call) for call in calls]


def millis(value: dt.datetime) -> int:
    return (value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)


def local_datetime(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)


def expected(rows: list[Any], shape: WindowShape, keys: list[int]) -> list[Any]:
    results = aggregated_rows(rows, lambda row: millis(row[TIME]), keys, panes_of(shape), results_of(CALLS))
    return [
        (*row[:-2], local_datetime(row[-2]), local_datetime(row[-1]), local_datetime(row[-1] - 1)) for row in results
    ]


def sort_rows(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


@settings(max_examples=8)
@given(
    ROWS,
    SHAPES,
    st.sampled_from([[], ["k"], ["name"], ["k", "name"]]),
    st.integers(1, 3),
    st.none() | st.integers(1, 9),
)
def test_windows_agree_with_the_reference(
    rows: list[Any], shape: WindowShape, keys: list[str], parallelism: int, epoch_records: int | None
) -> None:
    rows.sort(key=lambda row: row[TIME])  # no row is late
    scan = table(COLUMNS, rows)
    relation = aggregated(with_time(scan, "ts", column_before(scan, 1)), shape, keys, CALLS)
    results = rows_of(relation, parallelism=parallelism, epoch_records=epoch_records)
    assert sort_rows(results) == sort_rows(expected(rows, shape, [list(COLUMNS).index(key) for key in keys]))


def column_before(relation: Relation, ms: int) -> Call:
    """The rowtime less some milliseconds."""
    at = column(relation, "ts")
    interval = Literal(types.DayTimeIntervalType(nullable=False), dt.timedelta(milliseconds=ms))
    return Call(at.type, "-", (at, interval))


def test_late_rows_are_dropped_and_counted() -> None:
    rows = [
        (1, "a", 1, True, moment(500)),
        EPOCH,
        (1, "a", 1, True, moment(1_500)),
        EPOCH,
        (1, "a", 1, True, moment(900)),
    ]
    source = Script(rows, type_info=TableRowType(table(COLUMNS).schema.row_type))
    scan = table(COLUMNS, source=source)
    counted = (AggregateCall("COUNT", (), BIGINT, "rows"),)
    relation = aggregated(with_time(scan, "ts"), WindowShape(WindowKind.TUMBLE, TIME, 1_000), ["k"], counted)
    out = Collect()
    result = run(lambda env: add(relation, out, env))
    assert [row.rows for row in out.values] == [1, 1]
    assert [m for name, m in result.metrics.items() if name.endswith("numLateRecordsDropped")] == [{"counter": 1}]


def test_rows_at_the_watermark_are_late() -> None:
    """WATERMARK FOR ts AS ts: a window ends as soon as its last millisecond was seen."""
    rows = [(1, "a", 1, True, moment(999)), EPOCH, (1, "a", 1, True, moment(999)), (1, "b", 1, True, moment(2_500))]
    scan = table(COLUMNS, source=Script(rows, type_info=TableRowType(table(COLUMNS).schema.row_type)))
    counted = (AggregateCall("COUNT", (), BIGINT, "rows"),)
    shape = WindowShape(WindowKind.TUMBLE, TIME, 1_000)
    assert [row[1] for row in rows_of(aggregated(with_time(scan, "ts"), shape, ["k"], counted))] == [1, 1]
    waiting = with_time(scan, "ts", column_before(scan, 1))
    assert [row[1] for row in rows_of(aggregated(waiting, shape, ["k"], counted))] == [2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Los_Angeles", "GMT+05:30"])
def test_windows_over_instants_follow_the_session_time_zone(zone: str) -> None:
    """Days around both daylight-saving changes: 23, 24 and 25 hours long."""
    columns = {"v": types.IntType(), "ts": types.LocalZonedTimestampType(3)}
    starts = (dt.datetime(2024, 3, 29, tzinfo=dt.UTC), dt.datetime(2024, 10, 25, tzinfo=dt.UTC))
    rows = [(1, start + dt.timedelta(minutes=20 * number)) for start in starts for number in range(3 * 24 * 3)]
    counted = (AggregateCall("COUNT", (), BIGINT, "rows"),)
    for hours in (24, 1):
        shape = WindowShape(WindowKind.TUMBLE, 1, hours * 3_600_000)
        relation = aggregated(with_time(table(columns, rows), "ts"), shape, [], counted)
        results = rows_of(relation, {"table.local-time-zone": zone}, epoch_records=61)
        if zone.startswith("GMT"):
            continue
        reference = aggregated_rows(rows, lambda row: millis(row[1]), [], panes_of(shape), [len], zone)
        assert sort_rows([row[:3] for row in results]) == sort_rows(
            [(count, local_datetime(start), local_datetime(end)) for count, start, end in reference]
        )


def test_processing_time_windows_fire_when_the_clock_has_passed_them() -> None:
    clock = ManualClock(0)
    row_type = TableRowType(nested.RowType.of(["v"], [types.IntType()]))
    source = Script([(1,), (2,), EPOCH, (3,), EPOCH, (4,)], type_info=row_type, clock=clock)
    scan = table({"v": types.IntType()}, source=source)
    proctime = Field("p", types.LocalZonedTimestampType(3, False), TimeKind.PROCTIME)
    timed = timed_by_clock(scan, proctime)
    counted = (AggregateCall("SUM", (0,), types.IntType(), "total"),)
    shape = WindowShape(WindowKind.TUMBLE, 1, 1_000, time_kind=TimeKind.PROCTIME)
    relation = aggregated(timed, shape, [], counted, (WindowProperty.START, WindowProperty.END))
    results = rows_of(relation, clock=clock)
    assert sum(row[0] for row in results) == 10  # windows that are open at the end of input are emitted, too


def timed_by_clock(scan: Relation, proctime: Field) -> Relation:
    expressions = (column(scan, "v"), Call(proctime.type, "PROCTIME"))
    return Project(Schema((*scan.schema.fields, proctime)), scan, expressions)


def test_window_functions_repeat_rows_with_the_bounds_of_each_window() -> None:
    rows = [(1, "a", 1, True, moment(ms)) for ms in (0, 999, 1_000, 1_499)]
    for shape in (
        WindowShape(WindowKind.TUMBLE, TIME, 1_000),
        WindowShape(WindowKind.HOP, TIME, 1_000, 250),
        WindowShape(WindowKind.CUMULATE, TIME, 1_000, 250),
    ):
        timed = with_time(table(COLUMNS, rows), "ts")
        bound = types.TimestampType(3, False)
        added = tuple(Field(name, bound) for name in ("window_start", "window_end", "window_time"))
        windowed = WindowAssign(Schema((*timed.schema.fields, *added)), timed, shape)
        windows = [(row, windows_of(millis(row[TIME]), panes_of(shape))) for row in rows]
        assert rows_of(windowed) == [
            (*row, local_datetime(start), local_datetime(end), local_datetime(end - 1))
            for row, bounds in windows
            for start, end in bounds
        ]


def test_windows_over_windowed_rows_retain_their_bounds() -> None:
    rows = [(1, "a", 1, True, moment(ms)) for ms in (0, 999, 1_000, 2_600)]
    shape = WindowShape(WindowKind.HOP, TIME, 1_000, 500)
    timed = with_time(table(COLUMNS, rows), "ts")
    first = aggregated(timed, shape, ["name"], (AggregateCall("COUNT", (), BIGINT, "rows"),))
    attached = WindowShape(WindowKind.HOP, 4, 1_000, 500, attached=(2, 3))
    second = aggregated(first, attached, [], (AggregateCall("SUM", (1,), types.BigIntType(), "rows"),))
    direct = aggregated(timed, shape, [], (AggregateCall("COUNT", (), BIGINT, "rows"),))
    assert sort_rows(rows_of(second, epoch_records=1)) == sort_rows(rows_of(direct))


def test_a_filter_on_window_results_is_a_downstream_calc() -> None:
    rows = [(1, "a", value, True, moment(0)) for value in (1, 2)] + [(2, "a", 9, True, moment(0))]
    timed = with_time(table(COLUMNS, rows), "ts")
    shape = WindowShape(WindowKind.TUMBLE, TIME, 1_000)
    grouped = aggregated(timed, shape, ["k"], (AggregateCall("SUM", (2,), types.IntType(), "total"),))
    having = Filter(
        grouped.schema,
        grouped,
        Call(types.BooleanType(), ">", (column(grouped, "total"), Literal(types.IntType(False), 5))),
    )
    assert [row[:2] for row in rows_of(having)] == [(2, 9)]


def test_grouping_without_aggregates_emits_the_distinct_keys_of_each_window() -> None:
    rows = [(1, "a", 1, True, moment(ms)) for ms in (0, 1, 1_000)]
    timed = with_time(table(COLUMNS, rows), "ts")
    relation = aggregated(timed, WindowShape(WindowKind.TUMBLE, TIME, 1_000), ["k", "name"], ())
    assert isinstance(relation, WindowAggregate)
    assert sort_rows([row[:3] for row in rows_of(relation, parallelism=2)]) == [
        (1, "a", moment(0)),
        (1, "a", moment(1_000)),
    ]


def test_count_of_several_columns_counts_rows_where_none_is_null() -> None:
    rows = [
        (k, name, 1, is_large, moment(0))
        for k, name, is_large in [(1, "a", True), (1, "a", True), (1, "b", None), (None, "b", True), (2, None, True)]
    ]
    timed = with_time(table(COLUMNS, rows), "ts")
    calls = (
        AggregateCall("COUNT", (0, 1), BIGINT, "pairs"),
        AggregateCall("COUNT", (0, 1), BIGINT, "kinds", distinct=True),
        AggregateCall("COUNT", (0, 1), BIGINT, "large", distinct=True, filter=3),
    )
    relation = aggregated(timed, WindowShape(WindowKind.TUMBLE, TIME, 1_000), [], calls)
    assert [row[:3] for row in rows_of(relation, epoch_records=2)] == [(3, 2, 1)]


@pytest.mark.parametrize(("is_distinct", "expected"), [(False, "b-a-b"), (True, "b-a")])
def test_listagg_uses_the_constant_separator_of_the_query(is_distinct: bool, expected: str) -> None:
    rows = [(1, name, 1, True, moment(ms)) for ms, name in enumerate(["b", None, "a", "b"])]
    timed = with_time(table(COLUMNS, rows), "ts")
    text = types.VarCharType(3)
    projected = Project(
        Schema((*timed.schema.fields, Field("between", types.CharType(1, False)))),
        timed,
        (*(column(timed, name) for name in COLUMNS), Literal(types.CharType(1, False), "-")),
    )
    joined = (AggregateCall("LISTAGG", (1, 5), text, "names", distinct=is_distinct),)
    [row] = rows_of(aggregated(projected, WindowShape(WindowKind.TUMBLE, TIME, 1_000), [], joined))
    assert row[0] == expected
