"""PyFlink's Table API doing the work of `kafka_programs.count_in_windows`. Run by PyFlink's own interpreter:

    python kafka_pyflink_child.py JAR PARALLELISM BOOTSTRAP SOURCE TARGET [TARGET …]

Counts once into each target, in one process, and prints a line for each: `took WALL_S`. Nothing of ours is imported.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

_SOURCE = """
CREATE TABLE records (
    `user` STRING, page STRING, cents BIGINT, `at` BIGINT, ok BOOLEAN,
    happened TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
    WATERMARK FOR happened AS happened
) WITH (
    'connector' = 'kafka', 'properties.bootstrap.servers' = '{bootstrap}', 'topic' = '{topic}',
    'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'value.format' = 'json'
)
"""
_SINK = """
CREATE TABLE counts_{number} (`user` STRING, window_start BIGINT, window_end BIGINT, records BIGINT) WITH (
    'connector' = 'kafka', 'properties.bootstrap.servers' = '{bootstrap}', 'topic' = '{topic}',
    'key.format' = 'raw', 'key.fields' = 'user', 'value.format' = 'json', 'sink.delivery-guarantee' = 'at-least-once'
)
"""
_COUNT = """
INSERT INTO counts_{number}
SELECT `user`, {start}, {end}, COUNT(*)
FROM TABLE(TUMBLE(TABLE records, DESCRIPTOR(happened), INTERVAL '10' SECOND))
GROUP BY `user`, window_start, window_end
"""


def _millis(column: str) -> str:
    return f"CAST(1000 AS BIGINT) * TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {column})"


def main(jar: str, parallelism: str, bootstrap: str, source: str, *targets: str) -> None:
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = environment.get_config()
    config.set("pipeline.jars", Path(jar).resolve().as_uri())
    config.set("parallelism.default", parallelism)
    config.set("table.local-time-zone", "UTC")
    environment.execute_sql(_SOURCE.format(bootstrap=bootstrap, topic=source))
    for number, target in enumerate(targets):
        environment.execute_sql(_SINK.format(number=number, bootstrap=bootstrap, topic=target))
        statement = _COUNT.format(number=number, start=_millis("window_start"), end=_millis("window_end"))
        started_s = time.perf_counter()
        environment.execute_sql(statement).wait()
        print(f"took {time.perf_counter() - started_s:.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
