"""ALTER and SHOW CREATE of distributions, partitions and catalogs: definitions are stored and shown, or rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import MillstreamError, NotYetError, SqlError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

WITH = "WITH ('connector' = 'datagen')"


@pytest.fixture
def env() -> TableEnvironment:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    env.execute_sql(f"CREATE TABLE t (id INT, n INT, c AS n + 1) {WITH}")
    env.execute_sql(f"CREATE TABLE dealt (id INT, n INT) DISTRIBUTED BY HASH(id) INTO 4 BUCKETS {WITH}")
    env.execute_sql(
        "CREATE TABLE days (id INT, `day` INT) PARTITIONED BY (`day`) "
        "WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'csv')"
    )
    return env


def output_of(env: TableEnvironment, statement: str) -> str:
    with env.execute_sql(statement).collect() as rows:
        return "\n".join(str(row[0]) for row in rows)


def test_a_distribution_is_stored_shown_changed_and_dropped(env: TableEnvironment) -> None:
    assert "\nDISTRIBUTED BY HASH(`id`) INTO 4 BUCKETS\n" in output_of(env, "SHOW CREATE TABLE dealt")
    env.execute_sql("ALTER TABLE dealt RENAME id TO `key`")
    env.execute_sql(output_of(env, "SHOW CREATE TABLE dealt").replace("`dealt`", "`again`"))
    assert "\nDISTRIBUTED BY HASH(`key`) INTO 4 BUCKETS\n" in output_of(env, "SHOW CREATE TABLE again")
    env.execute_sql("ALTER TABLE dealt MODIFY DISTRIBUTION BY RANGE(n)")
    assert "\nDISTRIBUTED BY RANGE(`n`)\n" in output_of(env, "SHOW CREATE TABLE dealt")
    env.execute_sql("ALTER TABLE dealt DROP DISTRIBUTION")
    assert "DISTRIBUTED" not in output_of(env, "SHOW CREATE TABLE dealt")
    env.execute_sql("ALTER TABLE t ADD DISTRIBUTION INTO 2 BUCKETS")
    assert "\nDISTRIBUTED INTO 2 BUCKETS\n" in output_of(env, "SHOW CREATE TABLE t")


@pytest.mark.parametrize("connector", ["'blackhole'", "'filesystem', 'path' = '/nowhere', 'format' = 'csv'"])
def test_writing_to_a_bucketed_table_is_rejected_with_flinks_message_before_the_job_starts(
    env: TableEnvironment, connector: str
) -> None:
    env.execute_sql(f"CREATE TABLE b (id INT) DISTRIBUTED BY (id) INTO 2 BUCKETS WITH ('connector' = {connector})")
    sentence = "'default_catalog.default_database.b' is distributed into buckets.*Supports.*DROP DISTRIBUTION"
    for statement in ("INSERT INTO b VALUES (1)", "EXPLAIN INSERT INTO b VALUES (1)"):
        with pytest.raises(SqlError, match=sentence):
            env.execute_sql(statement)
    env.execute_sql("CREATE TABLE plain LIKE b (EXCLUDING DISTRIBUTION)")
    env.execute_sql("EXPLAIN INSERT INTO plain VALUES (1)")
    env.execute_sql("ALTER TABLE b DROP DISTRIBUTION")
    env.execute_sql("EXPLAIN INSERT INTO b VALUES (1)")


def test_a_bucketed_table_is_read_like_any_other(env: TableEnvironment) -> None:
    query = "SELECT COUNT(*) FROM dealt /*+ OPTIONS('number-of-rows' = '3') */"
    with jobs_in_memory(), env.execute_sql(query).collect() as counts:
        assert [tuple(row) for row in counts] == [(3,)]


def test_create_table_as_with_buckets_creates_no_table(env: TableEnvironment) -> None:
    with pytest.raises(SqlError, match="is distributed into buckets"):
        env.execute_sql("CREATE TABLE b DISTRIBUTED INTO 3 BUCKETS WITH ('connector' = 'blackhole') AS SELECT 1 AS a")
    with pytest.raises(SqlError, match="a materialized table is stored by key, without buckets"):
        env.execute_sql("CREATE MATERIALIZED TABLE b DISTRIBUTED INTO 3 BUCKETS AS SELECT 1 AS a")
    assert "b" not in env.list_tables()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE t ADD DISTRIBUTION INTO 0 BUCKETS", "bucket count '0'.*must be at least 1"),
        ("ALTER TABLE t ADD DISTRIBUTION BY HASH(idd)", "bucket key 'idd'.*columns are: id, n. Did you mean 'id'"),
        ("ALTER TABLE t ADD DISTRIBUTION BY HASH(c)", "bucket key 'c'"),
        ("ALTER TABLE t MODIFY DISTRIBUTION BY HASH(id)", "does not define any distribution: ALTER TABLE … ADD"),
        ("ALTER TABLE t DROP DISTRIBUTION", "does not define any distribution"),
        ("ALTER TABLE dealt ADD DISTRIBUTION BY (n)", "already defined a distribution: ALTER TABLE … MODIFY"),
        ("ALTER TABLE dealt DROP id", "is used as a distribution key"),
        (f"CREATE TABLE u (id INT) DISTRIBUTED BY (key) INTO 2 BUCKETS {WITH}", "bucket key 'key'"),
        ("ALTER TABLE t ADD PARTITION (`day` = 1)", "Table default_catalog.default_database.t is not partitioned"),
        ("ALTER TABLE t DROP PARTITION (`day` = 1)", "is not partitioned"),
        ("ALTER TABLE days ADD PARTITION (dai = 1)", "'dai' is not a partition column .*: day. Did you mean 'day'"),
    ],
)
def test_altering_missing_parts_of_a_table_is_rejected(env: TableEnvironment, statement: str, words: str) -> None:
    with pytest.raises(SqlError, match=words):
        env.execute_sql(statement)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE days ADD IF NOT EXISTS PARTITION (`day` = 1)", "INSERT INTO it"),
        ("ALTER TABLE days DROP PARTITION (`day` = 1)", "remove the partition's folder"),
        ("ALTER FUNCTION f AS 'm.f' LANGUAGE PYTHON", "DROP FUNCTION and CREATE FUNCTION again"),
    ],
)
def test_unsupported_alterations_are_rejected_with_advice(env: TableEnvironment, statement: str, words: str) -> None:
    with pytest.raises(NotYetError, match=words):
        env.execute_sql(statement)


def test_show_create_catalog_prints_its_create_statement(env: TableEnvironment, tmp_path: Path) -> None:
    made = f"CREATE CATALOG `it's`\nCOMMENT 'a''s'\nWITH (\n  'type' = 'jobs',\n  'stores' = '{tmp_path}'\n)\n"
    env.execute_sql(made)
    assert output_of(env, "SHOW CREATE CATALOG `it's`") == made
    assert dict(map(tuple, env.execute_sql("DESCRIBE CATALOG `it's`").collect()))["type"] == "jobs"
    first = output_of(env, "SHOW CREATE CATALOG default_catalog")
    assert first == "CREATE CATALOG `default_catalog`\nWITH (\n  'type' = 'generic_in_memory'\n)\n"


def test_a_catalog_is_altered(env: TableEnvironment) -> None:
    env.execute_sql("CREATE CATALOG c WITH ('type' = 'generic_in_memory', 'a' = '1')")
    env.execute_sql("ALTER CATALOG c SET ('b' = '2', 'type' = 'generic_in_memory')")
    env.execute_sql("ALTER CATALOG c RESET ('a')")
    env.execute_sql("ALTER CATALOG c COMMENT 'ours'")
    assert output_of(env, "SHOW CREATE CATALOG c") == (
        "CREATE CATALOG `c`\nCOMMENT 'ours'\nWITH (\n  'type' = 'generic_in_memory',\n  'b' = '2'\n)\n"
    )


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER CATALOG j SET ('type' = 'generic_in_memory')", "cannot change 'type'"),
        ("ALTER CATALOG j RESET ('type')", "cannot change 'type'"),
        ("ALTER CATALOG j RESET ('stores')", "cannot RESET 'stores'"),
        ("ALTER CATALOG k COMMENT 'x'", "does not exist"),
        ("SHOW CREATE CATALOG k", "does not exist"),
    ],
)
def test_invalid_statements_do_not_change_a_catalog(env: TableEnvironment, statement: str, words: str) -> None:
    env.execute_sql("CREATE CATALOG j WITH ('type' = 'jobs', 'stores' = '/nowhere')")
    with pytest.raises(MillstreamError, match=words):
        env.execute_sql(statement)
    assert "'stores' = '/nowhere'" in output_of(env, "SHOW CREATE CATALOG j")
