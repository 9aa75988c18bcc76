"""Group offsets are fetched also from a broker that has just started, whose coordinators are not ready."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from servers.kafka import KafkaBroker

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.group_offsets import group_offsets


def test_offsets_are_fetched_from_a_broker_that_has_just_started() -> None:
    broker = KafkaBroker()
    broker.start()
    try:
        broker.create_topic("t", 3)
        settings = ClientSettings.of({"bootstrap.servers": broker.bootstrap})
        places = [("t", 0), ("t", 1), ("elsewhere", 0)]
        # The first request makes the broker create the offsets topic, and the next ones fail until it is ready.
        for number in range(5):
            assert group_offsets(settings, f"new-{number}", places, 60.0).offsets == {}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 1, 17)], asynchronous=False)
        consumer.close()
        broker.kill()
        broker.start()
        assert group_offsets(settings, "g", places, 60.0).offsets == {("t", 1): 17}
    finally:
        broker.stop()
