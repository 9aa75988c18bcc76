"""Decisions of a Kafka source on the driver, with a scripted cluster."""

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
    """A scripted cluster: topics with an id and the end offsets of their partitions. It may be unavailable."""

    def __init__(self) -> None:
        self.ends: dict[str, list[int]] = {"t": [5, 8]}
        self.ids = {"t": "first"}
        self.is_unavailable = self.is_committing = False
        self.committed_offsets: list[dict[Partition, int]] = []
        self.now_s = 0.0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()

    class Cluster:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def check_settings(self) -> None: ...

        def topics(self, names: Iterable[str], timeout_s: float) -> dict[str, Topic]:
            self._check_availability()
            return {name: Topic(name, world.ids[name], len(world.ends[name])) for name in names if name in world.ends}

        def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
            return dict.fromkeys(partitions, 0)

        def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
            return {at: world.ends[at.topic][at.number] for at in partitions}

        def known_ends(self, partitions: Iterable[Partition], timeout_s: float) -> dict[Partition, Any]:
            self._check_availability()
            missing = ConnectorAwayError("no leader")
            return {at: world.ends[at.topic][at.number] if at.topic in world.ends else missing for at in partitions}

        def commit(self, offsets: dict[Partition, int]) -> bool:
            if not world.is_committing:
                world.committed_offsets.append(dict(offsets))
            return not world.is_committing

        def await_commit(self, timeout_s: float) -> None:
            world.is_committing = False

        def close(self) -> None: ...

        def _check_availability(self) -> None:
            if world.is_unavailable:
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


def test_start_positions_are_decided_once(world: World, store: MemoryStore) -> None:
    assert starts(opened(store)) == {"t-0": 5, "t-1": 8}
    world.ends["t"] = [50, 80]
    assert starts(opened(store)) == {"t-0": 5, "t-1": 8}


def test_partitions_created_later_start_at_their_earliest_record(world: World, store: MemoryStore) -> None:
    source = opened(store, discovery_interval_ms=1000)
    starts(source)
    world.ends["t"].append(3)
    assert "t-2" not in starts(source, 999)
    assert starts(source, 1000)["t-2"] == 0
    world.ends["t"].append(4)
    assert starts(opened(store, discovery_interval_ms=1000))["t-3"] == 0


def test_new_partitions_are_discovered_after_the_clock_is_set_back(world: World, store: MemoryStore) -> None:
    source = opened(store, discovery_interval_ms=1000)
    starts(source, 100_000)
    world.ends["t"].append(3)
    assert starts(source, 50_000)["t-2"] == 0


def test_a_job_restored_without_the_list_recognises_new_partitions_by_positions(
    world: World, store: MemoryStore
) -> None:
    """A savepoint in a folder has the manifest, with the positions of all partitions, but not the list."""
    source = opened(store)
    source.committed({"t-0": 5, "t-1": 9})
    world.ends["t"].append(3)
    assert starts(source)["t-2"] == 0


def test_a_bounded_source_ends_at_the_end_offsets_of_its_start(world: World, store: MemoryStore) -> None:
    source = opened(store, start=OffsetRule("earliest"), stop=LATEST, bounded=True)
    splits = source.splits(at(0))
    world.ends["t"] = [50, 80]
    replayed = opened(store, start=OffsetRule("earliest"), stop=LATEST, bounded=True)
    for split, end in zip(replayed.splits(at(0)), (5, 8), strict=True):
        assert replayed.reach(split, 0, 1000, at(0)) == end and replayed.finished(split, end)
        assert not replayed.finished(split, end - 1)
    assert source.complete(at(0)) and splits == replayed.splits(at(0))


def test_partitions_of_an_unbounded_source_may_end_while_the_source_continues(world: World, store: MemoryStore) -> None:
    source = opened(store, start=OffsetRule("earliest"), stop=LATEST, discovery_interval_ms=1)
    first, _ = source.splits(at(0))
    assert source.finished(first, 5) and not source.complete(at(0))
    world.ends["t"].append(2)
    third = source.splits(at(9))[2]
    assert (third.start, third.info["stop"]) == (0, 2)


def test_a_range_ends_at_the_budget_or_the_end_of_the_partition(world: World, store: MemoryStore) -> None:
    source = opened(store, start=OffsetRule("earliest"))
    first, second = source.splits(at(0))
    assert [source.reach(first, 0, 3, at(0)), source.reach(second, 6, 9, at(0))] == [3, 8]
    assert source.backlog(second, 6, at(0)) == 2


def test_unavailable_brokers_are_tolerated_for_a_while_and_then_raise(world: World, store: MemoryStore) -> None:
    source = opened(store, start=OffsetRule("earliest"))
    first, _ = source.splits(at(0))
    world.is_unavailable = True
    source.splits(at(1))
    assert source.reach(first, 2, 100, at(1)) == 2 and source.backlog(first, 2, at(1)) is None
    world.now_s += 60
    with pytest.raises(ConnectorAwayError):
        source.splits(at(2))
    world.is_unavailable = False
    source.splits(at(3))
    assert source.reach(first, 2, 100, at(3)) == 5


def test_a_transient_failure_leaves_no_trace(world: World, store: MemoryStore) -> None:
    source = opened(store)
    for _ in range(5):
        world.is_unavailable = True
        source.splits(at(0))
        world.now_s += 20
        world.is_unavailable = False
        source.splits(at(0))


@pytest.mark.parametrize("change", ["gone", "anew", "shorter"])
def test_a_recreated_topic_stops_the_job(world: World, store: MemoryStore, change: str) -> None:
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


def test_a_briefly_missing_topic_is_awaited(world: World, store: MemoryStore) -> None:
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
    world.is_committing = True
    source.committed({"t-0": 7, "t-1": 8})
    source.close()
    first, second = Partition("t", 0), Partition("t", 1)
    assert world.committed_offsets == [{first: 6, second: 8}, {first: 7, second: 8}]


def test_a_replay_neither_queries_the_brokers_nor_commits_offsets(world: World, store: MemoryStore) -> None:
    splits = opened(store).splits(at(0))
    world.is_unavailable = True
    replayed = opened(store).reopened(store, None)
    assert replayed.splits(at(0)) == splits
    replayed.committed({"t-0": 6})
    assert not world.committed_offsets
