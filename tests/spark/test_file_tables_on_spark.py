"""Tables in files on Spark: formats travel to its workers, and partitions are committed at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment


def test_rows_go_through_every_format(new_env: Callable[..., StreamExecutionEnvironment], tmp_path: Path) -> None:
    t_env = StreamTableEnvironment.create(new_env())
    t_env.execute_sql(
        """CREATE TABLE given (n INT, ts TIMESTAMP(3), dt STRING, WATERMARK FOR ts AS ts) WITH ('connector' = 'values',
        'data' = '[[1, "2026-11-16 07:00:00.5", "2026-11-16"], [2, "2026-11-17 08:00:00", "2026-11-17"]]')"""
    )
    formats = ("csv", "json", "avro", "parquet")
    statements = t_env.create_statement_set()
    for name in formats:
        t_env.execute_sql(
            f"""CREATE TABLE {name}_files (n INT, ts TIMESTAMP(3), dt STRING) PARTITIONED BY (dt) WITH (
            'connector' = 'filesystem', 'path' = '{tmp_path}/{name}', 'format' = '{name}',
            'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.policy.kind' = 'success-file')"""
        )
        statements.add_insert_sql(f"INSERT INTO {name}_files SELECT * FROM given")
    statements.execute().wait()
    for name in formats:
        assert sorted(path.parent.name for path in (tmp_path / name).rglob("_SUCCESS")) == [
            "dt=2026-11-16",
            "dt=2026-11-17",
        ]
    union = " UNION ALL ".join(f"SELECT '{name}', n, CAST(ts AS STRING), dt FROM {name}_files" for name in formats)
    with t_env.execute_sql(union).collect() as found:
        rows = sorted(tuple(row) for row in found)
    assert rows == sorted(
        (name, *row)
        for name in formats
        for row in ((1, "2026-11-16 07:00:00.500", "2026-11-16"), (2, "2026-11-17 08:00:00.000", "2026-11-17"))
    )
