"""Writing to Kafka, with one of Flink's three promises.

- *Exactly once*: a task makes messages of its records and stages them in the job's store. When the manifest of the
  epoch stands, they are published in transactions that also hold the mark of the epoch (`transactions`). Who reads with
  isolation.level=read_committed sees every message once.
- *At least once*: a task sends its messages while the epoch runs, and ends the epoch when the broker has acknowledged
  all of them. An epoch that is run again sends them again.
- *None*: a task sends and waits for nothing. A message that the broker refuses is lost, with a warning in the log.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from millstream.connectors.contracts import CommitId, CommitPlan, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.kafka_failures import client_library, failure_of, no_answer, timeout_s
from millstream.connectors.kafka.lanes import DRIVER_LANE, divided
from millstream.connectors.kafka.marks import EXPIRED_MARKS_PROPERTY, ExpiredMarks
from millstream.connectors.kafka.outgoing_messages import (
    MessageMaker,
    RecordSerializer,
    StagedMessages,
    by_topic,
    read_messages,
)
from millstream.connectors.kafka.producers import KEPT, OpenProducer, flush, open_producer, send
from millstream.connectors.kafka.transactions import Target, publish_lane
from millstream.connectors.two_phase import commit_in_tasks
from millstream.errors import ConfigurationError
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["Delivery", "KafkaSink"]

_LOG = logging.getLogger(__name__)

Delivery = Literal["exactly-once", "at-least-once", "none"]

_MESSAGE_BYTES_MAX = 1_000_000  # librdkafka's own
_EXPIRED_ANSWERS: tuple[ExpiredMarks, ...] = ("fail", "publish", "skip")


class KafkaSink(Sink):
    """Writes records to topics.

    >>> from millstream.common.serialization import SimpleStringSchema
    >>> serializer = RecordSerializer(SimpleStringSchema(), topic="out")
    >>> KafkaSink(ClientSettings.of({"bootstrap.servers": "localhost:9092"}), serializer, "exactly-once").describe()
    "Kafka topic 'out' at localhost:9092"
    """

    def __init__(
        self,
        settings: ClientSettings,
        serializer: RecordSerializer,
        delivery: Delivery = "none",
        transactional_id_prefix: str = "millstream",
    ) -> None:
        expired: Any = settings.get(EXPIRED_MARKS_PROPERTY, "fail")
        if expired not in _EXPIRED_ANSWERS:
            raise ConfigurationError(
                f"Kafka property {EXPIRED_MARKS_PROPERTY}: found {expired!r}, expected 'fail', 'publish' or 'skip'"
            )
        self.settings = settings.without(EXPIRED_MARKS_PROPERTY)
        self.serializer = serializer
        self.delivery = delivery
        self.guarantee = delivery
        self.target = Target(self.settings, transactional_id_prefix, expired)
        self._session: Any = None

    def with_settings(self, delivery: Delivery | None, with_timestamps: bool | None) -> KafkaSink:
        """The same sink with another promise, or with or without timestamps."""
        serializer = self.serializer
        if with_timestamps is not None:
            serializer = replace(serializer, with_timestamps=with_timestamps)
        sink = copy.copy(self)
        sink.serializer, sink.delivery = serializer, delivery or self.delivery
        sink.guarantee = sink.delivery
        return sink

    def __getstate__(self) -> dict[str, Any]:
        # A session cannot leave the driver.
        return {**self.__dict__, "_session": None}

    def writer(self, context: WriterContext) -> SinkWriter:
        limit = int(self.settings.for_role("producer").get("message.max.bytes", _MESSAGE_BYTES_MAX))
        maker = MessageMaker(self.serializer, context.input_type, limit)
        if self.delivery == "exactly-once":
            return _StagingWriter(maker, StagedMessages(context, self.serializer.topic))
        return _SendingWriter(self, maker, context)

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        return CommitPlan(divided(staged) if self.delivery == "exactly-once" else tuple(staged))

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        if self.delivery != "exactly-once":
            return  # the broker has the messages already
        publish_here = partial(_publish, self.target, commit, store)
        for lane in publish:
            if lane["lane"] == DRIVER_LANE:
                publish_here(lane)
        lanes = [lane for lane in publish if lane["lane"] != DRIVER_LANE]
        if lanes:
            commit_in_tasks(self._session, publish_here, lanes)

    def staged_records(self, staged: Json, store: Store) -> Sequence[Any] | None:
        if self.delivery != "exactly-once":
            return None
        return [
            (topic, *message)
            for topic, messages in read_messages(staged, store)
            for message in zip(*(messages.column(name).to_pylist() for name in ("key", "value")), strict=True)
        ]

    def opened(self, session: Any) -> Sink:
        """Ask the broker for the topic: a name that is spelt wrong is told at the start, not by the first epoch."""
        _check_topic(self.settings, self.serializer.topic)
        sink = copy.copy(self)
        sink._session = session
        return sink

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return pending, "what it wrote to Kafka after that epoch stays there, and comes again"

    def describe(self) -> str:
        topic = self.serializer.topic
        where = "topics by a selector" if topic is None else f"topic {topic!r}"
        return f"Kafka {where} at {self.settings.bootstrap_servers}"


def _publish(target: Target, commit: CommitId, store: Store, lane: Json) -> None:
    publish_lane(target, commit, lane, store)


def _check_topic(settings: ClientSettings, topic: str | None) -> None:
    """Wait for the broker, and for the topic where it is known. A broker that creates topics is asked to."""
    producer = open_producer(settings)
    kafka, limit_s = client_library(), timeout_s(settings)
    deadline = time.monotonic() + limit_s
    try:
        while True:
            try:
                left_s = max(0.1, deadline - time.monotonic())
                answer = producer.client.list_topics(*(() if topic is None else (topic,)), timeout=left_s)
            except kafka.KafkaException as error:
                producer.client.poll(0)
                if error.args[0].name() in ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"):
                    login = [last for last in producer.last_error if last.name() == "_AUTHENTICATION"]
                    if login:
                        raise failure_of(login[0], topic, settings) from error
                    raise no_answer(settings, producer.last_error, f"waited {limit_s:g} s") from error
                raise failure_of(error.args[0], topic, settings) from error
            trouble = None if topic is None else answer.topics[topic].error
            if trouble is None:
                return
            if trouble.name() not in ("UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE") or time.monotonic() > deadline:
                raise failure_of(trouble, topic, settings)
            time.sleep(0.1)
    finally:
        producer.close()


class _StagingWriter(SinkWriter):
    """Exactly once: messages wait in the job's store."""

    def __init__(self, maker: MessageMaker, staged: StagedMessages) -> None:
        self._maker, self._staged = maker, staged

    def write(self, batch: Batch) -> None:
        if batch.length:
            self._staged.add(self._maker.messages(batch))

    def stage(self) -> Sequence[Json]:
        staged = self._staged.stage()
        return () if staged is None else (staged,)


class _SendingWriter(SinkWriter):
    """At least once, or less: messages are sent at once."""

    def __init__(self, sink: KafkaSink, maker: MessageMaker, context: WriterContext) -> None:
        self._sink, self._maker = sink, maker
        self._purpose = (sink.settings, context.job, context.uid, context.subtask)
        self._producer: OpenProducer | None = None
        self._records = 0

    def write(self, batch: Batch) -> None:
        if batch.length == 0:
            return
        if self._producer is None:
            self._producer = KEPT.take(self._purpose) or open_producer(self._sink.settings)
        kafka = client_library()
        for topic, messages in by_topic(self._sink.serializer.topic, self._maker.messages(batch)):
            try:
                send(self._producer, topic, messages)
            except kafka.KafkaException as error:
                raise failure_of(error.args[0], topic, self._sink.settings) from error
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
        KEPT.give_back(self._purpose, producer)
        return ({"records": self._records},)

    def abort(self) -> None:
        if self._producer is not None:
            self._producer.close()
