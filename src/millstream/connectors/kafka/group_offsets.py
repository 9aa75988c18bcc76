"""The committed offsets of a consumer group, read by a consumer that never joins it.

The administration client cannot be used. While a coordinator starts or moves, its
`list_consumer_group_offsets` crashes the whole process (librdkafka 2.16 handles an OffsetFetch response as if for a
group member, and there is no member). A consumer handles the same response correctly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import ClientErrors, confluent, new_client
from millstream.connectors.kafka.kafka_failures import failure_of

__all__ = ["GroupOffsets", "group_offsets"]

_ANSWER_S = 2.0

# Errors of a coordinator that starts, moves or is busy with a transaction: the request is retried.
_PASSING = frozenset(
    {
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "UNSTABLE_OFFSET_COMMIT",
        "REQUEST_TIMED_OUT",
        "_WAIT_COORD",
        "_TRANSPORT",
        "_TIMED_OUT",
        "_ALL_BROKERS_DOWN",
    }
)
_NONE = ("UNKNOWN_TOPIC_OR_PART", "GROUP_ID_NOT_FOUND")


@dataclass(frozen=True)
class GroupOffsets:
    """The committed `offsets`, by topic and partition; `group` identifies the group in a transaction."""

    offsets: dict[tuple[str, int], int]
    group: Any


def group_offsets(
    settings: ClientSettings, group: str, places: Sequence[tuple[str, int]], limit_s: float
) -> GroupOffsets:
    """The group's offsets at `places`. Waits for offsets that an open transaction may still change."""
    kafka = confluent()
    overrides = {"group_id": group, "enable_auto_commit": False, "isolation_level": "read_committed"}
    consumer = new_client("consumer", settings, ClientErrors(), **overrides)
    wanted = [kafka.TopicPartition(topic, partition) for topic, partition in places]
    deadline = time.monotonic() + limit_s
    try:
        while True:
            answers, failure = _request(consumer, wanted)
            if failure is None:
                committed = {(at.topic, at.partition): at.offset for at in answers if at.error is None}
                offsets = {place: offset for place, offset in committed.items() if offset >= 0}
                return GroupOffsets(offsets, consumer.consumer_group_metadata())
            if failure.name() not in _PASSING or time.monotonic() > deadline:
                raise failure_of(failure, settings, f"reading the offsets of group {group}")
            time.sleep(0.05)
    finally:
        consumer.close()


def _request(consumer: Any, wanted: list[Any]) -> tuple[list[Any], Any]:
    """The responses, and the first error, if any."""
    try:
        answers = consumer.committed(wanted, _ANSWER_S)
    except confluent().KafkaException as error:
        # A missing permission is reported as an event; the call only times out.
        complaint = consumer.poll(0)
        return [], error.args[0] if complaint is None else complaint.error()
    failures = (at.error for at in answers if at.error is not None and at.error.name() not in _NONE)
    return answers, next(failures, None)
