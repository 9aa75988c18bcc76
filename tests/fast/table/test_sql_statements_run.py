"""Statements in an environment: the effects of SQL, and of the equivalent calls."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.environment.launch_defaults import with_job_receiver
from millstream.errors import ConfigurationError, NotAvailableError, NotYetError, ProgramError, SqlError
from millstream.table import (
    DataTypes,
    EnvironmentSettings,
    ExplainDetail,
    ModuleEntry,
    ResultKind,
    Schema,
    StreamTableEnvironment,
    TableDescriptor,
    TableEnvironment,
)
from millstream.table.catalog import CatalogBaseTable, CatalogDatabase, CatalogDescriptor, CatalogFunction, ObjectPath
from millstream.table.expressions import call, col
from millstream.table.udf import ScalarFunction, udf, udtf
from millstream.testing.local_jobs import jobs_in_memory

NUMBERS = """CREATE TABLE numbers (n INT, twice AS n * 2) WITH (
    'connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '3')"""


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def rows(t_env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(statement).collect() as results:
        return sorted(tuple(each) for each in results)


def test_a_definition_a_query_and_an_insert(t_env: TableEnvironment, capfd: pytest.CaptureFixture[str]) -> None:
    assert t_env.execute_sql(NUMBERS).get_result_kind() is ResultKind.SUCCESS
    assert rows(t_env, "SELECT n, twice FROM numbers WHERE n <> 2") == [(1, 2), (3, 6)]
    t_env.execute_sql("CREATE TABLE shown (a INT, b INT) WITH ('connector' = 'print')")
    inserted = t_env.execute_sql("INSERT INTO shown SELECT n, twice FROM numbers")
    inserted.wait()
    assert inserted.get_table_schema().get_field_names() == ["default_catalog.default_database.shown"]
    assert [tuple(each) for each in inserted.collect()] == [(-1,)]
    assert capfd.readouterr().out.count("+I[") == 3


def test_definitions_return_ok_and_listings_are_tables(
    t_env: TableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    t_env.execute_sql(NUMBERS).print()
    t_env.execute_sql("SHOW TABLES").print()
    t_env.execute_sql("DESCRIBE numbers").print()
    assert capsys.readouterr().out == (
        "OK\n"
        "+------------+\n"
        "| table name |\n"
        "+------------+\n"
        "|    numbers |\n"
        "+------------+\n"
        "1 row in set\n"
        "+-------+------+------+-----+----------+-----------+\n"
        "|  name | type | null | key |   extras | watermark |\n"
        "+-------+------+------+-----+----------+-----------+\n"
        "|     n |  INT | TRUE |     |          |           |\n"
        "| twice |  INT | TRUE |     | AS n * 2 |           |\n"
        "+-------+------+------+-----+----------+-----------+\n"
        "2 rows in set\n"
    )


def test_rows_are_printed_as_flinks_print_table_prints_them(
    t_env: TableEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    t_env.get_config().set("parallelism.default", "1")
    t_env.execute_sql(
        "CREATE TABLE shown (a INT, b STRING, c DOUBLE, d DECIMAL(5, 2), e TIMESTAMP(3), f TIMESTAMP_LTZ(3), "
        "g ARRAY<INT>, h ROW<x INT, y STRING>, i MAP<STRING, INT>, j BOOLEAN) WITH ('connector' = 'print')"
    )
    t_env.execute_sql(
        "INSERT INTO shown VALUES (1, CAST(NULL AS STRING), 1e7, 1.5, TIMESTAMP '2024-01-01 00:00:00', "
        "TO_TIMESTAMP_LTZ(1500, 3), ARRAY[1, 2], ROW(1, 'q'), MAP['a', 1], TRUE)"
    ).wait()
    assert capfd.readouterr().out == (
        "+I[1, null, 1.0E7, 1.50, 2024-01-01T00:00, 1970-01-01T00:00:01.500Z, [1, 2], +I[1, q], {a=1}, true]\n"
    )


def test_statement_sets_run_as_one_job(t_env: TableEnvironment, capfd: pytest.CaptureFixture[str]) -> None:
    t_env.execute_sql(NUMBERS)
    t_env.execute_sql("CREATE TABLE one_sink (a INT) WITH ('connector' = 'print', 'print-identifier' = 'first')")
    t_env.execute_sql("CREATE TABLE two_sink (a INT) WITH ('connector' = 'print', 'print-identifier' = 'second')")
    statements = t_env.create_statement_set()
    statements.add_insert_sql("INSERT INTO one_sink SELECT n FROM numbers")
    statements.add_insert("two_sink", t_env.from_path("numbers").select(col("twice")))
    assert "one_sink" in statements.explain() and "two_sink" in statements.explain()
    statements.execute().wait()
    out = capfd.readouterr().out
    assert out.count("first") == 3 and out.count("second") == 3
    with pytest.raises(ProgramError, match="nothing to execute"):
        statements.execute()
    result = t_env.execute_sql(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO one_sink SELECT n FROM numbers; "
        "INSERT INTO two_sink SELECT n FROM numbers; END"
    )
    result.wait()
    assert result.get_table_schema().get_field_count() == 2


def test_settings_are_set_listed_and_reset(t_env: TableEnvironment) -> None:
    t_env.execute_sql("SET 'table.local-time-zone' = 'Europe/Berlin'")
    assert t_env.get_config().get_local_timezone() == "Europe/Berlin"
    assert ("table.local-time-zone", "Europe/Berlin") in rows(t_env, "SET")
    t_env.execute_sql("RESET 'table.local-time-zone'")
    assert t_env.get_config().get_local_timezone() == "UTC"
    with pytest.raises(ProgramError, match="Did you mean 'Europe/Berlin'"):
        t_env.execute_sql("SET 'table.local-time-zone' = 'Europe/Berln'")


def test_a_misspelt_option_of_tables_is_refused_with_the_right_one(t_env: TableEnvironment) -> None:
    with pytest.raises(ProgramError, match=r"Did you mean 'table\.exec\.state\.ttl'"):
        t_env.execute_sql("SET 'table.exec.state.tll' = '1 h'")
    t_env.get_config().set("table.optimizer.reuse-sub-plan-enabled", "true").set("table.of.my.own", "x")


def test_settings_of_the_streams_are_those_of_the_tables() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"table.local-time-zone": "Asia/Tokyo"})
    )
    assert StreamTableEnvironment.create(env).get_config().get_local_timezone() == "Asia/Tokyo"


def test_job_settings_are_validated_when_a_job_is_created(t_env: TableEnvironment) -> None:
    t_env.get_config().set("paralelism.default", "3")
    with pytest.raises(ProgramError, match=r"parallelism\.default"):
        t_env.execute_sql("SELECT 1")


def test_plans_are_explained(t_env: TableEnvironment) -> None:
    t_env.execute_sql(NUMBERS)
    text = t_env.explain_sql("SELECT n FROM numbers WHERE n > 1", ExplainDetail.CHANGELOG_MODE)
    assert "== Abstract Syntax Tree ==" in text and "changelogMode=[I]" in text
    [(explained,)] = rows(t_env, "EXPLAIN SELECT n FROM numbers")
    assert "Optimized Execution Plan" in explained
    with pytest.raises(SqlError, match="EXPLAIN"):
        t_env.explain_sql("SHOW TABLES")


def test_invalid_sql_is_reported_with_its_position_and_line(t_env: TableEnvironment) -> None:
    t_env.execute_sql(NUMBERS)
    with pytest.raises(SqlError) as raised:
        t_env.sql_query("SELECT nn FROM numbers")
    assert "SELECT nn FROM" in str(raised.value) and "^^" in str(raised.value)
    assert "test_sql_statements_run.py" in str(raised.value)
    with pytest.raises(SqlError, match="Did you mean 'numbers'"):
        t_env.execute_sql("SELECT * FROM numbrs")
    with pytest.raises(ProgramError, match="as text"):
        t_env.execute_sql("  ")
    with pytest.raises(SqlError, match=r"SQL client|client"):
        t_env.execute_sql("QUIT")


def test_unsupported_java_features_are_rejected_with_advice(t_env: TableEnvironment) -> None:
    with pytest.raises((NotYetError, NotAvailableError)):
        t_env.execute_sql("DELETE FROM t")
    with pytest.raises(NotAvailableError, match="udf"):
        t_env.create_java_temporary_function("f", "org.F")
    with pytest.raises(NotAvailableError, match="@udf"):
        t_env.create_model("m", None)  # type: ignore[arg-type]


def test_functions_are_known_by_name(t_env: TableEnvironment) -> None:
    class Shout(ScalarFunction):
        def open(self, function_context: Any) -> None:
            self.mark = "!" * (function_context.get_index_of_this_subtask() + 1)

        def eval(self, word: str) -> str:
            return word.upper() + self.mark

    @udtf(result_types=[DataTypes.STRING()])
    def letters(word: str) -> Iterator[str]:
        yield from word

    t_env.create_temporary_system_function("shout", udf(Shout(), result_type=DataTypes.STRING()))
    t_env.create_temporary_function("letters", letters)
    assert rows(t_env, "SELECT SHOUT('hi')") == [("HI!",)]
    assert rows(t_env, "SELECT x FROM (VALUES ('ab')) AS t(w), LATERAL TABLE(letters(w)) AS l(x)") == [("a",), ("b",)]
    table = t_env.from_elements([("a",)], ["w"])
    assert [tuple(each) for each in table.select(call("shout", col("w"))).execute().collect()] == [("A!",)]
    assert t_env.list_user_defined_functions() == ["letters", "shout"]
    assert {"upper", "shout"} <= set(t_env.list_functions())
    assert t_env.drop_temporary_function("letters") and not t_env.drop_temporary_function("letters")
    assert t_env.drop_temporary_system_function("SHOUT")
    with pytest.raises(ProgramError, match="result_type"):
        t_env.create_temporary_function("f", len)
    with pytest.raises(ProgramError, match=r"DataTypes\.BIGINT"):
        udf(len)
    with pytest.raises(ProgramError, match=r"Pass an instance: Shout\(\)"):
        udf(Shout, result_type=DataTypes.STRING())
    with pytest.raises(ProgramError, match="'general', 'pandas', 'arrow'"):
        udf(len, result_type=DataTypes.INT(), func_type="panda")


def test_views_tables_and_databases_by_calls(t_env: TableEnvironment) -> None:
    table = t_env.from_elements([(1,)], ["n"])
    t_env.create_temporary_view("v", table)
    t_env.create_view("kept", table)
    descriptor = TableDescriptor.for_connector("blackhole").schema(Schema.new_builder().column("n", "INT").build())
    t_env.create_table("t", descriptor.build())
    t_env.create_table("t", descriptor.build(), ignoreIfExists=True)
    with pytest.raises(ProgramError, match="already"):
        t_env.create_table("t", descriptor.build())
    assert t_env.list_tables() == ["kept", "t", "v"] and t_env.list_views() == ["kept", "v"]
    assert t_env.list_temporary_views() == ["v"]
    assert t_env.drop_temporary_view("v") and not t_env.drop_temporary_view("v")
    assert t_env.drop_view("kept") and t_env.drop_table("t") and not t_env.drop_table("t")
    t_env.execute_sql("CREATE DATABASE d")
    t_env.use_database("d")
    assert t_env.get_current_database() == "d" and t_env.list_tables() == []
    assert t_env.list_databases() == ["d", "default_database"]
    with pytest.raises(ProgramError, match="Did you mean 'd'"):
        t_env.use_database("dd")
    t_env.create_catalog("other", CatalogDescriptor.of("other", Configuration.from_dict({"type": "generic_in_memory"})))
    t_env.use_catalog("other")
    assert t_env.list_catalogs() == ["default_catalog", "other"] and t_env.get_current_catalog() == "other"
    assert t_env.list_full_modules() == [ModuleEntry("core", True)]


def test_a_catalog_is_changed_by_its_own_methods(t_env: TableEnvironment) -> None:
    catalog = t_env.get_catalog("default_catalog")
    assert catalog is not None and t_env.get_catalog("none") is None
    catalog.create_database("db", CatalogDatabase.create_instance({"a": "b"}, "mine"), False)
    assert catalog.get_database("db").get_comment() == "mine"
    path = ObjectPath("db", "t")
    schema = Schema.new_builder().column("n", DataTypes.INT()).build()
    catalog.create_table(path, CatalogBaseTable.create_table(schema, [], {"connector": "datagen"}, "c"), False)
    assert catalog.get_table(path).get_unresolved_schema() == schema
    assert t_env.from_path("db.t").get_schema().get_field_names() == ["n"]
    catalog.rename_table(path, "u", False)
    assert catalog.list_tables("db") == ["u"] and not catalog.table_exists(path)
    function = ObjectPath("db", "f")
    catalog.create_function(function, CatalogFunction.create_instance("module.f"), False)
    assert catalog.get_function(function).get_class_name() == "module.f" and catalog.list_functions("db") == ["f"]
    catalog.drop_function(function, False)
    with pytest.raises(ProgramError, match="not empty"):
        catalog.drop_database("db", False)
    catalog.drop_table(ObjectPath("db", "u"), False)
    catalog.drop_database("db", False)
    with pytest.raises(ProgramError, match="no database 'db'"):
        catalog.list_tables("db")


def test_jobs_are_shown_and_stopped(t_env: TableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE g (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '5')")
    t_env.execute_sql("CREATE TABLE b (n INT) WITH ('connector' = 'blackhole')")
    result = t_env.execute_sql("INSERT INTO b SELECT n FROM g")
    [(id, name, _, _)] = rows(t_env, "SHOW JOBS")
    assert name == "insert-into_default_catalog.default_database.b"
    with pytest.raises(TimeoutError, match="the job continues"):
        result.wait(1)
    t_env.execute_sql(f"STOP JOB '{id}'")
    [(_, _, status, _)] = rows(t_env, "SHOW JOBS")
    assert status == "CANCELED"
    with pytest.raises(SqlError, match="no job 'x'"):
        t_env.execute_sql("STOP JOB 'x'")


def test_an_unbounded_query_ends_when_its_iterator_is_closed(t_env: TableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE g (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '100')")
    result = t_env.execute_sql("SELECT n FROM g")
    with result.collect() as results:
        assert isinstance(next(results)[0], int)
    client = result.get_job_client()
    assert client is not None and client.get_job_status().result().name == "CANCELED"


def test_every_insert_has_its_own_store_and_a_query_uses_none() -> None:
    stores: list[str | None] = []

    def take(graph: Any, settings: Any) -> Any:
        stores.append(settings.store)
        return object()

    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("millstream.store", "kept/jobs/")
    t_env.execute_sql("CREATE TABLE b (n INT) WITH ('connector' = 'blackhole')")
    with with_job_receiver(take):
        for statement in ("INSERT INTO b SELECT 1", "SELECT 1", "INSERT INTO b SELECT 2"):
            t_env.execute_sql(statement)
    first, query, second = stores
    assert first == "kept/jobs/" and second is not None and second.startswith("kept/jobs-b-")
    assert query is not None and query.startswith("kept/jobs-query-")


def test_an_unknown_job_key_is_rejected_where_it_is_set(t_env: TableEnvironment) -> None:
    with pytest.raises(ConfigurationError, match=r"Did you mean 'parallelism\.default'"):
        t_env.execute_sql("SET 'paralelism.default' = '2'")
    t_env.execute_sql(NUMBERS)  # and no setting is broken by it
    t_env.execute_sql("SELECT n FROM numbers").wait()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("table.exec.sink.upsert-materialize", "maybe", "expected one of auto, force, none"),
        ("table.exec.sink.not-null-enforcer", "no", "expected one of error, drop"),
        ("table.exec.sink.type-length-enforcer", "cut", "expected one of ignore, trim_pad, error"),
        ("table.optimizer.non-deterministic-update.strategy", "hope", "expected one of ignore, try_resolve"),
        ("table.materialized.on-lost-state", "cry", "expected one of refuse, rebuild"),
        ("table.exec.state.ttl", "for ever", "expected a duration"),
        ("table.dml-sync", "perhaps", "expected true or false"),
        ("millstream.sql.unbounded-joins", "hope", "expected one of allow, warn, refuse"),
        ("millstream.epoch.max-records", "few", "expected a whole number"),
    ],
)
def test_an_invalid_job_value_is_rejected_where_it_is_set(
    t_env: TableEnvironment, key: str, value: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"{key} is set to '{value}', {expected}.*test_sql_statements_run"):
        t_env.execute_sql(f"SET '{key}' = '{value}'")
    assert key not in t_env.get_config().to_map()


def test_a_state_ttl_may_have_any_unit(t_env: TableEnvironment) -> None:
    t_env.execute_sql("SET 'table.exec.state.ttl' = '2 h'")
    assert t_env.get_config().get_idle_state_retention() == datetime.timedelta(hours=2)


@pytest.mark.parametrize(("wrong", "pattern"), [("word SIMILAR TO '('", "'('"), ("word LIKE 'a!' ESCAPE '!'", "'a!'")])
def test_an_invalid_pattern_is_reported_as_written_before_the_job_starts(
    t_env: TableEnvironment, wrong: str, pattern: str
) -> None:
    t_env.execute_sql("CREATE TABLE words (word STRING) WITH ('connector' = 'values', 'data' = '[]')")
    with pytest.raises(SqlError, match=r"the pattern .* does not compile.*\n  line 1, column 8") as raised:
        t_env.execute_sql(f"SELECT {wrong} FROM words")
    assert f"the pattern {pattern} does" in str(raised.value)


@pytest.mark.parametrize("connector", ["print", "blackhole"])
def test_a_table_that_is_only_written_is_not_read(t_env: TableEnvironment, connector: str) -> None:
    t_env.execute_sql(f"CREATE TABLE w (n INT) WITH ('connector' = '{connector}')")
    with pytest.raises(SqlError, match=rf"Connector '{connector}' can only be used as a sink.*'w' cannot be read"):
        t_env.execute_sql("SELECT n FROM w")


def test_an_invalid_constant_is_reported_at_its_position_before_the_job_starts(t_env: TableEnvironment) -> None:
    with pytest.raises(SqlError, match=r"does not fit DECIMAL\(3, 1\).*TRY_CAST") as raised:
        t_env.execute_sql("SELECT 1, CAST(12345.6 AS DECIMAL(3, 1))")
    assert "line 1, column 11" in str(raised.value)
    assert rows(t_env, "SELECT TRY_CAST(12345.6 AS DECIMAL(3, 1))") == [(None,)]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ANALYZE TABLE numbers COMPUTE STATISTICS", "Leave it out"),
        ("CREATE MODEL m INPUT (a INT) OUTPUT (b INT) WITH ('provider' = 'x')", "@udf"),
        ("DROP MODEL m", "@udf"),
        ("CREATE CONNECTION c WITH ('type' = 'x')", "options of a table"),
        ("CALL sys.compact('t')", "Python function"),
        ("LOAD MODULE hive", "LANGUAGE PYTHON"),
        ("DELETE FROM numbers WHERE n = 1", r"INSERT INTO … SELECT"),
        ("TRUNCATE TABLE numbers", r"INSERT INTO … SELECT"),
    ],
)
def test_unsupported_statements_are_rejected_with_advice(t_env: TableEnvironment, statement: str, words: str) -> None:
    t_env.execute_sql(NUMBERS)
    with pytest.raises((NotAvailableError, NotYetError), match=words):
        t_env.execute_sql(statement)


def test_listings_of_java_only_objects_are_empty(t_env: TableEnvironment) -> None:
    for kind in ("JARS", "PROCEDURES", "MODELS"):
        assert rows(t_env, f"SHOW {kind}") == []
    assert rows(t_env, "SHOW FULL MODULES") == [("core", True)]


def test_an_unsupported_explain_detail_is_rejected(t_env: TableEnvironment) -> None:
    text = t_env.explain_sql("SELECT 1", ExplainDetail.ESTIMATED_COST, ExplainDetail.CHANGELOG_MODE)
    assert "ESTIMATED_COST: the planner does not estimate costs" in text and "PLAN_ADVICE" not in text


def test_explaining_create_table_as_creates_no_table(t_env: TableEnvironment) -> None:
    t_env.execute_sql(NUMBERS)
    text = t_env.explain_sql("CREATE TABLE copy WITH ('connector' = 'blackhole') AS SELECT twice FROM numbers")
    assert "== Optimized Execution Plan ==" in text and "copy" in text
    assert t_env.list_tables() == ["numbers"]
    with pytest.raises(SqlError, match="exists already"):
        t_env.explain_sql("CREATE TABLE IF NOT EXISTS numbers WITH ('connector' = 'blackhole') AS SELECT 1 AS n")


def test_dropping_a_missing_function_fails_with_the_nearest_name(t_env: TableEnvironment) -> None:
    t_env.create_temporary_function("doubled", udf(lambda n: 2 * n, result_type=DataTypes.INT()))
    with pytest.raises(SqlError, match="Did you mean 'doubled'"):
        t_env.execute_sql("DROP TEMPORARY FUNCTION duobled")
