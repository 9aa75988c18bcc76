"""A pytest fixture for each server, for a whole test process: each test uses names of its own (`unique_name`).

A test that kills a server restarts it before it ends; in any case the fixture restarts it for the next test, with its
data. A test that needs a server for itself creates one: `with_server(KafkaBroker())`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import pytest
from inputs.fresh_names import fresh_name

from servers.http_service import http_service
from servers.kafka import KafkaBroker
from servers.mariadb import MariadbServer
from servers.minio import MinioServer
from servers.moto import MotoServer
from servers.postgres import PostgresServer
from servers.rabbitmq import RabbitServer
from servers.redis import RedisServer
from servers.server_process import ServerProcess
from servers.spark_cluster import SparkCluster
from servers.tcp_proxy import TcpProxy

__all__ = [
    "http_service",
    "kafka_broker",
    "kafka_proxy",
    "mariadb_server",
    "minio_server",
    "moto_server",
    "postgres_proxy",
    "postgres_server",
    "rabbit_server",
    "redis_server",
    "spark_cluster",
    "unique_name",
    "with_server",
]

Server = TypeVar("Server", bound=ServerProcess)


@contextlib.contextmanager
def with_server(server: Server) -> Iterator[Server]:
    """Start it, and remove it with its data afterwards."""
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _running(server: Server) -> Server:
    if not server.is_running():
        server.start()
    return server


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A name for a topic, table, bucket or queue that no other test uses: small letters and digits, at most 40."""
    stem = "".join(letter for letter in request.node.originalname.lower() if letter.isalnum())
    return fresh_name(f"t{stem.removeprefix('test')[:26]}").replace("-", "n")


@pytest.fixture(scope="session")
def _kafka() -> Iterator[KafkaBroker]:
    with with_server(KafkaBroker()) as broker:
        yield broker


@pytest.fixture
def kafka_broker(_kafka: KafkaBroker) -> KafkaBroker:
    return _running(_kafka)


@pytest.fixture
def kafka_proxy(kafka_broker: KafkaBroker) -> Iterator[TcpProxy]:
    """The proxy to `kafka_broker`: its `address` is the bootstrap."""
    with kafka_broker.proxy() as proxy:
        yield proxy


@pytest.fixture(scope="session")
def _postgres() -> Iterator[PostgresServer]:
    with with_server(PostgresServer()) as server:
        yield server


@pytest.fixture
def postgres_server(_postgres: PostgresServer) -> PostgresServer:
    return _running(_postgres)


@pytest.fixture
def postgres_proxy(postgres_server: PostgresServer) -> Iterator[TcpProxy]:
    """The proxy to `postgres_server`: clients use `postgres_server.dsn_at(postgres_proxy.port)`."""
    with postgres_server.proxy() as proxy:
        yield proxy


@pytest.fixture(scope="session")
def _minio() -> Iterator[MinioServer]:
    with with_server(MinioServer()) as server:
        yield server


@pytest.fixture
def minio_server(_minio: MinioServer) -> MinioServer:
    return _running(_minio)


@pytest.fixture(scope="session")
def _redis() -> Iterator[RedisServer]:
    with with_server(RedisServer()) as server:
        yield server


@pytest.fixture
def redis_server(_redis: RedisServer) -> RedisServer:
    return _running(_redis)


@pytest.fixture(scope="session")
def _rabbit() -> Iterator[RabbitServer]:
    with with_server(RabbitServer()) as server:
        yield server


@pytest.fixture
def rabbit_server(_rabbit: RabbitServer) -> RabbitServer:
    return _running(_rabbit)


@pytest.fixture(scope="session")
def _mariadb() -> Iterator[MariadbServer]:
    with with_server(MariadbServer()) as server:
        yield server


@pytest.fixture
def mariadb_server(_mariadb: MariadbServer) -> MariadbServer:
    return _running(_mariadb)


@pytest.fixture(scope="session")
def _moto() -> Iterator[MotoServer]:
    with with_server(MotoServer()) as server:
        yield server


@pytest.fixture
def moto_server(_moto: MotoServer) -> MotoServer:
    return _running(_moto)


@pytest.fixture(scope="session")
def _spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark-cluster")) as cluster:
        yield cluster


@pytest.fixture
def spark_cluster(_spark_cluster: SparkCluster) -> SparkCluster:
    """A master and three workers; killed ones are restarted after a test."""
    _spark_cluster.start()
    return _spark_cluster
