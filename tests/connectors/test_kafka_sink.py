"""KafkaSink against a real broker: a read-committed consumer sees every record, once, in order per key."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from inputs.fresh_names import fresh_name
from kafka_writers import producer_of
from servers.committed_topics import new_topic, read_topic
from servers.kafka import KafkaBroker
from servers.tcp_proxy import TcpProxy
from waits.patience import PATIENCE_S, until

from millstream.common.serialization import SerializationSchema, SimpleStringSchema
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.contracts import CommitId, Json, WriterContext
from millstream.connectors.kafka import marks, producers, transactions
from millstream.connectors.kafka import sink as sink_module
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.outgoing_messages import RecordSerializer, read_messages
from millstream.connectors.kafka.producers import ProducerPool, open_producer
from millstream.connectors.kafka.sink import Delivery, KafkaSink, kafka_sink
from millstream.datastream.connectors.base import DeliveryGuarantee
from millstream.datastream.connectors.kafka import KafkaRecordSerializationSchema
from millstream.datastream.connectors.kafka import KafkaSink as KafkaSinkOfPrograms
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, ConnectorAwayError, ConnectorError, JobFailedError, ProgramError
from millstream.jobs.replay.replay import replay
from millstream.records.batch import Batch
from millstream.storage.store import Store, open_store
from millstream.testing import CRASH, EPOCH, Script, run


class FirstLetter(SerializationSchema):
    """The key of a text is its first letter."""

    def serialize(self, value: str) -> bytes:
        return value[:1].encode()


@pytest.fixture
def store() -> Store:
    return open_store(fresh_name("memory://kafka"))


@pytest.fixture(autouse=True)
def open_producers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProducerPool]:
    """Every test starts like a new process."""
    producers_of_test = ProducerPool()
    become_process(monkeypatch, producers_of_test)
    yield producers_of_test


def become_process(monkeypatch: pytest.MonkeyPatch, process: ProducerPool) -> None:
    """Simulates another process, which has these producers open."""
    for module in (producers, transactions, sink_module):
        monkeypatch.setattr(module, "POOL", process)


def sink_of(bootstrap: str, topic: str, delivery: Delivery = "exactly-once", **properties: Any) -> KafkaSink:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    settings = ClientSettings.of({"bootstrap.servers": bootstrap, **named})
    return kafka_sink(settings, RecordSerializer(SimpleStringSchema(), FirstLetter(), topic), delivery)


# Recent: a broker soon removes messages older than its retention.
TIME_MS = int(time.time()) * 1000 - 3_600_000
JOB = fresh_name("job")


def staged(sink: KafkaSink, store: Store, epoch: int, *parts: Sequence[str]) -> list[Json]:
    """The payloads a manifest lists if one task received each of `parts`."""
    items: list[Json] = []
    for subtask, values in enumerate(parts):
        context = WriterContext("out", epoch, subtask, len(parts), f"a{epoch}b{subtask}", store, 0, Types.STRING(), JOB)
        writer = sink.writer(context)
        writer.write(Batch.of_values(list(values), Types.STRING()))
        items.extend(writer.stage())
    return list(sink.plan_commit(items, None, 0, False).publish)


def commit_of(epoch: int, job: str = JOB) -> CommitId:
    return CommitId(job, f"out-{_RUN.name}", epoch)


class _RUN:
    name = ""


@pytest.fixture(autouse=True)
def run_name(unique_name: str) -> None:
    """Each test has its own marks."""
    _RUN.name = unique_name


def values_in(broker: KafkaBroker, topic: str) -> list[str]:
    return [(message.value or b"").decode() for message in read_topic(broker.bootstrap, topic)]


def test_a_program_writes_keys_values_and_timestamps_once_and_in_order_per_key(kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker, 3)
    values = [f"{'abc'[i % 3]}{i}" for i in range(60)]
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(FirstLetter())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSinkOfPrograms.builder()
        .set_bootstrap_servers(kafka_broker.bootstrap)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("orders")
        .build()
    )
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_NumberInText())

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(
            Script([*values[:20], EPOCH, *values[20:40], CRASH, *values[40:]], type_info=Types.STRING())
        )
        stream.assign_timestamps_and_watermarks(times).key_by(lambda text: text[0]).map(
            lambda text: text, Types.STRING()
        ).sink_to(sink)

    assert run(build, parallelism=2).restarts == 1
    messages = read_topic(kafka_broker.bootstrap, topic)
    for letter in "abc":
        of_key = [message for message in messages if message.key == letter.encode()]
        assert [message.value.decode() for message in of_key if message.value] == [v for v in values if v[0] == letter]
        assert [message.timestamp for message in of_key] == [TIME_MS + int(v[1:]) for v in values if v[0] == letter]
        assert len({message.partition for message in of_key}) == 1
    assert len(messages) == 60


class _NumberInText:
    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return TIME_MS + int(value[1:])


def test_a_key_is_assigned_to_the_partition_of_javas_producer(kafka_broker: KafkaBroker, store: Store) -> None:
    topic = new_topic(kafka_broker, 7)
    sink = sink_of(kafka_broker.bootstrap, topic)
    sink.commit(commit_of(1), staged(sink, store, 1, ["a", "b", "c", "d"]), store)
    partitions = {message.key: message.partition for message in read_topic(kafka_broker.bootstrap, topic)}
    assert partitions == {key: _murmur2(key) % 7 for key in (b"a", b"b", b"c", b"d")}


def _murmur2(data: bytes) -> int:
    """Kafka's hash of a key of less than four bytes, without its sign."""
    h = (0x9747B28C ^ len(data)) & 0xFFFFFFFF
    for at in reversed(range(len(data))):
        h ^= data[at] << (8 * at)
    h = (h * 0x5BD1E995) & 0xFFFFFFFF
    h ^= h >> 13
    h = (h * 0x5BD1E995) & 0xFFFFFFFF
    return (h ^ (h >> 15)) & 0x7FFFFFFF


def test_a_repeated_commit_publishes_once(
    kafka_broker: KafkaBroker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker)
    sink = sink_of(kafka_broker.bootstrap, topic)
    publish = staged(sink, store, 1, ["a1", "a2"])
    sink.commit(commit_of(1), publish, store)
    sink.commit(commit_of(1), publish, store)
    become_process(monkeypatch, ProducerPool())
    sink.commit(commit_of(1), publish, store)
    assert values_in(kafka_broker, topic) == ["a1", "a2"]


def test_a_fenced_driver_publishes_nothing_more(
    kafka_broker: KafkaBroker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker)
    sink = sink_of(kafka_broker.bootstrap, topic)
    epochs = {epoch: staged(sink, store, epoch, [f"a{epoch}"]) for epoch in (1, 2, 3)}
    old_driver, new_driver = ProducerPool(), ProducerPool()
    become_process(monkeypatch, old_driver)
    sink.commit(commit_of(1), epochs[1], store)
    become_process(monkeypatch, new_driver)
    sink.commit(commit_of(2), epochs[2], store)
    sink.commit(commit_of(3), epochs[3], store)
    become_process(monkeypatch, old_driver)
    sink.commit(commit_of(2), epochs[2], store)
    assert values_in(kafka_broker, topic) == ["a1", "a2", "a3"]


def test_the_client_writes_nothing_to_stderr_when_a_publisher_is_fenced(
    kafka_broker: KafkaBroker, store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(kafka_broker)
    sink = sink_of(kafka_broker.bootstrap, topic)
    processes = [ProducerPool(), ProducerPool()]
    for epoch in range(1, 5):
        become_process(monkeypatch, processes[epoch % 2])
        sink.commit(commit_of(epoch), staged(sink, store, epoch, [f"a{epoch}"]), store)
    assert "fenced" not in capfd.readouterr().err
    assert values_in(kafka_broker, topic) == ["a1", "a2", "a3", "a4"]


def test_an_open_transaction_of_a_dead_publisher_is_never_visible(kafka_broker: KafkaBroker, store: Store) -> None:
    topic = new_topic(kafka_broker)
    sink = sink_of(kafka_broker.bootstrap, topic)
    publish = staged(sink, store, 1, ["a1", "a2", "a3"])
    name = transactions.transactional_id(commit_of(1), publish[0])
    dead = open_producer(sink.settings, name)
    dead.client.init_transactions(PATIENCE_S)
    dead.client.begin_transaction()
    dead.client.produce(topic, b"a1", b"a")
    assert dead.client.flush() == 0
    sink.commit(commit_of(1), publish, store)
    with pytest.raises(Exception, match=r"(?i)fenced|newer instance|epoch"):
        dead.client.commit_transaction(30)
    assert values_in(kafka_broker, topic) == ["a1", "a2", "a3"]


def test_a_partially_published_epoch_is_completed_by_another_driver(
    kafka_broker: KafkaBroker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker)
    sink = sink_of(kafka_broker.bootstrap, topic)
    parts = [[f"{letter}{'x' * 1000}{i:04}" for i in range(1200)] for letter in "abcdef"]
    publish = staged(sink, store, 1, *parts)
    assert len(publish) == 2, "some lanes are needed here"
    sink.commit(commit_of(1), publish[:1], store)
    become_process(monkeypatch, ProducerPool())
    sink.commit(commit_of(1), publish, store)
    values = values_in(kafka_broker, topic)
    assert sorted(values) == sorted(value for part in parts for value in part)
    for part in parts:
        assert [value for value in values if value[0] == part[0][0]] == part


def test_many_concurrent_drivers_publish_each_epoch_once(kafka_broker: KafkaBroker, store: Store) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_broker.bootstrap, topic)
    epochs = {epoch: staged(sink, store, epoch, [f"a{epoch}-{i}" for i in range(20)]) for epoch in range(1, 6)}
    start = threading.Barrier(4)
    failures: list[BaseException] = []

    def drive() -> None:
        start.wait()
        for epoch, publish in epochs.items():
            for _ in range(20):
                try:
                    sink.commit(commit_of(epoch), publish, store)
                    break
                except ConnectorAwayError as error:
                    assert "another driver of this job publishes" in str(error)
            else:
                failures.append(AssertionError(f"epoch {epoch} was never published"))

    threads = [threading.Thread(target=drive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert values_in(kafka_broker, topic) == [f"a{epoch}-{i}" for epoch in epochs for i in range(20)]


def test_a_lane_may_move_between_processes_and_back(
    kafka_broker: KafkaBroker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_broker.bootstrap, topic)
    processes = [ProducerPool(), ProducerPool()]
    for epoch in range(1, 7):
        become_process(monkeypatch, processes[epoch % 2])
        sink.commit(commit_of(epoch), staged(sink, store, epoch, [f"a{epoch}"]), store)
    assert values_in(kafka_broker, topic) == [f"a{epoch}" for epoch in range(1, 7)]
    assert [len(process) for process in processes] == [1, 1]


@pytest.mark.parametrize("way", ["fenced by another", "given up by the broker"])
def test_a_transaction_that_ends_while_sending_is_restarted(
    way: str, kafka_broker: KafkaBroker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker, 1)
    timeouts_ms = {"delivery_timeout_ms": 3000, "transaction_timeout_ms": 3000}
    sink = sink_of(kafka_broker.bootstrap, topic, **({} if way == "fenced by another" else timeouts_ms))
    publish = staged(sink, store, 1, [f"a{i}" for i in range(4)])
    name = transactions.transactional_id(commit_of(1), publish[0])
    readings: list[int] = []

    def read(part: Json, store: Store) -> Iterator[Any]:
        """Message by message. On the first attempt the transaction fails after the first message."""
        ((destination, messages),) = read_messages(part, store)
        readings.append(len(readings))
        for at in range(messages.num_rows):
            yield destination, messages.slice(at, 1)
            if len(readings) > 1:
                continue
            if at == 0:
                until("the first message", lambda: read_topic(kafka_broker.bootstrap, topic, "read_uncommitted"))
            if at == 0 and way == "fenced by another":
                producer_of(kafka_broker.bootstrap, transactional_id=name).init_transactions(PATIENCE_S)
            elif at == 0:
                values_in(kafka_broker, topic)  # ends when the broker has aborted the transaction
            else:
                time.sleep(0.5)  # so that the client is notified by its broker

    monkeypatch.setattr(transactions, "read_messages", read)
    sink.commit(commit_of(1), publish, store)
    assert values_in(kafka_broker, topic) == [f"a{i}" for i in range(4)]
    assert len(readings) == 2


def test_a_closed_sink_leaves_no_producer_open_on_the_driver(
    kafka_broker: KafkaBroker, store: Store, open_producers: ProducerPool
) -> None:
    sink = sink_of(kafka_broker.bootstrap, new_topic(kafka_broker, 1))
    sink.commit(commit_of(1), staged(sink, store, 1, ["a1"]), store)
    assert len(open_producers) == 1
    sink.close()
    assert len(open_producers) == 0
    sink.close()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_messages_without_key_without_value_and_empty_ones_are_different(
    kafka_broker: KafkaBroker, store: Store, delivery: Delivery
) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_broker.bootstrap, topic, delivery)
    sink.serializer = RecordSerializer(_Part(1), _Part(0), topic)
    rows = [("", ""), ("none", ""), ("", "none"), ("k", "grün\x00")]
    sink.commit(commit_of(1), staged_rows(sink, store, rows), store)
    messages = read_topic(kafka_broker.bootstrap, topic)
    found = [(message.key, message.value) for message in messages]
    # Messages without a key are unordered if there are several partitions; here is one.
    assert found == [(b"", b""), (None, b""), (b"", None), (b"k", "grün\x00".encode())]


class _Part(SerializationSchema):
    """One of two texts; the text "none" is None."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index

    def serialize(self, value: tuple[str, str]) -> Any:
        return None if value[self._index] == "none" else value[self._index].encode()


def staged_rows(sink: KafkaSink, store: Store, rows: list[tuple[str, str]]) -> list[Json]:
    """The payloads a manifest lists for untyped records."""
    writer = sink.writer(WriterContext("out", 1, 0, 1, "a1b0", store, 0, None, JOB))
    writer.write(Batch.of_values(rows, None))
    return list(sink.plan_commit(list(writer.stage()), None, 0, False).publish)


def test_an_epoch_is_recognised_by_a_program_with_changed_settings(
    kafka_broker: KafkaBroker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker, 1)
    before, sending = sink_of(kafka_broker.bootstrap, topic), sink_of(kafka_broker.bootstrap, topic, "at-least-once")
    renamed = kafka_sink(before.settings, before.serializer, "exactly-once", "another-prefix")
    first, second = (staged(before, store, epoch, [f"a{epoch}"]) for epoch in (1, 2))
    before.commit(commit_of(1), first, store)
    for sink in (renamed, sending):
        become_process(monkeypatch, ProducerPool())
        sink.commit(commit_of(1), first, store)
    # Pending output is published also with a weaker guarantee, and sent messages are not verified again.
    sending.commit(commit_of(2), second, store)
    third = staged(sending, store, 3, ["a3"])
    before.commit(commit_of(3), third, store)
    assert values_in(kafka_broker, topic) == ["a1", "a2", "a3"]


def test_two_jobs_with_one_prefix_and_equal_epochs_are_independent(kafka_broker: KafkaBroker, store: Store) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_broker.bootstrap, topic)
    for job in ("one", "two"):
        sink.commit(commit_of(1, fresh_name(job)), staged(sink, store, 1, [f"a-{job}"]), store)
    assert values_in(kafka_broker, topic) == ["a-one", "a-two"]


def test_a_broker_killed_between_epochs_is_waited_for_or_reported_in_time(
    kafka_broker: KafkaBroker, store: Store
) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_broker.bootstrap, topic, delivery_timeout_ms=3000)
    commit_until_done(sink, 1, staged(sink, store, 1, ["a1"]), store)
    # A single broker killed while it ends a transaction may leave it open forever (docs: Kafka sink).
    assert values_in(kafka_broker, topic) == ["a1"]
    kafka_broker.kill()
    second = staged(sink, store, 2, ["a2"])
    begun = time.monotonic()
    with pytest.raises(ConnectorAwayError, match=r"Kafka at 127\.0\.0\.1:\d+.*that the brokers run"):
        sink.commit(commit_of(2), second, store)
    assert time.monotonic() - begun < PATIENCE_S
    kafka_broker.start()
    commit_until_done(sink, 2, second, store)
    assert values_in(kafka_broker, topic) == ["a1", "a2"]


def commit_until_done(sink: KafkaSink, epoch: int, publish: list[Json], store: Store) -> int:
    """Retries like the restart strategy; returns the number of failures. A broker killed by the previous test may
    not be ready for transactions immediately.
    """
    deadline_s, failures = time.monotonic() + PATIENCE_S, 0
    while True:
        try:
            sink.commit(commit_of(epoch), publish, store)
            return failures
        except ConnectorAwayError:
            failures += 1
            assert time.monotonic() < deadline_s, f"epoch {epoch} could not be published"


@pytest.mark.parametrize("sent_bytes", [0, 700, 1500, 3000])
def test_a_connection_cut_anywhere_in_a_transaction_leaves_every_message_once(
    kafka_broker: KafkaBroker, kafka_proxy: TcpProxy, store: Store, sent_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_proxy.address, topic, delivery_timeout_ms=1000)
    commit_until_done(sink, 1, staged(sink, store, 1, ["a1"]), store)
    kafka_proxy.cut_after(sent_bytes)
    second = staged(sink, store, 2, [f"b{i:03}" + "x" * 20 for i in range(100)])
    mending = threading.Timer(1.2, kafka_proxy.mend)
    mending.start()
    commit_until_done(sink, 2, second, store)
    mending.join()
    become_process(monkeypatch, ProducerPool())
    commit_until_done(sink, 2, second, store)
    assert values_in(kafka_broker, topic) == ["a1", *(f"b{i:03}" + "x" * 20 for i in range(100))]


def test_a_transaction_timeout_shorter_than_an_outage_loses_nothing(
    kafka_broker: KafkaBroker, kafka_proxy: TcpProxy, store: Store
) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_proxy.address, topic, delivery_timeout_ms=1000, transaction_timeout_ms=1000)
    commit_until_done(sink, 1, staged(sink, store, 1, ["a1"]), store)
    kafka_proxy.stall()
    second = staged(sink, store, 2, ["a2"])
    with pytest.raises(ConnectorAwayError):
        sink.commit(commit_of(2), second, store)
    time.sleep(2)  # the broker itself aborts the transaction
    kafka_proxy.mend()
    commit_until_done(sink, 2, second, store)
    assert values_in(kafka_broker, topic) == ["a1", "a2"]


def test_a_possibly_expired_mark_requires_a_manual_decision(
    kafka_broker: KafkaBroker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_broker.bootstrap, topic)
    publish = staged(sink, store, 1, ["a1"])
    ten_days_ms = 10 * 24 * 3_600_000
    old = [{**lane, "staged_ms": lane["staged_ms"] - ten_days_ms} for lane in publish]
    with pytest.raises(ConnectorError, match=r"240 hours ago.*is unknown.*'millstream.expired-marks', 'skip'"):
        sink.commit(commit_of(1), old, store)
    assert values_in(kafka_broker, topic) == []
    skipping = sink_of(kafka_broker.bootstrap, topic, **{"millstream_expired-marks": "skip"})
    skipping.commit(commit_of(1), old, store)
    assert values_in(kafka_broker, topic) == []
    become_process(monkeypatch, ProducerPool())
    publishing = sink_of(kafka_broker.bootstrap, topic, **{"millstream_expired-marks": "publish"})
    publishing.commit(commit_of(1), old, store)
    assert values_in(kafka_broker, topic) == ["a1"]
    # An existing mark is conclusive, however old the epoch is.
    become_process(monkeypatch, ProducerPool())
    sink.commit(commit_of(1), old, store)
    assert values_in(kafka_broker, topic) == ["a1"]


def test_the_retention_of_marks_is_read_from_the_broker(kafka_broker: KafkaBroker) -> None:
    assert (
        marks.mark_retention_ms(ClientSettings.of({"bootstrap.servers": kafka_broker.bootstrap})) == 7 * 24 * 3_600_000
    )


def test_messages_of_a_selector_go_to_their_topics_in_one_transaction(kafka_broker: KafkaBroker, store: Store) -> None:
    topics = {"a": new_topic(kafka_broker, 1), "b": new_topic(kafka_broker, 1)}
    sink = sink_of(kafka_broker.bootstrap, "unused")
    sink.serializer = replace(sink.serializer, topic=None, selector=lambda value: topics[value[0]])
    for epoch, values in ((1, ["a1", "b1", "a2"]), (2, ["b2"])):
        sink.commit(commit_of(epoch), staged(sink, store, epoch, values), store)
    assert values_in(kafka_broker, topics["a"]) == ["a1", "a2"]
    assert values_in(kafka_broker, topics["b"]) == ["b1", "b2"]


@pytest.mark.parametrize("delivery", ["at-least-once", "none"])
def test_weaker_guarantees_send_while_the_epoch_runs(
    kafka_broker: KafkaBroker, store: Store, delivery: Delivery, open_producers: ProducerPool
) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_broker.bootstrap, topic, delivery)
    for epoch in (1, 2):
        assert staged(sink, store, epoch, [f"a{epoch}"]) == [{"records": 1}]
    if delivery == "none":
        for _, producer in open_producers._open.values():
            producer.client.flush()
    assert len(open_producers) == 1
    assert values_in(kafka_broker, topic) == ["a1", "a2"]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_small_buffer_of_the_producer_is_waited_for(
    kafka_broker: KafkaBroker, store: Store, delivery: Delivery
) -> None:
    """Settings of Java programs include buffer.memory, on which the producer blocks when it is full."""
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_broker.bootstrap, topic, delivery, buffer_memory=200_000)
    values = [f"a{i:04}{'x' * 1_000}" for i in range(900)]
    sink.commit(commit_of(1), staged(sink, store, 1, values), store)
    assert values_in(kafka_broker, topic) == values


def test_a_message_larger_than_the_producers_buffer_is_reported(kafka_broker: KafkaBroker, store: Store) -> None:
    sink = sink_of(kafka_broker.bootstrap, new_topic(kafka_broker, 1), "at-least-once", buffer_memory=2_000)
    with pytest.raises(ConfigurationError, match=r"a message of 5,001 bytes is larger .*buffer\.memory.*Raise it"):
        staged(sink, store, 1, ["a" * 5_000])


def test_without_a_guarantee_a_rejected_message_is_lost_with_a_warning(
    kafka_broker: KafkaBroker, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka_broker.create_topic(fresh_name("t"), 1, max_message_bytes="1000")
    sink = sink_of(kafka_broker.bootstrap, topic, "none")
    staged(sink, store, 1, ["a" * 5_000])
    deadline, epoch = time.monotonic() + PATIENCE_S, 1
    while "messages are lost" not in caplog.text:
        assert time.monotonic() < deadline
        epoch += 1
        staged(sink, store, epoch, ["b"])
        time.sleep(0.05)
    assert "a message larger than its limit" in caplog.text


def test_at_least_once_fails_the_epoch_when_the_broker_does_not_acknowledge(
    kafka_broker: KafkaBroker, kafka_proxy: TcpProxy, store: Store
) -> None:
    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_proxy.address, topic, "at-least-once", delivery_timeout_ms=1500)
    staged(sink, store, 1, ["a1"])
    kafka_proxy.cut()
    with pytest.raises(ConnectorAwayError, match="Kafka at"):
        staged(sink, store, 2, ["a2"])
    kafka_proxy.mend()
    staged(sink, store, 2, ["a2"])
    assert values_in(kafka_broker, topic) == ["a1", "a2"]


def test_a_job_resumes_by_itself_when_the_broker_returns(kafka_broker: KafkaBroker, kafka_proxy: TcpProxy) -> None:
    from millstream.common.restart_strategy import RestartStrategies

    topic = new_topic(kafka_broker, 1)
    sink = sink_of(kafka_proxy.address, topic, delivery_timeout_ms=1000)
    sink.opened(None)
    watch = threading.Thread(target=_cut_once, args=(kafka_broker, kafka_proxy, topic))
    watch.start()
    values: list[Any] = [item for i in range(30) for item in (f"a{i}", EPOCH)]
    run(
        lambda env: env.add_source(Script(values, type_info=Types.STRING())).sink_to(sink),
        restart=RestartStrategies.fixed_delay_restart(100, 100),
    )
    watch.join()
    assert values_in(kafka_broker, topic) == [f"a{i}" for i in range(30)]


def _cut_once(broker: KafkaBroker, proxy: TcpProxy, topic: str) -> None:
    """Once the topic has some messages, cut the connection for the duration of a few attempts."""
    until("some messages", lambda: len(read_topic(broker.bootstrap, topic)) >= 3)
    proxy.cut()
    time.sleep(2.5)
    proxy.mend()


def test_a_replay_compares_staged_output_and_sends_nothing(kafka_broker: KafkaBroker) -> None:
    for delivery in ("exactly-once", "at-least-once"):
        topic, name = new_topic(kafka_broker, 1), fresh_name("kafka-replay")
        sink = sink_of(kafka_broker.bootstrap, topic, delivery)

        def build(env: StreamExecutionEnvironment, sink: KafkaSink = sink) -> None:
            numbers = env.add_source(Script(["a1", "b1", EPOCH, "a2"], type_info=Types.STRING())).uid("numbers")
            numbers.map(str.upper, Types.STRING()).uid("upper").sink_to(sink).uid("out")

        run(build, store=name)
        env = StreamExecutionEnvironment()
        env.set_parallelism(1)
        build(env)
        found = replay(env._graph(None), env._job_settings(), f"memory://{name}@1", "upper")
        assert found.is_same, found.text()
        assert any(text.startswith("output of") for text in found.compared) == (delivery == "exactly-once")
        assert sorted(values_in(kafka_broker, topic)) == ["A1", "A2", "B1"]


# --- errors ----------------------------------------------------------------------------------------------------


def started_with(sink: KafkaSink) -> None:
    run(lambda env: env.add_source(Script(["a"], type_info=Types.STRING())).sink_to(sink))


def test_an_unreachable_broker_is_reported_at_the_start() -> None:
    with pytest.raises(ConnectorAwayError, match=r"Kafka at 127\.0\.0\.1:1.* does not answer.*Connection refused"):
        started_with(sink_of("127.0.0.1:1", "t", delivery_timeout_ms=1000))


def test_a_missing_topic_is_reported_at_the_start(kafka_broker: KafkaBroker) -> None:
    with pytest.raises(ConnectorError, match=r"topic 'nowhere-at-all' does not exist.*Create it"):
        started_with(sink_of(kafka_broker.bootstrap, "nowhere-at-all", delivery_timeout_ms=1500))


def test_an_unknown_property_is_reported_at_the_start(kafka_broker: KafkaBroker) -> None:
    with pytest.raises(ConfigurationError, match=r"rejects the properties: No such configuration property.*nonsense"):
        started_with(sink_of(kafka_broker.bootstrap, "t", nonsense=1))


def test_a_message_too_large_for_the_producer_is_rejected_before_the_commit(kafka_broker: KafkaBroker) -> None:
    sink = sink_of(kafka_broker.bootstrap, new_topic(kafka_broker))
    with pytest.raises(JobFailedError, match=r"1,048,5\d\d bytes is larger than max\.request\.size"):
        run(lambda env: env.add_source(Script(["a" * 1_048_520], type_info=Types.STRING())).sink_to(sink))


def test_a_message_too_large_for_the_topic_is_retried_until_the_topic_accepts_it(
    kafka_broker: KafkaBroker, store: Store
) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    topic = new_topic(kafka_broker, 1, max_message_bytes="1000")
    sink = sink_of(kafka_broker.bootstrap, topic)
    publish = staged(sink, store, 1, ["a1", "a" * 5000])
    with pytest.raises(ConnectorError, match=r"larger than its limit.*Raise max\.message\.bytes") as raised:
        sink.commit(commit_of(1), publish, store)
    assert not isinstance(raised.value, ConnectorAwayError)
    assert values_in(kafka_broker, topic) == []
    entry = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    sink.commit(commit_of(1), publish, store)
    assert values_in(kafka_broker, topic) == ["a1", "a" * 5000]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_permanently_rejected_message_is_not_retried(
    kafka_broker: KafkaBroker, store: Store, delivery: Delivery
) -> None:
    sink = sink_of(kafka_broker.bootstrap, new_topic(kafka_broker, 1, cleanup_policy="compact"), delivery)
    sink.serializer = replace(sink.serializer, key=None)
    with pytest.raises(ConnectorError, match=r"refuses a message.*compact needs keys") as raised:
        sink.commit(commit_of(1), staged(sink, store, 1, ["a1"]), store)
    assert not isinstance(raised.value, ConnectorAwayError)


def test_a_transaction_timeout_above_the_brokers_limit_is_reported_at_the_start(kafka_broker: KafkaBroker) -> None:
    with pytest.raises(ConnectorError, match=r"transaction\.max\.timeout\.ms"):
        started_with(sink_of(kafka_broker.bootstrap, new_topic(kafka_broker), transaction_timeout_ms=86_400_000))


def test_an_invalid_topic_of_a_selector_is_reported_with_the_record(kafka_broker: KafkaBroker, store: Store) -> None:
    sink = sink_of(kafka_broker.bootstrap, "unused")
    sink.serializer = replace(sink.serializer, topic=None, selector=lambda value: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ProgramError, match=r"topic selector returned None for 'a1'"):
        staged(sink, store, 1, ["a1"])


def test_no_secret_is_shown(kafka_broker: KafkaBroker) -> None:
    sink = sink_of(
        kafka_broker.bootstrap,
        "t",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="me",
        sasl_password="hush-hush",
        delivery_timeout_ms=1500,
    )
    with pytest.raises(ConnectorError, match="refused the login") as raised:
        sink.opened(None)
    for text in (str(raised.value), sink.describe(), repr(sink.settings), repr(sink.target)):
        assert "hush-hush" not in text
