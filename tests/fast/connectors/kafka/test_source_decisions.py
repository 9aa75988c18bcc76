"""What a Kafka source decides on the driver, with a cluster that the test makes up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from millstream.common.serialization import SimpleStringSchema
from millstream.connectors.contracts import SourceContext
from millstream.connectors.kafka import source as module
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.cluster import Topic
from millstream.connectors.kafka.offsets import LATEST, OffsetRule, Partition
from millstream.connectors.kafka.partitions import Subscription
from millstream.connectors.kafka.records import RecordLayout
from millstream.connectors.kafka.source import KafkaSource
from millstream.errors import ConnectorAwayError, ConnectorError
from millstream.storage.memory import MemoryStore


class World:
    """The cluster of a test: topics with an id and the ends of their partitions. It may be away."""

    def __init__(self) -> None:
        self.ends: dict[str, list[int]] = {"t": [5, 8]}
        self.ids = {"t": "first"}
        self.is_away = self.is_telling = False
        self.committed_offsets: list[dict[Partition, int]] = []
        self.now_s = 0.0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()

    class Cluster:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def check_settings(self) -> None: ...

        def topics(self, names: Iterable[str], timeout_s: float) -> dict[str, Topic]:
            self._look()
            return {name: Topic(name, world.ids[name], len(world.ends[name])) for name in names if name in world.ends}

        def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
            return dict.fromkeys(partitions, 0)

        def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
            return {at: world.ends[at.topic][at.number] for at in partitions}

        def known_ends(self, partitions: Iterable[Partition], timeout_s: float) -> dict[Partition, Any]:
            self._look()
            missing = ConnectorAwayError("no leader")
            return {at: world.ends[at.topic][at.number] if at.topic in world.ends else missing for at in partitions}

        def commit(self, offsets: dict[Partition, int]) -> bool:
            if not world.is_telling:
                world.committed_offsets.append(dict(offsets))
            return not world.is_telling

        def await_commit(self, timeout_s: float) -> None:
            world.is_telling = False

        def close(self) -> None: ...

        def _look(self) -> None:
            if world.is_away:
                raise ConnectorAwayError("does not answer")

    monkeypatch.setattr(module, "Cluster", Cluster)
    monkeypatch.setattr(module.time, "monotonic", lambda: world.now_s)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: setattr(world, "now_s", world.now_s + seconds))
    yield world


def opened(store: MemoryStore, start: OffsetRule = LATEST, **settings: Any) -> KafkaSource:
    client = ClientSettings.of({"bootstrap.servers": "a:1"})
    source = KafkaSource(
        client, Subscription(("t",)), RecordLayout(SimpleStringSchema()), start=start, group="g", **settings
    )
    opened_source = source.opened(store, None)
    assert isinstance(opened_source, KafkaSource)
    return opened_source


def at(now_ms: int) -> SourceContext:
    return SourceContext(now_ms=now_ms, run_started_ms=0, parallelism=1, uid="in")


def starts(source: KafkaSource, now_ms: int = 0) -> dict[str, int]:
    return {split.name: split.start for split in source.splits(at(now_ms))}


@pytest.fixture
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(f"kafka-{request.node.name}")


def test_starts_are_decided_once_for_ever(world: World, store: MemoryStore) -> None:
    assert starts(opened(store)) == {"t-0": 5, "t-1": 8}
    world.ends["t"] = [50, 80]
    assert starts(opened(store)) == {"t-0": 5, "t-1": 8}


def test_what_appears_later_begins_at_its_earliest_record(world: World, store: MemoryStore) -> None:
    source = opened(store, discovery_interval_ms=1000)
    starts(source)
    world.ends["t"].append(3)
    assert "t-2" not in starts(source, 999)
    assert starts(source, 1000)["t-2"] == 0
    world.ends["t"].append(4)
    assert starts(opened(store, discovery_interval_ms=1000))["t-3"] == 0


def test_a_clock_that_is_set_back_hides_no_new_partition(world: World, store: MemoryStore) -> None:
    source = opened(store, discovery_interval_ms=1000)
    starts(source, 100_000)
    world.ends["t"].append(3)
    assert starts(source, 50_000)["t-2"] == 0


def test_a_job_restored_without_the_list_knows_new_from_old_by_positions(world: World, store: MemoryStore) -> None:
    """A savepoint in a folder has the manifest, which holds where all partitions stand, and not the list."""
    source = opened(store)
    source.committed({"t-0": 5, "t-1": 9})
    world.ends["t"].append(3)
    assert starts(source)["t-2"] == 0


def test_a_bounded_source_ends_where_the_end_was(world: World, store: MemoryStore) -> None:
    source = opened(store, start=OffsetRule("earliest"), stop=LATEST, bounded=True)
    splits = source.splits(at(0))
    world.ends["t"] = [50, 80]
    again = opened(store, start=OffsetRule("earliest"), stop=LATEST, bounded=True)
    for split, end in zip(again.splits(at(0)), (5, 8), strict=True):
        assert again.reach(split, 0, 1000, at(0)) == end and again.finished(split, end)
        assert not again.finished(split, end - 1)
    assert source.complete(at(0)) and splits == again.splits(at(0))


def test_partitions_of_an_unbounded_source_may_end_and_the_source_does_not(world: World, store: MemoryStore) -> None:
    source = opened(store, start=OffsetRule("earliest"), stop=LATEST, discovery_interval_ms=1)
    first, _ = source.splits(at(0))
    assert source.finished(first, 5) and not source.complete(at(0))
    world.ends["t"].append(2)
    third = source.splits(at(9))[2]
    assert (third.start, third.info["stop"]) == (0, 2)


def test_a_range_ends_where_the_budget_or_the_partition_does(world: World, store: MemoryStore) -> None:
    source = opened(store, start=OffsetRule("earliest"))
    first, second = source.splits(at(0))
    assert [source.reach(first, 0, 3, at(0)), source.reach(second, 6, 9, at(0))] == [3, 8]
    assert source.backlog(second, 6, at(0)) == 2


def test_unavailable_brokers_are_tolerated_and_then_an_error(world: World, store: MemoryStore) -> None:
    source = opened(store, start=OffsetRule("earliest"))
    first, _ = source.splits(at(0))
    world.is_away = True
    source.splits(at(1))
    assert source.reach(first, 2, 100, at(1)) == 2 and source.backlog(first, 2, at(1)) is None
    world.now_s += 60
    with pytest.raises(ConnectorAwayError):
        source.splits(at(2))
    world.is_away = False
    source.splits(at(3))
    assert source.reach(first, 2, 100, at(3)) == 5


def test_a_transient_failure_leaves_no_trace(world: World, store: MemoryStore) -> None:
    source = opened(store)
    for _ in range(5):
        world.is_away = True
        source.splits(at(0))
        world.now_s += 20
        world.is_away = False
        source.splits(at(0))


@pytest.mark.parametrize("change", ["gone", "anew", "shorter"])
def test_a_topic_that_is_not_what_it_was_stops_the_job(world: World, store: MemoryStore, change: str) -> None:
    source = opened(store)
    source.splits(at(0))
    source.committed({"t-0": 5, "t-1": 8})
    if change == "gone":
        del world.ends["t"]
    elif change == "anew":
        world.ids["t"], world.ends["t"] = "second", [500, 800]
    else:
        world.ends["t"] = [5, 7]
    with pytest.raises(ConnectorError, match="another uid"):
        for _ in range(9):
            source.splits(at(1))
            world.now_s += 10


def test_a_topic_that_is_missing_for_a_moment_is_waited_for(world: World, store: MemoryStore) -> None:
    source = opened(store)
    source.splits(at(0))
    ends = world.ends.pop("t")
    source.splits(at(1))
    world.now_s += 10
    world.ends["t"] = ends
    for _ in range(5):
        world.now_s += 10
        source.splits(at(2))


def test_offsets_are_committed_to_the_group_at_the_latest_when_the_job_ends(world: World, store: MemoryStore) -> None:
    source = opened(store)
    source.splits(at(0))
    source.committed({"t-0": 6, "t-1": 8})
    source.committed({"t-0": 6, "t-1": 8})
    world.is_telling = True
    source.committed({"t-0": 7, "t-1": 8})
    source.close()
    first, second = Partition("t", 0), Partition("t", 1)
    assert world.committed_offsets == [{first: 6, second: 8}, {first: 7, second: 8}]


def test_a_replay_queries_and_commits_nothing(world: World, store: MemoryStore) -> None:
    splits = opened(store).splits(at(0))
    world.is_away = True
    again = opened(store).reopened(store, None)
    assert again.splits(at(0)) == splits
    again.committed({"t-0": 6})
    assert not world.committed_offsets
