"""Writes to Kafka with one of Flink's three delivery guarantees.

- *Exactly once*: a task converts its records to messages and stages them in the job's store. After the epoch's manifest
  is written, they are published in transactions that also contain the mark of the epoch (`transactions`). Consumers
  with isolation.level=read_committed see every message once.
- *At least once*: a task sends its messages while the epoch runs, and ends the epoch when the broker has acknowledged
  all of them. An epoch that is repeated sends them again.
- *None*: a task sends without waiting. A message that the broker refuses is lost; the log has a warning.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from millstream.connectors.contracts import CommitId, CommitPlan, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import confluent
from millstream.connectors.kafka.kafka_failures import failure_of
from millstream.connectors.kafka.lanes import DRIVER_LANE, divided
from millstream.connectors.kafka.marks import EXPIRED_MARKS_PROPERTY, ExpiredMarks
from millstream.connectors.kafka.outgoing_messages import (
    MessageMaker,
    RecordSerializer,
    StagedMessages,
    by_topic,
    read_messages,
)
from millstream.connectors.kafka.producers import (
    MESSAGE_BYTES_MAX,
    POOL,
    OpenProducer,
    check_topic,
    flush,
    open_producer,
    send,
)
from millstream.connectors.kafka.transactions import Target, check_transactions, publish_lane, transactional_id
from millstream.connectors.two_phase import commit_in_tasks
from millstream.errors import ConfigurationError
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["Delivery", "KafkaSink", "SendingKafkaSink", "StagingKafkaSink", "kafka_sink"]

Delivery = Literal["exactly-once", "at-least-once", "none"]

_EXPIRED_ANSWERS: tuple[ExpiredMarks, ...] = ("fail", "publish", "skip")


class KafkaSink(Sink):
    """The base of the sinks for all three guarantees: client settings, conversion to messages, and publishing of
    lanes. A sink with a weaker guarantee may have to publish an epoch committed under exactly once."""

    delivery: Delivery

    def __init__(self, settings: ClientSettings, serializer: RecordSerializer) -> None:
        expired: Any = settings.get(EXPIRED_MARKS_PROPERTY, "fail")
        if expired not in _EXPIRED_ANSWERS:
            raise ConfigurationError(
                f"Kafka property {EXPIRED_MARKS_PROPERTY}: found {expired!r}, expected 'fail', 'publish' or 'skip'"
            )
        self.settings = settings.without(EXPIRED_MARKS_PROPERTY)
        self.serializer = serializer
        self.target = Target(self.settings, expired)
        self._session: Any = None
        self._published_here: set[str] = set()  # names under which the driver itself has published

    def __getstate__(self) -> dict[str, Any]:
        # A session cannot leave the driver.
        return {**self.__dict__, "_session": None}

    def maker(self, context: WriterContext) -> MessageMaker:
        """The converter from a task's records to messages."""
        limit = int(self.settings.for_role("producer").get("message.max.bytes", MESSAGE_BYTES_MAX))
        return MessageMaker(self.serializer, context.input_type, limit)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        lanes = [entry for entry in publish if "lane" in entry]  # for messages already sent there is only a count
        publish_here = partial(_publish, self.target, commit, store)
        for lane in lanes:
            if lane["lane"] == DRIVER_LANE:
                self._published_here.add(transactional_id(commit, lane))
                publish_here(lane)
        for_tasks = [lane for lane in lanes if lane["lane"] != DRIVER_LANE]
        if for_tasks:
            commit_in_tasks(self._session, publish_here, for_tasks)

    def opened(self, session: Any) -> Sink:
        """Look up the topic: a misspelt name is an error at the start, not in the first epoch."""
        check_topic(self.settings, self.serializer.topic)
        sink = copy.copy(self)
        sink._session, sink._published_here = session, set()
        return sink

    def close(self) -> None:
        """Close the driver's own producers. Those of tasks are closed with their processes, or when idle."""
        while self._published_here:
            producer = POOL.take((self.settings, self._published_here.pop()))
            if producer is not None:
                producer.close()

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return pending, "output written to Kafka after that epoch stays there, and is repeated"

    def describe(self) -> str:
        topic = self.serializer.topic
        where = "topics by a selector" if topic is None else f"topic {topic!r}"
        return f"Kafka {where} at {self.settings.bootstrap_servers}"


def kafka_sink(
    settings: ClientSettings,
    serializer: RecordSerializer,
    delivery: Delivery = "none",
    transactional_id_prefix: str = "millstream",
) -> KafkaSink:
    """The sink with the guarantee `delivery`.

    >>> from millstream.common.serialization import SimpleStringSchema
    >>> serializer = RecordSerializer(SimpleStringSchema(), topic="out")
    >>> sink = kafka_sink(ClientSettings.of({"bootstrap.servers": "localhost:9092"}), serializer, "exactly-once")
    >>> sink.describe(), sink.guarantee
    ("Kafka topic 'out' at localhost:9092", 'exactly-once')
    """
    if delivery == "exactly-once":
        return StagingKafkaSink(settings, serializer, transactional_id_prefix)
    return SendingKafkaSink(settings, serializer, delivery)


class StagingKafkaSink(KafkaSink):
    """Exactly once: messages are staged in the job's store until their epoch is committed."""

    delivery = "exactly-once"
    guarantee = "exactly-once"

    def __init__(self, settings: ClientSettings, serializer: RecordSerializer, transactional_id_prefix: str) -> None:
        super().__init__(settings, serializer)
        self.transactional_id_prefix = transactional_id_prefix

    def opened(self, session: Any) -> Sink:
        """Also check that this user may use transactions, before an epoch is committed that needs one."""
        sink = super().opened(session)
        check_transactions(self.target, self.transactional_id_prefix, self.serializer.topic)
        return sink

    def writer(self, context: WriterContext) -> SinkWriter:
        return _StagingWriter(self.maker(context), StagedMessages(context, self.serializer.topic))

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        return CommitPlan(divided(staged, self.transactional_id_prefix))

    def merges(self, staged: Sequence[Json]) -> bool:
        """One lane preserves the order of epochs. Several lanes do not, because they are filled by size."""
        return len(divided(staged, self.transactional_id_prefix)) <= 1

    def staged_records(self, staged: Json, store: Store) -> Sequence[Any]:
        """Topic, key and value of each message of a writer's output, or of a lane."""
        return [
            (topic, *message)
            for part in staged.get("parts", (staged,))
            for topic, messages in read_messages(part, store)
            for message in zip(*(messages.column(name).to_pylist() for name in ("key", "value")), strict=True)
        ]


class SendingKafkaSink(KafkaSink):
    """At least once, or no guarantee: messages are sent while the epoch runs, and nothing remains to publish."""

    def __init__(self, settings: ClientSettings, serializer: RecordSerializer, delivery: Delivery) -> None:
        super().__init__(settings, serializer)
        self.delivery = self.guarantee = delivery

    def writer(self, context: WriterContext) -> SinkWriter:
        return _SendingWriter(self, self.maker(context), context)


def _publish(target: Target, commit: CommitId, store: Store, lane: Json) -> None:
    publish_lane(target, commit, lane, store)


class _StagingWriter(SinkWriter):
    """Exactly once: stages messages in the job's store."""

    def __init__(self, maker: MessageMaker, staged: StagedMessages) -> None:
        self._maker, self._staged = maker, staged

    def write(self, batch: Batch) -> None:
        if batch.length:
            self._staged.add(self._maker.messages(batch))

    def stage(self) -> Sequence[Json]:
        return self._staged.stage()


class _SendingWriter(SinkWriter):
    """At least once, or no guarantee: sends messages immediately."""

    def __init__(self, sink: SendingKafkaSink, maker: MessageMaker, context: WriterContext) -> None:
        self._sink, self._maker = sink, maker
        self._purpose = (sink.settings, context.job, context.uid, context.subtask)
        self._producer: OpenProducer | None = None
        self._records = 0

    def write(self, batch: Batch) -> None:
        if batch.length == 0:
            return
        if self._producer is None:
            self._producer = POOL.take(self._purpose) or open_producer(self._sink.settings)
            self._producer.may_lose = self._sink.delivery == "none"
        kafka = confluent()
        for topic, messages in by_topic(self._sink.serializer.topic, self._maker.messages(batch)):
            try:
                send(self._producer, topic, messages)
            except kafka.KafkaException as error:
                raise failure_of(error, self._sink.settings, destination=topic) from error
        self._records += batch.length

    def stage(self) -> Sequence[Json]:
        producer, self._producer = self._producer, None
        if producer is None:
            return ()
        if self._sink.delivery == "at-least-once":
            try:
                flush(producer)
            except BaseException:
                producer.close()
                raise
        POOL.put_back(self._purpose, producer)
        return ({"records": self._records},)

    def abort(self) -> None:
        if self._producer is not None:
            self._producer.close()
