"""The partitions that a source reads, with the decisions made when each was discovered.

A `Subscription` selects the topics or partitions for a program. Discovered partitions are written to
the job's store before they are read (`PartitionLog`): where reading starts, where it ends, and the id of the topic,
which distinguishes a topic from a later one of the same name. A restart reads all of this
from the store and queries no broker for the start.

    input/kafka-{source's uid}/{number}.json      the partitions of one discovery, sealed

Partitions of the first discovery start as the program specifies; later ones start at their earliest record, as in
Flink: a new partition is read completely.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from millstream.checkpoint.sealed import seal, unseal
from millstream.connectors.kafka.offsets import Partition
from millstream.errors import ProgramError, StoreDamagedError
from millstream.storage.layered_stores import LayeredStore
from millstream.storage.names import INPUT
from millstream.storage.path_parts import safe
from millstream.storage.store import Store

__all__ = ["DiscoveredPartition", "PartitionLog", "Subscription", "is_partition_list", "partitions_of_list"]

_KIND = "kafka-partitions"
_FORMAT = 1
_LIST = re.compile(r"input/kafka-[^/]+/\d{12,}\.json")


@dataclass(frozen=True)
class Subscription:
    """The program's selection: `topics`, or topics whose whole name matches `pattern`, or `partitions`.

    >>> Subscription(pattern="order.*").chosen_topics(["orders", "border"])
    ['orders']
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        if sum(map(bool, (self.topics, self.pattern is not None, self.partitions))) != 1:
            raise ProgramError(
                "Kafka source: set either topics (set_topics), or a pattern of topics (set_topic_pattern), or "
                "partitions (set_partitions)."
            )
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ProgramError(
                    f"Kafka source: the topic pattern {self.pattern!r} is not a regular expression: {error}."
                ) from None

    @property
    def named_topics(self) -> tuple[str, ...]:
        """The topics that must exist."""
        return self.topics or tuple(sorted({partition.topic for partition in self.partitions}))

    def chosen_topics(self, names: Iterable[str]) -> list[str]:
        """The names that match the pattern. Kafka's internal topics never do."""
        assert self.pattern is not None
        pattern = re.compile(self.pattern)
        return sorted(name for name in names if not name.startswith("__") and pattern.fullmatch(name))

    def chosen_partitions(self, counts: Mapping[str, int]) -> list[Partition]:
        """The partitions to read, given the partition counts of topics."""
        if self.partitions:
            return [at for at in sorted(set(self.partitions)) if at.number < counts.get(at.topic, 0)]
        return [Partition(topic, number) for topic, count in sorted(counts.items()) for number in range(count)]

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics matching {self.pattern}"
        if self.partitions:
            return f"partitions {', '.join(at.name for at in self.partitions)}"
        return f"topic{'s' if len(self.topics) > 1 else ''} {', '.join(self.topics)}"


@dataclass(frozen=True)
class DiscoveredPartition:
    """A partition with the decisions made at its discovery. `stop` None: it is unbounded."""

    topic: str
    number: int
    topic_id: str
    start: int
    stop: int | None = None

    @property
    def partition(self) -> Partition:
        return Partition(self.topic, self.number)


class PartitionLog:
    """The partitions of one source in the order of their discovery, stored in the job's store.

    A job that started from another's epoch continues with that job's list. Without a store the list is only in memory.
    """

    def __init__(self, store: Store | None, uid: str) -> None:
        self._store = store
        self._folder = f"{INPUT}/kafka-{safe(uid)}"
        self._list_count = 0
        self.partitions: dict[Partition, DiscoveredPartition] = {}
        if store is not None:
            self._catch_up()
            if not self._list_count and isinstance(store, LayeredStore):
                self._inherit(store.bases)

    @property
    def has_started(self) -> bool:
        """Whether this driver or an earlier one has already discovered partitions."""
        return self._list_count > 0

    def add(self, partitions: Sequence[DiscoveredPartition]) -> None:
        """Write new partitions before they are read. If another driver was first, its list is used."""
        new = [each for each in partitions if each.partition not in self.partitions]
        if self.has_started and not new:
            return
        if self._store is not None:
            data = seal(_KIND, _FORMAT, {"partitions": [asdict(each) for each in new]})
            if not self._store.create(self._name(self._list_count + 1), data):
                self._catch_up()
                return
        self._append(new)

    def _catch_up(self) -> None:
        assert self._store is not None
        for name in self._store.list(self._folder):
            number = name.rpartition("/")[2].removesuffix(".json")
            if not _LIST.fullmatch(name) or int(number) <= self._list_count:
                continue  # an unrelated file, or one already read
            if int(number) != self._list_count + 1:
                raise StoreDamagedError(
                    f"Store {self._store.url}: {self._name(self._list_count + 1)!r}, a list of Kafka partitions, is "
                    "missing. Restore it; without it records would be skipped or read twice."
                )
            self._append(partitions_of_list(self._store.get(name), f"Store {self._store.url}: {name!r}"))

    def _inherit(self, bases: tuple[Store, ...]) -> None:
        """Start with the list of the original job, merged into one file, under this job's own name."""
        for base in bases:
            of_base = PartitionLog.__new__(PartitionLog)
            of_base._store, of_base._folder, of_base._list_count, of_base.partitions = base, self._folder, 0, {}
            of_base._catch_up()
            if of_base.has_started:
                self.add(list(of_base.partitions.values()))
                return

    def _append(self, new: Iterable[DiscoveredPartition]) -> None:
        for each in new:
            self.partitions.setdefault(each.partition, each)
        self._list_count += 1

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"


def partitions_of_list(data: bytes, name: str) -> list[DiscoveredPartition]:
    """The partitions in a stored list; StoreDamagedError if it is damaged or another file."""
    document = unseal(data, _KIND, _FORMAT, name)
    try:
        return [DiscoveredPartition(**entry) for entry in document["partitions"]]
    except (KeyError, TypeError) as error:
        raise StoreDamagedError(f"{name}, a list of Kafka partitions, is not readable ({error}).") from error


def is_partition_list(name: str) -> bool:
    """Whether a file of a store is named like a partition list.

    >>> is_partition_list("input/kafka-orders/000000000001.json"), is_partition_list("input/in/series.json")
    (True, False)
    """
    return _LIST.fullmatch(name) is not None
