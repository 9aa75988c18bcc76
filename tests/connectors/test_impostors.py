"""A server with a certificate of another host is rejected by every client, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.impostor import Impostor, write_certificates

from millstream.connectors.databases.addresses import parse_address
from millstream.connectors.databases.dialect import Timeouts, dialect_of
from millstream.connectors.delta.table import opened_table
from millstream.connectors.http.requests import Destination, HttpConnection
from millstream.connectors.kafka import cluster
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.cluster import Cluster
from millstream.connectors.kinesis.clients import AwsAddress, call_with_retries, client_of
from millstream.connectors.messages.registry import SchemaRegistry
from millstream.connectors.rabbitmq.connection import RabbitAddress, open_channel
from millstream.datastream.connectors.databases import DatabaseSink
from millstream.datastream.connectors.redis import RedisSink
from millstream.errors import MillstreamError
from millstream.query.client import QueryClient
from millstream.storage import open_store

PASSWORD = "hush-hush"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An authority's certificate, and one that it signed for another host."""
    return write_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def impostor(certificates: tuple[Path, Path]) -> Iterator[Impostor]:
    with Impostor(certificates[1]) as listening:
        yield listening


def refused(act: Callable[[], Any]) -> str:
    with pytest.raises(MillstreamError) as refusal:
        act()
    assert PASSWORD not in str(refusal.value)
    return str(refusal.value)


# --- databases ---------------------------------------------------------------------------------------------------

UNSIGNED, ELSEWHERE = "unable to get local issuer|self-signed|certificate verify failed", "IP address mismatch"
MYSQL = [
    ("mysql", "sslmode=verify-full", UNSIGNED),
    ("mysql", "ssl_mode=VERIFY_IDENTITY", UNSIGNED),
    ("mysql", "sslmode=verify-ca", UNSIGNED),
    ("mysql", "sslmode=verify-full&ssl_ca={ca}", ELSEWHERE),
    ("mysql", "ssl_ca={ca}", ELSEWHERE),
    ("mysql", "ssl_verify_identity=true&ssl_ca={ca}", ELSEWHERE),
    ("jdbc:mysql", "sslMode=VERIFY_IDENTITY&sslCa={ca}", ELSEWHERE),
    ("jdbc:mysql", "sslMode=VERIFY_CA", UNSIGNED),
    ("jdbc:mysql", "useSSL=true&verifyServerCertificate=true", UNSIGNED),
    ("jdbc:mariadb", "useSSL=true", UNSIGNED),
    ("jdbc:mariadb", "sslMode=verify-full&serverSslCert={ca}", ELSEWHERE),
]


@pytest.mark.parametrize(("scheme", "options", "reason"), MYSQL)
def test_mysql_rejects_a_certificate_that_its_mode_does_not_accept(
    scheme: str, options: str, reason: str, certificates: tuple[Path, Path]
) -> None:
    ca, certificate = certificates
    with Impostor(certificate, "mysql") as impostor:
        url = f"{scheme}://127.0.0.1:{impostor.port}/test?{options.format(ca=ca)}"
        sink = DatabaseSink(url, "t", user="ann", password=PASSWORD, patience_s=60)
        message = refused(lambda: sink._connector.opened(None))
        assert f"127.0.0.1:{impostor.port}" in message and "certificate" in message
        assert any(part in message for part in reason.split("|")), message
        assert impostor.received == b""


@pytest.mark.parametrize("options", ["sslmode=require", "sslmode=verify-ca&ssl_ca={ca}", "useSSL=true"])
def test_mysql_connects_to_a_server_that_its_mode_accepts(options: str, certificates: tuple[Path, Path]) -> None:
    ca, certificate = certificates
    with Impostor(certificate, "mysql") as impostor:
        address = parse_address(f"mysql://ann:{PASSWORD}@127.0.0.1:{impostor.port}/test?{options.format(ca=ca)}")
        with pytest.raises(Exception, match=r"Lost connection|server") as error:
            dialect_of(address).connect(address, Timeouts())
        assert "certificate" not in str(error.value)
    assert b"ann" in impostor.received


@pytest.mark.parametrize("mode", ["REQUIRED", "verify-full"])
def test_mysql_sends_no_password_to_a_server_without_tls(mode: str, certificates: tuple[Path, Path]) -> None:
    with Impostor(certificates[1], "mysql without tls") as impostor:
        url = f"mysql://127.0.0.1:{impostor.port}/test?sslmode={mode}"
        sink = DatabaseSink(url, "t", user="ann", password=PASSWORD, patience_s=60)
        message = refused(lambda: sink._connector.opened(None))
        assert "TLS" in message and f"127.0.0.1:{impostor.port}" in message
    assert b"ann" not in impostor.received


@pytest.mark.parametrize(
    ("scheme", "options", "reason"),
    [
        ("postgresql", "sslmode=verify-full&sslrootcert={ca}", "does not match host name"),
        ("jdbc:postgresql", "ssl=true&sslrootcert={ca}", "does not match host name"),
        ("jdbc:postgresql", "ssl=true", "certificate"),
        ("postgresql", "sslmode=verify-ca&sslrootcert={other}", "certificate verify failed"),
    ],
)
def test_postgresql_rejects_a_certificate_that_its_mode_does_not_accept(
    scheme: str, options: str, reason: str, certificates: tuple[Path, Path], tmp_path: Path
) -> None:
    ca, certificate = certificates
    other, _ = write_certificates(tmp_path)
    with Impostor(certificate, "postgres") as impostor:
        url = f"{scheme}://127.0.0.1:{impostor.port}/test?{options.format(ca=ca, other=other)}"
        sink = DatabaseSink(url, "t", user="ann", password=PASSWORD, patience_s=60)
        message = refused(lambda: sink._connector.opened(None))
        assert reason in message and f"127.0.0.1:{impostor.port}" in message
        assert impostor.received == b""


# --- brokers and services ----------------------------------------------------------------------------------------


def test_kafka_rejects_an_impostor(
    impostor: Impostor, certificates: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE_S", 2.0)
    for trust in ({}, {"ssl.truststore.location": str(certificates[0]), "ssl.truststore.type": "PEM"}):
        properties = {"bootstrap.servers": f"127.0.0.1:{impostor.port}", "security.protocol": "SSL", **trust}
        asked = Cluster(ClientSettings.of(properties))
        message = refused(lambda asked=asked: asked.topics(["t"], 2.0))  # type: ignore[misc]
        asked.close()
        assert f"127.0.0.1:{impostor.port}" in message and "certificate" in message
    assert impostor.received == b""


def test_redis_rejects_an_impostor(impostor: Impostor) -> None:
    sink = RedisSink.values(f"rediss://ann:{PASSWORD}@127.0.0.1:{impostor.port}/0", key="word", value="word")
    message = refused(lambda: sink._connector.opened(None))
    assert f"127.0.0.1:{impostor.port}" in message and "certificate" in message
    assert impostor.received == b""


def test_rabbitmq_rejects_an_impostor(impostor: Impostor) -> None:
    address = RabbitAddress(uri=f"amqps://ann:{PASSWORD}@127.0.0.1:{impostor.port}/%2F")
    address.check()
    message = refused(lambda: open_channel(address, "q"))
    assert f"127.0.0.1:{impostor.port}" in message and "certificate" in message
    assert impostor.received == b""


def test_an_impostor_web_service_is_sent_nothing(impostor: Impostor) -> None:
    connection = HttpConnection(Destination(f"https://127.0.0.1:{impostor.port}/hook"))
    message = refused(lambda: connection.send(b"{}", {}))
    assert f"127.0.0.1:{impostor.port}" in message and "certificate" in message
    assert impostor.received == b""


def test_an_impostor_schema_registry_is_sent_no_password(impostor: Impostor) -> None:
    registry = SchemaRegistry(f"https://127.0.0.1:{impostor.port}", "ann", PASSWORD)
    message = refused(lambda: registry.schema(7))
    assert f"127.0.0.1:{impostor.port}" in message and "certificate" in message
    assert impostor.received == b""


def test_kinesis_rejects_an_impostor(impostor: Impostor, monkeypatch: pytest.MonkeyPatch) -> None:
    address = AwsAddress("eu-central-1", f"https://127.0.0.1:{impostor.port}", "key", PASSWORD)
    client = client_of(address, "kinesis")
    message = refused(lambda: call_with_retries(f"Kinesis at {address.place}", client.list_streams))
    client.close()
    assert f"127.0.0.1:{impostor.port}" in message and "certificate" in message
    assert impostor.received == b""


# --- stores and queries ------------------------------------------------------------------------------------------


@pytest.fixture
def service(impostor: Impostor, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of an object store whose address belongs to an impostor."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{impostor.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    return f"127.0.0.1:{impostor.port}"


def test_an_impostor_object_store_is_rejected(service: str, impostor: Impostor) -> None:
    message = refused(lambda: open_store("s3://bucket/job").create("a", b"x"))
    assert "certificate" in message and service in message
    assert impostor.received == b""


def test_a_delta_table_at_an_impostor_is_rejected(service: str, impostor: Impostor) -> None:
    import pyarrow as pa

    message = refused(lambda: opened_table("s3://bucket/table", pa.schema([("a", pa.int64())]), ()))
    assert "certificate" in message
    assert impostor.received == b""


def test_an_impostor_query_server_is_sent_nothing(impostor: Impostor) -> None:
    with QueryClient([f"https://127.0.0.1:{impostor.port}"], job="count", token=PASSWORD, timeout_s=2) as client:
        message = refused(lambda: client.get("total", "a"))
    assert f"127.0.0.1:{impostor.port}" in message and "certificate" in message.lower()
    assert impostor.received == b""
