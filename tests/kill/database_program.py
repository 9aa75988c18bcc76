"""The job of the kill tests with a database: changes of a table, counted by key, back into two tables. It never ends.

    python database_program.py STORE URL SOURCE_TABLE LEDGER_TABLE TOTALS_TABLE PARALLELISM

The ledger is appended to: for each change of a key, the number of changes so far. The totals are put by key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from phases import phase, tell_epochs

from millstream.common import Configuration, RestartStrategies, Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.databases import DatabaseSink, PostgresChanges
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.spark.session import make_session

COUNTED = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Count(KeyedProcessFunction):
    """Counts the changes of a key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Row, ctx: Any) -> Iterable[Row]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield Row(key=value.key, n=count)


def main(store: str, url: str, source: str, ledger: str, totals: str, parallelism: str) -> None:
    phase("imported")
    settings = {"spark.local.dir": str(Path(store).parent / "spark"), "spark.driver.extraJavaOptions": _SHORT_LIVED}
    session = make_session("local[2]", settings)
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(int(parallelism)).set_store(store)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 100))
    env.configure(Configuration().set_integer("millstream.epoch.max-records", 60))
    changes = env.from_source(PostgresChanges(url, source, slot=source), WatermarkStrategy.no_watermarks(), "changes")
    counted = changes.uid("changes").key_by(lambda row: row.key, Types.STRING()).process(Count(), COUNTED).uid("count")
    counted.sink_to(DatabaseSink(url, ledger)).uid("ledger")
    counted.sink_to(DatabaseSink(url, totals, key="key")).uid("totals")
    job = env._launch("database")
    tell_epochs(job.board)
    job.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
