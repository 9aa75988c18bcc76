"""Where reading a partition starts and ends: the program's rule, resolved to an offset once.

An `OffsetRule` is the earliest record, the newest, a time, a group's committed offsets, or
specific offsets. `resolve` turns it into numbers, using `OffsetLookup` for the brokers. It is called
once for each partition, on discovery; from then on the offset is fixed (`partitions`), regardless of changes to the
topic.

An offset that is not, or no longer, in the partition is replaced according to the rule's `reset`; without a `reset` it
is an error. No record is skipped without the program's permission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from millstream.errors import ConnectorError, ProgramError

__all__ = ["EARLIEST", "LATEST", "OffsetLookup", "OffsetRule", "Partition", "Reset", "committed", "resolve", "specific"]

Reset = Literal["earliest", "latest", "none"]

_MARKERS = {-2: "earliest", -1: "latest", -3: "committed"}
"""Negative offsets in Flink programs: the earliest, the newest, the group's committed one."""
_BOUND = 1 << 63
"""Greater than any offset or time."""


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
    """Where to start or stop. `offsets`: specific ones; `timestamp_ms`: of a time; `reset`: for a missing offset.

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
                    f"Kafka offsets: the offset of {partition.name} is {offset}, expected 0 or more, or Flink's "
                    "-1 (latest), -2 (earliest), -3 (committed)."
                )

    def __str__(self) -> str:
        if self.kind == "timestamp":
            return f"timestamp {self.timestamp_ms}"
        if self.kind == "given":
            return f"{len(self.offsets)} specific offsets"
        return "committed offsets" if self.kind == "committed" else self.kind


EARLIEST = OffsetRule("earliest")
LATEST = OffsetRule("latest")


def committed(reset: Reset = "none") -> OffsetRule:
    """The group's committed offsets."""
    return OffsetRule("committed", reset)


def specific(offsets: Mapping[Partition, int], reset: Reset = "earliest") -> OffsetRule:
    """These offsets; for other partitions the group's committed ones, or else by `reset`."""
    return OffsetRule("given", reset, offsets=tuple(sorted(offsets.items())))


class OffsetLookup(Protocol):
    """Offset queries to brokers. Each result has all requested partitions, except for `committed`."""

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first existing offset."""

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset after the last record that may be read."""

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The first offset of a record at or after this time, otherwise the latest offset."""

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The group's committed offsets; partitions without one are omitted."""


def resolve(
    rule: OffsetRule, partitions: Iterable[Partition], lookup: OffsetLookup, *, ends: bool = False
) -> dict[Partition, int]:
    """The offset of each partition by the rule, with one query for all partitions that need it.

    `ends`: resolve the end of reading, which may be an offset that does not exist yet.
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
    invalid = [
        partition for partition in wanted if partition not in offsets and wanted[partition] in ("committed", "given")
    ]
    if invalid and rule.reset == "none":
        raise _missing_offset_error(rule, invalid)
    earliest = [*_of_kind(wanted, "earliest"), *(invalid if rule.reset == "earliest" else ())]
    latest = [*_of_kind(wanted, "latest"), *(invalid if rule.reset == "latest" else ())]
    offsets |= lookup.earliest(earliest) if earliest else {}
    return offsets | (lookup.latest(latest) if latest else {})


def _of_kind(wanted: Mapping[Partition, str], kind: str) -> list[Partition]:
    return [partition for partition, of in wanted.items() if of == kind]


def _within(offsets: dict[Partition, int], lookup: OffsetLookup) -> dict[Partition, int]:
    """The offsets that are in their partitions, or right after their ends."""
    if not offsets:
        return offsets
    first, end = lookup.earliest(offsets), lookup.latest(offsets)
    return {at: offset for at, offset in offsets.items() if first[at] <= offset <= end[at]}


def _missing_offset_error(rule: OffsetRule, partitions: list[Partition]) -> ConnectorError:
    names = ", ".join(partition.name for partition in sorted(partitions)[:5])
    suffix = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    what = "committed" if rule.kind == "committed" else "specific or committed"
    return ConnectorError(
        f"Kafka: no {what} offset of {names}{suffix} still exists, and the reset strategy is NONE. Use "
        "KafkaOffsetResetStrategy.EARLIEST or LATEST for it, or start at KafkaOffsetsInitializer.earliest()."
    )
