"""What the Table API asks of a relation, one function per method: relations and syntax in, a relation out.

Each does what the clause of SQL of the same meaning does, by the same code. Nothing is optimised here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.planner.entries import TableEntry
from millstream.planner.relations import JoinKind, Relation, Schema, Sink, WindowKind
from millstream.planner.session import PlannerSession
from millstream.sql.query_syntax import Query
from millstream.sql.syntax import Call, Expression, OrderItem

__all__ = [
    "GroupWindow",
    "add_columns",
    "aggregate_select",
    "distinct",
    "drop_columns",
    "join",
    "join_table_function",
    "limit",
    "order_by",
    "rename",
    "rename_columns",
    "scan",
    "select",
    "set_operation",
    "sink",
    "values",
    "where",
    "window_select",
]


@dataclass(frozen=True)
class GroupWindow:
    """The Table API's Tumble, Slide or Session: `size`, `slide` and `time` as they were written. In the selected items
    `Call("WINDOW_START", (Name((alias,)),))` is its start; so WINDOW_END, WINDOW_ROWTIME, WINDOW_PROCTIME."""

    kind: WindowKind
    alias: str
    time: Expression
    size: Expression
    slide: Expression | None = None


def scan(parts: Sequence[str], session: PlannerSession) -> Relation:
    """The table or view of a name: `from_path`."""
    raise NotImplementedError


def scan_entry(entry: TableEntry, session: PlannerSession) -> Relation:
    """A table that no catalog knows: of a descriptor or a DataStream."""
    raise NotImplementedError


def values(
    rows: Sequence[Sequence[Expression]],
    session: PlannerSession,
    types: Sequence[DataType] | None = None,
    names: Sequence[str] | None = None,
) -> Relation:
    """Rows of the program: `from_elements`."""
    raise NotImplementedError


def select(relation: Relation, items: Sequence[Expression], session: PlannerSession) -> Relation:
    """The columns asked for; `As` names them, `Star` is all. With aggregates: one row over all (`group_by` of none)."""
    raise NotImplementedError


def where(relation: Relation, condition: Expression, session: PlannerSession) -> Relation:
    """The rows for which the condition is true."""
    raise NotImplementedError


def add_columns(
    relation: Relation, items: Sequence[Expression], session: PlannerSession, replaces: bool = False
) -> Relation:
    """All columns, then these; with `replaces` one of the same name takes its place."""
    raise NotImplementedError


def drop_columns(relation: Relation, names: Sequence[Expression], session: PlannerSession) -> Relation:
    """All columns but these."""
    raise NotImplementedError


def rename_columns(relation: Relation, items: Sequence[Expression], session: PlannerSession) -> Relation:
    """All columns; those named by `col("a").alias("b")` have another name."""
    raise NotImplementedError


def rename(relation: Relation, names: Sequence[str]) -> Relation:
    """The first columns under other names: `Table.alias`."""
    raise NotImplementedError


def aggregate_select(
    relation: Relation, groups: Sequence[Expression], items: Sequence[Expression], session: PlannerSession
) -> Relation:
    """`group_by(…).select(…)`."""
    raise NotImplementedError


def window_select(
    relation: Relation,
    window: GroupWindow,
    groups: Sequence[Expression],
    items: Sequence[Expression],
    session: PlannerSession,
) -> Relation:
    """`window(…).group_by(w, …).select(…)`; `groups` are those beside the window."""
    raise NotImplementedError


def distinct(relation: Relation) -> Relation:
    """Every row once."""
    raise NotImplementedError


def join(
    left: Relation, right: Relation, kind: JoinKind, condition: Expression | None, session: PlannerSession
) -> Relation:
    """Two tables; their columns' names must differ."""
    raise NotImplementedError


def join_table_function(
    relation: Relation,
    call: Call,
    names: Sequence[str],
    kind: JoinKind,
    session: PlannerSession,
    condition: Expression | None = None,
) -> Relation:
    """Every row with those that a table function gives for it: `join_lateral`, `flat_map`."""
    raise NotImplementedError


def set_operation(left: Relation, right: Relation, kind: str, all_: bool) -> Relation:
    """UNION, INTERSECT or EXCEPT; `all_`: with duplicates."""
    raise NotImplementedError


def order_by(relation: Relation, items: Sequence[OrderItem], session: PlannerSession) -> Relation:
    """The rows in an order."""
    raise NotImplementedError


def limit(relation: Relation, count: int | None, offset: int = 0) -> Relation:
    """At most so many rows: `fetch`, `limit`, `offset`."""
    raise NotImplementedError


def query(syntax: Query, session: PlannerSession) -> Relation:
    """A query of SQL: `sql_query`."""
    raise NotImplementedError


def sink(
    relation: Relation,
    parts: Sequence[str],
    session: PlannerSession,
    overwrite: bool = False,
) -> Sink:
    """Rows into a table of the catalog, checked and cast: `execute_insert`."""
    raise NotImplementedError


def collect(relation: Relation, target: Any) -> Sink:
    """Rows to somewhere that is no table: a DataStream, the program. `target` is the caller's to know."""
    return Sink(relation.schema, relation, target)


def insert_schema(entry: TableEntry) -> Schema:
    """The columns an INSERT into a table gives, in order."""
    raise NotImplementedError
