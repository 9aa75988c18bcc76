"""Metadata columns that a connector does not have, or not of that type, are refused before anything runs."""

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
        ("`partition` ARRAY<INT> METADATA", KAFKA, "is INT NOT NULL, and cannot be ARRAY<INT>"),
        ("size INT METADATA", FILES, "has file.path, file.name, file.size, file.modification-time"),
        ("m TIMESTAMP(3) METADATA FROM 'file.size'", FILES, "is BIGINT NOT NULL, and cannot be TIMESTAMP"),
    ],
)
def test_what_a_connector_cannot_tell_is_refused(column: str, options: str, expected: str) -> None:
    t_env = table(column, options)
    statement = "INSERT INTO t SELECT 1, NULL" if "print" in options else "SELECT * FROM t"
    with pytest.raises(SqlError, match=r"Invalid (metadata key|data type)") as raised:
        t_env.execute_sql(statement)
    assert expected in str(raised.value)


def test_metadata_that_is_only_told_is_not_written_unless_it_is_virtual() -> None:
    with pytest.raises(SqlError, match=r"persistable metadata columns \(p\).*VIRTUAL"):
        table("p STRING METADATA FROM 'file.path'", FILES).execute_sql("INSERT INTO t SELECT 1, 'x'")
