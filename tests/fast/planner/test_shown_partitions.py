"""SHOW PARTITIONS lists the folders of a partitioned table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, TableEnvironment


@pytest.fixture
def t_env(tmp_path: Path) -> TableEnvironment:
    for folder in ("day=1/hour=7", "day=1/hour=8", "day=2/hour=a%2Fb", "other"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part.csv").write_text("1\n")
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    t_env.execute_sql(
        "CREATE TABLE t (n INT, `day` INT, `hour` STRING) PARTITIONED BY (`day`, `hour`) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv')"
    )
    t_env.execute_sql("CREATE TABLE plain (n INT) WITH ('connector' = 'datagen')")
    return t_env


def names(t_env: TableEnvironment, statement: str) -> list[Any]:
    with t_env.execute_sql(statement).collect() as rows:
        return [row[0] for row in rows]


def test_partitions_are_named_by_their_columns(t_env: TableEnvironment) -> None:
    assert names(t_env, "SHOW PARTITIONS t") == ["day=1/hour=7", "day=1/hour=8", "day=2/hour=a/b"]
    assert names(t_env, "SHOW PARTITIONS t PARTITION (`day` = 1)") == ["day=1/hour=7", "day=1/hour=8"]
    assert names(t_env, "SHOW PARTITIONS t PARTITION (`day` = 1, `hour` = '8')") == ["day=1/hour=8"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SHOW PARTITIONS plain", "Table plain is not partitioned"),
        (
            "SHOW PARTITIONS t PARTITION (`dai` = 1)",
            "'dai' is not a partition column of t: day, hour. Did you mean 'day'",
        ),
    ],
)
def test_a_table_without_partitions_is_reported(t_env: TableEnvironment, statement: str, message: str) -> None:
    with pytest.raises(MillstreamError, match=message):
        t_env.execute_sql(statement)
