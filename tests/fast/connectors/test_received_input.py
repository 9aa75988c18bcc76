"""Input that arrives on the driver: what is stored has a number for ever, whoever else receives."""

from __future__ import annotations

import itertools

import pytest

from millstream.connectors.received_input import Receiver
from millstream.errors import FencedError
from millstream.storage.memory import MemoryStore

_STORES = itertools.count()


class Idle(Receiver):
    """Receives what a test gives it."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__("idle", store, (), "input/idle")

    def receive(self) -> None:
        raise NotImplementedError

    def disconnect(self) -> None:
        raise NotImplementedError


class Meeting(MemoryStore):
    """A store in which another receiver stores a chunk just before the first look at what there is."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.before_look: list[tuple[Receiver, bytes, int]] = []

    def list(self, prefix: str) -> list[str]:
        while self.before_look:
            other, data, count = self.before_look.pop()
            with pytest.raises(FencedError):
                other.keep(data, count)
        return super().list(prefix)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_driver_that_was_replaced_gives_no_number_to_a_record_of_its_own(count: int) -> None:
    """Its chunk may be longer, shorter or as long: the records of the other driver are read, all and no others."""
    store = MemoryStore(f"received-{next(_STORES)}")
    first, second = Idle(store), Idle(store)
    first.keep(b"1", 1)
    with pytest.raises(FencedError, match="another driver of the job receives the same input"):
        second.keep(b"x" * count, count)
    first.keep(b"23", 2)
    assert [store.get(name) for name in store.list("input")] == [b"1", b"23"]
    assert Idle(store).stored == 3, "the next driver goes on behind them"


def test_of_two_that_store_at_the_same_moment_one_takes_its_chunk_back() -> None:
    store = Meeting(f"received-{next(_STORES)}")
    first, second = Idle(store), Idle(store)
    first.keep(b"1", 1)
    second.go_on_from(1)
    store.before_look.append((second, b"ab", 2))
    first.keep(b"234", 3)
    assert [store.get(name) for name in MemoryStore.list(store, "input")] == [b"1", b"234"]
