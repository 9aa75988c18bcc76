"""RabbitMQ on a real server: stored messages count once, and none is lost with a connection or a driver."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pika
import pytest
from servers.rabbitmq import RabbitServer
from waits.patience import PATIENCE_S

from millstream.common import Types
from millstream.common.serialization import SimpleStringSchema
from millstream.connectors.contracts import CommitId, SourceContext, WriterContext
from millstream.connectors.rabbitmq import connection as rabbit_connection
from millstream.connectors.rabbitmq import source as rabbit_source
from millstream.connectors.rabbitmq.connection import RabbitAddress
from millstream.connectors.rabbitmq.sink import RabbitSink
from millstream.connectors.rabbitmq.source import RabbitSource
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.errors import (
    ConnectorAwayError,
    ConnectorError,
    MillstreamError,
    ProgramError,
    StoreDamagedError,
    TypeMismatchError,
)
from millstream.records.batch import Batch
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run

NOW = SourceContext(0, 0, 1)


@pytest.fixture(autouse=True)
def collected_sockets() -> Iterator[None]:
    """pika leaves the sockets of a failed connection to the garbage collector, which warns about them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def queue(rabbit_server: RabbitServer, unique_name: str) -> str:
    return unique_name


def send(server: RabbitServer, queue: str, bodies: Sequence[str], ids: Sequence[str] | None = None) -> None:
    connection = server.connect()
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for at, body in enumerate(bodies):
        properties = pika.BasicProperties(delivery_mode=2, correlation_id=None if ids is None else ids[at])
        channel.basic_publish("", queue, body.encode(), properties)
    connection.close()


def drained(server: RabbitServer, queue: str) -> list[tuple[str, str]]:
    """Body and id of every ready message."""
    connection = server.connect()
    channel = connection.channel()
    messages = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        messages.append((got[2].decode(), got[1].correlation_id))
    connection.close()
    return messages


def config(server: RabbitServer) -> RMQConnectionConfig:
    return RMQConnectionConfig.Builder().set_uri(server.url).build()


def opened(address: RabbitAddress, queue: str, store: MemoryStore, read_to: int = 0) -> Any:
    """A source as the driver opens it, with its running thread."""
    source: Any = RabbitSource(address, queue, True, SimpleStringSchema()).opened(store, None)
    source.committed({"queue": read_to})
    source.splits(NOW)
    return source


def records(source: Any, count: int) -> list[str]:
    """Its first records, once `count` are stored."""
    [split] = source.splits(NOW)
    deadline = time.monotonic() + PATIENCE_S
    while source.reach(split, 0, 10**6, NOW) < count:
        assert time.monotonic() < deadline, "messages did not arrive"
        time.sleep(0.01)
    return [value for batch in source.read(split, 0, source.reach(split, 0, 10**6, NOW)) for value in batch.values()]


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """A job's store that tasks open by its name."""
    yield MemoryStore(f"rabbit-{time.monotonic_ns()}")


def test_sent_messages_are_read_by_another_job(rabbit_server: RabbitServer, queue: str, store: MemoryStore) -> None:
    texts = [f"text {n}" for n in range(2_500)]
    sink = RMQSink(config(rabbit_server), queue, SimpleStringSchema())
    run(lambda env: env.from_collection(texts, Types.STRING()).add_sink(sink))
    source = opened(RabbitAddress(uri=rabbit_server.url), queue, store)
    assert records(source, 2_500) == texts
    source.close()
    assert drained(rabbit_server, queue) == []


def test_a_job_reads_a_queue(rabbit_server: RabbitServer, queue: str) -> None:
    send(rabbit_server, queue, ["a"], ["1"])
    out = Collect()
    source = RMQSource(config(rabbit_server), queue, True, SimpleStringSchema())
    assert run(lambda env: env.add_source(source).sink_to(out), epochs=1)[out] == ["a"]


def test_redelivered_messages_are_deduplicated_by_id(
    rabbit_server: RabbitServer, queue: str, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies after storing messages and before acknowledging them, and another one continues."""
    send(rabbit_server, queue, ["a", "b"], ["1", "2"])
    with monkeypatch.context() as patched:
        patched.setattr(pika.adapters.blocking_connection.BlockingChannel, "basic_ack", lambda *given, **named: None)
        first = opened(RabbitAddress(uri=rabbit_server.url), queue, store)
        assert records(first, 2) == ["a", "b"]
        first.close()
    send(rabbit_server, queue, ["c", "a"], ["3", "1"])
    second = opened(RabbitAddress(uri=rabbit_server.url), queue, store, read_to=2)
    assert records(second, 3) == ["a", "b", "c"]
    second.close()
    assert drained(rabbit_server, queue) == []


def test_messages_that_were_not_stored_are_redelivered_and_accepted(
    rabbit_server: RabbitServer, queue: str, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost before the chunk is stored: its ids must not count as known."""
    send(rabbit_server, queue, ["a", "b"], ["1", "2"])
    kept = rabbit_source._QueueReceiver.keep
    cuts = iter([True])

    def cut_once(receiver: Any, data: bytes, count: int) -> None:
        if next(cuts, False):
            raise pika.exceptions.ConnectionClosedByBroker(320, "cut")
        kept(receiver, data, count)

    monkeypatch.setattr(rabbit_source._QueueReceiver, "keep", cut_once)
    source = opened(RabbitAddress(uri=rabbit_server.url), queue, store)
    assert records(source, 2) == ["a", "b"]
    source.close()


def test_a_cut_connection_is_reestablished_without_loss_or_duplicates(
    rabbit_server: RabbitServer, queue: str, store: MemoryStore
) -> None:
    with rabbit_server.proxy() as proxy:
        source = opened(RabbitAddress(uri=rabbit_server.url_at(proxy.port), prefetch_count=10), queue, store)
        for number in range(5):
            send(rabbit_server, queue, [f"{number}-{n}" for n in range(20)], [f"{number}-{n}" for n in range(20)])
            proxy.cut()
            proxy.mend()
        assert sorted(records(source, 100)) == sorted(f"{number}-{n}" for number in range(5) for n in range(20))
        source.close()


def test_a_killed_server_redelivers_unacknowledged_messages(rabbit_server: RabbitServer, store: MemoryStore) -> None:
    queue = f"killed{time.monotonic_ns()}"
    send(rabbit_server, queue, ["a"], ["1"])
    source = opened(RabbitAddress(uri=rabbit_server.url), queue, store)
    assert records(source, 1) == ["a"]
    rabbit_server.kill()
    rabbit_server.restart()
    send(rabbit_server, queue, ["b"], ["2"])
    assert records(source, 2) == ["a", "b"]
    source.close()


def test_a_message_without_an_id_is_reported_if_ids_are_required(
    rabbit_server: RabbitServer, queue: str, store: MemoryStore
) -> None:
    send(rabbit_server, queue, ["a"])
    source = opened(RabbitAddress(uri=rabbit_server.url), queue, store)
    with pytest.raises(
        TypeMismatchError, match=r"message 0 of the job: it has no correlation id.*or set use_correlation_id to False"
    ):
        records(source, 1)
    source.close()


def test_a_damaged_chunk_is_reported_and_not_read(rabbit_server: RabbitServer, queue: str, store: MemoryStore) -> None:
    send(rabbit_server, queue, ["a"], ["1"])
    source = opened(RabbitAddress(uri=rabbit_server.url), queue, store)
    records(source, 1)
    source.close()
    [name] = [name for name in store.list("input") if "rabbitmq" in name and not name.endswith("/receiver")]
    data = bytearray(store.get(name))
    data[-20] ^= 1
    store.delete(name)
    store.put(name, bytes(data))
    [split] = source.splits(NOW)
    with pytest.raises(StoreDamagedError, match="its checksum does not match"):
        list(source.read(split, 0, 1))


def test_a_malformed_message_goes_to_the_side_output(rabbit_server: RabbitServer, queue: str) -> None:
    send(rabbit_server, queue, ["nonsense"], ["1"])
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    tag = OutputTag("bad")
    schema = JsonRowDeserializationSchema.builder().type_info(row).build().with_dead_letters(tag)
    good, bad = Collect(), Collect()

    def program(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(RMQSource(config(rabbit_server), queue, True, schema))
        stream.sink_to(good)
        stream.get_side_output(tag).sink_to(bad)

    result = run(program, epochs=1)
    assert result[good] == [] and [letter["value"] for letter in result[bad]] == [b"nonsense"]


# --- the sink ------------------------------------------------------------------------------------------------------


def staged(sink: RabbitSink, store: MemoryStore, values: list[str]) -> Any:
    writer = sink.writer(WriterContext("out", 1, 0, 1, "n", store, 0, Types.STRING(), "job"))
    writer.write(Batch.of_values(values, Types.STRING()))
    return writer.stage()


def test_a_resent_message_has_the_same_id(rabbit_server: RabbitServer, queue: str, store: MemoryStore) -> None:
    sink = RabbitSink(RabbitAddress(uri=rabbit_server.url), queue, SimpleStringSchema())
    publish = staged(sink, store, ["a", "b"])
    for job in ("job", "job", "other"):
        sink.commit(CommitId(job, "out", 1), publish, store)
    sink.close()
    messages = drained(rabbit_server, queue)
    assert messages[:2] == messages[2:4] and [body for body, _ in messages] == ["a", "b"] * 3
    assert len({name for _, name in messages}) == 4


def test_a_sink_reports_a_server_outage_and_resumes_after_it(
    rabbit_server: RabbitServer, queue: str, store: MemoryStore
) -> None:
    with rabbit_server.proxy() as proxy:
        address = RabbitAddress(uri=rabbit_server.url_at(proxy.port), connection_timeout_ms=2_000)
        sink = RabbitSink(address, queue, SimpleStringSchema())
        publish, commit = staged(sink, store, ["a"]), CommitId("job", "out", 1)
        sink.opened(None)
        proxy.cut()
        with pytest.raises(ConnectorAwayError, match=r"RabbitMQ at .* does not answer"):
            sink.commit(commit, publish, store)
        proxy.mend()
        sink.commit(commit, publish, store)
        sink.close()
    assert [body for body, _ in drained(rabbit_server, queue)] == ["a"]


@pytest.mark.parametrize("off", ["setting", "uri"])
def test_a_frozen_server_is_detected_even_without_heartbeats(
    rabbit_server: RabbitServer, queue: str, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    monkeypatch.setattr(rabbit_connection, "_HEARTBEAT_S", 1)
    with rabbit_server.proxy() as proxy:
        uri = rabbit_server.url_at(proxy.port) + ("?heartbeat=0" if off == "uri" else "")
        address = RabbitAddress(uri=uri, connection_timeout_ms=1_000, heartbeat_s=0 if off == "setting" else None)
        sink = RabbitSink(address, f"{queue}-out", SimpleStringSchema())
        publish, commit = staged(sink, store, ["a"]), CommitId("job", "out", 1)
        sink.opened(None)
        source = opened(address, queue, store)
        proxy.stall()
        with pytest.raises(ConnectorAwayError, match=r"RabbitMQ at .* does not answer"):
            sink.commit(commit, publish, store)
        proxy.mend()
        sink.commit(commit, publish, store)
        send(rabbit_server, queue, ["b"], ["1"])
        assert records(source, 1) == ["b"]
        source.close()
        sink.close()


def test_a_sink_disconnected_while_idle_reconnects(rabbit_server: RabbitServer, queue: str, store: MemoryStore) -> None:
    with rabbit_server.proxy() as proxy:
        sink = RabbitSink(RabbitAddress(uri=rabbit_server.url_at(proxy.port)), queue, SimpleStringSchema())
        publish = staged(sink, store, ["a"])
        sink.opened(None)
        proxy.drop()
        sink.commit(CommitId("job", "out", 1), publish, store)
        sink.close()
    assert [body for body, _ in drained(rabbit_server, queue)] == ["a"]


def test_a_deleted_queue_is_reported(rabbit_server: RabbitServer, queue: str, store: MemoryStore) -> None:
    sink = RabbitSink(RabbitAddress(uri=rabbit_server.url), queue, SimpleStringSchema())
    publish = staged(sink, store, ["a"])
    sink.opened(None)
    connection = rabbit_server.connect()
    connection.channel().queue_delete(queue)
    connection.close()
    with pytest.raises(ConnectorError, match=r"no longer has the queue"):
        sink.commit(CommitId("job", "out", 1), publish, store)
    sink.close()


# --- bad input -----------------------------------------------------------------------------------------------------


def test_a_wrong_password_is_reported_and_not_shown(rabbit_server: RabbitServer, queue: str) -> None:
    address = RMQConnectionConfig.Builder().set_host("127.0.0.1").set_port(rabbit_server.port).set_password("s3cret")
    sink = RMQSink(address.build(), queue, SimpleStringSchema())
    with pytest.raises(MillstreamError, match="denied access") as refusal:
        run(lambda env: env.from_collection(["a"], Types.STRING()).add_sink(sink))
    assert "s3cret" not in str(refusal.value) and "s3cret" not in repr(address.build())


def test_an_unreachable_server_is_reported_immediately() -> None:
    nowhere = RMQConnectionConfig.Builder().set_host("127.0.0.1").set_port(1).build()
    source = RMQSource(nowhere, "q", False, SimpleStringSchema())
    with pytest.raises(MillstreamError, match=r"RabbitMQ at 127\.0\.0\.1:1 does not answer"):
        run(lambda env: env.add_source(source).print(), epochs=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RMQConnectionConfig(), "create one with RMQConnectionConfig.Builder"),
        (lambda: RMQConnectionConfig.Builder().set_uri("http://x"), "must begin with amqp://"),
        (
            lambda: RMQConnectionConfig.Builder().set_uri("amqp://u:hush@h:99999/").build(),
            "a port that is not a number from 1 to 65535",
        ),
        (lambda: RMQConnectionConfig.Builder().set_uri("amqp://u:hush@h/?heartbeat=hush").build(), r"value '\*{6}'"),
        (lambda: RMQConnectionConfig.Builder().set_uri("amqp://u:hush@h/?colour=red").build(), "Unknown URL parameter"),
        (lambda: RMQConnectionConfig.Builder().set_uri("amqp://").build(), "has no host"),
        (lambda: RMQConnectionConfig.Builder().set_port(65_536), "from 1 to 65535"),
        (lambda: RMQConnectionConfig.Builder().set_prefetch_count(65_536), "from 1 to 65535"),
        (lambda: RMQConnectionConfig.Builder().set_requested_frame_max(5).build(), "Min AMQP"),
        (lambda: RMQSource("localhost", "q", True, SimpleStringSchema()), "expected an RMQConnectionConfig"),
        (lambda: RMQSink(RMQConnectionConfig.Builder().build(), "q", "json"), "expected a SerializationSchema"),
    ],
)
def test_invalid_rabbitmq_settings_are_rejected_before_the_job_starts(make: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message) as refusal:
        make()
    assert "hush" not in str(refusal.value)


def test_closing_a_source_leaves_no_thread(rabbit_server: RabbitServer, queue: str, store: MemoryStore) -> None:
    opened(RabbitAddress(uri=rabbit_server.url), queue, store).close()
    assert not [thread for thread in threading.enumerate() if thread.name == "millstream-rabbitmq"]
