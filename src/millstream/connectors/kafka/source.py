"""A source that reads Kafka topics: a split is a partition, with Kafka's offsets.

The driver maintains the partitions (`partitions`: discovered at an interval, decided once, stored) and queries
before each epoch how far they can be read. With `isolation.level` read_committed, the default, that is the last stable
offset: later records belong to transactions that are still open. Tasks read ranges with consumers that stay open
(`consumers`). The manifest stores the positions. After each epoch the offsets are committed to the consumer group, for
people and monitoring; the job itself never uses them, unless the program starts at committed offsets.

**Unavailability and loss.** The source waits for silent brokers; in the meantime it has no new records, and other
sources continue. After 30 s an error is raised, and the restart strategy decides. If a topic was deleted, was recreated
under the same name, or has fewer records than were read, a permanent error explains how to continue.
"""

from __future__ import annotations

import copy
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.cluster import PATIENCE_S, Cluster, Topic
from millstream.connectors.kafka.consumers import read_range
from millstream.connectors.kafka.offsets import EARLIEST, OffsetRule, Partition, resolve
from millstream.connectors.kafka.partitions import DiscoveredPartition, PartitionLog, Subscription
from millstream.connectors.kafka.records import MessageReader, RecordLayout, RecordReader
from millstream.connectors.messages.dead_letters import DeadLetters
from millstream.errors import ConnectorAwayError, ConnectorError
from millstream.storage.store import Store

__all__ = ["KafkaSource"]

_LOG = logging.getLogger(__name__)
_DISCOVERY_INTERVAL_MS = 300_000
_ATTEMPT_S = 5.0
_NEW_TOPIC_S = 3.0
"""A topic created a moment ago may not be known to all brokers yet."""
_CLOSE_S = 5.0


class KafkaSource(Source):
    """The records of the partitions of `subscription`, read by `layout`.

    `group` "" means no group. `discovery_interval_ms` 0 discovers partitions once. Many attributes: the program's
    settings, and the driver's cached view of the cluster.
    """

    carries_timestamps = True
    keeps_starts = True

    def __init__(
        self,
        settings: ClientSettings,
        subscription: Subscription,
        layout: RecordLayout,
        *,
        start: OffsetRule = EARLIEST,
        stop: OffsetRule | None = None,
        bounded: bool = False,
        group: str = "",
        discovery_interval_ms: int = _DISCOVERY_INTERVAL_MS,
        commits_offsets: bool = True,
    ) -> None:
        self.settings, self.subscription, self.layout = settings, subscription, layout
        self.start, self.stop, self.bounded, self.group = start, stop, bounded, group
        self.discovery_interval_ms = 0 if bounded else discovery_interval_ms
        self.commits_offsets = commits_offsets and bool(group)
        self.type_info, self.dead_letter_tag = layout.type_info, layout.dead_letter_tag
        self._store: Store | None = None
        self._replays = False
        self._name = ""
        self._reset_view()

    def _reset_view(self) -> None:
        """Initialise the driver's view of the cluster."""
        self._cluster: Cluster | None = None
        self._log: PartitionLog | None = None
        self._splits: list[Split] = []
        self._ends: dict[Partition, int] = {}
        self._positions: dict[Partition, int] = {}
        self._group_positions: dict[Partition, int] = {}
        self._discovered_ms: int | None = None
        self._failures: dict[str, float] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tasks read assigned ranges: the driver's view of the cluster stays there.
        state = self.__dict__ | {"_store": None, "_cluster": None, "_log": None, "_splits": [], "_ends": {}}
        return state | {"_positions": {}, "_group_positions": {}, "_troubles": {}}

    def opened(self, store: Store, session: Any) -> Source:
        source = copy.copy(self)
        source._reset_view()
        source._store = store
        source._name = secrets.token_hex(4)
        source._cluster = Cluster(self.settings, self.group, reads_committed=self._reads_committed)
        source._cluster.check_settings()  # reports wrong settings at the user's line
        return source

    def reopened(self, store: Store, session: Any) -> Source:
        source = self.opened(store, session)
        assert isinstance(source, KafkaSource)
        source._replays = True
        return source

    @property
    def _reads_committed(self) -> bool:
        return self.settings.get("isolation.level") != "read_uncommitted"

    # --- partitions -------------------------------------------------------------------------------------------

    def splits(self, context: SourceContext) -> Sequence[Split]:
        if self._cluster is None:
            self._cluster = Cluster(self.settings, self.group, reads_committed=self._reads_committed)
        if self._log is None:
            self._log = PartitionLog(self._store, context.uid)
        if not self._replays:
            try:
                self._refresh(self._cluster, self._log, context.now_ms)
                self._failures.pop("the cluster", None)
            except ConnectorAwayError as error:
                self._ends = {}
                self._tolerate("the cluster", error)
        for discovered in list(self._log.partitions.values())[len(self._splits) :]:
            info = {"topic": discovered.topic, "partition": discovered.number, "stop": discovered.stop}
            self._splits.append(Split(discovered.partition.name, discovered.start, info))
        return self._splits

    def _refresh(self, cluster: Cluster, log: PartitionLog, now_ms: int) -> None:
        """Discover partitions if due, and query the readable end of all."""
        discovers, ends_before = self._is_discovery_due(now_ms), dict(self._ends)
        if discovers:
            self._discover(cluster, log)
            self._discovered_ms = now_ms
        wanted = [
            at
            for at, discovered in log.partitions.items()
            if discovered.stop is None or self._ends.get(at, -1) < discovered.stop
        ]
        for partition, end in cluster.known_ends(wanted, _ATTEMPT_S).items():
            if isinstance(end, int):
                self._ends[partition] = end
                self._failures.pop(partition.name, None)
                self._check_end(partition, end)
            elif not isinstance(end, ConnectorAwayError):
                raise end
            else:
                self._ends.pop(partition, None)
                self._discovered_ms = None  # it may be deleted: check its topic
                self._tolerate(partition.name, end)
        if not discovers and self._ends != ends_before:
            # New records exist. Check whether they are in the same topic, or in a new one of the same name.
            self._check_topics(cluster.topics({at.topic for at in log.partitions}, _ATTEMPT_S), log)

    def _is_discovery_due(self, now_ms: int) -> bool:
        if self._discovered_ms is None:
            return True
        return self.discovery_interval_ms > 0 and not 0 <= now_ms - self._discovered_ms < self.discovery_interval_ms

    def _discover(self, cluster: Cluster, log: PartitionLog) -> None:
        """Discover partitions, decide where they start and end, and store the decisions."""
        known_topics = {partition.topic for partition in log.partitions}
        wanted = set(self.subscription.named_topics)
        if self.subscription.pattern is not None and not (log.has_started and self.discovery_interval_ms == 0):
            wanted |= set(self.subscription.chosen_topics(cluster.topic_names(_ATTEMPT_S)))
        topics = self._topics(cluster, wanted | known_topics, is_first=not log.has_started)
        self._check_topics(topics, log)
        if log.has_started and self.discovery_interval_ms == 0:
            return
        counts = {name: topic.partition_count for name, topic in topics.items() if name in wanted}
        new = [at for at in self.subscription.chosen_partitions(counts) if at not in log.partitions]
        # Partitions of the first discovery start as the program specifies. Later ones are new, so they are read
        # completely.
        starts = resolve(EARLIEST if log.has_started or self._positions else self.start, new, cluster)
        stops = {} if self.stop is None else resolve(self.stop, new, cluster, ends=True)
        log.add([_discovered(at, topics[at.topic], starts[at], stops.get(at)) for at in new])

    def _topics(self, cluster: Cluster, names: Iterable[str], *, is_first: bool) -> dict[str, Topic]:
        until_s = time.monotonic() + (_NEW_TOPIC_S if is_first else 0.0)
        names = set(names)
        while True:
            topics = cluster.topics(names, _ATTEMPT_S)
            if len(topics) == len(names) or time.monotonic() >= until_s:
                return topics
            time.sleep(0.1)

    def _check_topics(self, topics: dict[str, Topic], log: PartitionLog) -> None:
        """Check that the topics exist and are the ones that were read so far."""
        for name in self.subscription.named_topics:
            if name not in topics and not any(at.topic == name for at in log.partitions):
                raise ConnectorError(
                    f"Kafka at {self.settings.bootstrap_servers} has no topic '{name}', or this user may not see it. "
                    f"Check its name, or create it: kafka-topics.sh --create --topic {name}."
                )
        for partition in self.subscription.partitions:
            count = topics[partition.topic].partition_count if partition.topic in topics else 0
            if partition.number >= count and partition not in log.partitions:
                raise ConnectorError(
                    f"Kafka topic '{partition.topic}' has {count} partitions, but no partition {partition.number}. "
                    f"Use 0 to {count - 1}."
                )
        for partition, discovered in log.partitions.items():
            topic = topics.get(partition.topic)
            if topic is None:
                self._tolerate(
                    f"topic {partition.topic}",
                    _loss_error(f"topic '{partition.topic}' was deleted", "Keep topics that are read"),
                )
            elif topic.id != discovered.topic_id:
                raise _loss_error(
                    f"topic '{partition.topic}' was deleted and created again: its old offsets are invalid in the "
                    "new one",
                    "Create topics under new names",
                )
            else:
                self._failures.pop(f"topic {partition.topic}", None)

    def _check_end(self, partition: Partition, end: int) -> None:
        """A partition never ends before the read position, except shortly after its leader has changed."""
        position, failure = self._positions.get(partition, 0), f"end of {partition.name}"
        if end >= position:
            self._failures.pop(failure, None)
            return
        self._ends.pop(partition, None)
        self._discovered_ms = None
        self._tolerate(
            failure,
            _loss_error(
                f"partition {partition.number} of topic '{partition.topic}' ends at offset {end}, but the job has read "
                f"to {position}: records were lost in Kafka, or the topic was created again",
                "Disable unclean leader elections",
            ),
        )

    def _tolerate(self, failure: str, error: ConnectorError) -> None:
        """Tolerate a failure for some time; then raise its error."""
        now_s = time.monotonic()
        since_s = self._failures.setdefault(failure, now_s)
        if now_s - since_s >= PATIENCE_S - _ATTEMPT_S:
            self._failures.clear()
            raise error
        if since_s == now_s:
            _LOG.warning("%s", error)

    # --- ranges -----------------------------------------------------------------------------------------------

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        end = self._end(split)
        return offset if end is None else max(offset, min(end, offset + budget))

    def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
        end = self._end(split)
        return None if end is None else max(0, end - offset)

    def _end(self, split: Split) -> int | None:
        """How far a split can be read now; None: unknown."""
        end, stop = self._ends.get(_partition_of(split)), split.info["stop"]
        return end if end is None or stop is None else min(end, stop)

    def finished(self, split: Split, offset: Offset) -> bool:
        stop = split.info["stop"]
        return stop is not None and bool(offset >= stop)

    def complete(self, context: SourceContext) -> bool:
        return self.bounded and self._log is not None and self._log.has_started

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return (yield from self._read(split, start, stop, None))

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        return (yield from self._read(split, start, stop, bytes_max))

    def reader(self, partition: Partition) -> MessageReader:
        """The converter from messages of a partition to rows. Created in the task."""
        return RecordReader(self.layout, partition, self.type_info)

    def _read(self, split: Split, start: int, stop: int, bytes_max: int | None) -> Read:
        partition, size = _partition_of(split), 0
        reader = self.reader(partition)
        is_enough: Callable[[], bool] = lambda: bytes_max is not None and size >= bytes_max  # noqa: E731
        ranges = read_range(self.settings, partition, start, stop, is_enough, self._name)
        while True:
            try:
                items = reader.items(next(ranges))
            except StopIteration as end:
                return end.value
            for item in items:
                size += item.batch.nbytes if isinstance(item, DeadLetters) else item.nbytes
                yield item

    # --- the group --------------------------------------------------------------------------------------------

    def committed(self, positions: dict[str, Offset]) -> None:
        for name, offset in positions.items():
            topic, _, number = name.rpartition("-")
            self._positions[Partition(topic, int(number))] = offset
        self._commit_offsets()

    def _commit_offsets(self) -> None:
        """Commit the positions of all partitions, unless unchanged; if a commit is running, the next epoch does it."""
        if (
            not self.commits_offsets
            or self._replays
            or self._cluster is None
            or self._group_positions == self._positions
        ):
            return
        if self._cluster.commit(self._positions):
            self._group_positions = dict(self._positions)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.await_commit(_CLOSE_S)
            self._commit_offsets()
            self._cluster.await_commit(_CLOSE_S)
            self._cluster.close()
            self._cluster = None

    def describe(self) -> str:
        until = "" if self.stop is None else f" to {self.stop}"
        group = f", group {self.group}" if self.group else ""
        return f"Kafka {self.subscription} at {self.settings.bootstrap_servers} from {self.start}{until}{group}"


def _partition_of(split: Split) -> Partition:
    return Partition(split.info["topic"], split.info["partition"])


def _discovered(partition: Partition, topic: Topic, start: int, stop: int | None) -> DiscoveredPartition:
    return DiscoveredPartition(partition.topic, partition.number, topic.id, start, stop)


def _loss_error(what: str, advice: str) -> ConnectorError:
    return ConnectorError(
        f"Kafka {what}. {advice}; or, to continue without the lost records, give the source another uid and start with "
        "--allow-non-restored-state: it then starts at its starting offsets."
    )
