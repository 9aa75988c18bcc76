"""Topics as keyed tables, on a real broker: a message is the row of its key, a tombstone its deletion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka_writers import next_message, produce
from servers.kafka import KafkaBroker

from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def options(broker: KafkaBroker, topic: str, connector: str = "upsert-kafka", **others: str) -> str:
    given = {"connector": connector, "topic": topic, "properties.bootstrap.servers": broker.bootstrap}
    if connector == "upsert-kafka":
        given |= {"key.format": "json", "value.format": "json"}
    given |= {key.replace("__", ".").replace("_", "-"): value for key, value in others.items()}
    return ", ".join(f"'{key}' = '{value}'" for key, value in given.items())


def changes(t_env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(statement).collect() as found:
        return sorted((str(row.get_row_kind()), *row) for row in found)


def messages(broker: KafkaBroker, topic: str) -> list[tuple[Any, Any]]:
    """The committed messages of a topic, as JSON."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[Any, Any]] = []
    try:
        while True:
            message = next_message(consumer)
            if message.error() is not None:
                return found
            value = message.value()
            found.append((json.loads(message.key()), None if value is None else json.loads(value)))
    finally:
        consumer.close()


def test_messages_are_upserts_and_tombstones_are_deletes(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    for key, value in ((1, '{"id": 1, "v": "a"}'), (2, '{"id": 2, "v": "b"}'), (1, '{"id": 1, "v": "c"}'), (2, None)):
        produce(kafka_broker.bootstrap, unique_name, [value], key=json.dumps({"id": key}).encode())
    ends = options(kafka_broker, unique_name, scan__bounded__mode="latest-offset")
    t_env.execute_sql(
        "CREATE TABLE t (id INT, v STRING, place BIGINT METADATA FROM 'offset' VIRTUAL, PRIMARY KEY (id) NOT ENFORCED) "
        f"WITH ({ends})"
    )
    assert changes(t_env, "SELECT id, v, place FROM t") == [("+I", 1, "c", 2)]
    assert changes(t_env, "SELECT COUNT(*), MAX(v) FROM t") == [("+I", 1, "c")]
    debezium = options(kafka_broker, unique_name, value__format="debezium-json")
    t_env.execute_sql(f"CREATE TABLE d (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({debezium})")
    with pytest.raises(MillstreamError, match="doesn't support 'debezium-json' as value format"):
        t_env.execute_sql("SELECT * FROM d")


def test_a_query_is_written_exactly_once_as_one_message_per_key_with_tombstones(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(f"{unique_name}-in", 1)
    kafka_broker.create_topic(unique_name, 1)
    source = options(
        kafka_broker, f"{unique_name}-in", "kafka", value__format="debezium-json",
        scan__startup__mode="earliest-offset", scan__bounded__mode="latest-offset",
    )  # fmt: skip
    rows = [(1, "a"), (2, "a"), (3, "b")]
    made = [{"before": None, "after": {"id": key, "name": name}, "op": "c"} for key, name in rows]
    produce(kafka_broker.bootstrap, f"{unique_name}-in", [json.dumps(each) for each in made])
    sink = options(
        kafka_broker, unique_name, sink__delivery_guarantee="exactly-once", sink__transactional_id_prefix=unique_name
    )
    t_env.execute_sql(f"CREATE TABLE changes (id INT, name STRING) WITH ({source})")
    t_env.execute_sql(f"CREATE TABLE counts (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ({sink})")
    insert = "INSERT INTO counts SELECT name, COUNT(*) FROM changes GROUP BY name"
    t_env.execute_sql(insert).wait()
    expected = [({"name": "a"}, {"name": "a", "n": 2}), ({"name": "b"}, {"name": "b", "n": 1})]
    assert sorted(messages(kafka_broker, unique_name), key=str) == expected
    # A pass-through by the same key has no state, and a deletion is a tombstone.
    kafka_broker.create_topic(f"{unique_name}-copy", 1)
    produce(kafka_broker.bootstrap, unique_name, [None], key=b'{"name":"b"}')
    bounded = options(kafka_broker, unique_name, scan__bounded__mode="latest-offset")
    t_env.execute_sql(f"CREATE TABLE source (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ({bounded})")
    copied = options(kafka_broker, f"{unique_name}-copy")
    t_env.execute_sql(f"CREATE TABLE copy (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ({copied})")
    plan = t_env.explain_sql("INSERT INTO copy SELECT * FROM source")
    assert "ChangelogNormalize" not in plan
    assert "ChangelogNormalize" in t_env.explain_sql("INSERT INTO copy SELECT * FROM source WHERE n > 1")
    t_env.execute_sql("INSERT INTO copy SELECT * FROM source").wait()
    assert (messages(kafka_broker, f"{unique_name}-copy"))[-1] == ({"name": "b"}, None)
    assert changes(t_env, "SELECT * FROM source") == [("+I", "a", 2)]
