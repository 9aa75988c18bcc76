"""CREATE MATERIALIZED TABLE, and ALTER … AS: the table's entry and the plan that maintains it, without running it.

The entry is that of a table in a job's state, plus its query. FRESHNESS bounds the age of query results, as in Flink,
by setting the epoch interval. All tables are refreshed continuously; REFRESH_MODE = FULL is rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.connectors.tables.state_table import STATE_CONNECTOR
from millstream.errors import did_you_mean
from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Column
from millstream.planner.binder import bind_query
from millstream.planner.binding.projections import project
from millstream.planner.definitions import table_entry
from millstream.planner.entries import ColumnEntry, ObjectPath, TableEntry, shown
from millstream.planner.insert_places import InsertPlaces
from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession
from millstream.planner.sinks import into_table
from millstream.sql import statements as sql
from millstream.sql.places import problem
from millstream.sql.query_syntax import Query
from millstream.sql.syntax import Expression, Interval
from millstream.sql.writing import text_literal, written

__all__ = [
    "FORK",
    "MaterializedDefinition",
    "altered",
    "bind_materialized",
    "create_text",
    "freshness_ms",
    "restated",
]

FORK = "fork.from"
"""The option that names the table to fork: 'table', or 'table@epoch'."""
_UNITS_MS = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}


@dataclass(frozen=True)
class MaterializedDefinition:
    """A materialised table's definition. `root`: for a fork, the path of the table for which its state was created."""

    query: Query
    home: tuple[str, str]
    freshness: Expression | None = None
    root: ObjectPath = ()


def freshness_ms(freshness: Expression | None) -> int | None:
    """FRESHNESS = INTERVAL '…' …, in milliseconds."""
    if freshness is None:
        return None
    if not isinstance(freshness, Interval) or freshness.unit not in _UNITS_MS or freshness.unit_to is not None:
        raise problem("FRESHNESS takes SECOND, MINUTE, HOUR or DAY: INTERVAL '30' SECOND", freshness)
    if freshness.negative or not freshness.value.strip().isdecimal() or not int(freshness.value):
        raise problem(f"FRESHNESS is '{freshness.value}': expected a whole number above 0", freshness)
    return int(freshness.value) * _UNITS_MS[freshness.unit]


def bind_materialized(statement: sql.CreateTable, session: PlannerSession) -> tuple[TableEntry, Sink]:
    """The table's entry, and the sink that maintains it."""
    assert statement.query is not None
    if statement.refresh_mode == "FULL":
        raise problem(
            "REFRESH_MODE = FULL is not available: running jobs maintain tables, which are as fresh as the last "
            "epoch. Leave it out",
            statement,
        )
    freshness_ms(statement.freshness)
    connector = dict(statement.options).get("connector", STATE_CONNECTOR)
    if connector != STATE_CONNECTOR:
        raise problem(
            f"a materialized table is stored in the state of its job: 'connector' = '{connector}' is not allowed. "
            "Leave it out, or INSERT INTO a table of that connector",
            statement,
        )
    if statement.partitioned_by:
        raise problem("a materialized table is stored by key, without partitions. Leave PARTITIONED BY out", statement)
    if statement.distribution is not None:
        raise problem("a materialized table is stored by key, without buckets. Leave DISTRIBUTED out", statement)
    relation = bind_query(statement.query, session)
    columns = tuple(ColumnEntry(field.name, field.type) for field in relation.schema.fields)
    entry = table_entry(statement, session, columns)
    options = (("connector", STATE_CONNECTOR), *((key, value) for key, value in entry.options if key != "connector"))
    home = (session.catalog, session.database)
    definition = MaterializedDefinition(statement.query, home, statement.freshness)
    held = replace(entry, options=options, path=session.path_of(statement.name), definition=definition)
    return held, into_table(relation, held, InsertPlaces(statement), relation.schema.names)


def altered(entry: TableEntry, query: Query, session: PlannerSession) -> tuple[TableEntry, Sink]:
    """The table with another query. Existing columns keep their order; new columns follow."""
    relation = bind_query(query, session)
    names = list(relation.schema.names)
    missing = [name for name in entry.primary_key if name not in names]
    if missing:
        hint = did_you_mean(missing[0], names)
        raise problem(
            f"the query no longer has '{missing[0]}', which is in the primary key of '{entry.path[-1]}'.{hint} "
            "Select it, or DROP the table and create it again",
            query,
        )
    order = [name for name in entry.names if name in names] + [name for name in names if name not in entry.names]
    places = [names.index(name) for name in order]
    types = {name: relation.schema.types[at] for name, at in zip(order, places, strict=True)}
    columns = tuple(_column(name, types[name], entry) for name in order)
    assert isinstance(entry.definition, MaterializedDefinition)
    definition = replace(entry.definition, query=query, home=(session.catalog, session.database))
    changed = replace(entry, columns=columns, definition=definition)
    chosen = project(relation, [Column(types[name], at) for name, at in zip(order, places, strict=True)], order)
    return changed, into_table(chosen, changed, InsertPlaces(), order)


def restated(entry: TableEntry, statement: sql.CreateTable, session: PlannerSession) -> TableEntry:
    """An existing table with the options of a CREATE OR ALTER. Options that it does not mention keep their values;
    changing an option that determines how rows are stored is rejected."""
    requested, _ = bind_materialized(statement, session)
    current = dict(entry.options)
    others = [(key, value) for key, value in requested.options if key != FORK and current.get(key) != value]
    change = ""
    if requested.primary_key and requested.primary_key != entry.primary_key:
        change = f"PRIMARY KEY ({', '.join(requested.primary_key)}) instead of ({', '.join(entry.primary_key)})"
    elif others:
        key, value = others[0]
        change = f"'{key}' = '{value}' instead of {text_literal(current[key]) if key in current else 'no value'}"
    if change:
        raise problem(
            f"'{entry.path[-1]}' would get {change}, which determines how its rows are stored and cannot be changed. "
            "Leave it unchanged, or DROP the table and create it again",
            statement,
        )
    assert isinstance(entry.definition, MaterializedDefinition)
    freshness = entry.definition.freshness if statement.freshness is None else statement.freshness
    comment = entry.comment if requested.comment is None else requested.comment
    return replace(entry, comment=comment, definition=replace(entry.definition, freshness=freshness))


def _column(name: str, type_: DataType, entry: TableEntry) -> ColumnEntry:
    """A column of the query. A new one is NULL in existing rows."""
    before = entry.column(name)
    if name in entry.primary_key:
        type_ = type_.not_null()
    elif before is None or before.type.is_nullable:
        type_ = type_.nullable()
    return ColumnEntry(name, type_, comment=None if before is None else before.comment)


def create_text(entry: TableEntry) -> str:
    """The statement that creates the table."""
    definition = entry.definition
    assert isinstance(definition, MaterializedDefinition)
    key = ", ".join(shown((each,)) for each in entry.primary_key)
    lines = [f"CREATE MATERIALIZED TABLE {shown(entry.path)}"]
    if key:
        lines[0] += f" (\n  PRIMARY KEY ({key}) NOT ENFORCED\n)"
    if entry.comment:
        lines.append(f"COMMENT {text_literal(entry.comment)}")
    options = [f"  {text_literal(key)} = {text_literal(value)}" for key, value in entry.options if key != "connector"]
    if options:
        lines.append("WITH (\n" + ",\n".join(options) + "\n)")
    if definition.freshness is not None:
        lines.append(f"FRESHNESS = {written(definition.freshness)}")
    lines.append(f"AS {written(definition.query)}")
    return "\n".join(lines) + "\n"
