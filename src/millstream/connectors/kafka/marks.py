"""Marks record which epochs of a lane are already in Kafka.

A mark is the committed offset of a consumer group without members. The group has the name of the lane's
transactional id, the offset is the number of the newest epoch that the lane has published, and its metadata is the
`CommitId`, for people. It is stored for partition 0 of a topic that the epoch wrote to, because a broker stores
offsets of existing topics only.

A mark is read after `init_transactions`, so no transaction of its lane is open, and the value cannot change. A broker
expires offsets of groups without members after offsets.retention.minutes. An *absent* mark therefore proves something
only while the epoch is younger than that. Its age is the difference between the clocks of two machines; a tenth of
the retention is reserved for that (16 hours of 7 days), and a clock that differs by more than a minute is reported when
a job starts (`spark.executor_checks`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from millstream.connectors.contracts import CommitId, Json
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import ClientErrors, confluent, new_client
from millstream.connectors.kafka.group_offsets import group_offsets
from millstream.connectors.kafka.kafka_failures import timeout_s
from millstream.errors import ConnectorError

__all__ = ["EXPIRED_MARKS_PROPERTY", "ExpiredMarks", "Mark", "is_published", "mark_retention_ms", "read_mark"]

ExpiredMarks = Literal["fail", "publish", "skip"]
"""What to do with an epoch whose publication can no longer be determined."""

EXPIRED_MARKS_PROPERTY = "millstream.expired-marks"
_DEFAULT_RETENTION_MS = 7 * 24 * 3_600_000
_CERTAIN_MS = 3_600_000
_ANSWER_S = 2.0


@dataclass(frozen=True)
class Mark:
    """`epoch` is the newest that the lane has published, None without a mark; `group` identifies the
    group in a transaction."""

    epoch: int | None
    group: Any


def read_mark(settings: ClientSettings, name: str, topic: str) -> Mark:
    """Read the mark of the lane `name` at `topic` from the broker."""
    stored = group_offsets(settings, name, [(topic, 0)], timeout_s(settings))
    return Mark(stored.offsets.get((topic, 0)), stored.group)


def is_published(settings: ClientSettings, mark: Mark, commit: CommitId, lane: Json, expired: ExpiredMarks) -> bool:
    """Whether the lane has published `commit`, according to its mark."""
    if mark.epoch is not None:
        return mark.epoch >= commit.epoch
    age_ms = int(time.time() * 1000) - lane["staged_ms"]
    if age_ms < _CERTAIN_MS or age_ms < 0.9 * mark_retention_ms(settings):
        return False
    if expired != "fail":
        return expired == "skip"
    hours = age_ms // 3_600_000
    raise ConnectorError(
        f"Kafka at {settings.bootstrap_servers}: epoch {commit.epoch} was to be published to {lane['mark_topic']!r} "
        f"{hours} hours ago, but the broker expires marks earlier, so whether it was published is unknown. Check "
        f"the topic for the content of {commit}, and start the job with set_property('{EXPIRED_MARKS_PROPERTY}', "
        "'skip') if it is there, or with 'publish' if it is not"
    )


def mark_retention_ms(settings: ClientSettings) -> int:
    """How long the broker retains a mark; Kafka's default if unknown."""
    admin = new_client("admin", settings, ClientErrors())
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

    try:
        broker = next(iter(admin.list_topics(timeout=_ANSWER_S).brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        configuration = admin.describe_configs([resource], request_timeout=_ANSWER_S)[resource].result()
        return int(configuration["offsets.retention.minutes"].value) * 60_000
    except confluent().KafkaException:
        return _DEFAULT_RETENTION_MS  # this user may not read it
