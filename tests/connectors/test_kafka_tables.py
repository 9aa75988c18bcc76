"""Kafka tables on a real broker: keys, metadata, starting and stopping offsets, and each delivery guarantee of the
sink.
"""

from __future__ import annotations

import json
import time
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


def rows(t_env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(statement).collect() as found:
        return sorted(tuple(each) for each in found)


def define(t_env: TableEnvironment, name: str, columns: str, broker: KafkaBroker, topic: str, **options: str) -> None:
    given = {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": broker.bootstrap}
    given |= {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    clauses = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({clauses})")


# A broker immediately removes messages older than its retention.
BEGAN_S = int(time.time()) - 600
ENDS = {"scan__startup__mode": "earliest-offset", "scan__bounded__mode": "latest-offset"}


def test_rows_with_keys_and_metadata(t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(
        kafka_broker.bootstrap, unique_name, ['{"n": 1, "ts": "2026-11-16 07:00:00.25"}', None], key=b"a;b",
        headers=[("from", b"x")], timestamp=BEGAN_S * 1_000,
    )  # fmt: skip
    produce(kafka_broker.bootstrap, unique_name, ['{"n": "2"}'], timestamp=(BEGAN_S + 1) * 1_000)
    define(
        t_env, "t",
        "k_one STRING, k_two STRING, n INT, ts TIMESTAMP(3), place BIGINT METADATA FROM 'offset' VIRTUAL, "
        "topic STRING METADATA VIRTUAL, `partition` INT METADATA VIRTUAL, kind STRING METADATA FROM 'timestamp-type' "
        "VIRTUAL, `timestamp` TIMESTAMP_LTZ(3) METADATA, headers MAP<STRING, BYTES> METADATA",
        kafka_broker, unique_name, value__format="json", key__format="csv", key__csv__field_delimiter=";",
        key__fields="k_one;k_two", key__fields_prefix="k_", value__fields_include="EXCEPT_KEY", **ENDS,
    )  # fmt: skip
    found = rows(
        t_env,
        "SELECT n, k_one, k_two, CAST(ts AS STRING), place, topic, `partition`, kind, `timestamp`, headers['from'] "
        "FROM t",
    )
    assert [(*row[:8], row[8].timestamp(), row[9]) for row in found] == [
        (1, "a", "b", "2026-11-16 07:00:00.250", 0, unique_name, 0, "CreateTime", BEGAN_S, b"x"),
        (2, None, None, None, 2, unique_name, 0, "CreateTime", BEGAN_S + 1, None),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scan__startup__mode": "earliest-offset"}, [0, 1, 2, 3]),
        ({"scan__startup__mode": "timestamp", "scan__startup__timestamp_millis": f"{BEGAN_S + 2}000"}, [2, 3]),
        ({"scan__startup__mode": "specific-offsets", "scan__startup__specific_offsets": "partition:0,offset:3"}, [3]),
        ({"scan__startup__mode": "group-offsets", "properties__auto__offset__reset": "earliest"}, [0, 1, 2, 3]),
        ({"scan__bounded__mode": "timestamp", "scan__bounded__timestamp_millis": f"{BEGAN_S + 3}000"}, [0, 1, 2]),
        ({"scan__bounded__mode": "specific-offsets", "scan__bounded__specific_offsets": "partition:0,offset:1"}, [0]),
    ],
)  # fmt: skip
def test_starting_and_stopping_options(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str, options: dict[str, str], expected: list[int]
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    for number in range(4):
        produce(kafka_broker.bootstrap, unique_name, [str(number)], timestamp=(BEGAN_S + number) * 1_000)
    given = {**ENDS, "properties__group__id": unique_name, **options}
    define(t_env, "t", "n INT", kafka_broker, unique_name, format="csv", **given)
    assert rows(t_env, "SELECT n FROM t") == [(number,) for number in expected]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "none"])
def test_rows_are_written_as_messages(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str, guarantee: str
) -> None:
    kafka_broker.create_topic(unique_name, 2)
    columns = "id INT, word STRING, `timestamp` TIMESTAMP_LTZ(3) METADATA, headers MAP<STRING, BYTES> METADATA"
    define(
        t_env, "t", columns, kafka_broker, unique_name, key__format="raw", key__fields="id", value__format="json",
        sink__delivery_guarantee=guarantee, sink__transactional_id_prefix=unique_name, **ENDS,
    )  # fmt: skip
    t_env.execute_sql(
        f"INSERT INTO t SELECT id, word, TO_TIMESTAMP_LTZ({BEGAN_S} + id, 0), MAP['h', CAST('v' AS BYTES)] FROM "
        "(VALUES (1, 'a'), (2, CAST(NULL AS STRING))) AS rows_of (id, word)"
    ).wait()
    consumer = Consumer(
        {"bootstrap.servers": kafka_broker.bootstrap, "group.id": f"{unique_name}-x", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([unique_name])  # committed messages may become visible a moment later
    messages = []
    while len(messages) < 2:
        message = next_message(consumer)
        assert message.error() is None
        messages.append((message.key(), json.loads(message.value())))
    consumer.close()
    assert sorted(messages) == [(b"\0\0\0\1", {"id": 1, "word": "a"}), (b"\0\0\0\2", {"id": 2, "word": None})]
    found = rows(t_env, "SELECT id, word, `timestamp`, headers['h'] FROM t")
    assert [(row[0], row[1], row[2].timestamp(), row[3]) for row in found] == [
        (1, "a", BEGAN_S + 1, b"v"),
        (2, None, BEGAN_S + 2, b"v"),
    ]


def test_a_malformed_message_is_reported_with_its_position(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ['{"n": 1}', '{"n": "x"}'])
    define(t_env, "strict", "n INT", kafka_broker, unique_name, format="json", **ENDS)
    with pytest.raises(MillstreamError, match=r"partition 0, offset 1: its value cannot be read: field 'n'"):
        rows(t_env, "SELECT n FROM strict")
    define(
        t_env,
        "mild",
        "n INT, w STRING",
        kafka_broker,
        unique_name,
        format="json",
        json__ignore_parse_errors="true",
        **ENDS,
    )
    with t_env.execute_sql("SELECT n FROM mild").collect() as found:
        assert [row[0] for row in found] == [1, None]
