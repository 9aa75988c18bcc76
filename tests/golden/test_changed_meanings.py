"""The meaning of a column in terms of tables differs if its values may differ: similar-looking columns, other zones,
other scales, other functions. Each pair is a program and a changed one that finds its state by uid.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from programs.changed_queries import TABLES
from programs.relations import kept_tables

from millstream.checkpoint.meanings import fates
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StateSchemaError
from millstream.jobs.snapshots.state_fates import stateful_nodes
from millstream.table import DataTypes, StreamTableEnvironment
from millstream.table.udf import udf, udtf
from millstream.testing import Collect, run

_STORES = itertools.count()


class Program(NamedTuple):
    query: str
    tables: tuple[str, ...] = TABLES
    zone: str = "UTC"
    function: Any = None
    function_name: str = "f"

    def into(self, sink: Any) -> Callable[[StreamExecutionEnvironment], None]:
        def build(env: StreamExecutionEnvironment) -> None:
            t_env = StreamTableEnvironment.create(env)
            t_env.get_config().set_local_timezone(self.zone)
            for table in self.tables:
                t_env.execute_sql(table)
            if self.function is not None:
                t_env.create_temporary_system_function(self.function_name, self.function)
            t_env.to_changelog_stream(t_env.sql_query(self.query)).sink_to(sink).uid("sink")

        return build


def refused(old: Program, new: Program) -> str:
    """Why a program cannot start from another one's state."""
    store = f"changed-meaning-{next(_STORES)}"
    run(old.into(Collect()), store=store, epoch_records=9, epochs=2)
    with pytest.raises(StateSchemaError) as refusal:
        run(new.into(Collect()), store=store, epoch_records=9)
    return str(refusal.value)


def fate(old: Program, new: Program) -> set[str]:
    """What happens to the state, for programs that cannot run here."""
    before, after = (stateful_nodes(_nodes(each), {}) for each in (old, new))
    meanings = {each.uid: each.meaning for each in before if each.meaning is not None}
    return {each.fate for each in fates(meanings, {each.uid: each.name for each in before}, after)}


def _nodes(program: Program) -> list[Any]:
    env = StreamExecutionEnvironment()
    program.into(Collect())(env)
    nodes = list(env._builder.nodes.values())
    env._builder.take()
    return nodes


# --- similar-looking columns ------------------------------------------------------------------------------------------


def _doubled(number: int) -> Any:
    yield 2 * number


doubled = udtf(_doubled, result_types=[DataTypes.BIGINT()])


def test_groups_downstream_of_a_table_function_and_a_lookup_join_have_meanings() -> None:
    out = Collect()
    behind = "SELECT k, SUM(p) FROM orders, LATERAL TABLE(f(a)) AS t(p) GROUP BY k"
    found = run(Program(behind, function=doubled).into(out))[out]
    assert sorted(tuple(row) for row in found)[-1][0] == 2
    orders = TABLES[0].replace(" WATERMARK", " pt AS PROCTIME(), WATERMARK")
    behind = "SELECT x, COUNT(*) FROM orders AS o JOIN prices FOR SYSTEM_TIME AS OF o.pt AS p ON o.id = p.id GROUP BY x"
    assert run(Program(behind, (orders, TABLES[1])).into(Collect())).status == "FINISHED"
    other = behind.replace("o.id = p.id", "o.a = p.id")
    assert "was computed from" in refused(Program(behind, (orders, TABLES[1])), Program(other, (orders, TABLES[1])))


@pytest.mark.parametrize(
    "options",
    [
        "'connector' = 'postgres-cdc', 'hostname' = 'h', 'username' = 'u', 'database-name' = 'd', 'table-name' = 't'",
        "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h:1/d', 'table-name' = 't'",
    ],
    ids=["changes", "once"],
)
def test_a_captured_table_with_other_columns_is_another_copy(options: str) -> None:
    # A slot and a copy would be created for it, and the job could not be resumed from its current state.
    tables = (f"CREATE TABLE stock (k BIGINT, a BIGINT, b BIGINT) WITH ({options})",)
    counts = Program("SELECT k, COUNT(*), SUM(a) FROM stock GROUP BY k", tables)
    assert fate(counts, Program("SELECT k, COUNT(*), SUM(a), MAX(a) FROM stock GROUP BY k", tables)) == {
        "kept",
        "extended",
    }
    assert fate(counts, Program("SELECT k, COUNT(*), SUM(a), MAX(b) FROM stock GROUP BY k", tables)) == {"lost"}


def test_upsert_normalisation_is_rejected_after_a_resumed_source() -> None:
    # A row from before would be deleted by its key alone.
    table = (
        "CREATE TABLE stock (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'values', "
        """'changelog-mode' = 'I,UA,D', 'data' = '[["+I", [1, 1]], ["+I", [2, 2]], ["-D", {"k": 1}]]')"""
    )
    store = f"changed-meaning-{next(_STORES)}"

    def copied(nulls: str) -> Callable[[StreamExecutionEnvironment], None]:
        def build(env: StreamExecutionEnvironment) -> None:
            t_env = StreamTableEnvironment.create(env)
            t_env.execute_sql(table)
            t_env.execute_sql(
                f"CREATE TABLE sink (k INT, v INT{nulls}, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'kept')"
            )
            statements = t_env.create_statement_set()
            statements.add_insert_sql("INSERT INTO sink SELECT * FROM stock")
            with kept_tables(Collect()):
                statements.attach_as_datastream()

        return build

    run(copied(""), store=store, epoch_records=1, epochs=2)  # upserts are forwarded unchanged
    with pytest.raises(StateSchemaError, match=r"ChangelogNormalize.*cannot begin empty downstream of Source: stock"):
        run(copied(" NOT NULL"), store=store, epoch_records=1)


def test_elements_of_two_collections_are_distinguished() -> None:
    query = "SELECT k, SUM({}) FROM orders, UNNEST(ARRAY[a]) AS t(p), UNNEST(ARRAY[b]) AS u(q) GROUP BY k"
    assert "it stored SUM(element.0)" in refused(Program(query.format("p")), Program(query.format("q")))
    query = "SELECT k, SUM({}) FROM orders, LATERAL TABLE(f(a)) AS t(p), LATERAL TABLE(f(b)) AS u(q) GROUP BY k"
    old, new = (Program(query.format(each), function=doubled) for each in "pq")
    assert "it stored SUM(result.0)" in refused(old, new)


def test_a_column_differs_from_a_literal_and_a_field_of_its_name() -> None:
    table = "CREATE TABLE t (k BIGINT, `1` BIGINT, `r.x` BIGINT, r ROW<x BIGINT>) WITH ('connector' = 'datagen')"
    for one, other in (("`1`", "1"), ("`r.x`", "r.x")):
        query = "SELECT k, SUM({}) FROM (SELECT k, r, `1`, `r.x` FROM t) GROUP BY k"
        assert "lost" in fate(Program(query.format(one), (table,)), Program(query.format(other), (table,)))


def test_a_column_of_other_metadata_is_another_column() -> None:
    table = (
        "CREATE TABLE t (k BIGINT, m BIGINT METADATA FROM '{}' VIRTUAL) WITH ('connector' = 'kafka', 'topic' = 't', "
        "'properties.bootstrap.servers' = 'localhost:9092', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset')"
    )
    query = "SELECT k, SUM(m) FROM t GROUP BY k"
    old, new = (Program(query, (table.format(each),)) for each in ("offset", "partition"))
    assert "lost" in fate(old, new) and fate(old, old) == {"kept"}


# --- differently computed values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["SUM", "AVG"])
def test_a_sum_of_decimals_has_a_scale(call: str) -> None:
    rows = "[" + ", ".join(f"[{n % 3}, {n}]" for n in range(40)) + "]"
    table = "CREATE TABLE t (k BIGINT, m {}) WITH ('connector' = 'values', 'data' = '" + rows + "')"
    query = f"SELECT k, {call}(m) FROM t GROUP BY k"
    for old, new in (("DECIMAL(10, 0)", "DECIMAL(10, 2)"), ("BIGINT", "DECIMAL(10, 2)")):
        told = refused(Program(query, (table.format(old),)), Program(query, (table.format(new),)))
        assert f"would store {call}(m with 2 decimals)" in told


_BY_A_ZONE = (
    "FROM_UNIXTIME(a)",
    "UNIX_TIMESTAMP(s)",
    "FLOOR(TO_TIMESTAMP_LTZ(a, 3) TO DAY)",
    "CAST(ARRAY[TO_TIMESTAMP_LTZ(a, 3)] AS STRING)",
    "CURRENT_DATE",
    "LOCALTIMESTAMP",
)


@pytest.mark.parametrize("expression", _BY_A_ZONE)
def test_expressions_in_session_time_depend_on_the_time_zone(expression: str) -> None:
    query = f"SELECT g, COUNT(*) FROM (SELECT {expression} AS g FROM orders) GROUP BY g"
    assert "@Asia/Tokyo" in refused(Program(query), Program(query, zone="Asia/Tokyo"))


@pytest.mark.parametrize("expression", ["TO_DATE(s)", "CAST(ts AS STRING)", "a"])
def test_zone_independent_expressions_resume_in_another_zone(expression: str) -> None:
    query = f"SELECT g, COUNT(*) FROM (SELECT {expression} AS g FROM orders) GROUP BY g"
    assert fate(Program(query), Program(query, zone="Asia/Tokyo")) == {"kept"}


def test_an_unnamed_function_is_identified_by_its_registered_name() -> None:
    one, other = (udf(change, result_type=DataTypes.BIGINT()) for change in (lambda n: n, lambda n: 2 * n))
    query = "SELECT k, SUM({}(a)) FROM orders GROUP BY k"
    old = Program(query.format("once"), function=one, function_name="once")
    new = Program(query.format("twice"), function=other, function_name="twice")
    assert "it stored SUM(once(a)), and would store SUM(twice(a))" in refused(old, new)
