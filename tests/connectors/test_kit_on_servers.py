"""Every connector of ours that needs a server passes the public connector kit, on the real server."""

from __future__ import annotations

from collections import defaultdict

import pytest
import redis
from database_rows import WORDS, query, url_of, words
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from kafka_writers import produce
from s3_buckets import Bucket
from servers.committed_topics import read_topic
from servers.http_service import HttpService
from servers.kafka import KafkaBroker
from servers.mariadb import MariadbServer
from servers.minio import MinioServer
from servers.postgres import PostgresServer
from servers.rabbitmq import RabbitServer
from servers.redis import RedisServer
from servers.server_process import free_port
from waits.patience import PATIENCE_S

from millstream.common import Encoder, Row, SimpleStringSchema, Types
from millstream.datastream.connectors.base import DeliveryGuarantee
from millstream.datastream.connectors.databases import DatabaseSink, PostgresChanges, PostgresTable
from millstream.datastream.connectors.delta import DeltaSink
from millstream.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from millstream.datastream.connectors.http import HttpSink
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from millstream.datastream.connectors.redis import RedisSink
from millstream.storage import patience
from millstream.testing.connectors import Broken, check_sink, check_source

SECRET = "hunter2-of-the-kit"
TEXTS = [f"{letter}{n}" for n in range(5) for letter in "abc"]


@pytest.fixture(autouse=True)
def _a_busy_server_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit has no restart strategy: a server that does not respond for 10 s would fail it."""
    monkeypatch.setattr(patience, "PATIENCE_S", PATIENCE_S)


# --- Kafka ----------------------------------------------------------------------------------------------------


def kafka_source(bootstrap: str, topic: str, *, bounded: bool = True) -> KafkaSource:
    builder = KafkaSource.builder().set_bootstrap_servers(bootstrap).set_topics(topic)
    builder.set_value_only_deserializer(SimpleStringSchema())
    builder.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    return (builder.set_bounded(KafkaOffsetsInitializer.latest()) if bounded else builder).build()


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "endless"])
def test_kafka_source(bounded: bool, kafka_broker: KafkaBroker, unique_name: str) -> None:
    topic = kafka_broker.create_topic(unique_name, 2)
    for partition in range(2):
        produce(kafka_broker.bootstrap, topic, [f"{partition}-{n}" for n in range(17)], partition)
    broken = [
        Broken("a missing topic", lambda: kafka_source(kafka_broker.bootstrap, "nosuch" + topic), ["nosuch" + topic]),
        Broken("nobody who listens", lambda: kafka_source(f"127.0.0.1:{free_port()}", topic), ["127.0.0.1"], 60),
    ]
    expected = [f"{partition}-{n}" for partition in range(2) for n in range(17)]
    check_source(
        kafka_source(kafka_broker.bootstrap, topic, bounded=bounded),
        expected=expected,
        broken=broken if bounded else [],
    )


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_kafka_sink(guarantee: DeliveryGuarantee, kafka_broker: KafkaBroker, unique_name: str) -> None:
    topics: set[str] = set()

    def make(place: str) -> KafkaSink:
        topic = f"{unique_name}-{place}"
        if topic not in topics:
            topics.add(kafka_broker.create_topic(topic, 1))
        serializer = KafkaRecordSerializationSchema.builder().set_topic(topic)
        serializer.set_value_serialization_schema(SimpleStringSchema())
        builder = KafkaSink.builder().set_bootstrap_servers(kafka_broker.bootstrap)
        builder.set_record_serializer(serializer.build()).set_delivery_guarantee(guarantee)
        return builder.set_transactional_id_prefix(topic).build()

    def read(place: str) -> list[str]:
        topic = f"{unique_name}-{place}"
        messages = read_topic(kafka_broker.bootstrap, topic) if topic in topics else []
        return [message.value.decode() for message in messages if message.value is not None]

    check_sink(make, read, records=TEXTS, type_info=Types.STRING(), crash_points=8)


# --- databases ------------------------------------------------------------------------------------------------


def test_postgres_sink(postgres_server: PostgresServer, unique_name: str) -> None:
    def make(place: str) -> DatabaseSink:
        query(postgres_server, f"create table if not exists {unique_name}{place} (word text not null, n bigint)")
        return DatabaseSink(url_of(postgres_server), f"{unique_name}{place}", password=SECRET)

    def read(place: str) -> list[Row]:
        return [Row(word=word, n=n) for word, n in query(postgres_server, f"select word, n from {unique_name}{place}")]

    broken = [
        Broken("a missing table", lambda: DatabaseSink(url_of(postgres_server), "nosuch", password=SECRET), ["nosuch"]),
        Broken(
            "nobody who listens",
            lambda: DatabaseSink(f"postgresql://u@127.0.0.1:{free_port()}/x", "t", password=SECRET, patience_s=1.0),
            ["127.0.0.1"],
        ),
    ]
    check_sink(make, read, records=words(14), type_info=WORDS, broken=broken, secrets=[SECRET], crash_points=10)


def test_postgres_sink_by_key(postgres_server: PostgresServer, unique_name: str) -> None:
    def make(place: str) -> DatabaseSink:
        query(postgres_server, f"create table if not exists {unique_name}{place} (word text primary key, n bigint)")
        return DatabaseSink(url_of(postgres_server), f"{unique_name}{place}", key="word")

    def read(place: str) -> list[Row]:
        return [Row(word=word, n=n) for word, n in query(postgres_server, f"select word, n from {unique_name}{place}")]

    rows = [
        Row(word=f"w{n}", n=n) for n in range(14)
    ]  # each key once: the order of two writes is defined by the stream
    check_sink(make, read, records=rows, type_info=WORDS, crash_points=10)


def test_mariadb_sink(mariadb_server: MariadbServer, unique_name: str) -> None:
    url = f"mysql://{mariadb_server.user}@{mariadb_server.host}:{mariadb_server.port}/{mariadb_server.database}"

    def make(place: str) -> DatabaseSink:
        mariadb_server.execute(f"create table if not exists {unique_name}{place} (word varchar(20) not null, n bigint)")
        return DatabaseSink(url, f"{unique_name}{place}", password=mariadb_server.password)

    def read(place: str) -> list[Row]:
        return [Row(word=word, n=n) for word, n in mariadb_server.execute(f"select word, n from {unique_name}{place}")]

    left_out = {"crash-process": "what leaves the driver is not told the password"}
    secrets = [mariadb_server.password]
    check_sink(make, read, records=words(14), type_info=WORDS, secrets=secrets, left_out=left_out, crash_points=10)


@pytest.fixture
def table(postgres_server: PostgresServer, unique_name: str) -> str:
    query(postgres_server, f"create table {unique_name} (id int primary key, name text)")
    query(postgres_server, f"alter table {unique_name} replica identity full")
    query(postgres_server, f"insert into {unique_name} select i, 'n' || i from generate_series(1, 60) i")
    return unique_name


def test_postgres_table(postgres_server: PostgresServer, table: str) -> None:
    expected = [Row(id=n, name=f"n{n}") for n in range(1, 61)]
    check_source(PostgresTable(url_of(postgres_server), table, password=SECRET), expected=expected, secrets=[SECRET])


def test_postgres_changes(postgres_server: PostgresServer, table: str) -> None:
    check_source(PostgresChanges(url_of(postgres_server), table, password=SECRET, bounded=True), secrets=[SECRET])


# --- Redis, HTTP ----------------------------------------------------------------------------------------------


def test_redis_stream(redis_server: RedisServer, unique_name: str) -> None:
    def read(place: str) -> list[str]:
        with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
            return [fields["value"] for _, fields in client.xrange(f"{unique_name}{place}")]

    nowhere = f"redis://:{SECRET}@127.0.0.1:{free_port()}/0"
    broken = [Broken("nobody who listens", lambda: RedisSink.stream(nowhere, "x"), ["127.0.0.1"], 60)]
    check_sink(
        lambda place: RedisSink.stream(redis_server.url, f"{unique_name}{place}"),
        read,
        records=TEXTS,
        type_info=Types.STRING(),
        broken=broken,
        secrets=[SECRET],
    )


def test_redis_values(redis_server: RedisServer, unique_name: str) -> None:
    pairs = Types.ROW_NAMED(["key", "value"], [Types.STRING(), Types.STRING()])

    def read(place: str) -> list[Row]:
        prefix = f"{unique_name}{place}:"
        with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
            keys = [key for key in client.keys(f"{prefix}*") if "millstream" not in key]
            return [Row(key=key.removeprefix(prefix), value=client.get(key)) for key in keys]

    check_sink(
        lambda place: RedisSink.values(redis_server.url, key="key", value="value", prefix=f"{unique_name}{place}:"),
        read,
        records=[Row(key=f"k{n}", value=f"v{n}") for n in range(14)],
        type_info=pairs,
    )


def test_http_sink_with_a_receiver_that_knows_keys(http_service: HttpService) -> None:
    """A receiver that deduplicates by key, as the sink requires: then every record is present once."""

    def read(place: str) -> list[str]:
        bodies = {
            headers["idempotency-key"]: body
            for _, headers, body in http_service.requests
            if headers["x-place"] == place
        }
        return [line for body in bodies.values() for line in body.decode().splitlines()]

    def make(place: str) -> HttpSink:
        own = {"X-Place": place}
        return HttpSink(http_service.url, SimpleStringSchema(), body="lines", records_max=3, headers=own)

    check_sink(make, read, records=TEXTS, type_info=Types.STRING())


# --- RabbitMQ -------------------------------------------------------------------------------------------------


def test_rabbitmq_source(rabbit_server: RabbitServer, unique_name: str) -> None:
    """Unbounded: the queue's messages are read, and stay readable from the job's store after they left the queue."""
    config = RMQConnectionConfig.Builder().set_uri(rabbit_server.url).build()
    connection = rabbit_server.connect()
    channel = connection.channel()
    channel.queue_declare(unique_name, durable=True)
    for text in TEXTS:
        channel.basic_publish("", unique_name, text.encode())
    connection.close()
    # A missing queue is declared, as Flink's source does.
    check_source(RMQSource(config, unique_name, False, SimpleStringSchema()), expected=TEXTS)


def test_rabbitmq_sink(rabbit_server: RabbitServer, unique_name: str) -> None:
    """A reader consumes messages, so earlier reads count as well."""
    config = RMQConnectionConfig.Builder().set_uri(rabbit_server.url).build()
    taken: dict[str, list[str]] = defaultdict(list)

    def read(place: str) -> list[str]:
        connection = rabbit_server.connect()
        channel = connection.channel()
        channel.queue_declare(unique_name + place, durable=True)
        while (message := channel.basic_get(unique_name + place, auto_ack=True))[0] is not None:
            taken[place].append(message[2].decode())
        connection.close()
        return taken[place]

    def make(place: str) -> RMQSink:
        return RMQSink(config, unique_name + place, SimpleStringSchema())

    check_sink(make, read, records=TEXTS, type_info=Types.STRING(), crash_points=10)


# --- S3 -------------------------------------------------------------------------------------------------------


def test_files_on_s3(bucket: Bucket) -> None:
    def make(place: str) -> FileSink:
        return FileSink.for_row_format(f"{bucket.url}/{place}", Encoder.simple_string_encoder()).build()

    check_sink(
        make,
        lambda place: bucket.lines(f"{place}/"),
        records=TEXTS,
        type_info=Types.STRING(),
        secrets=[MinioServer.secret_key],
        crash_points=15,
    )


def test_files_read_from_s3(bucket: Bucket) -> None:
    bucket.put("in/a.txt", "".join(f"a{n}\n" for n in range(30)).encode())
    bucket.put("in/deep/b.txt", "\n".join(f"b{n}" for n in range(20)).encode())
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{bucket.url}/in").build()
    check_source(source, expected=[*(f"a{n}" for n in range(30)), *(f"b{n}" for n in range(20))])


def test_delta_on_s3(bucket: Bucket) -> None:
    sale = Types.ROW_NAMED(["shop", "cents"], [Types.STRING(), Types.LONG()])

    def read(place: str) -> list[Row]:
        try:
            rows = DeltaTable(f"{bucket.url}/{place}").to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return []
        return [Row(shop=row["shop"], cents=row["cents"]) for row in rows]

    check_sink(
        lambda place: DeltaSink.for_row_type(f"{bucket.url}/{place}", sale).build(),
        read,
        records=[Row(shop=f"s{n % 3}", cents=n) for n in range(14)],
        type_info=sale,
        crash_points=10,
        left_out={"crash-process": "deltalake's runtime does not survive a fork"},
    )
