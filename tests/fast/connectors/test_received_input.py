"""Input that arrives on the driver: what is stored has a number for ever, whoever else receives."""

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
    """Receives what a test gives it."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__("idle", store, (), "input/idle")

    def receive(self) -> None:
        self.stop_requested.wait()

    def disconnect(self) -> None:
        return


class Meeting(MemoryStore):
    """A store in which something happens just before the next look at what there is, or at who receives."""

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
        return [super(Meeting, self).get(name) for name in super().list("input/idle") if "-" in name]


Begun = Callable[[], Idle]


@pytest.fixture
def store() -> Meeting:
    return Meeting()


@pytest.fixture
def begun(store: Meeting) -> Iterator[Begun]:
    """Makes one more receiver, which has begun; all are stopped at the end."""
    receivers: list[Idle] = []

    def start_receiving() -> Idle:
        receivers.append(Idle(store))
        receivers[-1].start_receiving()
        return receivers[-1]

    yield start_receiving
    for receiver in receivers:
        receiver.stop()


def refused(receiver: Idle, data: bytes) -> None:
    with pytest.raises(FencedError, match="the same input is received by another driver"):
        receiver.keep(data, len(data))


@pytest.mark.parametrize("late", [b"x", b"xy", b"xyz", b"uvwxyz"])
def test_a_replaced_driver_assigns_no_numbers(store: Meeting, begun: Begun, late: bytes) -> None:
    """Its chunk may be longer, shorter or as long: the records of the other driver are read, all and no others."""
    first = begun()
    first.keep(b"1", 1)
    second = begun()
    second.keep(b"234", 3)
    refused(first, late)
    second.keep(b"5", 1)
    assert store.chunks() == [b"1", b"234", b"5"]
    assert begun().stored == 5, "the next driver goes on behind them"


def test_a_chunk_stored_before_another_driver_started_counts_without_an_acknowledgement(
    store: Meeting, begun: Begun
) -> None:
    first, others = begun(), []
    store.before_get.append(lambda: others.append(begun()))
    refused(first, b"12")
    others[0].keep(b"3", 1)
    assert store.chunks() == [b"12", b"3"]


def test_a_driver_that_starts_with_a_number_just_used_starts_again(store: Meeting, begun: Begun) -> None:
    """The last chunk of the one that was replaced came behind its look at what there is."""
    first, second = begun(), begun()
    refused(first, b"12")
    refused(second, b"34")
    assert store.chunks() == [b"12"] and begun().stored == 2


def test_of_two_that_store_at_the_same_moment_one_takes_its_chunk_back(store: Meeting, begun: Begun) -> None:
    first, second = begun(), begun()
    store.before_list.append(lambda: refused(first, b"ab"))
    second.keep(b"123", 3)
    assert store.chunks() == [b"123"] and begun().stored == 3


def test_what_is_stored_is_not_listed_for_every_chunk(store: Meeting, begun: Begun) -> None:
    """A savepoint may keep all that ever came: to look at it each time would take longer and longer."""
    receiver = begun()
    receiver.keep(b"1", 1)
    store.before_list.append(lambda: pytest.fail("it is listed"))
    for _ in range(3):
        receiver.keep(b"2", 1)
    store.before_list.clear()


@pytest.mark.parametrize("answers_lost", [True, False])
def test_while_the_store_is_unavailable_nothing_is_received_and_nothing_lost(
    monkeypatch: pytest.MonkeyPatch, answers_lost: bool
) -> None:
    """A receiver that gave up would never begin again: the job would find the store away for ever."""
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
        assert len(absence.made) >= absence.first + 3, "it was not away"
        chunks = [store.get(name) for name in store.list("input/idle") if "-" in name]
        assert (chunks, receiver.stored) == ([b"ab", b"c"], 3), f"away at call {call}"


def test_a_receiver_that_waits_for_the_store_ends_with_the_job() -> None:
    absence = Absence()
    receiver = Idle(AwayStore(f"received-{next(_STORES)}", absence))
    receiver.start_receiving()
    absence.first, absence.calls = 0, 1 << 62
    receiver.stop_requested.set()
    with pytest.raises(StoreAwayError):
        receiver.keep(b"a", 1)
    receiver.stop()


class Cut(ReceivedSource):
    """The connection of its first receiver is cut; the next one gets two records."""

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


def test_a_job_that_is_run_again_receives_again() -> None:
    Cut.connections = 0
    out = Collect()
    restart = RestartStrategies.fixed_delay_restart(2, 0)
    result = run(lambda env: env.add_source(Cut("input/cut")).sink_to(out), restart=restart, timeout_s=30)
    assert (result.status, out.values, Cut.connections) == ("FINISHED", ["a", "b"], 2)


@pytest.mark.parametrize(("kept", "left"), [(1, [b"d"]), (2, [b"bc", b"d"]), (16, [b"a", b"bc", b"d"])])
def test_of_what_is_read_the_newest_chunks_stay(store: Meeting, begun: Begun, kept: int, left: list[bytes]) -> None:
    receiver = begun()
    receiver.retained_chunks = kept
    for data in (b"a", b"bc", b"d"):
        receiver.keep(data, len(data))
    receiver.remove_before(4)
    assert store.chunks() == left


def test_ids_whose_acknowledgements_were_on_their_way_are_known_after_a_restart(
    store: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "open_channel", lambda address, queue: (None, None))
    first, second = (source._QueueReceiver(RabbitAddress(), "q", True, store, (), "input/idle") for _ in range(2))
    monkeypatch.setattr(source._QueueReceiver, "receive", Idle.receive)
    first.start_receiving()
    for number in range(5):
        first.keep(source.packed([b"body"], [f"id-{number}"]), 1)
    first.remove_before(5)  # the job has read all of it, and keeps no epoch before
    first.stop()
    second.start_receiving()
    assert all(f"id-{number}" in second._known for number in range(5))
    second.stop()
