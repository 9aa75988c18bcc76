"""A store in memory that says when it is about to change, for tests in which just then something happens."""

from __future__ import annotations

from millstream.storage.memory import MemoryStore

__all__ = ["WatchedStore"]


class WatchedStore(MemoryStore):
    """Calls `before_write` before everything that is put, created or deleted."""

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
