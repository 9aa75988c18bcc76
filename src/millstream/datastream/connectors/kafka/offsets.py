"""Start and end offsets of a Kafka source, in PyFlink's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.connectors.kafka.offsets import EARLIEST, LATEST, OffsetRule, Partition, Reset, committed, specific
from millstream.datastream.streams.argument_checks import at_users_line, refuse
from millstream.datastream.streams.stream_edges import no_java_object

__all__ = ["KafkaOffsetResetStrategy", "KafkaOffsetsInitializer", "KafkaTopicPartition", "checked_rule"]


@dataclass(frozen=True)
class KafkaTopicPartition:
    """A partition of a topic.

    >>> KafkaTopicPartition("orders", 3)
    KafkaTopicPartition(topic='orders', partition=3)
    """

    topic: str
    partition: int

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise refuse(f"KafkaTopicPartition: found the topic {self.topic!r}, expected a non-empty string")
        number = self.partition
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 31:
            raise refuse(f"KafkaTopicPartition: found the partition {number!r}, expected 0, 1, 2 and so on")


class KafkaOffsetResetStrategy(Enum):
    """The fallback for an offset that does not exist in its partition, or no longer does."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class KafkaOffsetsInitializer:
    """The start or end of a source, determined once per partition. A restart resumes from the job's position.

    >>> start = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    """

    def __init__(self, j_initializer: Any = None, *, rule: OffsetRule | None = None) -> None:
        no_java_object(self, j_initializer)
        if rule is None:
            raise refuse("KafkaOffsetsInitializer: create one with its own methods, such as earliest()")
        self._rule = rule

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """The committed offset of the consumer group, or the strategy if none was committed."""
        return KafkaOffsetsInitializer(rule=committed(_reset("committed_offsets", offset_reset_strategy)))

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record with this timestamp or a later one, in milliseconds since 1970."""
        if isinstance(timestamp, bool) or not isinstance(timestamp, int):
            raise refuse(f"timestamp: found {timestamp!r}, expected milliseconds since 1970 as an int")
        with at_users_line():
            return KafkaOffsetsInitializer(rule=OffsetRule("timestamp", timestamp_ms=timestamp))

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The earliest existing record."""
        return KafkaOffsetsInitializer(rule=EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """After the newest record when the partition is discovered."""
        return KafkaOffsetsInitializer(rule=LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """The given offsets; for other partitions the group's committed offset, or the strategy if none was
        committed."""
        if not isinstance(offsets, Mapping) or not offsets:
            raise refuse(f"offsets: found {offsets!r}, expected a dict from KafkaTopicPartition to offsets")
        rules: dict[Partition, int] = {}
        for partition, offset in offsets.items():
            if not isinstance(partition, KafkaTopicPartition):
                raise refuse(f"offsets: found the key {partition!r}, expected a KafkaTopicPartition")
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise refuse(f"offsets: found {offset!r} for {partition}, expected an int")
            rules[Partition(partition.topic, partition.partition)] = offset
        with at_users_line():
            return KafkaOffsetsInitializer(rule=specific(rules, _reset("offsets", offset_reset_strategy)))


def checked_rule(method: str, initializer: Any) -> OffsetRule:
    """The rule of an initializer; rejects other objects."""
    if not isinstance(initializer, KafkaOffsetsInitializer):
        raise refuse(
            f"{method}: found {initializer!r}, expected a KafkaOffsetsInitializer, such as "
            "KafkaOffsetsInitializer.earliest()"
        )
    return initializer._rule


def _reset(method: str, strategy: Any) -> Reset:
    if not isinstance(strategy, KafkaOffsetResetStrategy):
        raise refuse(f"{method}: found {strategy!r}, expected one of KafkaOffsetResetStrategy")
    resets: dict[str, Reset] = {"LATEST": "latest", "EARLIEST": "earliest", "NONE": "none"}
    return resets[strategy.name]
