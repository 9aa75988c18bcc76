"""What was decided about a partition is written down before it is read, and stands whatever happens then."""

from __future__ import annotations

import pytest

from millstream.connectors.kafka.offsets import Partition
from millstream.connectors.kafka.partitions import DiscoveredPartition, PartitionLog, Subscription, is_partition_list
from millstream.errors import ProgramError, StoreDamagedError
from millstream.state_reader.small_files import stored_input_problems
from millstream.storage.layered_stores import LayeredStore
from millstream.storage.memory import MemoryStore


def found(number: int, start: int = 0, stop: int | None = None) -> DiscoveredPartition:
    return DiscoveredPartition("orders", number, "id-1", start, stop)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(f"partitions-{request.node.name}")


def test_a_later_driver_finds_what_was_decided(store: MemoryStore) -> None:
    log = PartitionLog(store, "in")
    assert not log.has_started
    log.add([found(0, 7, 9)])
    log.add([found(0, 99), found(1, 3)])
    again = PartitionLog(store, "in")
    assert again.has_started
    assert list(again.partitions.values()) == [found(0, 7, 9), found(1, 3)]
    assert not PartitionLog(store, "other").has_started


def test_an_empty_discovery_is_stored_too(store: MemoryStore) -> None:
    """Or what appears later would begin as if it had always been there."""
    PartitionLog(store, "in").add([])
    assert PartitionLog(store, "in").has_started


def test_of_two_drivers_the_first_decides(store: MemoryStore) -> None:
    first, second = PartitionLog(store, "in"), PartitionLog(store, "in")
    first.add([found(0, 7)])
    second.add([found(0, 8)])
    assert second.partitions == first.partitions == {Partition("orders", 0): found(0, 7)}


def test_a_job_that_began_from_another_goes_on_with_its_list(store: MemoryStore) -> None:
    base = MemoryStore(f"{store.url}-base")
    PartitionLog(base, "in").add([found(0, 7)])
    fork = LayeredStore(store, (base,))
    assert PartitionLog(fork, "in").partitions == {Partition("orders", 0): found(0, 7)}
    PartitionLog(base, "in").add([found(1, 3)])
    log = PartitionLog(fork, "in")
    log.add([found(1, 4)])
    assert PartitionLog(fork, "in").partitions[Partition("orders", 1)].start == 4


def test_a_list_that_was_changed_or_is_missing_stops_the_job(store: MemoryStore) -> None:
    log = PartitionLog(store, "in")
    for number in range(3):
        log.add([found(number)])
    first, second, _ = names = list(store.list("input"))
    assert all(map(is_partition_list, names)) and not list(stored_input_problems(store))
    data = store.get(second)
    store.put(second, data.replace(b'"start": 0', b'"start": 1'))
    with pytest.raises(StoreDamagedError, match="checksum"):
        PartitionLog(store, "in")
    assert [problem.file for problem in stored_input_problems(store)] == [second]
    store.delete(first)
    with pytest.raises(StoreDamagedError, match="is missing"):
        PartitionLog(store, "in")


def test_a_subscription_is_one_of_three() -> None:
    with pytest.raises(ProgramError, match="either topics"):
        Subscription()
    with pytest.raises(ProgramError, match="either topics"):
        Subscription(topics=("a",), pattern="b")
    with pytest.raises(ProgramError, match="not a regular expression"):
        Subscription(pattern="(")


def test_a_pattern_fits_whole_names_and_never_kafka_s_own_topics() -> None:
    names = ["orders", "orders-2", "__consumer_offsets", "my.orders"]
    assert Subscription(pattern="orders.*").chosen_topics(names) == ["orders", "orders-2"]
    assert Subscription(pattern=".*").chosen_topics(names) == ["my.orders", "orders", "orders-2"]
