"""Operations of queries over table rows. The planner's lowering creates them from relations.

Rows are sent as columns of a `TableRowType`. Batches carry event time: a table's rowtime attribute always equals the
timestamps of its batches, so windows need no time column. Expressions refer to columns of the input by position.
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
    """The properties of a query's session that functions can read."""

    zone: str = "UTC"
    catalog: str = "default_catalog"
    database: str = "default_database"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Calc(Operation):
    """Filters rows by the condition and projects them to the expressions. `input_types` are the types of the columns
    that the expressions use."""

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
    """A window TVF without aggregation: emits every row once per window, with window_start, window_end and window_time.

    `time` is the column that determines the windows. If it is the rowtime, it equals the timestamps, and the output's
    timestamps equal window_time."""

    windows: PaneWindows
    time: int
    zone: str = "UTC"


@dataclass(frozen=True)
class Correlate(Operation):
    """Joins every row with each result row of a table function; `keeps_all`: rows without results are emitted with
    NULLs. Results that do not satisfy `condition`, over the columns of the row and its result, are ignored."""

    function: Any
    arguments: tuple[RowExpression, ...]
    input_types: tuple[DataType, ...]
    result_type: RowType
    keeps_all: bool = False
    session: TableSession = TableSession()
    condition: RowExpression | None = None


@dataclass(frozen=True)
class UnnestRows(Operation):
    """Joins every row with each element of a collection in it: a row's fields, a map entry's key and value, or any
    other element as one column. `condition` is as for Correlate."""

    collection: RowExpression
    input_types: tuple[DataType, ...]
    with_ordinality: bool = False
    keeps_all: bool = False
    session: TableSession = TableSession()
    condition: RowExpression | None = None


@dataclass(frozen=True)
class LimitRows(Operation):
    """Skips `offset` rows and emits the next `count` (None: all), in order of arrival."""

    count: int | None
    offset: int = 0


@dataclass(frozen=True)
class StreamRows(Operation):
    """Converts records of a stream to rows of a table: the fields of a row or tuple by name or position; any other
    record is the only column. Column `rowtime` is the record's timestamp, not a field. `only_grows`: changes other than
    INSERT are rejected."""

    row_type: RowType
    rowtime: int | None = None
    only_grows: bool = False


@dataclass(frozen=True)
class EnforceRows(Operation):
    """Enforces a sink's constraints: NOT NULL columns must have a value, and strings and bytes must fit their length.

    `nulls` is "error" or "drop"; `lengths` is "ignore", "trim_pad" or "error", as in Flink's options."""

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
    """Aggregates rows by key columns and window. `keys` are columns of the input; without keys all rows are one group.

    `key_type` is the type of the single key column, or of a row of all. `zone`: the time zone of the windows.
    `is_attached`: rows are already results of these windows; a row's timestamp is the last millisecond of its window.
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
    """Aggregates rows by key columns and session: rows of a key at most `gap_ms` apart. Keys, columns and zone are as
    in WindowAggregate."""

    keys: tuple[int, ...]
    key_type: TypeInformation
    measures: tuple[BoundAggregate, ...]
    gap_ms: int
    is_event_time: bool
    columns: tuple[WindowColumn, ...]
    zone: str = "UTC"


@dataclass(frozen=True)
class GroupAggregate(Operation):
    """Unbounded aggregation by key columns of the input (without keys, all rows are one group). Its output is a
    changelog of keys and aggregates per group.

    `key_type` is as in WindowAggregate. `is_signed`: the input contains retractions; the last aggregate is then the row
    count, which is not output. `ttl_ms`: groups expire after this time without access."""

    keys: tuple[int, ...]
    key_type: TypeInformation
    measures: tuple[BoundAggregate, ...]
    is_signed: bool = False
    ttl_ms: int | None = None


@dataclass(frozen=True)
class Expiry:
    """Expires rows that no later row can match: when event time has reached `moment`, a time expression over the row's
    columns, plus `offset_ms`. A row with a NULL `moment` matches nothing."""

    moment: RowExpression
    offset_ms: int = 0


@dataclass(frozen=True)
class TableJoin(Operation):
    """Pairs of rows of two tables with the same key that satisfy `condition`, over the columns of both. Column 0 of
    each input is its key, the others are `rows`; the output has the columns of both sides, or only of the left (SEMI,
    ANTI).

    `kind` is INNER, LEFT, RIGHT, FULL, SEMI or ANTI. `changing`: the sides that contain retractions."""

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
    """An incrementally maintained join of two possibly changing tables.

    `ttl_ms`: the retention of rows of each side. `expiries`: times per side after which no later row can match a row;
    it expires at the first of them. A side with expiries is append-only, and has no TTL. `unique`: the sides that never
    have two rows with the same key at a time."""

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
    """Emits rows `first` to `last` of each ordered partition. Column 0 of the input is the partition's key, the others
    are `row_type`; with `has_number` the number is the last output column.

    `kind` is ROW_NUMBER, RANK or DENSE_RANK. `latest_first`: of equal rows the last to arrive ranks first.
    `is_changing`: the input contains retractions. `ttl_ms`: the retention of a row. `rowtime`: the event-time column of
    a row, for subsequent windows in BATCH."""

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
    """RankRows with partitions that are each within one window: a window's rows are emitted once, when it ends.

    `end`: for processing-time windows, the column of their end, in local time of `zone`; None if a row's timestamp is
    the last millisecond of its window."""

    end: int | None = None
    zone: str = "UTC"

    @property
    def is_event_time(self) -> bool:
        """Whether windows are in event time."""
        return self.end is None


@dataclass(frozen=True)
class RowTimes(TimestampAssigner):
    """The time of a row, as an expression over its columns of type TIMESTAMP or TIMESTAMP_LTZ."""

    expression: RowExpression

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Never called: the times of a batch are computed vectorised."""
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
