"""The SQL client's table view over Kafka: an updating Top-N shows the batch answer at each size."""

from __future__ import annotations

from pathlib import Path

from kafka_writers import produce
from screens.sql_terminals import ask, at_every_size, carry_out, end_query, sql_terminal
from servers.kafka import KafkaBroker

from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

TOP = (
    "SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS place FROM t) "
    "WHERE place <= 2"
)
MESSAGES = ([("a", 1), ("b", 2), ("c", 3)], [("a", 9), ("a", 7), ("b", 5)], [("c", 4), ("c", 8), ("d", 0)])


def table(broker: KafkaBroker, topic: str, options: str = "") -> str:
    place = f"'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{broker.bootstrap}'"
    return f"CREATE TABLE t (k STRING, v INT) WITH ({place}, 'format' = 'json'{options})"


def batch_answer(broker: KafkaBroker, topic: str) -> list[tuple[str, ...]]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        bounds = ", 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
        t_env.execute_sql(table(broker, topic, bounds))
        with t_env.execute_sql(TOP).collect() as rows:
            return sorted(tuple(map(str, row)) for row in rows)


def test_a_top_n_over_kafka_shows_the_batch_answer_after_each_portion_at_each_size(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    with sql_terminal(tmp_path) as person:
        carry_out(person, table(kafka_broker, unique_name, ", 'scan.startup.mode' = 'earliest-offset'") + ";")
        ask(person, TOP)
        for portion in MESSAGES:
            texts: list[str | None] = [f'{{"k": "{k}", "v": {v}}}' for k, v in portion]
            produce(kafka_broker.bootstrap, unique_name, texts)
            at_every_size(person, batch_answer(kafka_broker, unique_name))
        end_query(person)
