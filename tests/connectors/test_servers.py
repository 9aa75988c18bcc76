"""The test servers: their data survives kill -9, and no server outlives pytest."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import psutil
import pytest
from servers.kafka import KafkaBroker
from servers.mariadb import MariadbServer
from servers.minio import MinioServer
from servers.moto import MotoServer
from servers.postgres import PostgresServer
from servers.rabbitmq import RabbitServer
from servers.redis import RedisServer
from servers.tcp_proxy import TcpProxy
from waits.patience import PATIENCE_S

TESTS = Path(__file__).resolve().parents[1]


def _produce(bootstrap: str, topic: str, value: bytes) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    producer.produce(topic, value)
    assert producer.flush() == 0


def _consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=PATIENCE_S) if message.error() is None]
    finally:
        consumer.close()


def test_kafka_retains_its_records_and_its_address_through_kill_9(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    _produce(kafka_broker.bootstrap, unique_name, b"before")
    kafka_broker.kill()
    kafka_broker.start()
    _produce(kafka_broker.bootstrap, unique_name, b"after")
    assert _consume(kafka_broker.bootstrap, unique_name, 2) == [b"before", b"after"]


def test_kafka_is_reachable_through_the_proxy_only_while_it_is_connected(
    kafka_broker: KafkaBroker, kafka_proxy: TcpProxy, unique_name: str
) -> None:
    from confluent_kafka import Producer

    kafka_broker.create_topic(unique_name, 1)
    _produce(kafka_proxy.address, unique_name, b"one")
    kafka_proxy.cut()
    producer = Producer({"bootstrap.servers": kafka_proxy.address, "log_level": 0})
    producer.produce(unique_name, b"two")
    assert producer.flush(1) == 1
    kafka_proxy.mend()
    assert producer.flush() == 0
    assert _consume(kafka_broker.bootstrap, unique_name, 2) == [b"one", b"two"]
    assert kafka_proxy.connections_made >= 2


def test_postgres_retains_committed_rows_through_kill_9(postgres_server: PostgresServer, unique_name: str) -> None:
    postgres_server.execute(f"create table {unique_name} (n int)")
    postgres_server.execute(f"insert into {unique_name} values (1)")
    postgres_server.kill()
    postgres_server.start()
    assert postgres_server.execute(f"select n from {unique_name}") == [(1,)]
    assert postgres_server.execute("show wal_level") == [("logical",)]


def test_postgres_loses_its_clients_when_the_proxy_is_cut(
    postgres_server: PostgresServer, postgres_proxy: TcpProxy
) -> None:
    import psycopg

    dsn = postgres_server.dsn_at(postgres_proxy.port)
    with psycopg.connect(dsn) as connection:
        connection.execute("select 1")
        postgres_proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn, connect_timeout=5)
    postgres_proxy.mend()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_minio_retains_its_objects_through_kill_9(minio_server: MinioServer, unique_name: str) -> None:
    bucket = minio_server.create_bucket(unique_name)
    minio_server.client().put_object(Bucket=bucket, Key="a", Body=b"kept")
    minio_server.kill()
    minio_server.start()
    assert minio_server.client().get_object(Bucket=bucket, Key="a")["Body"].read() == b"kept"


def test_redis_retains_its_values_through_kill_9(redis_server: RedisServer, unique_name: str) -> None:
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        client.set(unique_name, "kept")
    redis_server.kill()
    redis_server.start()
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.get(unique_name) == b"kept"


def test_rabbitmq_retains_durable_messages_through_kill_9(rabbit_server: RabbitServer, unique_name: str) -> None:
    import pika

    connection = rabbit_server.connect()
    channel = connection.channel()
    channel.queue_declare(unique_name, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", unique_name, b"kept", pika.BasicProperties(delivery_mode=2))
    connection.close()
    rabbit_server.kill()
    rabbit_server.start()
    connection = rabbit_server.connect()
    _, _, body = connection.channel().basic_get(unique_name, auto_ack=True)
    connection.close()
    assert body == b"kept"


def test_mariadb_retains_committed_rows_through_kill_9(mariadb_server: MariadbServer, unique_name: str) -> None:
    mariadb_server.execute(f"create table {unique_name} (n int)")
    mariadb_server.execute(f"insert into {unique_name} values (1)")
    mariadb_server.kill()
    mariadb_server.start()
    assert mariadb_server.execute(f"select n from {unique_name}") == [(1,)]


def test_moto_imitates_kinesis(moto_server: MotoServer, unique_name: str) -> None:
    kinesis = moto_server.client("kinesis")
    kinesis.create_stream(StreamName=unique_name, ShardCount=2)
    assert kinesis.describe_stream_summary(StreamName=unique_name)["StreamDescriptionSummary"]["OpenShardCount"] == 2


_STARTS_TWO = """
import sys, time
from servers.postgres import PostgresServer
from servers.redis import RedisServer
for server in (RedisServer(), PostgresServer()):
    server.start()
    print(server.folder, server.port, flush=True)
time.sleep(600)
"""


def test_no_server_outlives_a_test_process_that_was_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    child = subprocess.Popen([sys.executable, "-c", _STARTS_TWO], env=environment, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        folders = [child.stdout.readline().split()[0] for _ in range(2)]
        assert all(Path(folder).is_dir() for folder in folders)
        child.send_signal(signal.SIGKILL)
        child.wait(30)

    def left() -> list[str]:
        lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
        return [line for line in lines if any(folder in line for folder in folders)]

    deadline = time.monotonic() + PATIENCE_S
    while (left() or any(Path(folder).exists() for folder in folders)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left()
    assert not any(Path(folder).exists() for folder in folders)


def test_the_server_download_script_is_silent_if_nothing_is_missing() -> None:
    script = TESTS.parent / "scripts" / "servers"
    made = subprocess.run([script, sys.executable], capture_output=True, text=True, timeout=120)
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    refused = subprocess.run([script, sys.executable, "oracle"], capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2 and "'oracle'" in refused.stderr


def test_a_closing_proxy_leaves_no_socket_of_concurrent_connections() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=200) as target, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        clients: list[socket.socket] = []
        for _ in range(20):
            proxy = TcpProxy(target.getsockname()[1])
            caller = threading.Thread(target=_call_in, args=(proxy.port, clients))
            caller.start()
            proxy.close()
            caller.join()
        gc.collect()
        for client in clients:
            client.close()
    assert [str(one.message) for one in told] == []


def _call_in(port: int, clients: list[socket.socket]) -> None:
    for _ in range(6):
        try:
            clients.append(socket.create_connection(("127.0.0.1", port)))
        except OSError:
            return
