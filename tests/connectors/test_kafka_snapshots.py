"""A Kafka job's epochs replay, and a job restored from one of them uses its starting offsets of all partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_writers import produce, producer_of, transact, written_later
from servers.kafka import KafkaBroker

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.savepoints import copy_savepoint, find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from millstream.connectors.kafka.consumers import close_consumers
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.jobs.replay.replay import replay
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run

LATEST = KafkaOffsetsInitializer.latest()


def program(bootstrap: str, topic: str, out: Collect, **settings: Any) -> Callable[[StreamExecutionEnvironment], None]:
    builder = KafkaSource.builder().set_bootstrap_servers(bootstrap).set_topics(topic)
    builder.set_value_only_deserializer(SimpleStringSchema())
    if settings.get("bounded"):
        builder.set_bounded(LATEST)
    else:
        builder.set_starting_offsets(LATEST)

    def build(env: StreamExecutionEnvironment) -> None:
        if "path" in settings:
            env.configure(Configuration().set_string("execution.state-recovery.path", settings["path"]))
        rows = env.from_source(builder.build(), WatermarkStrategy.no_watermarks(), "in").uid("in")
        rows.map(lambda value: value.upper(), Types.STRING()).uid("upper").sink_to(out).uid("out")

    return build


def test_every_kafka_epoch_replays_to_its_committed_result(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 2)
    producer = producer_of(kafka_broker.bootstrap, transactional_id=unique_name)
    producer.init_transactions(60)
    for number in range(4):
        transact(producer, unique_name, [f"{number}-{n}" for n in range(5)], commit=number != 1, partition=number % 2)
    build = program(kafka_broker.bootstrap, unique_name, Collect(), bounded=True)
    run(build, epoch_records=3, store=unique_name)
    close_consumers()
    log = ManifestLog(MemoryStore(unique_name))
    epochs = [epoch for epoch in log.epochs() if log.read(epoch).status in ("RUNNING", "DRAINED")]
    assert len(epochs) > 2
    for epoch in epochs:
        env = StreamExecutionEnvironment()
        build(env)
        outcome = replay(env._graph(None), env._job_settings(), f"memory://{unique_name}@{epoch}", "Source: in")
        assert outcome.is_same, outcome.text()


@pytest.mark.parametrize("as_copy", [False, True], ids=["fork", "savepoint in its own folder"])
def test_a_job_restored_from_anothers_epoch_uses_its_starting_offsets(
    kafka_broker: KafkaBroker, unique_name: str, as_copy: bool
) -> None:
    """Partition 1 had no records when the epoch was committed. It starts at that moment's `latest` all the same."""
    bootstrap, out = kafka_broker.bootstrap, Collect()
    kafka_broker.create_topic(unique_name, 2)
    for partition in range(2):
        produce(bootstrap, unique_name, ["old"], partition)
    with written_later(unique_name, lambda: produce(bootstrap, unique_name, ["new-0"], 0)):
        assert run(program(bootstrap, unique_name, out), epochs=1, store=unique_name)[out] == ["NEW-0"]
    path = f"memory://{unique_name}@1"
    if as_copy:
        copy = MemoryStore(f"{unique_name}-copy")
        copy_savepoint(find_snapshot(parse_snapshot_name(path)), copy)
        path = copy.url
    produce(bootstrap, unique_name, ["new-1"], 1)
    build = program(bootstrap, unique_name, out, path=path)
    assert run(build, epochs=3, store=f"{unique_name}-again")[out] == ["NEW-1"]
