"""The logical nodes of a query: what rows it gives, as frozen data. Both halves of SQL are made of these.

A relation has a **schema**: named, typed fields, of which some are time attributes. Expressions in a node are over the
columns of its input, by position (of a join: left, then right). Passes make new relations of old ones with `replace`;
what a node may change, need or know (`changes`, keys, windows) is not stored in it but computed by traits.
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
    """A field that is a time attribute: of events, with watermarks, or of the clock."""

    ROWTIME = "ROWTIME"
    PROCTIME = "PROCTIME"


@dataclass(frozen=True)
class Field:
    """One column of a relation. `written`: the name it was given where another column has that already."""

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
    """The columns of a relation, in order. Names may be the same in what a join gives."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)

    @property
    def types(self) -> tuple[DataType, ...]:
        return tuple(each.type for each in self.fields)

    @property
    def columns(self) -> tuple[RowExpression, ...]:
        """All of them as expressions."""
        return tuple(Column(each.type, at) for at, each in enumerate(self.fields))

    @property
    def row_type(self) -> RowType:
        """The type of its rows."""
        return RowType.of(self.names, self.types, nullable=False)

    def __len__(self) -> int:
        return len(self.fields)

    def __add__(self, other: Schema) -> Schema:
        return Schema(self.fields + other.fields)


@dataclass(frozen=True)
class Relation:
    """A table, as something that is computed. `site`: where it was written, for errors and EXPLAIN; `uid`: what its
    state is stored under, given by `name_operators` from the plan's shape."""

    schema: Schema
    site: str | None = field(default=None, compare=False, kw_only=True)
    uid: str | None = field(default=None, compare=False, kw_only=True)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """What it is computed of."""
        given = (getattr(self, name, None) for name in ("input", "left", "right"))
        return tuple(each for each in given if isinstance(each, Relation)) + tuple(getattr(self, "branches", ()))

    def with_inputs(self, *inputs: Relation) -> Relation:
        """The same of other inputs, in the order of `inputs`."""
        if hasattr(self, "branches"):
            return replace(self, branches=tuple(inputs))  # type: ignore[call-arg]
        names = [name for name in ("input", "left", "right") if isinstance(getattr(self, name, None), Relation)]
        changed: dict[str, Any] = dict(zip(names, inputs, strict=True))
        return replace(self, **changed)


@dataclass(frozen=True)
class Scan(Relation):
    """A table of the catalog, or a DataStream. `table` is what the catalog knows of it; `columns` are those
    of it that are read, by position, `filters` what it was asked to leave out; both are set by passes."""

    table: Any
    columns: tuple[int, ...] | None = None
    filters: tuple[RowExpression, ...] = ()
    options: tuple[tuple[str, str], ...] = ()  # of an OPTIONS hint
    skips: tuple[RowExpression, ...] = ()  # what is checked above, and may tell the source what not to read
    is_narrowed: bool = False  # rows in its columns have only the fields that somebody reads


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
"""Hints by name, with a text for each input: STATE_TTL with lengths of time, "" where nothing is said."""


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
    expiries: tuple[tuple[Expiry, ...], tuple[Expiry, ...]] = ((), ())  # of each side, by `derive_expiry`


@dataclass(frozen=True)
class Correlate(Relation):
    """Every row of the input with each row that a table function gives for it; LEFT keeps rows with none. `condition`,
    over the columns of the whole, is that of a LEFT join: results that do not meet it count as none."""

    input: Relation
    function: Any
    arguments: tuple[RowExpression, ...]
    kind: JoinKind = JoinKind.INNER
    condition: RowExpression | None = None


@dataclass(frozen=True)
class Unnest(Relation):
    """Every row of the input with each element of a collection in it. `condition` is as for Correlate."""

    input: Relation
    collection: RowExpression
    with_ordinality: bool = False
    kind: JoinKind = JoinKind.INNER
    condition: RowExpression | None = None


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate. `filter` and `arguments` are columns of the input by position: a projection computes them."""

    function: str  # its name in `expressions.functions.aggregates`, or "" with `user`
    arguments: tuple[int, ...]
    type: DataType
    name: str
    distinct: bool = False
    filter: int | None = None
    order: tuple[SortKey, ...] = ()
    user: Any = None
    options: tuple[tuple[str, Any], ...] = ()


KEPT_ROWS = "$rows"
"""The name of an array of rows that wait for the end of a window; their order is by fields of the row."""
GROUPING_FUNCTIONS = ("GROUPING", "GROUPING_ID", "GROUP_ID")
"""What tells sets of GROUPING SETS apart. Their arguments are positions in `groups`."""


@dataclass(frozen=True)
class Aggregate(Relation):
    """Groups by columns of the input; the schema is the groups, then the calls. `sets`: of GROUPING SETS, positions in
    `groups`."""

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
    """Windows in time, by column `time` of the input, which is of `time_kind`. `slide_ms` is HOP's slide or CUMULATE's
    step. `attached`: the rows are in their windows already, whose start and end are these columns of the input (a
    window over the result of a window); `time` is then the column of their window_time."""

    kind: WindowKind
    time: int
    size_ms: int
    slide_ms: int | None = None
    offset_ms: int = 0
    partition: tuple[int, ...] = ()  # of SESSION
    is_legacy: bool = False  # GROUP BY TUMBLE(…)
    time_kind: TimeKind = TimeKind.ROWTIME
    attached: tuple[int, int] | None = None


@dataclass(frozen=True)
class WindowAssign(Relation):
    """A window TVF: the input's columns, then window_start, window_end and window_time."""

    input: Relation
    window: WindowShape


class WindowProperty(Enum):
    """What a window aggregation says of its window, as a column."""

    START = "start"
    END = "end"
    TIME = "time"  # the last moment that is in it: the rowtime of what is given
    PROCTIME = "proctime"


@dataclass(frozen=True)
class WindowAggregate(Relation):
    """An aggregation in windows: one row per group and window, when the window is over. The schema is the groups, the
    calls, then one column per property. Made of an Aggregate over a WindowAssign by `recognise_windows`, and of the
    legacy GROUP BY TUMBLE(…) when it is bound. `sets` are as in Aggregate."""

    input: Relation
    window: WindowShape
    groups: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    properties: tuple[WindowProperty, ...] = ()
    sets: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class WatermarkAssign(Relation):
    """The input with its rowtime: from here on, column `column` is the time of events, and `watermark` (over the
    input's columns) says up to when all have been seen. NULL gives no watermark."""

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
    """An aggregate over rows around each row. `frame`: ROWS or RANGE; bounds are rows, ms, or a distance of numbers,
    below zero to the other side; None unbounded."""

    call: AggregateCall
    frame: str = "RANGE"
    preceding: float | None = None
    following: float | None = 0
    is_interval: bool = False  # bounds are ms of an interval


@dataclass(frozen=True)
class Over(Relation):
    """The input's columns, then one for each call."""

    input: Relation
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    calls: tuple[OverCall, ...]
    hints: StateHints = ()


@dataclass(frozen=True)
class Rank(Relation):
    """Rows `first` to `last` of each partition, by an order; with `has_number` their number is the last column."""

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
    """UNION, INTERSECT or EXCEPT of two or more."""

    branches: tuple[Relation, ...]
    kind: str
    all: bool


@dataclass(frozen=True)
class Match(Relation):
    """MATCH_RECOGNIZE, bound."""

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
    """A table as it was at a time of the left side's: the right side of a temporal or lookup join."""

    input: Relation
    moment: RowExpression


@dataclass(frozen=True)
class Sink(Relation):
    """Where rows go: a table of the catalog, a DataStream, or the program (`collect`)."""

    input: Relation
    target: Any
    columns: tuple[int, ...] | None = None
    overwrite: bool = False
    partition: tuple[tuple[str, Any], ...] = ()
