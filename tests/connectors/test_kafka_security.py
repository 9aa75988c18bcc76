"""KafkaSource with a broker that requires TLS, a login and permissions: connects with Java's properties, or reports
why not.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from kafka_writers import administer, produce
from servers.fixtures import with_server
from servers.kafka import KafkaBroker
from waits.patience import PATIENCE_S

from millstream.common import SimpleStringSchema, WatermarkStrategy
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.errors import ConnectorError, MillstreamError
from millstream.testing import Collect, run

PASSWORD = "hush-hush"
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{password}";'


def certificate(folder: Path, name: str) -> Path:
    """A key store with a self-signed certificate for this machine, and the certificate in PEM form."""
    store = folder / f"{name}.p12"
    common = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", name]
    names = ["-dname", "CN=127.0.0.1", "-ext", "SAN=ip:127.0.0.1", "-keyalg", "EC", "-validity", "2"]
    subprocess.run(["keytool", "-genkeypair", *common, *names], check=True, capture_output=True)
    pem = subprocess.run(["keytool", "-exportcert", "-rfc", *common], check=True, capture_output=True)
    (folder / f"{name}.pem").write_bytes(pem.stdout)
    return store


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, Path]]:
    """A broker that is open to the tests, and to others only by TLS, with a login and permissions."""
    folder = tmp_path_factory.mktemp("tls")
    store = certificate(folder, "broker")
    certificate(folder, "stranger")
    settings = {
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,PROXIED:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.proxied.ssl.keystore.location": str(store),
        "listener.name.proxied.ssl.keystore.type": "PKCS12",
        "listener.name.proxied.ssl.keystore.password": PASSWORD,
        "listener.name.proxied.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.proxied.plain.sasl.jaas.config": LOGIN.format(user="broker", password=PASSWORD)[:-1]
        + f' user_reader="{PASSWORD}" user_nobody="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with with_server(KafkaBroker(settings)) as broker:
        broker.create_topic("guarded", 1)
        produce(broker.bootstrap, "guarded", ["a", "b"])
        rights = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, "User:reader", "*", operation, AclPermissionType.ALLOW)
            for kind, name, operation in (
                (ResourceType.TOPIC, "guarded", AclOperation.READ),
                (ResourceType.GROUP, "readers", AclOperation.READ),
            )
        ]
        administer(broker.bootstrap, lambda admin: admin.create_acls(rights))
        yield broker, folder


def values(guarded: tuple[KafkaBroker, Path], **changes: str) -> list[Any]:
    broker, folder = guarded
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": LOGIN.format(user="reader", password=PASSWORD),
        "ssl.truststore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "group.id": "readers",
    } | {name.replace("_", "."): value for name, value in changes.items()}
    with broker.proxy() as proxy:
        builder = KafkaSource.builder().set_bootstrap_servers(proxy.address).set_topics("guarded")
        builder.set_properties(properties).set_bounded(KafkaOffsetsInitializer.latest())
        source, out = builder.set_value_only_deserializer(SimpleStringSchema()).build(), Collect()
        return run(lambda env: env.from_source(source, WatermarkStrategy.no_watermarks(), "in").sink_to(out))[out]


def test_a_java_programs_properties_connect(guarded: tuple[KafkaBroker, Path]) -> None:
    assert values(guarded) == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"sasl.jaas.config": LOGIN.format(user="reader", password="wrong-" + PASSWORD)},
            "sasl.mechanism, and the user",
        ),
        (
            {"sasl.jaas.config": LOGIN.format(user="nobody", password=PASSWORD)},
            "kafka-acls.sh --add",
        ),
        ({"ssl.truststore.location": "stranger.pem"}, "ssl.ca.location"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "security.protocol"),
        ({"security.protocol": "SSL"}, "security.protocol"),
    ],
    ids=["wrong password", "no rights", "another's certificate", "no TLS", "no login"],
)
def test_a_rejected_client_is_told_the_reason_in_bounded_time(
    guarded: tuple[KafkaBroker, Path], changes: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.connectors.kafka.source.PATIENCE_S", 8.0)
    if "ssl.truststore.location" in changes:
        changes = {"ssl.truststore.location": str(guarded[1] / changes["ssl.truststore.location"])}
    began_s = time.monotonic()
    with pytest.raises(MillstreamError, match=sentence) as refusal:
        values(guarded, **changes)
    assert isinstance(refusal.value, ConnectorError)
    assert PASSWORD not in str(refusal.value)
    assert time.monotonic() - began_s < PATIENCE_S
