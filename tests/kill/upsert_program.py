"""The job of the kill test of tables by key: a changelog in Kafka → groups → a topic by key, exactly once.

    python upsert_program.py STORE BOOTSTRAP INPUT OUTPUT PARALLELISM

Prints "PHASE …" when it has imported, has a session, has committed an epoch, has finished.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from phases import phase, tell_epochs

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.spark.session import make_session
from millstream.table import StreamTableEnvironment

CHANGES = 1_500
EPOCH_RECORDS = 150


def changelog(seed: int) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Messages of Debezium, and what the query gives of them in the end."""
    rng = random.Random(f"changelog-{seed}")
    rows: dict[int, dict[str, Any]] = {}
    messages = []
    for number in range(CHANGES):
        before = rows.pop(rng.choice(list(rows))) if rows and rng.random() < 0.6 else None
        after = None
        if before is None or rng.random() < 0.6:
            key = number if before is None else before["id"]
            after = rows[key] = {"id": key, "name": f"name {rng.randrange(150)}", "n": rng.randrange(100)}
        operation = "c" if before is None else "d" if after is None else "u"
        messages.append(json.dumps({"before": before, "after": after, "op": operation}))
    counts = Counter(row["name"] for row in rows.values())
    sums: Counter[str] = Counter()
    for row in rows.values():
        sums[row["name"]] += row["n"]
    return messages, {name: (count, sums[name]) for name, count in counts.items() if count > 1}


def main(store: str, bootstrap: str, source: str, target: str, parallelism: str) -> None:
    phase("imported")
    session = make_session("local[2]", {"spark.local.dir": str(Path(store).parent / "spark")})
    phase("session")
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(int(parallelism)).set_store(store)
    env.configure(Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS))
    t_env = StreamTableEnvironment.create(env)
    servers = f"'properties.bootstrap.servers' = '{bootstrap}'"
    t_env.execute_sql(
        f"CREATE TABLE changes (id INT, name STRING, n BIGINT) WITH ('connector' = 'kafka', 'topic' = '{source}', "
        f"{servers}, 'format' = 'debezium-json', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = "
        "'latest-offset')"
    )
    t_env.execute_sql(
        "CREATE TABLE totals (name STRING, c BIGINT, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ("
        f"'connector' = 'upsert-kafka', 'topic' = '{target}', {servers}, 'key.format' = 'json', 'value.format' = "
        f"'json', 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{target}')"
    )
    # HAVING lets groups go that shrink: deletions, too.
    job = t_env.execute_sql(
        "INSERT INTO totals SELECT name, COUNT(*), SUM(n) FROM changes GROUP BY name HAVING COUNT(*) > 1"
    )._outcome.source.job
    assert job is not None
    tell_epochs(job.board)
    job.result()
    phase("finished")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
