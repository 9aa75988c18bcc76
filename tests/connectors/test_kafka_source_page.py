"""The programs of the page on reading Kafka run as printed."""

from __future__ import annotations

from kafka_writers import produce
from servers.kafka import KafkaBroker
from test_small_pages import defined

from millstream.testing import Collect, run


def test_the_kafka_source_pages_programs_read_the_documented_records(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("orders", 1)
    produce(kafka_broker.bootstrap, "orders", ['{"user": "ann", "cents": 250}'], key="ann", headers={"trace": b"7"})
    page = defined("kafka.md", BROKERS=kafka_broker.bootstrap)
    out = Collect()
    (order,) = run(lambda env: page["read_orders"](env).sink_to(out))[out]
    assert order.as_dict() == {"user": "ann", "cents": 250}
    (row,) = run(lambda env: page["read_with_keys"](env).sink_to(out))[out]
    fields = row.as_dict()
    assert (fields["key"], fields["partition"], fields["offset"], fields["headers"]) == ("ann", 0, 0, [("trace", b"7")])
