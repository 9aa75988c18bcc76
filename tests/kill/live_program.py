"""The job of a live table that a test kills: two tables of one job, of the same rows.

    python live_program.py STORE PARALLELISM

It prints its phases as `program.py` does. `LAST` is the last number that is read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from phases import phase, tell_epochs

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.spark.session import make_session
from millstream.table import StreamTableEnvironment

LAST = 12_000
TABLES = (
    "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
    f"'fields.n.start' = '1', 'fields.n.end' = '{LAST}')",
    "CREATE TABLE counts (k BIGINT NOT NULL, c BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'state')",
    "CREATE TABLE parities (odd BOOLEAN, c BIGINT) WITH ('connector' = 'state')",
)
INSERTS = (
    "INSERT INTO counts SELECT MOD(n, 101), COUNT(*) FROM numbers GROUP BY MOD(n, 101)",
    "INSERT INTO parities SELECT MOD(n, 2) = 1, COUNT(*) FROM numbers GROUP BY MOD(n, 2) = 1",
)


def main(store: str, parallelism: str) -> None:
    phase("imported")
    session = make_session("local[2]", {"spark.local.dir": str(Path(store).parent / "spark")})
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(int(parallelism)).set_store(store)
    env.configure(Configuration().set_integer("millstream.epoch.max-records", LAST // 12))
    t_env = StreamTableEnvironment.create(env)
    t_env.get_config().set("pipeline.name", "clicks")
    for statement in TABLES:
        t_env.execute_sql(statement)
    statements = t_env.create_statement_set()
    for statement in INSERTS:
        statements.add_insert_sql(statement)
    job = statements.execute()._outcome.source.job
    assert job is not None
    tell_epochs(job.board)
    job.result()
    phase("finished")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
