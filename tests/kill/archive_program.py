"""The job of a table with an archive that a test kills: windows, of which old ones leave the state.

    python archive_program.py STORE ARCHIVE FORMAT PARALLELISM

It prints its phases as `program.py` does. One number comes for each second of event time, up to `LAST`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from phases import phase, tell_epochs

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.spark.session import make_session
from millstream.table import StreamTableEnvironment

LAST, WINDOW_S = 12_000, 100
SOURCE = (
    "CREATE TABLE numbers (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 1000, 3), WATERMARK FOR ts AS ts) WITH ('connector' = "
    f"'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{LAST}')"
)
INSERT = (
    "INSERT INTO closed_windows SELECT window_end, MOD(n, 3), COUNT(*) FROM TABLE(TUMBLE(TABLE numbers, "
    f"DESCRIPTOR(ts), INTERVAL '{WINDOW_S}' SECOND)) GROUP BY window_start, window_end, MOD(n, 3)"
)


def main(store: str, archive: str, format: str, parallelism: str) -> None:
    phase("imported")
    session = make_session("local[2]", {"spark.local.dir": str(Path(store).parent / "spark")})
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(int(parallelism)).set_store(store)
    settings = Configuration().set_integer("millstream.epoch.max-records", LAST // 12)
    env.configure(settings.set_integer("millstream.retention.epochs", 100))
    t_env = StreamTableEnvironment.create(env)
    t_env.get_config().set("pipeline.name", "hours")
    t_env.execute_sql(SOURCE)
    t_env.execute_sql(
        "CREATE TABLE closed_windows (closed TIMESTAMP_LTZ(3) NOT NULL, k BIGINT NOT NULL, c BIGINT, PRIMARY KEY "
        f"(closed, k) NOT ENFORCED) WITH ('connector' = 'state', 'archive.path' = '{archive}', "
        f"'archive.by' = 'closed', 'archive.after' = '1000 s', 'archive.format' = '{format}')"
    )
    job = t_env.execute_sql(INSERT)._outcome.source.job
    assert job is not None
    tell_epochs(job.board)
    job.result()
    phase("finished")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
