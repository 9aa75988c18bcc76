"""Where the reading of a partition begins and ends: the program's rule, made into a number once.

An `OffsetRule` says it in words: at the earliest record, at the newest, at a time, where a group has committed, or at
offsets that are given. `resolve` makes numbers of it, with what `OffsetLookup` finds out from the brokers. It is asked
once for each partition, when that is discovered; from then on the number stands (`partitions`), whatever happens to the
topic.

An offset that is not in the partition (any more, or yet) is replaced as the rule's `reset` says; without one it is an
error. Nothing is skipped that the program did not say may be skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from millstream.errors import ConnectorError, ProgramError

__all__ = ["EARLIEST", "LATEST", "OffsetLookup", "OffsetRule", "Partition", "Reset", "committed", "given", "resolve"]

Reset = Literal["earliest", "latest", "none"]

_MARKERS = {-2: "earliest", -1: "latest", -3: "committed"}
"""Offsets below 0 that Flink's programs write for "the earliest", "the newest" and "where the group is"."""
_BOUND = 1 << 63
"""No offset or time reaches it."""


@dataclass(frozen=True, order=True)
class Partition:
    """A partition of a topic. Its name is that of the split.

    >>> Partition("orders", 3).name
    'orders-3'
    """

    topic: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True)
class OffsetRule:
    """Where to begin or end. `offsets` of given ones; `timestamp_ms` of a time; `reset` where an offset is not there.

    >>> OffsetRule("timestamp", timestamp_ms=-1)
    Traceback (most recent call last):
    millstream.errors.ProgramError: Kafka offsets: the timestamp is -1, expected milliseconds since 1970, 0 or more.
    """

    kind: Literal["earliest", "latest", "timestamp", "committed", "given"]
    reset: Reset = "none"
    timestamp_ms: int = 0
    offsets: tuple[tuple[Partition, int], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.timestamp_ms < _BOUND:
            raise ProgramError(
                f"Kafka offsets: the timestamp is {self.timestamp_ms}, expected milliseconds since 1970, 0 or more."
            )
        for partition, offset in self.offsets:
            if not min(_MARKERS) <= offset < _BOUND:
                raise ProgramError(
                    f"Kafka offsets: that of {partition.name} is {offset}, expected 0 or more, or Flink's "
                    "-1 (latest), -2 (earliest), -3 (committed)."
                )

    def __str__(self) -> str:
        if self.kind == "timestamp":
            return f"timestamp {self.timestamp_ms}"
        if self.kind == "given":
            return f"{len(self.offsets)} given offsets"
        return "committed offsets" if self.kind == "committed" else self.kind


EARLIEST = OffsetRule("earliest")
LATEST = OffsetRule("latest")


def committed(reset: Reset = "none") -> OffsetRule:
    """Where the group has committed."""
    return OffsetRule("committed", reset)


def given(offsets: Mapping[Partition, int], reset: Reset = "earliest") -> OffsetRule:
    """At these offsets; for other partitions where the group has committed, or else by `reset`."""
    return OffsetRule("given", reset, offsets=tuple(sorted(offsets.items())))


class OffsetLookup(Protocol):
    """What brokers know of offsets. Each answer has all partitions that were asked for, but for `committed`."""

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset that is still there."""

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset behind the last record that may be read."""

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The first offset of a record at or after this time; the latest where there is none."""

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where the group has committed; a partition of which it has not is left out."""


def resolve(
    rule: OffsetRule, partitions: Iterable[Partition], lookup: OffsetLookup, *, ends: bool = False
) -> dict[Partition, int]:
    """The offset of each partition by the rule. Brokers are asked about all that need it at once.

    `ends`: where reading ends, which may be an offset that is not there yet.
    """
    wanted = dict.fromkeys(partitions, rule.kind)
    offsets: dict[Partition, int] = {}
    if rule.kind == "given":
        chosen = dict(rule.offsets)
        for partition in wanted:
            offset = chosen.get(partition, -3)
            if offset >= 0:
                offsets[partition] = offset
            else:
                wanted[partition] = _MARKERS[offset]  # type: ignore[assignment]
    at_time = _of_kind(wanted, "timestamp")
    if at_time:
        return lookup.at_time(at_time, rule.timestamp_ms)
    in_group = _of_kind(wanted, "committed")
    offsets |= lookup.committed(in_group) if in_group else {}
    if not ends:
        offsets = _within(offsets, lookup)
    lost = [
        partition for partition in wanted if partition not in offsets and wanted[partition] in ("committed", "given")
    ]
    if lost and rule.reset == "none":
        raise _no_offset(rule, lost)
    earliest = [*_of_kind(wanted, "earliest"), *(lost if rule.reset == "earliest" else ())]
    latest = [*_of_kind(wanted, "latest"), *(lost if rule.reset == "latest" else ())]
    offsets |= lookup.earliest(earliest) if earliest else {}
    return offsets | (lookup.latest(latest) if latest else {})


def _of_kind(wanted: Mapping[Partition, str], kind: str) -> list[Partition]:
    return [partition for partition, of in wanted.items() if of == kind]


def _within(offsets: dict[Partition, int], lookup: OffsetLookup) -> dict[Partition, int]:
    """Those that are in their partitions, or right behind their ends."""
    if not offsets:
        return offsets
    first, end = lookup.earliest(offsets), lookup.latest(offsets)
    return {at: offset for at, offset in offsets.items() if first[at] <= offset <= end[at]}


def _no_offset(rule: OffsetRule, partitions: list[Partition]) -> ConnectorError:
    names = ", ".join(partition.name for partition in sorted(partitions)[:5])
    more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    what = "committed" if rule.kind == "committed" else "given or committed"
    return ConnectorError(
        f"Kafka: no {what} offset of {names}{more} that is still there, and the reset strategy is NONE. Choose "
        "KafkaOffsetResetStrategy.EARLIEST or LATEST for it, or begin at KafkaOffsetsInitializer.earliest()."
    )
