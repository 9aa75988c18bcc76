"""Operations of queries over rows of tables. The planner's lowering makes them from relations.

Rows travel as columns of a `TableRowType`, with event time in the batch: the rowtime attribute of a table always equals
the timestamps of its batches, so that windows need no column. Expressions refer to columns of the input by position.
Operations are frozen data; `runtime.tables` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkKind, WatermarkStrategy
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import RowExpression
from millstream.graph.nodes import Operation
from millstream.state.windows.bound_aggregates import BoundAggregate
from millstream.state.windows.pane_windows import PaneWindows

__all__ = [
    "Calc",
    "ColumnWatermarks",
    "Correlate",
    "EnforceRows",
    "Expiry",
    "GroupAggregate",
    "LimitRows",
    "OrderKey",
    "RankRows",
    "RankWindows",
    "RegularJoin",
    "RowTimes",
    "SessionAggregate",
    "StreamRows",
    "TableJoin",
    "TableSession",
    "UnnestRows",
    "WindowAggregate",
    "WindowColumn",
    "WindowRows",
]


@dataclass(frozen=True)
class TableSession:
    """The session of a query, as functions see it."""

    zone: str = "UTC"
    catalog: str = "default_catalog"
    database: str = "default_database"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Calc(Operation):
    """Filters rows by the condition and projects them to the expressions. `input_types` are those of the columns that
    the expressions use."""

    expressions: tuple[RowExpression, ...]
    condition: RowExpression | None
    input_types: tuple[DataType, ...]
    session: TableSession = TableSession()

    @property
    def function(self) -> tuple[Any, ...]:
        """User code that is sent to tasks."""
        return (*self.expressions, self.condition)


@dataclass(frozen=True)
class WindowRows(Operation):
    """A window TVF by itself: every row once for each of its windows, then window_start, window_end, window_time.

    `time` is the column that determines the windows. If it is the rowtime, it equals the timestamps, and the output's
    timestamps are those of window_time."""

    windows: PaneWindows
    time: int
    zone: str = "UTC"


@dataclass(frozen=True)
class Correlate(Operation):
    """Every row with each result row of a table function; `keeps_all`: rows without results are emitted with NULLs.
    Results that do not satisfy `condition`, over the columns of the row and its result, are ignored."""

    function: Any
    arguments: tuple[RowExpression, ...]
    input_types: tuple[DataType, ...]
    result_type: RowType
    keeps_all: bool = False
    session: TableSession = TableSession()
    condition: RowExpression | None = None


@dataclass(frozen=True)
class UnnestRows(Operation):
    """Every row with each element of a collection in it: the fields of a row, key and value of a map, else the element
    itself. `condition` is as for Correlate."""

    collection: RowExpression
    input_types: tuple[DataType, ...]
    with_ordinality: bool = False
    keeps_all: bool = False
    session: TableSession = TableSession()
    condition: RowExpression | None = None


@dataclass(frozen=True)
class LimitRows(Operation):
    """The first `count` rows (None: all) after `offset` ones, in order of arrival."""

    count: int | None
    offset: int = 0


@dataclass(frozen=True)
class StreamRows(Operation):
    """Converts records of a stream to rows of a table: the fields of a row or tuple by name or position, else the
    record itself as the only column. Column `rowtime` is not in the record: it is its timestamp. `only_grows`: changes
    other than INSERT are rejected."""

    row_type: RowType
    rowtime: int | None = None
    only_grows: bool = False


@dataclass(frozen=True)
class EnforceRows(Operation):
    """Enforces a sink's constraints: NOT NULL columns have a value, strings and bytes fit their length.

    `nulls` is "error" or "drop"; `lengths` "ignore", "trim_pad" or "error", as Flink's options say."""

    nulls: str = "error"
    lengths: str = "ignore"


@dataclass(frozen=True)
class WindowColumn:
    """An output column of a window aggregation: a key, a bound of the window, or an aggregate.

    `kind` is key, start, end, time, proctime or measure; `number` counts keys and measures."""

    kind: str
    number: int = 0


@dataclass(frozen=True)
class WindowAggregate(Operation):
    """Aggregates of rows by key columns and window. `keys` are columns of the input; empty: one group for all.

    `key_type` is that of the one key column, or of a row of all. `zone`: the time zone of the windows. `is_attached`:
    rows are results of these windows already, each in the one window whose last instant is its timestamp.
    """

    keys: tuple[int, ...]
    key_type: TypeInformation
    measures: tuple[BoundAggregate, ...]
    windows: PaneWindows
    columns: tuple[WindowColumn, ...]
    zone: str = "UTC"
    is_attached: bool = False


@dataclass(frozen=True)
class SessionAggregate(Operation):
    """Aggregates of rows by key columns and session: rows of a key at most `gap_ms` apart. Keys, columns and zone are
    as in WindowAggregate."""

    keys: tuple[int, ...]
    key_type: TypeInformation
    measures: tuple[BoundAggregate, ...]
    gap_ms: int
    is_event_time: bool
    columns: tuple[WindowColumn, ...]
    zone: str = "UTC"


@dataclass(frozen=True)
class GroupAggregate(Operation):
    """Unbounded aggregation by key columns of the input (none: one group for all). Its output is a changelog of keys
    and aggregates per group.

    `key_type` is as in WindowAggregate. `is_signed`: the input has retractions; the last aggregate is then the row
    count, which is not an output column. `ttl_ms`: groups expire after this time without access."""

    keys: tuple[int, ...]
    key_type: TypeInformation
    measures: tuple[BoundAggregate, ...]
    is_signed: bool = False
    ttl_ms: int | None = None


@dataclass(frozen=True)
class Expiry:
    """Expires rows that no later row can match: when event time has reached `moment`, a time over the row's columns,
    plus `offset_ms`. A row whose moment is NULL matches nothing."""

    moment: RowExpression
    offset_ms: int = 0


@dataclass(frozen=True)
class TableJoin(Operation):
    """Pairs of rows of two tables with the same key that satisfy `condition`, over the columns of both. Column 0 of
    each input is its key, the others are `rows`; the output is the columns of both sides, or of the left one (SEMI,
    ANTI).

    `kind` is INNER, LEFT, RIGHT, FULL, SEMI or ANTI. `changing`: the sides that have retractions."""

    kind: str
    rows: tuple[RowType, RowType]
    condition: RowExpression | None
    changing: tuple[bool, bool] = (False, False)
    session: TableSession = TableSession()

    @property
    def function(self) -> tuple[Any, ...]:
        """User code that is sent to tasks."""
        return (self.condition,)


@dataclass(frozen=True)
class RegularJoin(TableJoin):
    """An incrementally maintained join of two tables, which may change.

    `ttl_ms`: the retention of rows of each side. `expiries`: conditions under which rows of each side expire because no
    later row can match them, at the first of these times; a side with expiries is append-only, and has no TTL.
    `unique`: the sides that never have two rows of one key at a time."""

    ttl_ms: tuple[int | None, int | None] = (None, None)
    expiries: tuple[tuple[Expiry, ...], tuple[Expiry, ...]] = ((), ())
    unique: tuple[bool, bool] = (False, False)

    @property
    def function(self) -> tuple[Any, ...]:
        """User code that is sent to tasks."""
        return (self.condition, *(each.moment for side in self.expiries for each in side))


@dataclass(frozen=True)
class OrderKey:
    """A column of a sort order."""

    column: int
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class RankRows(Operation):
    """The rows `first` to `last` of each partition in an order. Column 0 of the input is the partition's key, the
    others are `row_type`; with `has_number` the number is the last output column.

    `kind` is ROW_NUMBER, RANK or DENSE_RANK. `latest_first`: of equal rows the last one to arrive comes first.
    `is_changing`: the input has retractions. `ttl_ms`: the retention of a row. `rowtime`: the event-time column of a
    row, for subsequent windows in BATCH."""

    kind: str
    row_type: RowType
    order: tuple[OrderKey, ...]
    first: int
    last: int
    has_number: bool = False
    latest_first: bool = False
    is_changing: bool = False
    ttl_ms: int | None = None
    rowtime: int | None = None


@dataclass(frozen=True)
class RankWindows(RankRows):
    """RankRows whose partitions are each within one window: a window's rows are emitted once, when it ends.

    `end`: for windows in processing time, the column of their end, in local time of `zone`; None if the timestamp of a
    row is the last instant of its window."""

    end: int | None = None
    zone: str = "UTC"

    @property
    def is_event_time(self) -> bool:
        """Whether windows are in event time."""
        return self.end is None


@dataclass(frozen=True)
class RowTimes(TimestampAssigner):
    """The time of a row, as an expression over its columns: TIMESTAMP, TIMESTAMP_LTZ."""

    expression: RowExpression

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Never called: the times of a batch are computed at once."""
        raise NotImplementedError


class ColumnWatermarks(WatermarkStrategy):
    """WATERMARK FOR … AS …: event time and watermark of rows, as expressions over the columns of a source.

    The watermark of a split is the maximum of `watermark` so far; NULL is ignored."""

    def __init__(
        self,
        rowtime: RowExpression,
        watermark: RowExpression,
        input_types: tuple[DataType, ...],
        session: TableSession,
        name: str,
    ) -> None:
        super().__init__()
        self._kind = WatermarkKind.CUSTOM
        self._timestamp_assigner = RowTimes(rowtime)
        self.rowtime = rowtime
        self.watermark = watermark
        self.input_types = input_types
        self.session = session
        self.name = name
