"""In-memory stores for tests in which something happens before a file changes, or the store is temporarily
unavailable.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from millstream.errors import StoreAwayError
from millstream.storage.memory import MemoryStore
from millstream.storage.store import Names, Store

__all__ = ["Absence", "AwayStore", "WatchedStore", "make_older"]

Answer = TypeVar("Answer")


def make_older(store: Store, prefix: str, age_ms: int) -> None:
    """Date the files below `prefix`, or the file of that name, `age_ms` earlier, by the store's own clock."""
    for name in [prefix] if store.exists(prefix) else store.list(prefix):
        path = store.local_path(name)
        if path is None:
            assert isinstance(store, MemoryStore)
            store._shelf.modified_ms[name] -= age_ms
        else:
            written_ns = path.stat().st_mtime_ns - age_ms * 1_000_000
            os.utime(path, ns=(written_ns, written_ns))


class WatchedStore(MemoryStore):
    """Calls `before_write` before every put, create or delete."""

    def before_write(self) -> None:
        raise NotImplementedError

    def put(self, name: str, data: bytes) -> None:
        self.before_write()
        super().put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self.before_write()
        return super().create(name, data)

    def delete(self, name: str) -> None:
        self.before_write()
        super().delete(name)


@dataclass
class Absence:
    """An outage of a store: from its `first` call on, for `calls` calls. `answers_lost`: the calls are executed, but
    their results are lost.
    """

    first: int = 1 << 62
    calls: int = 1
    answers_lost: bool = False
    made: list[str] = field(default_factory=list)

    def call(self, what: str, act: Callable[[], Answer]) -> Answer:
        self.made.append(what)
        if not self.first <= len(self.made) < self.first + self.calls:
            return act()
        if self.answers_lost:
            act()
        raise StoreAwayError(f"{what}: no answer")


_ABSENCES: dict[str, Absence] = {}


class AwayStore(MemoryStore):
    """A store with outages, for the driver and for tasks."""

    def __init__(self, name: str, absence: Absence | None = None) -> None:
        super().__init__(name)
        self._absence = _ABSENCES.setdefault(name, absence or Absence())

    def __reduce__(self) -> tuple[object, ...]:
        return (AwayStore, (self._name,))

    def put(self, name: str, data: bytes) -> None:
        self._absence.call(f"put {name}", lambda: super(AwayStore, self).put(name, data))

    def create(self, name: str, data: bytes) -> bool:
        return self._absence.call(f"create {name}", lambda: super(AwayStore, self).create(name, data))

    def get(self, name: str) -> bytes:
        return self._absence.call(f"get {name}", lambda: super(AwayStore, self).get(name))

    def exists(self, name: str) -> bool:
        return self._absence.call(f"exists {name}", lambda: super(AwayStore, self).exists(name))

    def list(self, prefix: str) -> Names:
        return self._absence.call(f"list {prefix}", lambda: super(AwayStore, self).list(prefix))

    def delete(self, name: str) -> None:
        self._absence.call(f"delete {name}", lambda: super(AwayStore, self).delete(name))

    def settle(self, name: str) -> None:
        self._absence.call(f"settle {name}", lambda: super(AwayStore, self).settle(name))
