"""The SQL job that the kill tests kill: Nexmark's queries and windows over one table, each into files of its own.

    python sql_program.py STORE OUTPUT PARALLELISM

It prints its phases as `program.py` does, and knows nothing of being killed. `inserts` is the program; the test runs it
in one process as a batch, too.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from phases import phase, tell_epochs

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.spark.session import make_session
from millstream.sql.splitting import statement_spans
from millstream.table import DataTypes, StreamTableEnvironment, TableEnvironment
from millstream.table.udf import udf

NEXMARK = Path(__file__).resolve().parents[1] / "golden" / "sql_statements" / "nexmark"
EVENTS = 30_000
EPOCH_RECORDS = 3_000
QUERIES = ("q0", "q1", "q2", "q10", "q12", "q14", "q21", "q22")
WINDOWS = {
    "tumble": "TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '1' SECOND)",
    "hop": "HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '1' SECOND, INTERVAL '3' SECOND)",
    "cumulate": "CUMULATE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '1' SECOND, INTERVAL '5' SECOND)",
}


@udf(result_type=DataTypes.BIGINT())
def count_char(text: str, letter: str) -> int:
    return text.count(letter)


def _statements(name: str) -> list[str]:
    return [span.text for span in statement_spans((NEXMARK / f"{name}.sql").read_text())]


def _in_files(statement: str, output: str, name: str) -> str:
    options = f"'connector' = 'filesystem', 'path' = '{output}/{name}', 'format' = 'parquet'"
    text = re.sub(r"WITH \('connector' = 'blackhole'\)", f"WITH ({options})", statement)
    return text.replace("${folder}", output)  # query 10 names its files itself


def inserts(t_env: TableEnvironment, output: str) -> list[str]:
    """Define the tables; the INSERTs of the job."""
    t_env.create_temporary_system_function("count_char", count_char)
    for statement in _statements("tables"):
        small = statement.replace("'events.num' = '100000'", f"'events.num' = '{EVENTS}'")
        t_env.execute_sql(small.replace("'first-event.rate' = '10000000'", "'first-event.rate' = '2000'"))
    found = []
    for name in QUERIES:
        for statement in _statements(name):
            if statement.startswith("INSERT"):
                found.append(statement)
            else:
                t_env.execute_sql(_in_files(statement, output, name))
    for name, window in WINDOWS.items():
        columns = "channel STRING, n BIGINT, total BIGINT, top DECIMAL(23, 3), ends TIMESTAMP(3)"
        table = f"CREATE TABLE {name}_result ({columns}) WITH ('connector' = 'blackhole')"
        t_env.execute_sql(_in_files(table, output, name))
        found.append(
            f"INSERT INTO {name}_result SELECT channel, COUNT(*), SUM(price), MAX(0.908 * price), window_end "
            f"FROM TABLE({window}) GROUP BY channel, window_start, window_end"
        )
    return found


def main(store: str, output: str, parallelism: str) -> None:
    phase("imported")
    session = make_session("local[2]", {"spark.local.dir": str(Path(store).parent / "spark")})
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(int(parallelism)).set_store(store)
    env.configure(Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS))
    t_env = StreamTableEnvironment.create(env)
    statements = t_env.create_statement_set()
    for statement in inserts(t_env, output):
        statements.add_insert_sql(statement)
    job = statements.execute()._outcome.source.job
    assert job is not None
    tell_epochs(job.board)
    job.result()
    phase("finished")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
