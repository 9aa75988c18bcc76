"""The logical plan's nodes, as frozen data. SQL and the Table API both build them.

A relation has a **schema**: named, typed fields, some of which are time attributes. A node's expressions refer to the
columns of its input by position (of a join: left, then right). Passes derive new relations from old ones with
`replace`. A node's properties (`changes`, keys, windows) are not stored in it; traits compute them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Column, RowExpression
from millstream.graph.table_nodes import Expiry

__all__ = [
    "Aggregate",
    "AggregateCall",
    "AsOf",
    "Correlate",
    "Field",
    "Filter",
    "Join",
    "JoinKind",
    "Limit",
    "Match",
    "Over",
    "OverCall",
    "Project",
    "Rank",
    "Relation",
    "Scan",
    "Schema",
    "SetOperation",
    "Sink",
    "Sort",
    "SortKey",
    "StateHints",
    "TimeKind",
    "Unnest",
    "Values",
    "WatermarkAssign",
    "WindowAggregate",
    "WindowAssign",
    "WindowKind",
    "WindowProperty",
    "WindowShape",
]


class TimeKind(Enum):
    """The kind of a time attribute: event time with watermarks, or processing time."""

    ROWTIME = "ROWTIME"
    PROCTIME = "PROCTIME"


@dataclass(frozen=True)
class Field:
    """One column of a relation. `written`: its name in the query, if `name` had to differ to be unique."""

    name: str
    type: DataType
    time: TimeKind | None = None
    written: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        marked = f" *{self.time.value}*" if self.time else ""
        plain = str(self.type.nullable())
        return f"{self.name} {plain}{marked}{'' if self.type.is_nullable else ' NOT NULL'}"


@dataclass(frozen=True)
class Schema:
    """The columns of a relation, in order. The schema of a join may repeat names."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)

    @property
    def types(self) -> tuple[DataType, ...]:
        return tuple(each.type for each in self.fields)

    @property
    def columns(self) -> tuple[RowExpression, ...]:
        """All columns as expressions."""
        return tuple(Column(each.type, at) for at, each in enumerate(self.fields))

    @property
    def row_type(self) -> RowType:
        """The type of the relation's rows."""
        return RowType.of(self.names, self.types, nullable=False)

    def __len__(self) -> int:
        return len(self.fields)

    def __add__(self, other: Schema) -> Schema:
        return Schema(self.fields + other.fields)


@dataclass(frozen=True)
class Relation:
    """A computed table. `site`: the user's line, for errors and EXPLAIN; `uid`: the id of its state, which
    `name_operators` derives from the plan's shape."""

    schema: Schema
    site: str | None = field(default=None, compare=False, kw_only=True)
    uid: str | None = field(default=None, compare=False, kw_only=True)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """The relations it reads."""
        direct = (getattr(self, name, None) for name in ("input", "left", "right"))
        return tuple(each for each in direct if isinstance(each, Relation)) + tuple(getattr(self, "branches", ()))

    def with_inputs(self, *inputs: Relation) -> Relation:
        """A copy with other inputs, in the order of `inputs`."""
        if hasattr(self, "branches"):
            return replace(self, branches=tuple(inputs))  # type: ignore[call-arg]
        names = [name for name in ("input", "left", "right") if isinstance(getattr(self, name, None), Relation)]
        changed: dict[str, Any] = dict(zip(names, inputs, strict=True))
        return replace(self, **changed)


@dataclass(frozen=True)
class Scan(Relation):
    """A table of the catalog, or a DataStream. `table` is its catalog entry. Passes set `columns`, the positions of
    the columns to read, and `filters`, the conditions pushed into the source."""

    table: Any
    columns: tuple[int, ...] | None = None
    filters: tuple[RowExpression, ...] = ()
    options: tuple[tuple[str, str], ...] = ()  # of an OPTIONS hint
    skips: tuple[RowExpression, ...] = ()  # evaluated above the scan; the source may use them to skip files
    is_narrowed: bool = False  # nested rows contain only the fields that the query reads


@dataclass(frozen=True)
class Values(Relation):
    rows: tuple[tuple[RowExpression, ...], ...]


@dataclass(frozen=True)
class Project(Relation):
    input: Relation
    expressions: tuple[RowExpression, ...]


@dataclass(frozen=True)
class Filter(Relation):
    input: Relation
    condition: RowExpression


StateHints = tuple[tuple[str, tuple[str, ...]], ...]
"""Hints by name, with a string for each input: STATE_TTL with durations, "" for inputs without one."""


class JoinKind(Enum):
    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"


@dataclass(frozen=True)
class Join(Relation):
    left: Relation
    right: Relation
    kind: JoinKind
    condition: RowExpression | None
    hints: StateHints = ()
    expiries: tuple[tuple[Expiry, ...], tuple[Expiry, ...]] = ((), ())  # per side, set by `derive_expiry`


@dataclass(frozen=True)
class Correlate(Relation):
    """Joins every input row with the rows that a table function returns for it; LEFT also emits unmatched rows.
    `condition`, over all columns, belongs to a LEFT join: returned rows that do not meet it are not matches."""

    input: Relation
    function: Any
    arguments: tuple[RowExpression, ...]
    kind: JoinKind = JoinKind.INNER
    condition: RowExpression | None = None


@dataclass(frozen=True)
class Unnest(Relation):
    """Joins every input row with each element of one of its collections. `condition` is as for Correlate."""

    input: Relation
    collection: RowExpression
    with_ordinality: bool = False
    kind: JoinKind = JoinKind.INNER
    condition: RowExpression | None = None


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate. `filter` and `arguments` are positions of input columns, which a projection computes."""

    function: str  # its name in `expressions.functions.aggregates`, or "" with `user`
    arguments: tuple[int, ...]
    type: DataType
    name: str
    distinct: bool = False
    filter: int | None = None
    order: tuple[SortKey, ...] = ()
    user: Any = None
    options: tuple[tuple[str, Any], ...] = ()


BUFFERED_ROWS = "$rows"
"""The name of an array of rows buffered until the end of a window; its order refers to fields of the row."""
GROUPING_FUNCTIONS = ("GROUPING", "GROUPING_ID", "GROUP_ID")
"""Functions that identify a set of GROUPING SETS. Their arguments are positions in `groups`."""


@dataclass(frozen=True)
class Aggregate(Relation):
    """Groups by columns of the input. The schema is the groups, then the calls. `sets`: the GROUPING SETS, as
    positions in `groups`."""

    input: Relation
    groups: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    sets: tuple[tuple[int, ...], ...] | None = None
    hints: StateHints = ()


class WindowKind(Enum):
    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"
    SESSION = "SESSION"


@dataclass(frozen=True)
class WindowShape:
    """The windows' kind and bounds, over column `time` of the input with `time_kind`. `slide_ms` is HOP's slide or
    CUMULATE's step. `attached`: the input's columns with the start and end of windows assigned earlier (a window over
    a window's result); `time` is then the column of their window_time."""

    kind: WindowKind
    time: int
    size_ms: int
    slide_ms: int | None = None
    offset_ms: int = 0
    partition: tuple[int, ...] = ()  # PARTITION BY of SESSION
    is_legacy: bool = False  # GROUP BY TUMBLE(…)
    time_kind: TimeKind = TimeKind.ROWTIME
    attached: tuple[int, int] | None = None


@dataclass(frozen=True)
class WindowAssign(Relation):
    """A window TVF: the input's columns, then window_start, window_end and window_time."""

    input: Relation
    window: WindowShape


class WindowProperty(Enum):
    """A property of the window, emitted as a column of a window aggregation."""

    START = "start"
    END = "end"
    TIME = "time"  # the window's last millisecond: the rowtime of the result
    PROCTIME = "proctime"


@dataclass(frozen=True)
class WindowAggregate(Relation):
    """Aggregates in windows: emits one row per group and window when the window ends. The schema is the groups, the
    calls, then one column per property. `recognise_windows` creates it from an Aggregate over a WindowAssign, the
    binder from the legacy GROUP BY TUMBLE(…). `sets` are as in Aggregate."""

    input: Relation
    window: WindowShape
    groups: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    properties: tuple[WindowProperty, ...] = ()
    sets: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class WatermarkAssign(Relation):
    """Declares column `column` as the rowtime. `watermark`, over the input's columns, is the watermark's expression; a
    NULL value emits no watermark."""

    input: Relation
    column: int
    watermark: RowExpression


@dataclass(frozen=True)
class SortKey:
    column: int
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class OverCall:
    """An aggregate over a frame around each row. `frame`: ROWS or RANGE. Bounds count rows, milliseconds or a numeric
    distance; a negative bound lies on the other side, None is unbounded."""

    call: AggregateCall
    frame: str = "RANGE"
    preceding: float | None = None
    following: float | None = 0
    is_interval: bool = False  # bounds are milliseconds of an interval


@dataclass(frozen=True)
class Over(Relation):
    """Computes OVER calls. The schema is the input's columns, then one per call."""

    input: Relation
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    calls: tuple[OverCall, ...]
    hints: StateHints = ()


@dataclass(frozen=True)
class Rank(Relation):
    """Rows `first` to `last` of each partition, as ordered; with `has_number` the row number is the last column."""

    input: Relation
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    first: int
    last: int
    kind: str = "ROW_NUMBER"
    has_number: bool = False
    hints: StateHints = ()


@dataclass(frozen=True)
class SetOperation(Relation):
    """UNION, INTERSECT or EXCEPT of two or more branches."""

    branches: tuple[Relation, ...]
    kind: str
    all: bool


@dataclass(frozen=True)
class Match(Relation):
    """A bound MATCH_RECOGNIZE."""

    input: Relation
    details: Any


@dataclass(frozen=True)
class Sort(Relation):
    input: Relation
    keys: tuple[SortKey, ...]


@dataclass(frozen=True)
class Limit(Relation):
    input: Relation
    count: int | None
    offset: int = 0


@dataclass(frozen=True)
class AsOf(Relation):
    """A table as of a time in the left side's rows: the right side of a temporal or lookup join."""

    input: Relation
    moment: RowExpression


@dataclass(frozen=True)
class Sink(Relation):
    """The target of rows: a table of the catalog, a DataStream, or the program (`collect`)."""

    input: Relation
    target: Any
    columns: tuple[int, ...] | None = None
    overwrite: bool = False
    partition: tuple[tuple[str, Any], ...] = ()
