"""An in-memory store with limited space, for tests of full disks."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.errors import StoreFullError
from millstream.storage.memory import MemoryStore

__all__ = ["FullStore", "Room"]


@dataclass
class Room:
    """`free_bytes`: the remaining space. `refusals`: the names of rejected files. `full_writes`: numbers of writes
    that fail in any case. A name needs no space, only content does.
    """

    free_bytes: int = 1 << 40
    refusals: list[str] = field(default_factory=list)
    full_writes: range = range(0)
    writes: int = 0


_ROOMS: dict[str, Room] = {}


class FullStore(MemoryStore):
    """Tasks and driver share one room."""

    def __init__(self, name: str, room: Room | None = None) -> None:
        super().__init__(name)
        self.room = _ROOMS.setdefault(name, room or Room())

    def __reduce__(self) -> tuple[object, ...]:
        return (FullStore, (self._name,))

    def put(self, name: str, data: bytes) -> None:
        # As in a local store: the new file is complete before it replaces the old one.
        self._claim(name, data)
        self._release(name)
        super().put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self._claim(name, data)
        if super().create(name, data):
            return True
        self.room.free_bytes += len(data)
        return False

    def delete(self, name: str) -> None:
        self._release(name)
        super().delete(name)

    def check_writable(self) -> None:
        self.create("probe-1", b"1")
        self.delete("probe-1")

    def _claim(self, name: str, data: bytes) -> None:
        if data:
            self.room.writes += 1
        if len(data) > max(self.room.free_bytes, 0) or (data and self.room.writes in self.room.full_writes):
            self.room.refusals.append(name)
            raise StoreFullError(f"Store {self.url}: disk full while writing {name!r}.")
        self.room.free_bytes -= len(data)

    def _release(self, name: str) -> None:
        if self.exists(name):
            self.room.free_bytes += len(self.get(name))
