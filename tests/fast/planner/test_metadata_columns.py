"""Metadata columns that a connector does not have, or not of this type, are rejected before the job starts."""

from __future__ import annotations

import pytest

from millstream.errors import SqlError
from millstream.table import EnvironmentSettings, TableEnvironment

KAFKA = (
    "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:1', 'format' = 'json', "
    "'scan.startup.mode' = 'earliest-offset'"
)
FILES = "'connector' = 'filesystem', 'path' = 'somewhere', 'format' = 'csv'"


def table(column: str, options: str) -> TableEnvironment:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql(f"CREATE TABLE t (n INT, {column}) WITH ({options})")
    return t_env


@pytest.mark.parametrize(
    ("column", "options", "expected"),
    [
        ("m INT METADATA", "'connector' = 'datagen'", "the connector 'datagen' has no metadata"),
        ("m INT METADATA", "'connector' = 'print'", "the connector 'print' has no metadata"),
        ("m BIGINT METADATA FROM 'ofset'", KAFKA, "Did you mean 'offset'"),
        ("`partition` ARRAY<INT> METADATA", KAFKA, "is INT, and cannot become ARRAY<INT>"),
        ("size INT METADATA", FILES, "has file.path, file.name, file.size, file.modification-time"),
        ("m TIMESTAMP(3) METADATA FROM 'file.size'", FILES, "is BIGINT, and cannot become TIMESTAMP"),
    ],
)
def test_metadata_unknown_to_the_connector_is_rejected(column: str, options: str, expected: str) -> None:
    t_env = table(column, options)
    statement = "INSERT INTO t SELECT 1, NULL" if "print" in options else "SELECT * FROM t"
    with pytest.raises(SqlError, match=r"Invalid (metadata key|data type)") as raised:
        t_env.execute_sql(statement)
    assert expected in str(raised.value)


def test_read_only_metadata_must_be_virtual_in_a_sink() -> None:
    with pytest.raises(SqlError, match=r"persistable metadata columns \(p\).*VIRTUAL"):
        table("p STRING METADATA FROM 'file.path'", FILES).execute_sql("INSERT INTO t SELECT 1, 'x'")


@pytest.mark.parametrize(
    ("column", "statement", "expected"),
    [
        (
            "topic STRING METADATA",
            "INSERT INTO t VALUES (1, 'x')",
            r"columns \(topic\).*only timestamp and headers",
        ),
        ("h STRING METADATA FROM 'headers'", "INSERT INTO t VALUES (1, 'x')", "cannot be made of STRING"),
        ("at_ms BIGINT METADATA FROM 'timestamp'", "INSERT INTO t VALUES (1, 5)", "cannot be made of BIGINT"),
        ("at_ms BIGINT METADATA FROM 'timestamp'", "SELECT * FROM t", "cannot become BIGINT"),
        (
            "db STRING METADATA FROM 'value.database' VIRTUAL",
            "SELECT * FROM t",
            "key 'value.database' in column 'db'",
        ),
    ],
)
def test_metadata_of_another_type_is_cast_or_rejected_per_direction(column: str, statement: str, expected: str) -> None:
    with pytest.raises(SqlError, match=expected):
        table(column, KAFKA).execute_sql(statement)


@pytest.mark.parametrize("format", ["debezium-json", "canal-json"])
def test_metadata_of_a_format_requires_that_format(format: str) -> None:
    key = {"debezium-json": "value.source.table", "canal-json": "value.table"}[format]
    options = KAFKA.replace("'json'", f"'{format}'")
    assert "told" in table(f"told STRING METADATA FROM '{key}' VIRTUAL", options).explain_sql("SELECT told FROM t")
    with pytest.raises(SqlError, match=f"Did you mean '{key}'"):
        table(f"told STRING METADATA FROM '{key[:-1]}' VIRTUAL", options).execute_sql("SELECT * FROM t")
    with pytest.raises(SqlError, match=r"columns \(told\).*VIRTUAL"):
        table(f"told STRING METADATA FROM '{key}'", options).execute_sql("INSERT INTO t VALUES (1, 'x')")


@pytest.mark.parametrize(
    "columns",
    [
        "a INT METADATA FROM 'offset' VIRTUAL, b INT METADATA FROM 'offset'",
        "`offset` BIGINT METADATA VIRTUAL, b INT METADATA FROM 'offset' VIRTUAL",
    ],
)
def test_one_metadata_key_is_one_column(columns: str) -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    with pytest.raises(SqlError, match="both from the same metadata key 'offset'"):
        t_env.execute_sql(f"CREATE TABLE t ({columns}) WITH ({KAFKA})")


def test_one_metadata_key_is_one_column_when_a_column_is_added_or_inherited() -> None:
    t_env = table("`offset` BIGINT METADATA VIRTUAL", KAFKA)
    for statement in (
        "ALTER TABLE t ADD o BIGINT METADATA FROM 'offset'",
        "CREATE TABLE u (o INT METADATA FROM 'offset') LIKE t",
    ):
        with pytest.raises(SqlError, match="The column `offset` and `o` in the table are both"):
            t_env.execute_sql(statement)


def test_a_misspelt_connector_and_target_column_are_reported_with_the_nearest_name() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql("CREATE TABLE t (n INT) WITH ('conector' = 'datagen')")
    with pytest.raises(SqlError, match="There is 'conector': did you mean 'connector'"):
        t_env.execute_sql("SELECT * FROM t")
    t_env.execute_sql("CREATE TABLE o (number INT, note STRING) WITH ('connector' = 'blackhole')")
    with pytest.raises(SqlError, match=r"Column 'nots' is not in the table: it has number, note. Did you mean 'note'"):
        t_env.execute_sql("INSERT INTO o (number, nots) VALUES (1, 'x')")
