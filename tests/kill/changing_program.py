"""The job of changing tables that the kill tests kill: joins, groups over them and first rows, as changes into files.

    python changing_program.py STORE OUTPUT PARALLELISM NEXMARK

It prints its phases as `program.py` does, and knows nothing of being killed. Every line is a change: `+` or `-`, then
the row. `queries` are asked by the test as a batch, too: what the changes leave must be that. Among them is one of
Nexmark's own, by its name.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from phases import phase, tell_epochs
from programs.nexmark_queries import query_statements

from millstream.common import Configuration, Encoder, RestartStrategies, Types
from millstream.common.types import RowKind
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from millstream.spark.session import make_session, memory_folder_of
from millstream.sql.splitting import statement_spans
from millstream.table import StreamTableEnvironment, TableEnvironment

TABLES = Path(__file__).resolve().parents[1] / "golden" / "sql_statements" / "nexmark" / "tables.sql"
EVENTS = 48_000
EPOCH_RECORDS = 20_000
WON = (
    "SELECT a.category, a.seller, MAX(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction "
    "WHERE b.`dateTime` <= a.expires GROUP BY a.id, a.category, a.seller"
)
QUERIES = {
    "averages": f"SELECT category, COUNT(*), AVG(final), COUNT(DISTINCT seller) FROM ({WON}) GROUP BY category",
    "sellers": (
        "SELECT seller, total, place FROM (SELECT seller, total, ROW_NUMBER() OVER (ORDER BY total DESC, seller) "
        f"AS place FROM (SELECT seller, SUM(final) AS total FROM ({WON}) GROUP BY seller)) WHERE place <= 10"
    ),
    "people": (
        "SELECT COALESCE(p.bidder, a.seller), p.n, a.n FROM (SELECT bidder, COUNT(*) AS n FROM bid GROUP BY bidder) p "
        "FULL JOIN (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) a ON p.bidder = a.seller"
    ),
    # Wide rows: blocks of them are large enough to be laid beside the shuffle.
    "offers": (
        "SELECT a.itemName, a.description, b.channel, b.url, b.extra, b.price "
        "FROM auction a JOIN bid b ON a.id = b.auction"
    ),
}


def queries(nexmark: str) -> dict[str, str]:
    """All queries of the job."""
    *_, insert = query_statements(nexmark, Path("unused"))
    return {**QUERIES, nexmark: insert[insert.index("SELECT") :]}


def define(t_env: TableEnvironment) -> None:
    """The tables."""
    for span in statement_spans(TABLES.read_text()):
        small = span.text.replace("'events.num' = '100000'", f"'events.num' = '{EVENTS}'")
        t_env.execute_sql(small.replace("'first-event.rate' = '10000000'", "'first-event.rate' = '2000'"))


def change(row: Any) -> str:
    """A change as a line."""
    is_added = row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
    return f"{'+' if is_added else '-'}{tuple(row)!r}"


def watch_blocks(folder: str | None, seen: Path) -> None:
    """Make a file when tasks have laid a block: what is killed is then killed with such blocks."""

    def watch() -> None:
        while not seen.exists():
            if folder is not None and any(Path(folder).glob("blocks-*/*")):
                seen.touch()
            time.sleep(0.02)

    threading.Thread(target=watch, daemon=True).start()


def main(store: str, output: str, parallelism: str, nexmark: str) -> None:
    phase("imported")
    session = make_session("local[2]", {})  # Spark's files in memory, where tasks lay blocks for each other
    watch_blocks(memory_folder_of(session), Path(store).parent / "laid")
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(int(parallelism)).set_store(store)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 0))
    env.configure(Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS))
    t_env = StreamTableEnvironment.create(env)
    define(t_env)
    for name, query in queries(nexmark).items():
        sink = FileSink.for_row_format(f"{output}/{name}", Encoder.simple_string_encoder())
        sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        changes = t_env.to_changelog_stream(t_env.sql_query(query))
        changes.map(change, Types.STRING()).uid(f"{name}-lines").sink_to(sink.build()).uid(name)
    job = env._launch("killed-tables")
    tell_epochs(job.board)
    job.result()
    phase("finished")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
