"""Input received on the driver: a stored record keeps its number, even if another driver starts receiving."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stores.watched_store import Absence, AwayStore

from millstream.common import RestartStrategies
from millstream.connectors import received_input
from millstream.connectors.rabbitmq import source
from millstream.connectors.rabbitmq.connection import RabbitAddress
from millstream.connectors.received_input import ReceivedSource, Receiver
from millstream.errors import ConnectorAwayError, FencedError, StoreAwayError
from millstream.storage.memory import MemoryStore
from millstream.storage.store import Store
from millstream.testing import Collect, run

_STORES = itertools.count()


class Idle(Receiver):
    """Receives what the test passes to it."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__("idle", store, (), "input/idle")

    def receive(self) -> None:
        self.stop_requested.wait()

    def disconnect(self) -> None:
        return


class InterleavedStore(MemoryStore):
    """A store that runs a callback just before the next listing of chunks or receivers."""

    def __init__(self) -> None:
        super().__init__(f"received-{next(_STORES)}")
        self.before_list: list[Callable[[], object]] = []
        self.before_get: list[Callable[[], object]] = []

    def list(self, prefix: str) -> list[str]:
        while self.before_list:
            self.before_list.pop()()
        return super().list(prefix)

    def get(self, name: str) -> bytes:
        while self.before_get:
            self.before_get.pop()()
        return super().get(name)

    def chunks(self) -> list[bytes]:
        return [super(InterleavedStore, self).get(name) for name in super().list("input/idle") if "-" in name]


StartReceiver = Callable[[], Idle]


@pytest.fixture
def store() -> InterleavedStore:
    return InterleavedStore()


@pytest.fixture
def start_receiver(store: InterleavedStore) -> Iterator[StartReceiver]:
    """Starts another receiver; all are stopped at teardown."""
    receivers: list[Idle] = []

    def start_receiving() -> Idle:
        receivers.append(Idle(store))
        receivers[-1].start_receiving()
        return receivers[-1]

    yield start_receiving
    for receiver in receivers:
        receiver.stop()


def assert_fenced(receiver: Idle, data: bytes) -> None:
    with pytest.raises(FencedError, match="the same input is received by another driver"):
        receiver.keep(data, len(data))


@pytest.mark.parametrize("late", [b"x", b"xy", b"xyz", b"uvwxyz"])
def test_a_replaced_driver_assigns_no_numbers(
    store: InterleavedStore, start_receiver: StartReceiver, late: bytes
) -> None:
    """Its chunk may be longer, shorter or of equal length: exactly the records of the other driver are read."""
    first = start_receiver()
    first.keep(b"1", 1)
    second = start_receiver()
    second.keep(b"234", 3)
    assert_fenced(first, late)
    second.keep(b"5", 1)
    assert store.chunks() == [b"1", b"234", b"5"]
    assert start_receiver().stored == 5, "the next driver continues after them"


def test_a_chunk_stored_before_another_driver_started_counts_without_an_acknowledgement(
    store: InterleavedStore, start_receiver: StartReceiver
) -> None:
    first, others = start_receiver(), []
    store.before_get.append(lambda: others.append(start_receiver()))
    assert_fenced(first, b"12")
    others[0].keep(b"3", 1)
    assert store.chunks() == [b"12", b"3"]


def test_a_driver_that_starts_with_a_number_already_used_restarts(
    store: InterleavedStore, start_receiver: StartReceiver
) -> None:
    """The last chunk of the replaced driver was stored after the new driver listed the chunks."""
    first, second = start_receiver(), start_receiver()
    assert_fenced(first, b"12")
    assert_fenced(second, b"34")
    assert store.chunks() == [b"12"] and start_receiver().stored == 2


def test_when_two_drivers_store_concurrently_one_removes_its_chunk(
    store: InterleavedStore, start_receiver: StartReceiver
) -> None:
    first, second = start_receiver(), start_receiver()
    store.before_list.append(lambda: assert_fenced(first, b"ab"))
    second.keep(b"123", 3)
    assert store.chunks() == [b"123"] and start_receiver().stored == 3


def test_chunks_are_not_listed_for_every_stored_chunk(store: InterleavedStore, start_receiver: StartReceiver) -> None:
    """A savepoint may pin every chunk ever stored, so that listing them would take longer and longer."""
    receiver = start_receiver()
    receiver.keep(b"1", 1)
    store.before_list.append(lambda: pytest.fail("it is listed"))
    for _ in range(3):
        receiver.keep(b"2", 1)
    store.before_list.clear()


@pytest.mark.parametrize("answers_lost", [True, False])
def test_while_the_store_is_unavailable_nothing_is_received_or_lost(
    monkeypatch: pytest.MonkeyPatch, answers_lost: bool
) -> None:
    """A receiver that stopped would never start again, and the job would wait for the store forever."""
    monkeypatch.setattr(received_input, "_STORE_PAUSE_S", 0.0)
    for call in range(1, 6):
        absence = Absence(answers_lost=answers_lost)
        store = AwayStore(f"received-{next(_STORES)}", absence)
        receiver = Idle(store)
        receiver.start_receiving()
        absence.first, absence.calls = len(absence.made) + call, 3
        for data in (b"ab", b"c"):
            receiver.keep(data, len(data))
        receiver.stop()
        assert len(absence.made) >= absence.first + 3, "the store was available"
        chunks = [store.get(name) for name in store.list("input/idle") if "-" in name]
        assert (chunks, receiver.stored) == ([b"ab", b"c"], 3), f"away at call {call}"


def test_a_receiver_waiting_for_the_store_ends_with_the_job() -> None:
    absence = Absence()
    receiver = Idle(AwayStore(f"received-{next(_STORES)}", absence))
    receiver.start_receiving()
    absence.first, absence.calls = 0, 1 << 62
    receiver.stop_requested.set()
    with pytest.raises(StoreAwayError):
        receiver.keep(b"a", 1)
    receiver.stop()


class Cut(ReceivedSource):
    """The connection of its first receiver is cut; the next receiver gets two records."""

    bounded = True
    connections = 0

    @property
    def subject(self) -> str:
        return "a test"

    def copied(self) -> Cut:
        return Cut(self._folder)

    def connected(self, store: Store, bases: tuple[Store, ...], folder: str) -> Receiver:
        Cut.connections += 1
        return CutReceiver(Cut.connections, store, folder)

    def records_of(self, data: bytes, count: int) -> list[str]:
        return list(data.decode())


class CutReceiver(Idle):
    def __init__(self, connection: int, store: Any, folder: str) -> None:
        Receiver.__init__(self, "cut", store, (), folder)
        self.connection = connection

    def receive(self) -> None:
        if self.connection == 1:
            raise ConnectorAwayError("the sender does not answer")
        self.keep(b"ab", 2)


def test_a_restarted_job_receives_again() -> None:
    Cut.connections = 0
    out = Collect()
    restart = RestartStrategies.fixed_delay_restart(2, 0)
    result = run(lambda env: env.add_source(Cut("input/cut")).sink_to(out), restart=restart, timeout_s=30)
    assert (result.status, out.values, Cut.connections) == ("FINISHED", ["a", "b"], 2)


@pytest.mark.parametrize(("retained_count", "left"), [(1, [b"d"]), (2, [b"bc", b"d"]), (16, [b"a", b"bc", b"d"])])
def test_the_newest_consumed_chunks_are_retained(
    store: InterleavedStore, start_receiver: StartReceiver, retained_count: int, left: list[bytes]
) -> None:
    receiver = start_receiver()
    receiver.retained_chunks = retained_count
    for data in (b"a", b"bc", b"d"):
        receiver.keep(data, len(data))
    receiver.remove_before(4)
    assert store.chunks() == left


def test_ids_with_acknowledgements_in_flight_are_recognised_after_a_restart(
    store: InterleavedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "open_channel", lambda address, queue: (None, None))
    first, second = (source._QueueReceiver(RabbitAddress(), "q", True, store, (), "input/idle") for _ in range(2))
    monkeypatch.setattr(source._QueueReceiver, "receive", Idle.receive)
    first.start_receiving()
    for number in range(5):
        first.keep(source.packed([b"body"], [f"id-{number}"]), 1)
    first.remove_before(5)  # the job has read all of it, and retains no earlier epoch
    first.stop()
    second.start_receiving()
    assert all(f"id-{number}" in second._known for number in range(5))
    second.stop()
