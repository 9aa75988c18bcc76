"""Required Kafka permissions: each missing one is reported by name, before an epoch needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as Resource
from inputs.fresh_names import fresh_name
from servers.committed_topics import read_topic
from servers.kafka import KafkaBroker
from servers.server_process import HOST, free_port

from millstream.common.serialization import SimpleStringSchema
from millstream.common.typeinfo import Types
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.outgoing_messages import RecordSerializer
from millstream.connectors.kafka.sink import KafkaSink, kafka_sink
from millstream.errors import ConnectorAwayError, ConnectorError
from millstream.testing import Script, run

PASSWORD = "open-sesame"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class GuardedBroker(KafkaBroker):
    """One more listener, for users with passwords and limited permissions. Everybody else is a superuser."""

    def __init__(self) -> None:
        super().__init__()
        self.users_port = free_port()
        settings = self._settings
        settings["listeners"] += f",USERS://{HOST}:{self.users_port}"
        settings["advertised.listeners"] += f",USERS://{HOST}:{self.users_port}"
        settings["listener.security.protocol.map"] += ",USERS:SASL_PLAINTEXT"
        settings["sasl.enabled.mechanisms"] = "PLAIN"
        settings["listener.name.users.plain.sasl.jaas.config"] = f'{LOGIN} user_bob="{PASSWORD}";'
        settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        settings["super.users"] = "User:ANONYMOUS"

    def allow(self, resource: Resource, prefix: str, *operations: AclOperation) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        kind, yes = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
        rules = [AclBinding(resource, prefix, kind, "User:bob", "*", operation, yes) for operation in operations]
        for future in admin.create_acls(rules).values():
            future.result(30)


@pytest.fixture(scope="module")
def broker() -> Iterator[GuardedBroker]:
    server = GuardedBroker()
    server.start()
    yield server
    server.stop()


def sink_of(broker: GuardedBroker, topic: str, password: str = PASSWORD) -> KafkaSink:
    login = f'{LOGIN} username="bob" password="{password}";'
    properties = {
        "bootstrap.servers": f"{HOST}:{broker.users_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
        "delivery.timeout.ms": 5_000,
    }
    serializer = RecordSerializer(SimpleStringSchema(), topic=topic)
    return kafka_sink(ClientSettings.of(properties), serializer, "exactly-once", "bobs")


def written(sink: KafkaSink) -> None:
    run(lambda env: env.add_source(Script(["a"], type_info=Types.STRING())).sink_to(sink))


def test_each_missing_permission_is_reported_and_all_together_suffice(broker: GuardedBroker) -> None:
    topic = broker.create_topic(fresh_name("guarded"), 1)
    steps = (
        (r"Write and Describe on the topic", Resource.TOPIC, topic, (AclOperation.DESCRIBE,)),
        (r"on transactional ids", Resource.TRANSACTIONAL_ID, "bobs", (AclOperation.WRITE, AclOperation.DESCRIBE)),
        (r"Read on the groups", Resource.GROUP, "bobs", (AclOperation.READ,)),
        (r"Write and Describe on the topic", Resource.TOPIC, topic, (AclOperation.WRITE, AclOperation.READ)),
    )
    for sentence, resource, name, operations in steps:
        with pytest.raises(ConnectorError, match=sentence) as raised:
            written(sink_of(broker, topic))
        assert not isinstance(raised.value, ConnectorAwayError)
        assert PASSWORD not in str(raised.value)
        broker.allow(resource, name, *operations)
    written(sink_of(broker, topic))
    assert [message.value for message in read_topic(broker.bootstrap, topic)] == [b"a"]


def test_a_wrong_kafka_password_is_reported_at_the_start_and_not_shown(broker: GuardedBroker) -> None:
    with pytest.raises(ConnectorError, match="refused the login") as raised:
        written(sink_of(broker, "any", "wrong-password"))
    assert "wrong-password" not in str(raised.value)
