"""Where a consumer group stands: its committed offsets, asked for by a consumer that never joins it.

The client for administration must not be asked. Where a coordinator is starting or has moved, its
`list_consumer_group_offsets` crashes the whole process (librdkafka 2.16: an answer to OffsetFetch is handled as that of
a member, and there is none). A consumer handles the same answer well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import Complaints, confluent, new_client
from millstream.connectors.kafka.kafka_failures import failure_of

__all__ = ["GroupOffsets", "group_offsets"]

_ANSWER_S = 2.0

# A coordinator that starts, moves or is busy with a transaction says so, and is asked again.
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
    """`offsets` are those that are committed, by topic and partition; `group` stands for the group in a transaction."""

    offsets: dict[tuple[str, int], int]
    group: Any


def group_offsets(
    settings: ClientSettings, group: str, places: Sequence[tuple[str, int]], limit_s: float
) -> GroupOffsets:
    """The group's offsets at `places`. An offset that an open transaction may still change is waited for."""
    kafka = confluent()
    ours = {"group_id": group, "enable_auto_commit": False, "isolation_level": "read_committed"}
    consumer = new_client("consumer", settings, Complaints(), **ours)
    wanted = [kafka.TopicPartition(topic, partition) for topic, partition in places]
    deadline = time.monotonic() + limit_s
    try:
        while True:
            answers, trouble = _asked(consumer, wanted)
            if trouble is None:
                standing = {(at.topic, at.partition): at.offset for at in answers if at.error is None}
                offsets = {place: offset for place, offset in standing.items() if offset >= 0}
                return GroupOffsets(offsets, consumer.consumer_group_metadata())
            if trouble.name() not in _PASSING or time.monotonic() > deadline:
                raise failure_of(trouble, settings, f"asking where group {group} stands")
            time.sleep(0.05)
    finally:
        consumer.close()


def _asked(consumer: Any, wanted: list[Any]) -> tuple[list[Any], Any]:
    """The answers, and what went wrong, if something did."""
    try:
        answers = consumer.committed(wanted, _ANSWER_S)
    except confluent().KafkaException as error:
        # That the group is forbidden is told beside; the call only says that time is up.
        complaint = consumer.poll(0)
        return [], error.args[0] if complaint is None else complaint.error()
    troubles = (at.error for at in answers if at.error is not None and at.error.name() not in _NONE)
    return answers, next(troubles, None)
