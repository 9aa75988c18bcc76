"""The syntax of queries: the items of FROM, and the clauses of a SELECT. Frozen data, like `sql.syntax`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.sql.syntax import Call, Expression, Interval, Node, OrderItem, WindowSpec

__all__ = [
    "AliasedRelation",
    "BoundTable",
    "Derived",
    "GroupingSets",
    "Hint",
    "Join",
    "LateralTable",
    "Limit",
    "Match",
    "NamedRelation",
    "NamedWindow",
    "Query",
    "QueryBody",
    "Relation",
    "Select",
    "SelectItem",
    "SetQuery",
    "SystemTime",
    "TableFunctionCall",
    "Unnest",
    "Values",
    "With",
]


# --- relations --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hint(Node):
    """`/*+ OPTIONS('a'='b') */`, `/*+ BROADCAST(t) */`: (key or None, value) pairs."""

    name: str
    arguments: tuple[tuple[str | None, str], ...] = ()


@dataclass(frozen=True)
class Relation(Node):
    """An item of FROM."""


@dataclass(frozen=True)
class SystemTime(Node):
    """FOR SYSTEM_TIME AS OF expression."""

    moment: Expression


@dataclass(frozen=True)
class NamedRelation(Relation):
    parts: tuple[str, ...]
    hints: tuple[Hint, ...] = ()
    system_time: SystemTime | None = None


@dataclass(frozen=True)
class AliasedRelation(Relation):
    relation: Relation
    alias: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Derived(Relation):
    """A query in parentheses; LATERAL may refer to preceding items."""

    query: Query
    lateral: bool = False


@dataclass(frozen=True)
class TableFunctionCall(Relation):
    """TABLE(f(…)), or a window TVF: TUMBLE, HOP, CUMULATE, SESSION."""

    call: Call


@dataclass(frozen=True)
class LateralTable(Relation):
    """LATERAL TABLE(f(…)): evaluated for every row of the preceding relations."""

    call: Call


@dataclass(frozen=True)
class Unnest(Relation):
    operand: Expression
    with_ordinality: bool = False


@dataclass(frozen=True)
class Join(Relation):
    """`kind`: INNER, LEFT, RIGHT, FULL, CROSS, SEMI, ANTI; FROM a, b is CROSS."""

    left: Relation
    right: Relation
    kind: str = "INNER"
    condition: Expression | None = None
    using: tuple[str, ...] = ()
    natural: bool = False


@dataclass(frozen=True)
class Match(Relation):
    """MATCH_RECOGNIZE. `pattern` is a tree of tuples."""

    relation: Relation
    partition_by: tuple[Expression, ...]
    order_by: tuple[OrderItem, ...]
    measures: tuple[SelectItem, ...]
    pattern: Any
    defines: tuple[tuple[str, Expression], ...]
    rows_per_match: str = "ONE"
    after_match: tuple[str, str | None] = ("PAST LAST ROW", None)
    within: Interval | None = None
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()


# --- queries ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectItem(Node):
    expression: Expression
    alias: str | None = None


@dataclass(frozen=True)
class GroupingSets(Expression):
    """GROUPING SETS, ROLLUP or CUBE in GROUP BY; `sets` as written."""

    kind: str
    sets: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True)
class NamedWindow(Node):
    name: str
    window: WindowSpec


@dataclass(frozen=True)
class QueryBody(Node):
    """A SELECT, VALUES, or two of these combined by a set operation."""


@dataclass(frozen=True)
class Select(QueryBody):
    """Many fields: one per clause of a SELECT."""

    items: tuple[SelectItem, ...]
    source: Relation | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] | None = None  # () is GROUP BY ()
    having: Expression | None = None
    qualify: Expression | None = None
    windows: tuple[NamedWindow, ...] = ()
    distinct: bool = False
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True)
class Values(QueryBody):
    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True)
class BoundTable(QueryBody):
    """A `Table` of the program in place of a query: it is already bound, and has no SQL text.

    `relation` and `session` belong to the planner.
    """

    relation: Any
    session: Any = field(compare=False)


@dataclass(frozen=True)
class SetQuery(QueryBody):
    """`kind`: UNION, INTERSECT or EXCEPT; `all`: duplicates are retained."""

    kind: str
    left: Query
    right: Query
    all: bool = False


@dataclass(frozen=True)
class With(Node):
    name: str
    query: Query
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limit(Node):
    count: Expression | None = None  # None means ALL
    offset: Expression | None = None


@dataclass(frozen=True)
class Query(Node):
    """A whole query: WITH … body ORDER BY … LIMIT …"""

    body: QueryBody
    ctes: tuple[With, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    limit: Limit | None = None
