"""The windows of the job that is killed, one branch for each way in which the engine keeps them:

    ready    count and sum in tumbling windows, as ready aggregates in columns
    custom   a user's `AggregateFunction` in sliding windows
    session  the same in sessions, which merge
    table    a table of the stream, by a column in hopping windows of SQL, and a stream again

An epoch is a stretch of about 300 ms of event time and every window is longer than that, so wherever a kill falls,
windows of each kind are open. What they must give is computed apart, from the definition of the windows.

Event time is a function of the record alone, and each split of the source has its own watermark that waits long enough:
nothing is late, however a killed job cuts its epochs when it is started again.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import DataStream
from millstream.datastream import aggregates as agg
from millstream.datastream.functions import AggregateFunction, ProcessWindowFunction
from millstream.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.expressions import types
from millstream.expressions.row_expressions import Call
from millstream.graph.nodes import Edge
from millstream.planner.entries import ColumnEntry, TableEntry
from millstream.planner.lowering import StreamOrigin, StreamTarget, lower
from millstream.planner.relations import (
    AggregateCall,
    Field,
    Scan,
    Schema,
    Sink,
    TimeKind,
    WatermarkAssign,
    WindowAggregate,
    WindowKind,
    WindowProperty,
    WindowShape,
)
from millstream.planner.session import PlannerSession

TUMBLING_MS = 700
SLIDING_MS, SLIDE_MS = 900, 450
# The records of a user come about 100 ms apart, and every fifth is filtered away.
GAP_MS = 165
_DISORDER_MS = 50
_PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])

Windows = dict[tuple[str, str, int, int], list[int]]
"""(branch, user, start, end) → the cents of its records."""


def happened_ms(number: int) -> int:
    """When a record happened: about a millisecond after the one before it, and out of order."""
    return 1_000 + number - number * 37 % _DISORDER_MS


def in_time(happened: Callable[[str], int]) -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(_DISORDER_MS))
    return strategy.with_timestamp_assigner(lambda line, _: happened(line))


class CountAndSum(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Row, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[2]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Told(ProcessWindowFunction):  # type: ignore[type-arg]
    def __init__(self, branch: str) -> None:
        self.branch = branch

    def process(self, key: str, context: Any, elements: Iterable[tuple[int, int]]) -> Iterable[str]:
        window = context.window()
        for count, cents in elements:
            yield _line(self.branch, key, window.start, window.end, count, cents)


def _line(branch: str, user: str, start: int, end: int, count: int, cents: int) -> str:
    return f"{branch} {user} {start} {end} {count} {cents}"


def add_windows(events: DataStream) -> DataStream:
    """One line per result, from all branches."""
    keyed = events.key_by("user")
    ready = keyed.window(TumblingEventTimeWindows.of(Duration.of_millis(TUMBLING_MS))).aggregate(
        agg.Aggregates(count=agg.count(), cents=agg.sum("cents"))
    )
    slide = SlidingEventTimeWindows.of(Duration.of_millis(SLIDING_MS), Duration.of_millis(SLIDE_MS))
    gap = EventTimeSessionWindows.with_gap(Duration.of_millis(GAP_MS))
    custom, session = (
        keyed.window(assigner).aggregate(CountAndSum(), Told(branch), _PAIR, Types.STRING()).uid(branch)
        for assigner, branch in ((slide, "custom"), (gap, "session"))
    )
    told = ready.uid("ready").map(lambda row: _line("ready", *row), Types.STRING())
    return told.union(custom, session, _table_windows(events))


def _table_windows(events: DataStream) -> DataStream:
    """Windows of a table: relations as a query gives them, from the stream and back to one."""
    columns = (("id", types.BigIntType()), ("user", types.VarCharType(9)), ("cents", types.BigIntType()))
    rowtime = ColumnEntry("ts", types.LocalZonedTimestampType(3), metadata="rowtime")
    entry = TableEntry(
        (*(ColumnEntry(name, type_) for name, type_ in columns), rowtime),
        origin=StreamOrigin(events._edges[0].source, "events", edges=events._edges),
    )
    fields = [Field(each.name, each.type) for each in entry.read]
    scan = Scan(Schema(tuple(fields)), entry)
    fields[3] = Field("ts", rowtime.type, TimeKind.ROWTIME)
    timed = WatermarkAssign(Schema(tuple(fields)), scan, 3, Call(rowtime.type, "SOURCE_WATERMARK"))
    calls = (
        AggregateCall("COUNT", (), types.BigIntType(False), "rows"),
        AggregateCall("SUM", (2,), types.BigIntType(), "cents"),
    )
    bounds = tuple(Field(name, types.TimestampType(3)) for name in ("window_start", "window_end"))
    made = (Field("user", types.VarCharType(9)), *(Field(call.name, call.type) for call in calls), *bounds)
    window = WindowShape(WindowKind.HOP, 3, SLIDING_MS, SLIDE_MS)
    properties = (WindowProperty.START, WindowProperty.END)
    grouped = WindowAggregate(Schema(made), timed, window, (1,), calls, properties, uid="table-windows")
    sink = Sink(grouped.schema, grouped, StreamTarget())
    [node] = lower([sink], events._environment._builder, PlannerSession())
    rows = DataStream(environment=events._environment, edges=(Edge(node.id),))
    return rows.map(lambda row: _line("table", row[0], _ms(row[3]), _ms(row[4]), row[1], row[2]), Types.STRING())


def _ms(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)


def expected(events: list[tuple[str, int, int]]) -> list[str]:
    """The lines, computed apart, from (user, time, cents)."""
    windows: Windows = defaultdict(list)
    by_user: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for user, at_ms, cents in events:
        start = at_ms - at_ms % TUMBLING_MS
        windows["ready", user, start, start + TUMBLING_MS].append(cents)
        for start in range(at_ms - at_ms % SLIDE_MS, at_ms - SLIDING_MS, -SLIDE_MS):
            windows["custom", user, start, start + SLIDING_MS].append(cents)
            windows["table", user, start, start + SLIDING_MS].append(cents)
        by_user[user].append((at_ms, cents))
    for user, own in by_user.items():
        for session in _sessions(sorted(own)):
            windows["session", user, session[0][0], session[-1][0] + GAP_MS] = [cents for _, cents in session]
    return [_line(*place, len(cents), sum(cents)) for place, cents in windows.items()]


def _sessions(own: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Records of one user, in order of time, cut where the pause is too long."""
    sessions = [[own[0]]]
    for before, record in pairwise(own):
        if record[0] - before[0] > GAP_MS:
            sessions.append([])
        sessions[-1].append(record)
    return sessions
