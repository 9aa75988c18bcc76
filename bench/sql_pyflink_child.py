"""PyFlink's side of `bench_sql`'s functions: a statement with a Python function, once to warm up, once to be measured.

    python sql_pyflink_child.py ROWS KIND MODE

Nothing of Millstream is imported. KIND is general or pandas, MODE process or thread.
"""

from __future__ import annotations

import sys
import time

from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.udf import udf
from sql_functions import TABLES, per_row, per_series


def main(rows: int, kind: str, mode: str) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = tables.get_config()
    for key, value in {
        "parallelism.default": "2",
        "python.execution-mode": mode,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.size": "100000",
        "python.fn-execution.arrow.batch.size": "10000",
        "pipeline.object-reuse": "true",
    }.items():
        config.set(key, value)
    function = per_row if kind == "general" else per_series
    tables.create_temporary_system_function("f", udf(function, result_type=DataTypes.BIGINT(), func_type=kind))
    for count in (rows // 10, rows):
        for statement in TABLES:
            tables.execute_sql(statement.format(rows=count))
        started = time.monotonic()
        tables.execute_sql("INSERT INTO taken SELECT f(n, m) FROM numbers").wait()
        print(f"took {time.monotonic() - started}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
