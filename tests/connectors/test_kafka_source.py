"""KafkaSource on a real broker: records of other producers are read exactly once, from the configured offsets."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka_writers import administer, next_message, produce, producer_of, transact, written_later
from servers.kafka import KafkaBroker
from servers.tcp_proxy import TcpProxy
from waits.patience import PATIENCE_S, until

from millstream.common import (
    Configuration,
    DeserializationSchema,
    Row,
    SimpleStringSchema,
    Time,
    Types,
    WatermarkStrategy,
)
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.kafka import consumers
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.consumers import close_consumers, read_range
from millstream.connectors.kafka.offsets import Partition
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.dynamic_kafka import DynamicKafkaSource, SingleClusterTopicMetadataService
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.kafka import (
    FlinkKafkaConsumer,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import ConnectorAwayError, ConnectorError, JobFailedError
from millstream.jobs.clock import SystemClock
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, Result, run
from millstream.testing.connectors import Broken, check_source

LATEST = KafkaOffsetsInitializer.latest()
EARLIEST = KafkaOffsetsInitializer.earliest()


def builder(broker: KafkaBroker, *topics: str) -> KafkaSourceBuilder:
    begun = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap)
    begun.set_value_only_deserializer(SimpleStringSchema())
    return begun.set_topics(*topics) if topics else begun


def read(source: Any, **options: Any) -> tuple[list[Any], Result]:
    """The output of a job with this source, and the job."""
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        if isinstance(source, FlinkKafkaConsumer):
            env.add_source(source).uid("in").sink_to(out)
        else:
            env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in").sink_to(out)

    result = run(build, **options)
    return result[out], result


def values(source: Any, **options: Any) -> list[Any]:
    return sorted(read(source, **options)[0])


# --- records ----------------------------------------------------------------------------------------------------


def test_all_partitions_are_read_to_their_ends(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 3)
    for partition in range(3):
        produce(kafka_broker.bootstrap, unique_name, [f"{partition}-{n}" for n in range(4)], partition)
    got = values(builder(kafka_broker, unique_name).set_bounded(LATEST).build(), parallelism=2, epoch_records=2)
    assert got == sorted(f"{partition}-{n}" for partition in range(3) for n in range(4))


def test_only_committed_transactions_are_read_and_trailing_markers_end_a_range(
    kafka_broker: KafkaBroker, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    producer = producer_of(kafka_broker.bootstrap, transactional_id=unique_name)
    producer.init_transactions(60)
    for number in range(5):
        transact(producer, unique_name, [f"{number}-{n}" for n in range(3)], commit=number % 2 == 0)
    transact(producer, unique_name, ["never"], commit=False)
    source = builder(kafka_broker, unique_name).set_bounded(LATEST)
    expected = [f"{number}-{n}" for number in (0, 2, 4) for n in range(3)]
    for epoch_records in (1, 2, 3, 100):
        got, result = read(source.build(), epoch_records=epoch_records)
        assert got == expected
        assert [at.offset for at in result.manifests[-1].sources["in"].values()] == [22]


def test_an_open_transaction_blocks_its_records_and_later_ones(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["before"])
    producer = producer_of(kafka_broker.bootstrap, transactional_id=unique_name)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(unique_name, b"open")
    producer.flush()
    produce(kafka_broker.bootstrap, unique_name, ["behind"])
    source = builder(kafka_broker, unique_name).set_bounded(LATEST)
    assert values(source.build()) == ["before"]
    uncommitted = source.set_property("isolation.level", "read_uncommitted").build()
    assert values(uncommitted) == ["before", "behind", "open"]
    producer.abort_transaction(60)


def test_null_values_are_skipped_and_compaction_leaves_gaps(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["a", None, "b", None], key=b"k")
    assert values(builder(kafka_broker, unique_name).set_bounded(LATEST).build(), epoch_records=1) == ["a", "b"]


def test_rows_have_the_records_metadata(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 2, retention_ms="-1")
    headers = [("trace", b"\xff"), ("trace", b"2")]
    produce(kafka_broker.bootstrap, unique_name, ['{"n": 7}'], 1, key="k", headers=headers, timestamp=1_700_000_000_123)
    row_type = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = KafkaRecordDeserializationSchema.with_metadata(
        JsonRowDeserializationSchema.builder().type_info(row_type).build(),
        {kind: kind for kind in ("key", "timestamp", "timestamp_type", "topic", "partition", "offset", "headers")},
        key_schema=SimpleStringSchema(),
    )
    source = builder(kafka_broker, unique_name).set_deserializer(schema).set_bounded(LATEST).build()
    (row,) = read(source)[0]
    assert isinstance(row, Row)
    assert row.as_dict() == {
        "n": 7,
        "key": "k",
        "timestamp": 1_700_000_000_123,
        "timestamp_type": "CreateTime",
        "topic": unique_name,
        "partition": 1,
        "offset": 0,
        "headers": [("trace", b"\xff"), ("trace", b"2")],
    }


def test_the_timestamp_of_a_record_is_kafkas(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1, retention_ms="-1")
    produce(kafka_broker.bootstrap, unique_name, ["a"], timestamp=1_700_000_000_123)
    out, source = Collect(), builder(kafka_broker, unique_name).set_bounded(LATEST).build()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    result = run(lambda env: env.from_source(source, strategy, "in").sink_to(out))
    assert [record.timestamp for record in result.of(out)] == [1_700_000_000_123]


def test_a_malformed_record_is_reported_with_its_position(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ['{"n": 1}', "{poison"])
    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.LONG()])).build()
    source = builder(kafka_broker, unique_name).set_value_only_deserializer(schema).set_bounded(LATEST).build()
    with pytest.raises(JobFailedError, match=f"topic {unique_name}, partition 0, offset 1.*poison"):
        read(source)


def test_malformed_records_go_to_the_side_output(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    for key, value in ((b"1", '{"n": 1}'), (b"2", "{poison"), (b"bad", '{"n": 3}'), (None, '{"n": 4}')):
        produce(kafka_broker.bootstrap, unique_name, [value], key=key)
    bad = OutputTag("bad")
    value_schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.LONG()])).build()
    schema = KafkaRecordDeserializationSchema.with_metadata(value_schema, ["key"], key_schema=Number())
    source = builder(kafka_broker, unique_name).set_bounded(LATEST).set_deserializer(schema.with_dead_letters(bad))
    good, letters = Collect("good"), Collect("letters")

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "in")
        rows.sink_to(good)
        rows.get_side_output(bad).sink_to(letters)

    result = run(build)
    assert [tuple(row) for row in result[good]] == [(1, 1), (4, None)]
    assert sorted((row["place"][-8:], row["key"], row["value"]) for row in result[letters]) == [
        ("offset 1", b"2", b"{poison"),
        ("offset 2", b"bad", b'{"n": 3}'),
    ]
    assert any("its key, b'bad'" in row["reason"] for row in result[letters])


class Number(DeserializationSchema):
    """A key that is a number in text."""

    def deserialize(self, message: bytes) -> int:
        return int(message)

    def produced_type(self) -> TypeInformation:
        return Types.LONG()


def test_a_backlog_of_large_records_is_read_in_epochs_of_bounded_bytes_and_reported(
    kafka_broker: KafkaBroker, unique_name: str
) -> None:
    """Epochs are planned before record sizes are known: a range ends at its byte limit."""
    kafka_broker.create_topic(unique_name, 2)
    for partition in range(2):
        large = [f"{partition}-{n:02}-{'x' * 500_000}" for n in range(60)]
        produce(kafka_broker.bootstrap, unique_name, large, partition)
    out, source = Collect(), builder(kafka_broker, unique_name).set_bounded(LATEST).build()

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_integer("millstream.epoch.max-bytes", 4_000_000))
        env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in").sink_to(out)

    result = run(build)
    read_sizes, behind, before = [], [], 0
    for manifest in result.manifests:
        at = sum(split.offset for split in manifest.sources["in"].values())
        statistics = statistics_of(manifest)
        if at > before and statistics is not None:
            read_sizes.append((at - before) * 500_000)
            behind.append(statistics["behind"]["in"])
            before = at
    assert [value[:4] for value in result[out] if value[0] == "0"] == [f"0-{n:02}" for n in range(60)]
    assert len(result[out]) == before == 120
    # Approximate: the consumer's prefetched records, 8 MB per partition, are emitted at once.
    assert max(read_sizes) <= 24_000_000, read_sizes
    assert behind == sorted(behind, reverse=True) and behind[0] > 0 and behind[-1] == 0, behind


# --- starting and stopping offsets ------------------------------------------------------------------------------


def test_starting_and_stopping_offsets_match_flinks(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 2, retention_ms="-1")
    producer = producer_of(kafka_broker.bootstrap)
    for number in range(6):
        for partition in range(2):
            producer.produce(unique_name, f"{partition}-{number}", partition=partition, timestamp=1000 + number)
    producer.flush()
    first, second = KafkaTopicPartition(unique_name, 0), KafkaTopicPartition(unique_name, 1)

    def got(start: KafkaOffsetsInitializer, stop: KafkaOffsetsInitializer) -> list[str]:
        source = builder(kafka_broker, unique_name).set_group_id(unique_name)
        return values(source.set_starting_offsets(start).set_bounded(stop).build())

    at = KafkaOffsetsInitializer
    assert got(at.timestamp(1004), LATEST) == ["0-4", "0-5", "1-4", "1-5"]
    assert got(at.timestamp(9999), LATEST) == []
    assert got(EARLIEST, at.timestamp(1001)) == ["0-0", "1-0"]
    assert got(LATEST, LATEST) == []
    # A job above committed offset 1 to the group, the default starting position.
    assert got(at.offsets({first: 5}), LATEST) == ["0-5", "1-1", "1-2", "1-3", "1-4", "1-5"]
    assert got(at.offsets({first: 99, second: 3}), LATEST) == [
        "0-0",
        "0-1",
        "0-2",
        "0-3",
        "0-4",
        "0-5",
        "1-3",
        "1-4",
        "1-5",
    ]
    assert got(EARLIEST, at.offsets({first: 1, second: 2})) == ["0-0", "1-0", "1-1"]


def test_committed_offsets_are_those_of_the_groups_last_job(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["a", "b"])
    source = builder(kafka_broker, unique_name).set_group_id(unique_name).set_bounded(LATEST)
    source.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
    with pytest.raises(ConnectorError, match="no committed offset"):
        read(source.build())
    source.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST))
    assert values(source.build()) == ["a", "b"]
    produce(kafka_broker.bootstrap, unique_name, ["c"])
    assert values(source.build()) == ["c"]


def test_the_legacy_consumer_starts_at_the_groups_offsets(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["a", "b"])
    properties = {"bootstrap.servers": kafka_broker.bootstrap, "group.id": unique_name}
    consumer = FlinkKafkaConsumer(unique_name, SimpleStringSchema(), {**properties, "auto.offset.reset": "earliest"})
    assert values(consumer, epochs=1) == ["a", "b"]
    produce(kafka_broker.bootstrap, unique_name, ["c"])
    assert values(FlinkKafkaConsumer(unique_name, SimpleStringSchema(), properties), epochs=1) == ["c"]
    again = FlinkKafkaConsumer([unique_name], SimpleStringSchema(), properties).set_start_from_earliest()
    assert values(again, epochs=1) == ["a", "b", "c"]


def test_a_restart_uses_the_starting_offsets_of_the_first_start(kafka_broker: KafkaBroker, unique_name: str) -> None:
    """`latest` is the end at the first start, also of a partition not read before the restart."""
    kafka_broker.create_topic(unique_name, 2)
    for partition in range(2):
        produce(kafka_broker.bootstrap, unique_name, [f"old-{partition}"], partition)
    source = builder(kafka_broker, unique_name).set_starting_offsets(LATEST)

    with written_later(unique_name, lambda: produce(kafka_broker.bootstrap, unique_name, ["new-0"], 0)):
        assert values(source.build(), epochs=1, store=unique_name) == ["new-0"]
    produce(kafka_broker.bootstrap, unique_name, ["new-1"], 1)
    assert values(source.build(), epochs=3, store=unique_name) == ["new-1"]


def test_a_new_partition_is_discovered_and_read_from_its_beginning(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["old"])
    source = builder(kafka_broker, unique_name).set_starting_offsets(LATEST)
    source.set_property("partition.discovery.interval.ms", "1")

    def grow() -> None:
        produce(kafka_broker.bootstrap, unique_name, ["new-0"], 0)
        administer(kafka_broker.bootstrap, lambda admin: admin.create_partitions([NewPartitions(unique_name, 2)]))
        until("a partition more", lambda: _can(lambda: produce(kafka_broker.bootstrap, unique_name, ["new-1"], 1)))

    with written_later(unique_name, grow):
        got, _ = read(source.build(), epochs=2, store=unique_name, clock=SystemClock())
    assert got == ["new-0", "new-1"]


def test_topics_are_matched_by_a_pattern(kafka_broker: KafkaBroker, unique_name: str) -> None:
    for ending in ("-a", "-b", "-bb"):
        kafka_broker.create_topic(unique_name + ending, 1)
        produce(kafka_broker.bootstrap, unique_name + ending, [ending])
    source = builder(kafka_broker).set_topic_pattern(unique_name + "-[ab]").set_bounded(LATEST).build()
    assert values(source) == ["-a", "-b"]


def test_only_configured_partitions_are_read(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 3)
    for partition in range(3):
        produce(kafka_broker.bootstrap, unique_name, [str(partition)], partition)
    chosen = {KafkaTopicPartition(unique_name, 0), KafkaTopicPartition(unique_name, 2)}
    assert values(builder(kafka_broker).set_partitions(chosen).set_bounded(LATEST).build()) == ["0", "2"]
    with pytest.raises(ConnectorError, match="has 3 partitions, but no partition 7"):
        read(builder(kafka_broker).set_partitions({KafkaTopicPartition(unique_name, 7)}).set_bounded(LATEST).build())


# --- repeated ranges --------------------------------------------------------------------------------------------


Gaps = tuple[ClientSettings, Partition, dict[int, bytes], int]


@pytest.fixture
def gaps(kafka_broker: KafkaBroker) -> Gaps:
    return _gaps(kafka_broker)


@cache
def _gaps(broker: KafkaBroker) -> Gaps:
    """A partition with committed and aborted transactions and plain records; its readable records, and its end."""
    topic = broker.create_topic("ranges-with-gaps", 1)
    producer = producer_of(broker.bootstrap, transactional_id=topic)
    producer.init_transactions(60)
    for number in range(40):
        if number % 5 == 0:
            produce(broker.bootstrap, topic, [f"plain-{number}"])
        else:
            transact(producer, topic, [f"{number}-{n}" for n in range(number % 7)], commit=number % 3 != 0)
    settings_ = ClientSettings.of({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    consumer = Consumer(
        settings_.for_role(
            "consumer", enable_partition_eof=True, auto_offset_reset="earliest", enable_auto_commit=False
        )
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records: dict[int, bytes] = {}
    while True:
        message = next_message(consumer)
        if message.error() is not None:
            break
        records[message.offset()] = message.value()
    end = message.offset()
    consumer.close()
    return settings_, Partition(topic, 0), records, end


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200), st.booleans()), max_size=8), st.integers(1, 50))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_ranges_reads_their_records(
    gaps: Gaps, bounds: list[tuple[int, int, bool]], batch_records: int
) -> None:
    """Also if a range continues the last one, repeats earlier offsets, is aborted half-way, or arrives in batches."""
    with mock.patch.object(consumers, "_BATCH_RECORDS", batch_records):
        _check_ranges(gaps, bounds)


def _check_ranges(gaps: Gaps, bounds: list[tuple[int, int, bool]]) -> None:
    client, partition, records, end = gaps
    for first, second, is_given_up in bounds:
        start, stop = sorted((first % (end + 1), second % (end + 1)))
        reading = read_range(client, partition, start, stop, lambda: False)
        if is_given_up:
            next(reading, None)
            reading.close()
        else:
            messages = [message for batch in reading for message in batch]
            assert {m.offset(): m.value() for m in messages} == {
                at: value for at, value in records.items() if start <= at < stop
            }
            assert [m.offset() for m in messages] == sorted(m.offset() for m in messages)


def test_consecutive_ranges_reuse_one_consumer(gaps: Gaps) -> None:
    """Except one that is recreated when ranges are known to end in transaction markers."""
    client, partition, records, end = gaps
    close_consumers()
    got = []
    with mock.patch.object(consumers, "_Reader", wraps=consumers._Reader) as made:
        for start in range(0, end, 3):
            reading = read_range(client, partition, start, min(start + 3, end), lambda: False)
            got += [message.offset() for batch in reading for message in batch]
        assert made.call_count <= 2
    assert got == sorted(records)
    close_consumers()


# --- failures ---------------------------------------------------------------------------------------------------


def test_a_missing_topic_is_reported_by_name(kafka_broker: KafkaBroker, unique_name: str) -> None:
    with pytest.raises(ConnectorError, match=f"has no topic '{unique_name}'.*kafka-topics.sh --create"):
        read(builder(kafka_broker, unique_name).set_bounded(LATEST).build())


def test_expired_offsets_are_an_error_with_the_next_step(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["a", "b", "c"])
    source = builder(kafka_broker, unique_name)
    assert values(source.build(), epochs=1, epoch_records=1, store=unique_name) == ["a"]
    administer(kafka_broker.bootstrap, lambda admin: admin.delete_records([TopicPartition(unique_name, 0, 2)]))
    close_consumers()  # or it has fetched the records already
    with pytest.raises(JobFailedError, match=r"no longer has that offset.*another uid"):
        read(source.build(), epochs=9, store=unique_name)


def test_a_recreated_topic_is_an_error(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["a", "b"])
    source = builder(kafka_broker, unique_name)
    assert values(source.build(), epochs=1, store=unique_name) == ["a", "b"]
    administer(kafka_broker.bootstrap, lambda admin: admin.delete_topics([unique_name]))
    until("a new topic", lambda: _can(lambda: kafka_broker.create_topic(unique_name, 1)))
    produce(kafka_broker.bootstrap, unique_name, ["c", "d", "e"])
    with pytest.raises(ConnectorError, match="was deleted and created again"):
        read(source.build(), epochs=9, store=unique_name)


def test_a_topic_deleted_before_its_range_is_read_is_reported_quickly(
    kafka_broker: KafkaBroker, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "_SILENCE_S", 2.0)
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["a", "b"])
    administer(kafka_broker.bootstrap, lambda admin: admin.delete_topics([unique_name]))
    client = ClientSettings.of({"bootstrap.servers": kafka_broker.bootstrap})
    with pytest.raises(
        ConnectorError, match=f"partition 0 of topic {unique_name} from offset 0: the topic was deleted"
    ):
        list(read_range(client, Partition(unique_name, 0), 0, 2, lambda: False))


def test_unreachable_brokers_are_an_error_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.connectors.kafka.source.PATIENCE_S", 6.0)
    source = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("t").set_bounded(LATEST)
    source.set_property("sasl.password", "hush-hush").set_property("sasl.username", "me")
    source.set_property("security.protocol", "SASL_PLAINTEXT").set_property("sasl.mechanism", "PLAIN")
    with pytest.raises(ConnectorAwayError, match=r"127\.0\.0\.1:1 does not answer.*Connection refused") as failure:
        read(source.set_value_only_deserializer(SimpleStringSchema()).build())
    assert "hush-hush" not in str(failure.value)


def test_a_broker_that_restarts_is_waited_for(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 2)
    for partition in range(2):
        produce(kafka_broker.bootstrap, unique_name, [f"{partition}-{n:04}" for n in range(1000)], partition)

    def kill() -> None:
        until("some epochs", lambda: len(MemoryStore(unique_name).list("manifests")) > 2)
        kafka_broker.kill()
        kafka_broker.start()

    source = builder(kafka_broker, unique_name).set_bounded(LATEST).build()
    with written_later(unique_name, kill):
        got = values(source, epoch_records=5, store=unique_name, timeout_s=PATIENCE_S, clock=SystemClock())
    assert got == [f"{partition}-{n:04}" for partition in range(2) for n in range(1000)]


def test_no_secret_is_in_a_plan_or_a_manifest(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["a"])
    source = builder(kafka_broker, unique_name).set_bounded(LATEST)
    source.set_property("sasl.password", "hush-hush").set_property("ssl.key.password", "hush-hush").build()
    engine = source.build()._connector
    assert "hush-hush" not in repr(engine.__dict__) + engine.describe()
    _, result = read(source.build())
    assert "hush-hush" not in repr(result.manifests)


def _can(act: Callable[[], object]) -> bool:
    """Whether Kafka did it; a change made a moment ago may not have reached every broker."""
    try:
        act()
    except KafkaException:
        return False
    return True


# --- combinations -----------------------------------------------------------------------------------------------


def test_files_are_read_first_and_then_the_topic(kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path) -> None:
    kafka_broker.create_topic(unique_name, 2)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"past-{number}\n")
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    for partition in range(2):
        produce(kafka_broker.bootstrap, unique_name, [f"then-{partition}-{n}" for n in range(3)], partition)
    topic = builder(kafka_broker, unique_name).set_bounded(LATEST).build()
    got, _ = read(HybridSource.builder(files).add_source(topic).build(), epoch_records=1)
    assert sorted(got[:3]) == ["past-0", "past-1", "past-2"]
    assert sorted(got[3:]) == [f"then-{partition}-{n}" for partition in range(2) for n in range(3)]


def test_streams_of_a_metadata_service_are_topics(kafka_broker: KafkaBroker, unique_name: str) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, ["a", "b"])
    service = SingleClusterTopicMetadataService("main", {"bootstrap.servers": kafka_broker.bootstrap})
    source = DynamicKafkaSource.builder().set_kafka_metadata_service(service).set_stream_ids({unique_name})
    source.set_deserializer(KafkaRecordDeserializationSchema.value_only(SimpleStringSchema())).set_bounded(LATEST)
    assert values(source.build()) == ["a", "b"]


def test_a_network_outage_while_ranges_are_read_is_waited_for(
    kafka_broker: KafkaBroker, kafka_proxy: TcpProxy, unique_name: str
) -> None:
    kafka_broker.create_topic(unique_name, 1)
    produce(kafka_broker.bootstrap, unique_name, [f"{n:04}" for n in range(1000)])

    def cut() -> None:
        until("some epochs", lambda: len(MemoryStore(unique_name).list("manifests")) > 2)
        for _ in range(3):
            kafka_proxy.cut()
            time.sleep(0.3)  # an outage, not a wait for records
            kafka_proxy.mend()
            time.sleep(0.3)

    source = KafkaSource.builder().set_bootstrap_servers(kafka_proxy.address).set_topics(unique_name)
    source.set_value_only_deserializer(SimpleStringSchema()).set_bounded(LATEST)
    source.set_property("queued.min.messages", "1").set_property("queued.max.messages.kbytes", "1")
    with written_later(unique_name, cut):
        got = values(source.build(), epoch_records=5, store=unique_name, timeout_s=PATIENCE_S, clock=SystemClock())
    assert got == [f"{n:04}" for n in range(1000)]


def test_a_lagging_partition_holds_the_watermark_and_loses_nothing(kafka_broker: KafkaBroker, unique_name: str) -> None:
    """Watermarks are per partition: one partition far ahead does not make another's records late."""
    kafka_broker.create_topic(unique_name, 2, retention_ms="-1")
    for partition, step_ms in ((0, 60_000), (1, 10)):
        for n in range(20):
            produce(kafka_broker.bootstrap, unique_name, ["x"], partition, timestamp=1_000_000 + n * step_ms)
    source, out = builder(kafka_broker, unique_name).set_bounded(LATEST).build(), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "in")
        ones = rows.map(lambda _: 1, Types.LONG()).key_by(lambda _: "all", Types.STRING())
        ones.window(TumblingEventTimeWindows.of(Time.seconds(1))).reduce(lambda a, b: a + b).sink_to(out)

    result = run(build, epoch_records=4)
    assert sum(result[out]) == 40 and len(result[out]) == 20


@pytest.mark.parametrize("bounded", [True, False])
def test_the_source_passes_the_kit_with_aborted_transactions(
    kafka_broker: KafkaBroker, unique_name: str, bounded: bool
) -> None:
    """The public source kit, on partitions that contain aborted transactions."""
    kafka_broker.create_topic(unique_name, 2)
    producer = producer_of(kafka_broker.bootstrap, transactional_id=unique_name)
    producer.init_transactions(60)
    for number in range(8):
        transact(
            producer, unique_name, [f"{number}-{n}" for n in range(4)], commit=number % 3 != 1, partition=number % 2
        )
    source = builder(kafka_broker, unique_name).set_property("sasl.password", "hush-hush")
    if bounded:
        source.set_bounded(LATEST)
    report = check_source(
        source.build(),
        expected=[f"{number}-{n}" for number in range(8) if number % 3 != 1 for n in range(4)],
        broken=[
            Broken(
                "a topic that is not there",
                lambda: builder(kafka_broker, f"{unique_name}-x").set_bounded(LATEST).build(),
                says=("kafka-topics.sh", unique_name),
            )
        ],
        secrets=["hush-hush"],
    )
    assert not report.failures
