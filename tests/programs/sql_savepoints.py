"""A SQL job that is stopped with a savepoint and restored from it: for tests in memory and on Spark.

The rows are slow at first, so that the job can be stopped half-way, and fast after the restore. Its windows are open
when it is stopped: their contents are in the savepoint.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow.dataset
from waits.patience import PATIENCE_S

from millstream.table import TableEnvironment

__all__ = [
    "INSERT",
    "INSERTS_OF_OTHERS",
    "INSERT_OTHERWISE",
    "LAST",
    "define",
    "expected_windows",
    "go_on",
    "job_until_savepoint",
    "written_windows",
]

LAST = 4_000
_WRITTEN = pyarrow.schema({"k": pyarrow.int64(), "ends": pyarrow.timestamp("ms"), "total": pyarrow.int64()})


def define(t_env: TableEnvironment, folder: Path, rows_per_second: int) -> None:
    """Define the tables."""
    t_env.execute_sql(
        "CREATE TABLE numbers (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 10, 3), WATERMARK FOR ts AS ts) "
        f"WITH ('connector' = 'datagen', 'rows-per-second' = '{rows_per_second}', 'fields.n.kind' = 'sequence', "
        f"'fields.n.start' = '1', 'fields.n.end' = '{LAST}')"
    )
    t_env.execute_sql(
        "CREATE TABLE windows (k BIGINT, ends TIMESTAMP(3), total BIGINT) WITH ('connector' = 'filesystem', "
        f"'format' = 'parquet', 'path' = '{folder}/windows')"
    )


_WINDOWS = "TABLE(TUMBLE(TABLE {rows}, DESCRIPTOR(ts), INTERVAL '7' SECOND)) GROUP BY k, window_start, window_end"
INSERT = "INSERT INTO windows SELECT k, window_end, SUM(n) FROM " + _WINDOWS.format(
    rows="(SELECT MOD(n, 5) AS k, n, ts FROM numbers)"
)
# The same groups and windows, written differently: another alias, other letters, a filter that passes everything.
INSERT_OTHERWISE = "insert into windows select k, window_end, sum(m) as total\nfrom " + _WINDOWS.format(
    rows="(SELECT MOD(n, 2 + 3) AS k, n AS m, ts FROM numbers WHERE TRUE)"
)
# State of the same uid with another meaning.
INSERTS_OF_OTHERS = (
    INSERT.replace("SUM(n)", "MAX(n)"),
    INSERT.replace("FROM numbers", "FROM numbers WHERE n > 7"),
    INSERT.replace("MOD(n, 5)", "MOD(n, 6)"),
)


def job_until_savepoint(t_env: TableEnvironment, folder: Path) -> str:
    """Run the job until some windows were emitted and others are open, and stop it; returns the savepoint."""
    define(t_env, folder, rows_per_second=2_000)
    t_env.get_config().set("millstream.epoch.max-records", "150")
    client = t_env.execute_sql(INSERT).get_job_client()
    assert client is not None
    job = t_env._runner.jobs[-1][0]
    give_up_s = time.monotonic() + PATIENCE_S
    while not written_windows(
        folder
    ):  # detected by rows, not by the number of epochs: those are short on a fast machine
        assert time.monotonic() < give_up_s and not job.wait(0.01), "the job ended before it could be stopped"
    [row] = t_env.execute_sql(f"STOP JOB '{client.get_job_id()}' WITH SAVEPOINT").collect()
    return str(row[0])


def go_on(t_env: TableEnvironment, folder: Path, savepoint: str, parallelism: int, insert: str = INSERT) -> None:
    """Start from the savepoint, and run to the end."""
    define(t_env, folder, rows_per_second=10_000_000)
    t_env.execute_sql(f"SET 'execution.state-recovery.path' = '{savepoint}'")
    t_env.execute_sql(f"SET 'parallelism.default' = '{parallelism}'")
    t_env.execute_sql(insert).wait()


def written_windows(folder: Path) -> list[tuple[Any, ...]]:
    """The rows in the files, sorted."""
    paths = [str(path) for path in (folder / "windows").glob("[!._]*")]
    table = pyarrow.dataset.dataset(paths, format="parquet", schema=_WRITTEN).to_table()
    return sorted((row["k"], row["ends"].timestamp(), row["total"]) for row in table.to_pylist())


def expected_windows() -> list[tuple[Any, ...]]:
    """The rows of one uninterrupted run."""
    totals: dict[tuple[int, int], int] = {}
    for n in range(1, LAST + 1):
        key = (n % 5, (n * 10 // 7_000 + 1) * 7)
        totals[key] = totals.get(key, 0) + n
    return sorted((k, ends, total) for (k, ends), total in totals.items())
