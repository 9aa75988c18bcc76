"""Publishes an epoch to Kafka exactly once: messages and the epoch's mark in one transaction.

The output of an epoch is divided into *lanes* (`lanes.py`), which the manifest lists: any driver that publishes the
epoch, now or later, at any parallelism, publishes the same lanes. A lane has one transactional id and one
*mark*: the offset of a consumer group of that name, which is the number of the newest epoch that this lane has
published. The offset is committed in the same transaction as the messages, so either both are visible or neither.

The steps, for one lane of epoch N:

1. `init_transactions`. It commits or aborts any transaction that an earlier producer of this id left open, and if one
is still alive somewhere, it can never commit again.
2. Read the mark. If it is N or more, the lane is published, and nothing remains to be done.
3. Send the messages and the mark N in one transaction, and commit it.

Why this is exactly once: if two drivers publish the same lane concurrently, the later one to pass step 1 fences the
other. If the other has committed before that, step 2 sees its mark; if not, it can no longer commit. A producer that
stays open skips 1 and 2 in the next epoch: if another producer had published for this lane since, the open one would
have been fenced, and would restart at step 1. Where epochs have their marks at different topics, each topic's mark is
read at its first use.

Brokers retain marks, like any group offset, for offsets.retention.minutes (7 days unless set) after the last
one. An epoch with a receipt in the job's store is never published again, so a mark is only needed when a
driver crashed between the transaction and the receipt. If that was longer ago than the retention, a missing mark proves
nothing: then the job stops, and the error explains how to decide (`marks.py`).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from millstream.connectors.contracts import CommitId, Json
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import confluent
from millstream.connectors.kafka.kafka_failures import failure_of, is_fenced, silence_error, timeout_s
from millstream.connectors.kafka.lanes import FORM
from millstream.connectors.kafka.marks import ExpiredMarks, is_published, read_mark
from millstream.connectors.kafka.outgoing_messages import read_messages
from millstream.connectors.kafka.producers import POOL, OpenProducer, call_client, flush, open_producer, send
from millstream.errors import ConnectorAwayError, MillstreamError, StoreDamagedError
from millstream.storage.store import Store

__all__ = ["Target", "check_transactions", "publish_lane", "transactional_id"]

_ABORT_S = 2.0
_FENCED_PAUSE_S = 0.5
_OVER = ("_STATE", "_FATAL")
"""Errors for a message whose transaction is over."""
_WAITED = ("_TIMED_OUT", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT")
"""Errors for a timeout of the program's own limit."""


@dataclass(frozen=True)
class Target:
    """The target of a sink."""

    settings: ClientSettings
    expired_marks: ExpiredMarks = "fail"


def transactional_id(commit: CommitId, lane: Json) -> str:
    """The name of a lane's transactions and of the group that holds its mark. Uses the prefix of the program that
    committed the epoch, even if a later program has another prefix."""
    return f"{lane['prefix']}.{commit.committer}.{lane['lane']}"


def check_transactions(target: Target, prefix: str, topic: str | None) -> None:
    """Start like a lane, under a name that no job uses, to report permission errors before an epoch depends on them."""
    name = f"{prefix}.check"
    producer = open_producer(target.settings, name)
    try:
        _retry_step(producer.client.init_transactions, timeout_s(target.settings))
        if topic is not None:
            read_mark(target.settings, name, topic)
    except confluent().KafkaException as error:
        if is_fenced(error.args[0]):
            return  # fenced by another job that checks at the same time
        raise failure_of(error, target.settings, destination=topic) from error
    finally:
        producer.close()


def publish_lane(target: Target, commit: CommitId, lane: Json, store: Store) -> None:
    """Publish one lane of an epoch, unless it is published. Idempotent, also when run concurrently."""
    if lane.get("form") != FORM:
        raise StoreDamagedError(
            f"Store {store.url}: output for Kafka has the format {lane.get('form')!r}, and this version reads format "
            f"{FORM}. Publish it with the version that committed it."
        )
    name = transactional_id(commit, lane)
    purpose = (target.settings, name)
    old_producer = POOL.take(purpose)
    if old_producer is not None and _published_by_cached(old_producer, target, name, commit, lane, store):
        POOL.put_back(purpose, old_producer)
        return
    deadline: float | None = None
    while True:
        producer = open_producer(target.settings, name)
        try:
            _publish(producer, target, name, commit, lane, store)
        except confluent().KafkaException as error:
            producer.close()
            # Count from the first failure: a large lane may have taken long before it.
            deadline = deadline or time.monotonic() + timeout_s(target.settings)
            failure = failure_of(error, target.settings, destination=lane["mark_topic"])
            if not _may_retry(error.args[0], failure) or time.monotonic() > deadline:
                raise failure from error
            # Random pauses: two publishers that fence each other must not stay in step.
            time.sleep(random.uniform(0.1, 1.0) * _FENCED_PAUSE_S)
        except TimeoutError as error:
            producer.close()
            raise silence_error(
                target.settings, "the transaction could not be ended", producer.client_errors
            ) from error
        except BaseException:
            producer.close()
            raise
        else:
            POOL.put_back(purpose, producer)
            return


def _may_retry(error: Any, failure: Exception) -> bool:
    """Whether a new producer may succeed where a transaction has failed. It starts at step 1, so no part of the
    failed transaction is ever visible, and a transaction that was committed after all is detected by its mark."""
    is_over = error.txn_requires_abort() or error.fatal() or is_fenced(error) or error.name() in _OVER
    return isinstance(failure, ConnectorAwayError) and is_over and error.name() not in _WAITED


def _published_by_cached(
    producer: OpenProducer, target: Target, name: str, commit: CommitId, lane: Json, store: Store
) -> bool:
    """Publish with a cached producer; False if it is unusable, and a new one must be created."""
    try:
        _publish(producer, target, name, commit, lane, store)
    except confluent().KafkaException as error:
        producer.close()
        if error.args[0].retriable():
            raise failure_of(error, target.settings, destination=lane["mark_topic"]) from error
        return False  # fenced, if the lane has moved between processes; or its id has expired at the broker
    except TimeoutError as error:
        producer.close()
        raise silence_error(target.settings, "the transaction could not be ended", producer.client_errors) from error
    except BaseException:
        producer.close()
        raise
    return True


def _publish(producer: OpenProducer, target: Target, name: str, commit: CommitId, lane: Json, store: Store) -> None:
    client, limit_s, topic = producer.client, timeout_s(target.settings), lane["mark_topic"]
    if not producer.is_ready:
        _retry_step(client.init_transactions, limit_s)
        producer.is_ready = True
    if topic not in producer.marks:
        mark = read_mark(target.settings, name, topic)
        producer.group = mark.group
        published = is_published(target.settings, mark, commit, lane, target.expired_marks)
        marked_epoch = -1 if mark.epoch is None else mark.epoch
        producer.marks[topic] = max(marked_epoch, commit.epoch) if published else marked_epoch
    if producer.marks[topic] >= commit.epoch:
        return
    client.begin_transaction()
    try:
        for part in lane["parts"]:
            for destination, messages in read_messages(part, store):
                send(producer, destination, messages)
        flush(producer)
        new_mark = confluent().TopicPartition(topic, 0, commit.epoch, str(commit))
        _retry_step(partial(_send_mark, client, new_mark, producer.group), limit_s)
        _retry_step(client.commit_transaction, limit_s)
    except confluent().KafkaException as error:
        reason = _reason(producer, error)
        _abort(client)
        raise reason from error
    except BaseException:
        _abort(client)
        raise
    producer.marks[topic] = commit.epoch


def _reason(producer: OpenProducer, error: Exception) -> Exception:
    """Why a transaction has failed. It may be ended while messages are sent: by the broker, another producer with its
    name, or an undelivered message. The next message then fails with only an invalid state or a fatal error; an attempt
    to begin a transaction fails with the reason."""
    if error.args[0].name() not in _OVER:
        return error
    reason = error
    try:
        call_client(producer.client.begin_transaction)
    except confluent().KafkaException as refusal:
        reason = refusal
    try:
        call_client(producer.client.poll, 0)
        if not is_fenced(reason.args[0]):
            producer.check()  # an undelivered message is the most specific error
    except (confluent().KafkaException, MillstreamError) as undelivered:
        return undelivered
    return reason


def _abort(client: Any) -> None:
    """End a failed transaction: readers cannot read past an open one. If this fails too, the first step of the next
    attempt ends it."""
    with suppress(confluent().KafkaException):
        call_client(client.purge)
        call_client(client.abort_transaction, _ABORT_S)


def _send_mark(client: Any, mark: Any, group: Any, limit_s: float) -> None:
    """Add the mark to the transaction. The client ignores any limit here except the transaction's own timeout, so it
    is called on a thread that can be abandoned."""
    outcome: Future[None] = Future()

    def call() -> None:
        try:
            outcome.set_result(client.send_offsets_to_transaction([mark], group, limit_s))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, name="millstream-kafka-mark", daemon=True).start()
    outcome.result(limit_s)


def _retry_step(step: Callable[[float], Any], limit_s: float) -> None:
    """Repeat a step of a transaction while the client reports it as retriable."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            call_client(step, max(1.0, deadline - time.monotonic()))
            return
        except confluent().KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
