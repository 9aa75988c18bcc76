"""Marks: how a lane of a sink knows which of its epochs are in Kafka already.

A mark is the committed offset of a consumer group that nobody ever joins. The group has the name of the lane's
transactional id, the offset is the number of the newest epoch that the lane has published, and its metadata is the
`CommitId`, for people who look. It stands at partition 0 of a topic that the epoch wrote to, because a broker keeps
offsets only of topics that it has.

A mark is read after `init_transactions`, so no transaction of its lane is open, and the answer stands still. A broker
forgets offsets of groups without members after offsets.retention.minutes. That a mark is *absent* proves something only
while the epoch is younger than that. How old it is, is the difference between the clocks of two machines; a tenth of
the broker's time is left for that (16 hours of its 7 days), and a clock that is more than a minute away is told when a
job starts (`spark.executor_checks`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from millstream.connectors.contracts import CommitId, Json
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.clients import Complaints, confluent, new_client
from millstream.connectors.kafka.group_offsets import group_offsets
from millstream.connectors.kafka.kafka_failures import timeout_s
from millstream.errors import ConnectorError

__all__ = ["EXPIRED_MARKS_PROPERTY", "ExpiredMarks", "Mark", "is_published", "kept_marks_ms", "read_mark"]

ExpiredMarks = Literal["fail", "publish", "skip"]
"""What to do with an epoch of which nobody can tell any more whether it is published."""

EXPIRED_MARKS_PROPERTY = "millstream.expired-marks"
_DEFAULT_RETENTION_MS = 7 * 24 * 3_600_000
_CERTAIN_MS = 3_600_000
_ANSWER_S = 2.0


@dataclass(frozen=True)
class Mark:
    """`epoch` is the newest that the lane has published, None where no mark stands; `group` is what stands for the
    group in a transaction."""

    epoch: int | None
    group: Any


def read_mark(settings: ClientSettings, name: str, topic: str) -> Mark:
    """The mark of the lane `name` at `topic`. Asks the broker."""
    standing = group_offsets(settings, name, [(topic, 0)], timeout_s(settings))
    return Mark(standing.offsets.get((topic, 0)), standing.group)


def is_published(settings: ClientSettings, mark: Mark, commit: CommitId, lane: Json, expired: ExpiredMarks) -> bool:
    """Whether the lane has published `commit`, by its mark."""
    if mark.epoch is not None:
        return mark.epoch >= commit.epoch
    age_ms = int(time.time() * 1000) - lane["staged_ms"]
    if age_ms < _CERTAIN_MS or age_ms < 0.9 * kept_marks_ms(settings):
        return False
    if expired != "fail":
        return expired == "skip"
    hours = age_ms // 3_600_000
    raise ConnectorError(
        f"Kafka at {settings.bootstrap_servers}: epoch {commit.epoch} was to be published to {lane['mark_topic']!r} "
        f"{hours} hours ago, and the broker keeps no mark for so long, so nobody can tell whether it was. Look into "
        f"the topic for what {commit} holds, and start the job with set_property('{EXPIRED_MARKS_PROPERTY}', 'skip') "
        "if it is there, or with 'publish' if it is not"
    )


def kept_marks_ms(settings: ClientSettings) -> int:
    """How long the broker keeps a mark; Kafka's default, where it does not say."""
    admin = new_client("admin", settings, Complaints())
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

    try:
        broker = next(iter(admin.list_topics(timeout=_ANSWER_S).brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        configuration = admin.describe_configs([resource], request_timeout=_ANSWER_S)[resource].result()
        return int(configuration["offsets.retention.minutes"].value) * 60_000
    except confluent().KafkaException:
        return _DEFAULT_RETENTION_MS  # this user may not ask
