"""Table programs with a known answer, run by the engine's tests in addition to `programs/plain.py`.

The input is the numbers 0 … 29 in three splits; number n has the timestamp n * 10 ms. Relations are constructed by
hand: planning of queries is tested elsewhere, execution of relations here.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream
from millstream.expressions.nested_types import ArrayType
from millstream.expressions.row_expressions import Call
from millstream.expressions.types import BigIntType, DecimalType, LocalZonedTimestampType, TimestampType, VarCharType
from millstream.expressions.user_functions import UserFunction, UserFunctionKind
from millstream.planner.entries import ColumnEntry, TableEntry
from millstream.planner.lowering import CollectTarget, StreamOrigin, lower
from millstream.planner.relations import (
    AggregateCall,
    Correlate,
    Field,
    Project,
    Relation,
    Scan,
    Schema,
    Sink,
    TimeKind,
    Unnest,
    WatermarkAssign,
    WindowAssign,
    WindowKind,
    WindowShape,
)
from millstream.planner.session import PlannerSession
from millstream.table import DataTypes, StreamTableEnvironment
from millstream.table import Schema as TableSchema
from millstream.table.udf import AggregateFunction, udaf
from millstream.testing import Collect
from programs.relations import aggregated, column

NUMBERS = list(range(30))
RECORD = Types.ROW_NAMED(
    ["k", "name", "v", "cents", "many"],
    [Types.LONG(), Types.STRING(), Types.LONG(), Types.DECIMAL(10, 2), Types.LIST(Types.LONG())],
)
COLUMNS = {
    "k": BigIntType(),
    "name": VarCharType(8),
    "v": BigIntType(),
    "cents": DecimalType(10, 2),
    "many": ArrayType(BigIntType()),
}
TIME = LocalZonedTimestampType(3)
EPOCH = dt.datetime(1970, 1, 1)


def record(n: int) -> Row:
    return Row(k=n % 3, name=None if n % 5 == 0 else f"n{n % 2}", v=n, cents=cents(n), many=[n] * (n % 3))


def cents(n: int) -> Decimal | None:
    return None if n % 4 == 0 else Decimal(n) + Decimal("0.25")


def scanned(stream: DataStream) -> Relation:
    """The stream as a table with a rowtime, which is its records' timestamp."""
    waits = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))
    timed = stream.assign_timestamps_and_watermarks(waits.with_timestamp_assigner(lambda n, _: n * 10))
    edges = timed.map(record, RECORD)._edges
    entry = TableEntry(
        (*(ColumnEntry(name, type_) for name, type_ in COLUMNS.items()), ColumnEntry("ts", TIME, metadata="rowtime")),
        origin=StreamOrigin(edges[0].source, "records", edges=edges),
    )
    fields = tuple(Field(each.name, each.type) for each in entry.read)
    scan = Scan(Schema(fields), entry)
    timed_fields = (*fields[:-1], Field("ts", TIME, TimeKind.ROWTIME))
    return WatermarkAssign(Schema(timed_fields), scan, len(fields) - 1, Call(TimestampType(3), "SOURCE_WATERMARK"))


def ended(stream: DataStream, relation: Relation, out: Collect) -> None:
    sink = Sink(relation.schema, relation, CollectTarget(out))
    lower([sink], stream._environment._builder, PlannerSession())


CALLS = (
    AggregateCall("COUNT", (), BigIntType(False), "rows"),
    AggregateCall("SUM", (3,), DecimalType(38, 2), "cents"),
    AggregateCall("AVG", (2,), BigIntType(), "mean"),
    AggregateCall("COUNT", (0,), BigIntType(False), "kinds", distinct=True),
)


def at(ms: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=ms)


def expected(keys: Any, windows: list[tuple[int, int]]) -> list[Row]:
    """The rows of an aggregation by key and window."""
    rows = []
    for start, end in windows:
        groups: dict[tuple[Any, ...], list[int]] = {}
        for n in NUMBERS:
            if start <= n * 10 < end:
                groups.setdefault(keys(record(n)), []).append(n)
        for key, held in groups.items():
            sums = [value for value in map(cents, held) if value is not None]
            rows.append(
                Row(
                    *key,
                    len(held),
                    sum(sums) if sums else None,
                    sum(held) // len(held),
                    len({n % 3 for n in held}),
                    at(start),
                    at(end),
                    at(end - 1).replace(tzinfo=dt.UTC),
                )
            )
    return rows


def named(rows: list[Row], *keys: str) -> list[Row]:
    for row in rows:
        row.set_field_names([*keys, "rows", "cents", "mean", "kinds", "window_start", "window_end", "window_time"])
    return rows


def tumbling(stream: DataStream, out: Collect) -> None:
    """Windows by two columns, one of them nullable."""
    relation = scanned(stream)
    ended(stream, aggregated(relation, WindowShape(WindowKind.TUMBLE, 5, 100), ["k", "name"], CALLS), out)


def hopping(stream: DataStream, out: Collect) -> None:
    relation = scanned(stream)
    ended(stream, aggregated(relation, WindowShape(WindowKind.HOP, 5, 100, 50), ["name"], CALLS), out)


def cumulating(stream: DataStream, out: Collect) -> None:
    """No key at all."""
    relation = scanned(stream)
    ended(stream, aggregated(relation, WindowShape(WindowKind.CUMULATE, 5, 150, 50), [], CALLS), out)


def cascaded(stream: DataStream, out: Collect) -> None:
    """Cascaded windows: sums of two windows of 50 ms, and the same windows again without the key."""
    relation = scanned(stream)
    counted = (AggregateCall("COUNT", (), BigIntType(False), "rows"),)
    first = aggregated(relation, WindowShape(WindowKind.HOP, 5, 100, 50), ["k"], counted)
    total = (AggregateCall("SUM", (1,), BigIntType(), "total"),)
    again = aggregated(first, WindowShape(WindowKind.HOP, 4, 100, 50, attached=(2, 3)), [], total)
    ended(stream, again, out)


def spread(row: int, count: int) -> Any:
    for number in range(count):
        yield row, f"{row}.{number}"


def repeated(stream: DataStream, out: Collect) -> None:
    """Rows expanded into several, in three ways in sequence."""
    relation = scanned(stream)
    window = WindowShape(WindowKind.TUMBLE, 5, 100)
    bounds = tuple(Field(name, TimestampType(3, False)) for name in ("window_start", "window_end"))
    windowed = WindowAssign(
        Schema((*relation.schema.fields, *bounds, Field("window_time", TIME, TimeKind.ROWTIME))), relation, window
    )
    element = Field("one", BigIntType())
    unnested = Unnest(Schema((*windowed.schema.fields, element)), windowed, column(windowed, "many"))
    function = UserFunction("spread", spread, (BigIntType(), VarCharType(9)), kind=UserFunctionKind.TABLE)
    made = (Field("again", BigIntType()), Field("text", VarCharType(9)))
    correlated = Correlate(
        Schema((*unnested.schema.fields, *made)), unnested, function, (column(unnested, "one"), column(unnested, "k"))
    )
    names = ["window_start", "one", "text"]
    columns = tuple(column(correlated, name) for name in names)
    fields = Schema(tuple(Field(name, each.type) for name, each in zip(names, columns, strict=True)))
    ended(stream, Project(fields, correlated, columns), out)


def asked(stream: DataStream, out: Collect, query: str, t_env: StreamTableEnvironment | None = None) -> None:
    """The rows of a query over the records, as table `t` with a rowtime `ts`."""
    waits = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))
    timed = stream.assign_timestamps_and_watermarks(waits.with_timestamp_assigner(lambda n, _: n * 10))
    t_env = t_env or StreamTableEnvironment.create(stream._environment)
    rowtime = TableSchema.new_builder().column_by_metadata("ts", "TIMESTAMP(3)", "rowtime", True)
    schema = rowtime.watermark("ts", "SOURCE_WATERMARK()").build()
    t_env.create_temporary_view("t", t_env.from_data_stream(timed.map(record, RECORD), schema))
    t_env.to_data_stream(t_env.sql_query(query)).sink_to(out)


def in_sessions(stream: DataStream, out: Collect) -> None:
    """Every third number with even tens: sessions of ten records and gaps of the same length."""
    asked(
        stream,
        out,
        "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM t WHERE MOD(v / 10, 2) = 0 "
        "GROUP BY k, SESSION(ts, INTERVAL '0.05' SECOND)",
    )


def met(stream: DataStream, out: Collect) -> None:
    """Every number joined with the one ten above it."""
    asked(stream, out, "SELECT a.v AS low, b.v AS high FROM t a JOIN t b ON a.v + 10 = b.v AND a.k <> b.k")


def near(stream: DataStream, out: Collect) -> None:
    """Every number joined with the next one, counted in windows by the later one's time: each is ten ms after the
    previous.
    """
    close = (
        "SELECT b.ts AS later FROM t a LEFT JOIN t b ON a.k <> b.k "
        "AND b.ts BETWEEN a.ts + INTERVAL '0.005' SECOND AND a.ts + INTERVAL '0.015' SECOND"
    )
    asked(
        stream,
        out,
        f"WITH p AS (SELECT later FROM ({close}) WHERE later IS NOT NULL) SELECT COUNT(*) AS n, window_start "
        "FROM TABLE(TUMBLE(TABLE p, DESCRIPTOR(later), INTERVAL '0.1' SECOND)) GROUP BY window_start, window_end",
    )


def together(stream: DataStream, out: Collect) -> None:
    """Every number joined with the one three above it, if both are in the same window."""
    left, right = ("(SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '0.1' SECOND)))" for _ in "ab")
    asked(
        stream,
        out,
        f"SELECT a.v AS low, b.v AS high FROM {left} a LEFT JOIN {right} b ON a.k = b.k AND a.v + 3 = b.v "
        "AND a.window_start = b.window_start AND a.window_end = b.window_end",
    )


def once(stream: DataStream, out: Collect) -> None:
    asked(stream, out, "SELECT DISTINCT k, name FROM t")


def around(stream: DataStream, out: Collect) -> None:
    """Every number with the sum of those of its key in the preceding 60 ms, and with the running sum of these sums."""
    asked(
        stream,
        out,
        "SELECT v, near, SUM(near) OVER (PARTITION BY k ORDER BY ts) AS total FROM (SELECT k, v, ts, SUM(v) OVER "
        "(PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '0.06' SECOND PRECEDING AND CURRENT ROW) AS near FROM t)",
    )


def recent(n: int) -> int:
    return sum(other for other in range(max(0, n - 6), n + 1) if other % 3 == n % 3)


class Ends(AggregateFunction):
    """The first and the last value, as one text: the accumulator is a Python object of the program."""

    def create_accumulator(self) -> list[int]:
        return []

    def accumulate(self, accumulator: list[int], *args: Any) -> None:
        accumulator[:] = [min([*accumulator, args[0]]), max([*accumulator, args[0]])]

    def merge(self, accumulator: list[int], accumulators: Any) -> None:
        for other in accumulators:
            for value in other:
                self.accumulate(accumulator, value)

    def get_value(self, accumulator: list[int]) -> str:
        return f"{accumulator[0]}-{accumulator[1]}"


def by_own_aggregate(stream: DataStream, out: Collect) -> None:
    t_env = StreamTableEnvironment.create(stream._environment)
    ends = udaf(Ends(), result_type=DataTypes.STRING(), accumulator_type=DataTypes.ARRAY(DataTypes.BIGINT()))
    t_env.create_temporary_system_function("ends", ends)
    windows = "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0.1' SECOND, INTERVAL '0.2' SECOND))"
    asked(stream, out, f"SELECT k, ends(v) AS ends FROM {windows} GROUP BY k, window_start, window_end", t_env)


TABLED = {
    "table: an aggregate of the program's own": (
        by_own_aggregate,
        [
            Row(k=key, ends=f"{min(held)}-{max(held)}")
            for tens in (-10, 0, 10, 20)
            for key in range(3)
            if (held := [n for n in NUMBERS if tens <= n < tens + 20 and n % 3 == key])
        ],
    ),
    "table: rows around rows": (
        around,
        [Row(v=n, near=recent(n), total=sum(recent(other) for other in range(n % 3, n + 1, 3))) for n in NUMBERS],
    ),
    "table: sessions": (
        in_sessions,
        [
            Row(k=key, n=len(held), total=sum(held))
            for tens in (0, 20)
            for key in range(3)
            if (held := [n for n in range(tens, tens + 10) if n % 3 == key])
        ],
    ),
    "table: a join of a table with itself": (met, [Row(low=n, high=n + 10) for n in range(20)]),
    "table: an interval join, in windows by its second time": (
        near,
        [
            Row(n=len(held), window_start=at(start))
            for start in range(0, 300, 100)
            if (held := [n for n in NUMBERS if n and start <= n * 10 < start + 100])
        ],
    ),
    "table: a window join": (
        together,
        [Row(low=n, high=n + 3 if n + 3 in NUMBERS and (n + 3) // 10 == n // 10 else None) for n in NUMBERS],
    ),
    "table: distinct rows": (
        once,
        [Row(k=key, name=name) for key, name in {(row.k, row.name) for row in map(record, NUMBERS)}],
    ),
    "table: tumbling windows by two columns": (
        tumbling,
        named(expected(lambda row: (row.k, row.name), [(0, 100), (100, 200), (200, 300)]), "k", "name"),
    ),
    "table: hopping windows": (
        hopping,
        named(expected(lambda row: (row.name,), [(start, start + 100) for start in range(-50, 300, 50)]), "name"),
    ),
    "table: cumulating windows without a key": (
        cumulating,
        named(
            expected(lambda row: (), [(0, 50), (0, 100), (0, 150), (150, 200), (150, 250), (150, 300)]),
        ),
    ),
    "table: windows of windows": (
        cascaded,
        [
            Row(
                total=sum(start <= n * 10 < start + 100 for n in NUMBERS),
                window_start=at(start),
                window_end=at(start + 100),
                window_time=at(start + 99).replace(tzinfo=dt.UTC),
            )
            for start in range(-50, 300, 50)
        ],
    ),
    "table: rows that become several": (
        repeated,
        [
            Row(window_start=at(n * 10 // 100 * 100), one=n, text=f"{n}.{number}")
            for n in NUMBERS
            for _ in range(n % 3)
            for number in range(n % 3)
        ],
    ),
}
