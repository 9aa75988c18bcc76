"""Metadata columns of Kafka tables, on a real broker: types, NULLs, metadata of formats, and writing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_writers import produce
from raw_kafka import produce_with_headers
from servers.kafka import KafkaBroker

from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

# A broker immediately removes messages older than its retention.
BEGAN_S = int(time.time()) - 600


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.get_config().set_local_timezone("UTC")
        yield t_env


def define(t_env: TableEnvironment, name: str, columns: str, broker: KafkaBroker, topic: str, more: str = "") -> None:
    given = more or "'format' = 'json'"
    if "upsert" not in given:
        given += ", 'connector' = 'kafka', 'scan.startup.mode' = 'earliest-offset'"
    t_env.execute_sql(
        f"CREATE TABLE {name} ({columns}) WITH ('topic' = '{topic}', 'scan.bounded.mode' = 'latest-offset', "
        f"'properties.bootstrap.servers' = '{broker.bootstrap}', {given})"
    )


def rows(t_env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(statement).collect() as found:
        return [tuple(each) for each in found]


def test_metadata_is_cast_to_the_declared_type_as_in_flink(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    headers = [("a", b"x"), ("b", None), ("a", b"z")]
    produce(
        kafka_broker.bootstrap, unique_name, ['{"n": 1}'], headers=headers, timestamp=BEGAN_S * 1_000 + 123
    )  # fmt: skip
    define(
        t_env, "t",
        "moment TIMESTAMP(0) METADATA FROM 'timestamp' VIRTUAL, n INT, place STRING METADATA FROM 'offset' VIRTUAL, "
        "`partition` TINYINT METADATA VIRTUAL, topic CHAR(2) METADATA VIRTUAL, kind VARCHAR(3) METADATA FROM "
        "'timestamp-type' VIRTUAL, headers MAP<STRING, STRING> METADATA VIRTUAL, twice AS place || place",
        kafka_broker, unique_name,
    )  # fmt: skip
    (found,) = rows(
        t_env, "SELECT n, UNIX_TIMESTAMP(CAST(moment AS STRING)), place, `partition`, topic, kind, twice FROM t"
    )
    assert found == (1, BEGAN_S, "0", 0, unique_name[:2], "Cre", "00")
    assert rows(t_env, "SELECT headers['a'], headers['b'] FROM t") == [("z", None)]
    assert rows(t_env, "SELECT COUNT(*) FROM t WHERE place = '0'") == [(1,)]


def test_a_header_without_a_value_is_null_or_empty_where_null_is_excluded(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ['{"n": 1}'], headers=[("b", None)])
    define(t_env, "t", "headers MAP<STRING, BYTES> METADATA VIRTUAL", kafka_broker, unique_name)
    define(
        t_env, "strict", "headers MAP<STRING NOT NULL, BYTES NOT NULL> NOT NULL METADATA", kafka_broker, unique_name
    )  # fmt: skip
    assert rows(t_env, "SELECT headers FROM t") == [({"b": None},)]
    assert rows(t_env, "SELECT headers FROM strict") == [({"b": b""},)]


@pytest.mark.parametrize(
    "column",
    [
        "moment TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL",
        "told STRING METADATA FROM 'timestamp' VIRTUAL, moment AS CAST(told AS TIMESTAMP(3))",
    ],
)
def test_event_time_may_be_metadata_of_another_type(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str, column: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    began_s = BEGAN_S // 10 * 10
    for second in (0, 1, 10):
        produce(kafka_broker.bootstrap, unique_name, ['{"n": 1}'], timestamp=(began_s + second) * 1_000)
    define(t_env, "t", f"n INT, {column}, WATERMARK FOR moment AS moment", kafka_broker, unique_name)
    found = rows(
        t_env,
        "SELECT COUNT(*), SUM(n) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(moment), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end",
    )
    assert sorted(found) == [(1, 1), (2, 2)]


SOURCE = {"ts_ms": BEGAN_S * 1_000, "db": "shop", "schema": "public", "table": "sales", "pos": 7, "gtid": None}
DEBEZIUM = [
    {"before": None, "after": {"id": 1}, "source": SOURCE, "op": "c", "ts_ms": BEGAN_S * 1_000 + 5},
    {"before": {"id": 1}, "after": {"id": 2}, "source": {**SOURCE, "table": "more"}, "op": "u"},
    {"before": {"id": 2}, "after": None, "op": "d"},
]


def test_debeziums_envelope_has_the_source_of_a_change(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, [*map(json.dumps, DEBEZIUM), None])
    define(
        t_env, "t",
        "place BIGINT METADATA FROM 'offset' VIRTUAL, id INT, told TIMESTAMP_LTZ(3) METADATA FROM "
        "'value.ingestion-timestamp' VIRTUAL, db STRING METADATA FROM 'value.source.database' VIRTUAL, `schema` STRING "
        "METADATA FROM 'value.source.schema' VIRTUAL, name STRING METADATA FROM 'value.source.table' VIRTUAL, happened "
        "BIGINT METADATA FROM 'value.source.timestamp' VIRTUAL, of_change MAP<STRING, STRING> METADATA FROM "
        "'value.source.properties' VIRTUAL, whole STRING METADATA FROM 'value.schema' VIRTUAL",
        kafka_broker, unique_name, "'format' = 'debezium-json'",
    )  # fmt: skip
    with pytest.raises(MillstreamError, match=r"'value.source.timestamp' is TIMESTAMP_LTZ.*cannot become BIGINT"):
        rows(t_env, "SELECT happened FROM t")
    found = rows(t_env, "SELECT id, place, db, `schema`, name, of_change['pos'], whole FROM t")
    public = ("shop", "public")
    assert found == [
        (1, 0, *public, "sales", "7", None), (1, 1, *public, "more", "7", None), (2, 1, *public, "more", "7", None),
        (2, 2, None, None, None, None, None),
    ]  # fmt: skip
    assert [row[0] and row[0].timestamp() for row in rows(t_env, "SELECT told FROM t")] == [
        BEGAN_S + 0.005, None, None, None,
    ]  # fmt: skip


def test_canals_messages_emit_all_their_rows(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    message = {
        "data": [{"id": "1"}, {"id": "2"}], "type": "INSERT", "database": "shop", "table": "sales", "ts": 7,
        "sqlType": {"id": 4}, "pkNames": ["id"],
    }  # fmt: skip
    produce(kafka_broker.bootstrap, unique_name, [json.dumps(message), '{"data": [{"id": "3"}], "type": "INSERT"}'])
    define(
        t_env, "t",
        "id INT, db STRING METADATA FROM 'value.database' VIRTUAL, name STRING METADATA FROM 'value.table' VIRTUAL, "
        "types MAP<STRING, INT> METADATA FROM 'value.sql-type' VIRTUAL, keys ARRAY<STRING> METADATA FROM "
        "'value.pk-names' VIRTUAL, told TIMESTAMP_LTZ(3) METADATA FROM 'value.ingestion-timestamp' VIRTUAL",
        kafka_broker, unique_name, "'value.format' = 'canal-json'",
    )  # fmt: skip
    found = rows(t_env, "SELECT id, db, name, types, keys, CAST(told AS STRING) FROM t")
    told = ("shop", "sales", {"id": 4}, ["id"], "1970-01-01 00:00:00.007")
    assert found == [(1, *told), (2, *told), (3, None, None, None, None, None)]


def test_metadata_is_written_from_any_castable_type_and_null_is_the_send_time(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    define(
        t_env, "t", "n INT, at_text STRING METADATA FROM 'timestamp', headers MAP<STRING, STRING> METADATA, "
        "`offset` BIGINT METADATA VIRTUAL", kafka_broker, unique_name,
    )  # fmt: skip
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(BEGAN_S))
    t_env.execute_sql(f"INSERT INTO t VALUES (1, '{moment}', MAP['h', 'v'])").wait()
    t_env.execute_sql("INSERT INTO t (n) VALUES (2)").wait()
    found = rows(t_env, "SELECT n, at_text, headers, `offset` FROM t")
    assert found[0] == (1, f"{moment}.000", {"h": "v"}, 0)
    assert found[1][1] > moment and found[1][2:] == ({}, 1)
    with pytest.raises(MillstreamError, match=r"CAST\(at_text AS TIMESTAMP_LTZ\(3\)\).*'no time'"):
        t_env.execute_sql("INSERT INTO t (n, at_text) VALUES (4, 'no time')").wait()
    with pytest.raises(MillstreamError, match="'offset' is VIRTUAL metadata, and cannot be written"):
        t_env.execute_sql("INSERT INTO t (n, `offset`) VALUES (3, 1)")


def test_a_time_before_1970_is_rejected_with_the_row_and_nothing_is_written(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    once = f"'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{unique_name}'"
    columns = "n INT, `timestamp` TIMESTAMP_LTZ(3) METADATA"
    define(t_env, "t", columns, kafka_broker, unique_name, f"'format' = 'json', {once}")
    with pytest.raises(MillstreamError, match=r"1969-12-31T23:59:59.995, and Kafka has no times before 1970"):
        t_env.execute_sql("INSERT INTO t VALUES (1, TO_TIMESTAMP_LTZ(7, 3)), (2, TO_TIMESTAMP_LTZ(-5, 3))").wait()
    assert rows(t_env, "SELECT n FROM t") == []


def test_upserts_read_and_write_metadata(t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    define(
        t_env, "t", "id INT, place STRING METADATA FROM 'offset' VIRTUAL, headers MAP<STRING, BYTES> METADATA, "
        "v STRING, PRIMARY KEY (id) NOT ENFORCED", kafka_broker, unique_name,
        "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'",
    )  # fmt: skip
    t_env.execute_sql("INSERT INTO t VALUES (1, MAP['k', x'aa'], 'a')").wait()
    t_env.execute_sql("INSERT INTO t VALUES (1, CAST(NULL AS MAP<STRING, BYTES>), 'b')").wait()
    assert rows(t_env, "SELECT id, place, headers, v FROM t") == [(1, "1", {}, "b")]


@pytest.mark.parametrize("ignores", [False, True])
def test_a_header_name_that_is_not_utf8_is_a_bad_message(
    t_env: TableEnvironment, kafka_broker: KafkaBroker, unique_name: str, ignores: bool
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ['{"n": 1}'] * 50, headers=[("a", b"\xff")])
    produce_with_headers(kafka_broker.bootstrap, unique_name, b'{"n": 2}', [(b"\xff\xfe", b"x")])
    produce_with_headers(kafka_broker.bootstrap, unique_name, b'{"n": 3}', [("ä".encode(), b"y")])
    more = f"'format' = 'json', 'json.ignore-parse-errors' = '{ignores}'"
    columns = "n INT, headers MAP<STRING, BYTES> METADATA VIRTUAL"
    define(t_env, "t", columns, kafka_broker, unique_name, more)
    if ignores:
        found = rows(t_env, "SELECT n, headers FROM t")
        assert sorted(found, key=str) == [(1, {"a": b"\xff"})] * 50 + [(3, {"ä": b"y"})]
    else:
        with pytest.raises(
            MillstreamError, match="partition 0, offset 50: the name of one of its headers is not UTF-8"
        ):
            rows(t_env, "SELECT n, headers FROM t")
    define(t_env, "plain", "n INT", kafka_broker, unique_name)
    assert sorted(rows(t_env, "SELECT n FROM plain")) == [(1,)] * 50 + [(2,), (3,)]
