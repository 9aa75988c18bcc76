"""How a spec reaches tasks: as a property, packed, in a file of the store, and packed again while the store is
unreachable.
"""

from __future__ import annotations

import random
import threading

import pytest

from millstream.errors import StoreAwayError, StoreError
from millstream.runtime.task.spec import EpochSpec
from millstream.spark.spec_files import INLINE_CHARACTERS_MAX, SpecFiles
from millstream.spark.worker import SPEC_FILE_MARK, SPEC_PACKED_MARK, unpack_spec
from millstream.storage.memory import MemoryStore
from millstream.storage.patience import PatientStore


class FickleStore(MemoryStore):
    """Fails as `failure` says; with `answers` cleared it does not respond."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.failure: StoreError | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.puts = 0

    def put(self, name: str, data: bytes) -> None:
        self.puts += 1
        self.answers.wait()
        if self.failure is not None:
            raise self.failure
        super().put(name, data)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def spec_of(letters: int, *, alike: bool = False) -> EpochSpec:
    rng = random.Random(letters)
    name = "a" * letters if alike else "".join(chr(rng.randrange(48, 90)) for _ in range(letters))
    return EpochSpec(7, 1, 0, False, {}, {name: 0}, {}, {})


LONG = spec_of(2 * INLINE_CHARACTERS_MAX)


def test_a_short_spec_is_the_property_itself_and_a_compressible_one_is_packed() -> None:
    store = FickleStore("short-specs")
    files = SpecFiles(store)
    assert EpochSpec.decode(files.property_of(spec_of(10)), 0) == spec_of(10)
    packed = files.property_of(spec_of(2 * INLINE_CHARACTERS_MAX, alike=True))
    assert packed.startswith(SPEC_PACKED_MARK) and store.puts == 0


def test_a_long_spec_is_a_file_of_the_store() -> None:
    store = FickleStore("long-specs")
    place = SpecFiles(store).property_of(LONG)
    assert EpochSpec.decode(store.get(place.removeprefix(SPEC_FILE_MARK)).decode(), 0) == LONG


def test_while_the_store_is_unreachable_a_long_spec_is_sent_with_the_tasks_and_the_store_is_retried() -> None:
    store, clock = FickleStore("specs-away"), Clock()
    files = SpecFiles(PatientStore(store), clock)
    store.failure = StoreAwayError("It is away.")
    for _ in range(5):
        assert EpochSpec.decode(unpack_spec(files.property_of(LONG)), 0) == LONG
    assert store.puts == 1
    store.failure = None
    clock.now_s += 60
    assert files.property_of(LONG).startswith(SPEC_FILE_MARK)


def test_a_silent_store_is_not_waited_for() -> None:
    store, clock = FickleStore("silent-specs"), Clock()
    files = SpecFiles(store, clock, timeout_s=0.01)
    store.answers.clear()
    for _ in range(3):
        assert files.property_of(LONG).startswith(SPEC_PACKED_MARK)
        clock.now_s += 60
    assert store.puts == 1  # one request is enough
    store.answers.set()
    files.close()


def test_a_permanent_error_of_the_store_is_raised() -> None:
    store = FickleStore("refused-specs")
    store.failure = StoreError("No permission.")
    with pytest.raises(StoreError, match="No permission"):
        SpecFiles(store).property_of(LONG)
