"""What a query asks of rows of tables, as operations of the graph. The planner's lowering makes them of relations.

Rows travel as columns of a `TableRowType`, and their event time beside them: the rowtime attribute of a table always
equals the timestamps of its batches, so that windows need no column. Expressions are over the columns of the input, by
position. Operations are frozen data; `runtime.tables` runs them.
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
    """What functions may know of the session that made the query."""

    zone: str = "UTC"
    catalog: str = "default_catalog"
    database: str = "default_database"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Calc(Operation):
    """The rows that meet the condition, as the expressions make them. `input_types` are those of the columns that the
    expressions name."""

    expressions: tuple[RowExpression, ...]
    condition: RowExpression | None
    input_types: tuple[DataType, ...]
    session: TableSession = TableSession()

    @property
    def function(self) -> tuple[Any, ...]:
        """What travels to tasks and may hold code of the program's."""
        return (*self.expressions, self.condition)


@dataclass(frozen=True)
class WindowRows(Operation):
    """A window TVF by itself: every row once for each window it is in, then window_start, window_end, window_time.

    `time` is the column the windows go by; where it is the rowtime, so are the timestamps, and behind this they are
    those of window_time."""

    windows: PaneWindows
    time: int
    zone: str = "UTC"


@dataclass(frozen=True)
class Correlate(Operation):
    """Every row with each row that a table function gives for it; `keeps_all`: rows with none stay, with NULLs.
    Results that do not meet `condition`, over the columns of the row and its result, count as none."""

    function: Any
    arguments: tuple[RowExpression, ...]
    input_types: tuple[DataType, ...]
    result_type: RowType
    keeps_all: bool = False
    session: TableSession = TableSession()
    condition: RowExpression | None = None


@dataclass(frozen=True)
class UnnestRows(Operation):
    """Every row with each element of a collection in it: the fields of a row, key and value of a map, else itself.
    `condition` is as for Correlate."""

    collection: RowExpression
    input_types: tuple[DataType, ...]
    with_ordinality: bool = False
    keeps_all: bool = False
    session: TableSession = TableSession()
    condition: RowExpression | None = None


@dataclass(frozen=True)
class LimitRows(Operation):
    """The first `count` rows (None: all) behind `offset` ones, as they come."""

    count: int | None
    offset: int = 0


@dataclass(frozen=True)
class StreamRows(Operation):
    """Records of a stream as rows of a table: the fields of a row or tuple by name or position, else the record itself
    as the one column. Column `rowtime` is not in the record: it is its timestamp. `only_grows`: rows of other kinds
    than INSERT are refused."""

    row_type: RowType
    rowtime: int | None = None
    only_grows: bool = False


@dataclass(frozen=True)
class EnforceRows(Operation):
    """What a sink demands of rows: columns that are NOT NULL have a value, texts and bytes fit their length.

    `nulls` is "error" or "drop"; `lengths` "ignore", "trim_pad" or "error", as Flink's options say."""

    nulls: str = "error"
    lengths: str = "ignore"


@dataclass(frozen=True)
class WindowColumn:
    """A column of what a window aggregation gives: a key, a bound of the window, or a measure.

    `kind` is key, start, end, time, proctime or measure; `number` counts keys and measures."""

    kind: str
    number: int = 0


@dataclass(frozen=True)
class WindowAggregate(Operation):
    """Aggregates of rows by key columns and window. `keys` are columns of the input, none: one group for all.

    `key_type` is that of the one key column, or of a row of all. `zone`: whose clocks the windows follow.
    `is_attached`: rows are results of these windows already, each in the one window whose last moment is its timestamp.
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
    """Aggregates of rows by key columns and session: rows of a key that lie no further apart than `gap_ms`. Keys,
    columns and zone are as in WindowAggregate."""

    keys: tuple[int, ...]
    key_type: TypeInformation
    measures: tuple[BoundAggregate, ...]
    gap_ms: int
    is_event_time: bool
    columns: tuple[WindowColumn, ...]
    zone: str = "UTC"


@dataclass(frozen=True)
class GroupAggregate(Operation):
    """Aggregates of all rows so far, by key columns of the input (none: one group for all). What it gives are changes:
    the keys and measures of a group as they were, and as they are.

    `key_type` is as in WindowAggregate. `is_signed`: rows of the input are taken away, too; the last measure then
    counts rows, and is no column of what is given. `ttl_ms`: how long a group is kept that nobody touches."""

    keys: tuple[int, ...]
    key_type: TypeInformation
    measures: tuple[BoundAggregate, ...]
    is_signed: bool = False
    ttl_ms: int | None = None


@dataclass(frozen=True)
class Expiry:
    """When no later row can meet a row: once event time has come to `moment`, a time over the row's columns, moved by
    `offset_ms`. A row whose moment is NULL meets nothing."""

    moment: RowExpression
    offset_ms: int = 0


@dataclass(frozen=True)
class TableJoin(Operation):
    """Pairs of rows of two tables with one key, for which `condition` holds, over the columns of both. Column 0 of each
    input is its key, the others are `rows`; what is given are those of both sides, or of the left one (SEMI, ANTI).

    `kind` is INNER, LEFT, RIGHT, FULL, SEMI or ANTI. `changing`: of which sides rows are taken away, too."""

    kind: str
    rows: tuple[RowType, RowType]
    condition: RowExpression | None
    changing: tuple[bool, bool] = (False, False)
    session: TableSession = TableSession()

    @property
    def function(self) -> tuple[Any, ...]:
        """What travels to tasks and may hold code of the program's."""
        return (self.condition,)


@dataclass(frozen=True)
class RegularJoin(TableJoin):
    """A join that is kept in step with both tables, which may change.

    `ttl_ms`: how long rows of each side are kept. `expiries`: when rows of each side go that no later row can meet, at
    the first of these moments; a side with such only grows, and the clock does not take its rows. `unique`: of which
    sides a key never has two rows at a time."""

    ttl_ms: tuple[int | None, int | None] = (None, None)
    expiries: tuple[tuple[Expiry, ...], tuple[Expiry, ...]] = ((), ())
    unique: tuple[bool, bool] = (False, False)

    @property
    def function(self) -> tuple[Any, ...]:
        """What travels to tasks and may hold code of the program's."""
        return (self.condition, *(each.moment for side in self.expiries for each in side))


@dataclass(frozen=True)
class OrderKey:
    """A column that rows are ordered by."""

    column: int
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class RankRows(Operation):
    """Of each partition the rows `first` to `last` of an order. Column 0 of the input is the partition's key, the
    others are `row_type`; with `has_number` the number is the last column of what is given.

    `kind` is ROW_NUMBER, RANK or DENSE_RANK. `latest_first`: of equal rows the one that came last stands first.
    `is_changing`: rows of the input are taken away, too. `ttl_ms`: how long a row is kept. `rowtime`: the column of a
    row's event time, for windows after it in BATCH."""

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
    """RankRows whose partitions are each within one window: a window's rows are emitted once, when it is over.

    `end`: of windows that follow the clock, the column of their end, as clocks of `zone` show it; None where the
    timestamp of a row is the last moment of its window."""

    end: int | None = None
    zone: str = "UTC"

    @property
    def is_event_time(self) -> bool:
        """Whether windows follow the watermark, not the clock."""
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

    The watermark of a split is the largest value that `watermark` has had; NULL says nothing."""

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
