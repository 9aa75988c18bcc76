"""Hand-made relations for tests of the layers below the planner's binder, and running one in memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.contracts import Sink as ConnectorSink
from millstream.connectors.contracts import Source
from millstream.connectors.program_sources import CollectionSource
from millstream.connectors.tables.factories import FACTORIES
from millstream.connectors.tables.factory import UPSERTS, TableDefinition, TableFactory
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Column, RowExpression
from millstream.expressions.types import BigIntType, TimestampType
from millstream.planner.entries import ColumnEntry, TableEntry
from millstream.planner.lowering import CollectTarget, SourceOrigin, lower
from millstream.planner.relations import (
    AggregateCall,
    Field,
    Limit,
    Project,
    Relation,
    Scan,
    Schema,
    Sink,
    TimeKind,
    WatermarkAssign,
    WindowAggregate,
    WindowProperty,
    WindowShape,
)
from millstream.planner.session import PlannerSession
from millstream.records.table_type import TableRowType
from millstream.table import StreamTableEnvironment
from millstream.table import schema as table_schema
from millstream.testing import Collect, run

EPOCH_MS = 1_704_067_200_000
"""The first moment of 2024."""
BOUNDS = (WindowProperty.START, WindowProperty.END, WindowProperty.TIME)


def moment(ms: int) -> dt.datetime:
    """This many milliseconds into 2024."""
    return dt.datetime(2024, 1, 1) + dt.timedelta(milliseconds=ms)


def table(columns: Mapping[str, DataType], rows: Sequence[Sequence[Any]] = (), source: Source | None = None) -> Scan:
    """A table of these rows, or of a source."""
    row_type = RowType.of(list(columns), list(columns.values()), nullable=False)
    given = source or CollectionSource(map(tuple, rows), TableRowType(row_type))
    return Scan(Schema(tuple(Field(name, type_) for name, type_ in columns.items())), SourceOrigin(given, "rows"))


def column(relation: Relation, name: str) -> Column:
    """A column of a relation by its name."""
    index = relation.schema.names.index(name)
    return Column(relation.schema.types[index], index)


def with_time(relation: Relation, name: str, watermark: RowExpression | None = None) -> WatermarkAssign:
    """The relation with a rowtime; its watermark is the rowtime itself, or an expression."""
    at = column(relation, name)
    fields = list(relation.schema.fields)
    fields[at.index] = Field(name, at.type, TimeKind.ROWTIME)
    return WatermarkAssign(Schema(tuple(fields)), relation, at.index, watermark or at)


def aggregated(
    relation: Relation,
    window: WindowShape,
    keys: Sequence[str],
    calls: Sequence[AggregateCall],
    properties: Sequence[WindowProperty] = BOUNDS,
) -> WindowAggregate:
    """A window aggregation: keys, calls, then properties of the window."""
    groups = [column(relation, name) for name in keys]
    bound = TimestampType(3, False)
    time = Field("window_time", relation.schema.types[window.time], window.time_kind)
    added = {
        WindowProperty.START: Field("window_start", bound),
        WindowProperty.END: Field("window_end", bound),
        WindowProperty.TIME: time,
    }
    fields = (
        *(Field(name, group.type) for name, group in zip(keys, groups, strict=True)),
        *(Field(call.name, call.type) for call in calls),
        *(added[each] for each in properties),
    )
    return WindowAggregate(
        Schema(fields), relation, window, tuple(group.index for group in groups), tuple(calls), tuple(properties)
    )


def add(relation: Relation, out: Collect, env: Any, config: Mapping[str, str] | None = None) -> None:
    """Add a relation to a program's graph; its rows are written to `out`."""
    lower(
        [Sink(relation.schema, relation, CollectTarget(out))], env._builder, PlannerSession(config=dict(config or {}))
    )


def rows_of(relation: Relation, config: Mapping[str, str] | None = None, **options: Any) -> list[tuple[Any, ...]]:
    """The rows of a relation, as a job in memory emits them."""
    out = Collect()
    run(lambda env: add(relation, out, env, config), **options)
    return [tuple(row) for row in out.values]


def calculated_and_enforced(env: Any) -> None:
    """A table of rows inserted into another one with NOT NULL columns."""
    scan = table({"a": BigIntType(), "b": BigIntType()}, [(1, 2), (3, None)])
    swapped = Project(Schema(scan.schema.fields[::-1]), scan, (column(scan, "b"), column(scan, "a")))
    entry = TableEntry(
        (ColumnEntry("b", BigIntType()), ColumnEntry("a", BigIntType(False))),
        options=(("connector", "blackhole"),),
        path=("default_catalog", "default_database", "sink"),
    )
    lower([Sink(swapped.schema, limited(swapped, 5), entry)], env._builder, PlannerSession())


def limited(relation: Relation, count: int | None, offset: int = 0) -> Limit:
    """The first rows of a relation."""
    return Limit(relation.schema, relation, count, offset)


def changing(env: Any) -> None:
    """Changing tables: groups, a join of them, Top-N, OVER, sessions, a changelog as rows."""
    t_env = StreamTableEnvironment.create(env)
    rows = t_env.from_elements([(1, 2), (1, 3), (2, 5)], ["k", "v"])
    t_env.create_temporary_view("changing_rows", rows)
    counted = "SELECT k, COUNT(*) AS n, PROCTIME() AS p FROM changing_rows GROUP BY k"
    for query in (
        f"SELECT r.v, c.n FROM changing_rows r LEFT JOIN ({counted}) c ON r.k = c.k",
        "SELECT * FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM changing_rows) "
        "WHERE n <= 1",
        "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v) FROM changing_rows",
        "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY p) FROM (SELECT k, v, PROCTIME() AS p FROM changing_rows)",
        "SELECT k, COUNT(*) FROM (SELECT k, PROCTIME() AS p FROM changing_rows) "
        "GROUP BY k, SESSION(p, INTERVAL '1' SECOND)",
        "SELECT * FROM FROM_CHANGELOG(TABLE (SELECT * FROM TO_CHANGELOG(TABLE changing_rows)))",
    ):
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(Collect())
    materialised(env)
    joined_by_time(env, t_env)


def joined_by_time(env: Any, t_env: StreamTableEnvironment) -> None:
    """Interval, window and temporal joins, and windows over the second time of a join."""
    timing = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[0])
    rows = env.from_collection([Row(1), Row(2)], Types.ROW_NAMED(["k"], [Types.LONG()]))
    schema = (
        table_schema.Schema.new_builder()
        .column_by_metadata("ts", "TIMESTAMP(3)", "rowtime", True)
        .watermark("ts", "SOURCE_WATERMARK()")
        .build()
    )
    stream = rows.assign_timestamps_and_watermarks(timing)
    t_env.create_temporary_view("timed_rows", t_env.from_data_stream(stream, schema))
    t_env.execute_sql(
        "CREATE TEMPORARY VIEW latest_rows AS SELECT k, ts FROM "
        "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM timed_rows) WHERE n = 1"
    )
    near = "SELECT b.ts AS t FROM timed_rows a LEFT JOIN timed_rows b ON a.k = b.k AND a.ts = b.ts"
    windows = "(SELECT * FROM TABLE(TUMBLE(TABLE timed_rows, DESCRIPTOR(ts), INTERVAL '1' SECOND)))"
    for query in (
        f"WITH p AS (SELECT t FROM ({near}) WHERE t IS NOT NULL) SELECT COUNT(*) "
        "FROM TABLE(TUMBLE(TABLE p, DESCRIPTOR(t), INTERVAL '1' SECOND)) GROUP BY window_start, window_end",
        f"SELECT a.k FROM {windows} a FULL JOIN {windows} b ON a.k = b.k AND a.window_start = b.window_start "
        "AND a.window_end = b.window_end",
        "SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY k) AS n "
        f"FROM {windows}) WHERE n <= 3",
        "SELECT a.k FROM timed_rows a JOIN latest_rows FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k",
    ):
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(Collect())


def by_key(env: Any) -> None:
    """Keyed tables: normalised upserts, and sinks of groups, and of rows that share a key of the sink."""
    t_env = StreamTableEnvironment.create(env)
    options = "'connector' = 'values', 'changelog-mode' = 'I,UA,D', 'data' = '[[\"+I\", [1, 2]], [\"+U\", [1, 3]]]'"
    t_env.execute_sql(f"CREATE TABLE upserts (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ({options})")
    t_env.execute_sql("CREATE TABLE kept (k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'kept')")
    statements = t_env.create_statement_set()
    statements.add_insert_sql("INSERT INTO kept SELECT k, COUNT(*) FROM upserts GROUP BY k")
    statements.add_insert_sql("INSERT INTO kept SELECT v, k FROM upserts")
    data = "'connector' = 'values', 'data' = '[[1, 2]]'"
    t_env.execute_sql(f"CREATE TABLE plain_rows (a INT, b INT, p AS PROCTIME()) WITH ({data})")
    t_env.execute_sql(f"CREATE TABLE asked (c INT, d INT) WITH ({data})")
    lookup = "SELECT b, d FROM plain_rows AS r JOIN asked FOR SYSTEM_TIME AS OF r.p AS s ON r.a = s.c"
    statements.add_insert_sql(f"INSERT INTO kept {lookup}")
    kept = "SELECT k, v, PROCTIME() AS p FROM upserts"
    statements.add_insert_sql(
        f"INSERT INTO kept SELECT k, d FROM ({kept}) AS r JOIN asked FOR SYSTEM_TIME AS OF r.p AS s ON r.v = s.c"
    )
    with kept_tables(Collect()):
        statements.attach_as_datastream()


@contextmanager
def kept_tables(out: Collect) -> Iterator[None]:
    """Within it `'connector' = 'kept'` is a keyed sink, which `out` collects."""
    FACTORIES["kept"] = _KeptTable(out)
    try:
        yield
    finally:
        del FACTORIES["kept"]


class _KeptTable(TableFactory):
    """A keyed sink, for tests."""

    name = "kept"

    def __init__(self, out: Collect) -> None:
        self._out = out

    def sink(self, table: TableDefinition, overwrite: bool = False) -> ConnectorSink:
        return self._out

    def accepted_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return UPSERTS


def materialised(env: Any) -> None:
    """A materialised table."""
    scan = table({"k": BigIntType(False), "v": BigIntType()}, [(1, 2), (1, 3), (2, 5)])
    entry = TableEntry(
        (ColumnEntry("k", BigIntType(False)), ColumnEntry("v", BigIntType())),
        primary_key=("k",),
        options=(("connector", "state"),),
        path=("default_catalog", "default_database", "kept"),
    )
    lower([Sink(scan.schema, scan, entry)], env._builder, PlannerSession())
