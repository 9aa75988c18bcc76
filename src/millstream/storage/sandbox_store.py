"""A store over another one: everything is read from there, and what is written stays in an overlay in memory.

It serves to run something again on a job's real files. A caller finds all files of the job under the job's address, and
may write, create and delete, but none of that reaches the job's store. Only files of the overlay can be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.storage.memory import MemoryStore
from millstream.storage.store import Names, Store

__all__ = ["SandboxStore"]


class SandboxStore:
    """`below`, with everything written to `overlay` instead.

    >>> below = MemoryStore("doctest-below-a-sandbox")
    >>> below.put("a", b"1")
    >>> store = SandboxStore(MemoryStore("doctest-sandbox"), below)
    >>> store.put("b", b"2"), store.create("a", b"3"), store.get("a")
    (None, False, b'1')
    >>> store.list(""), below.list("")
    (['a', 'b'], ['a'])
    """

    def __init__(self, overlay: MemoryStore, below: Store) -> None:
        self._overlay, self._below = overlay, below

    @property
    def url(self) -> str:
        return self._below.url

    def __repr__(self) -> str:
        return f"SandboxStore({self._overlay!r}, {self._below!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (SandboxStore, (self._overlay, self._below))

    def put(self, name: str, data: bytes) -> None:
        self._overlay.put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        return not self._below.exists(name) and self._overlay.create(name, data)

    def get(self, name: str) -> bytes:
        return self._holder(name).get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._holder(name).get_range(name, start, stop)

    def exists(self, name: str) -> bool:
        return self._overlay.exists(name) or self._below.exists(name)

    def list(self, prefix: str) -> Names:
        return sorted({*self._overlay.list(prefix), *self._below.list(prefix)})

    def delete(self, name: str) -> None:
        self._overlay.delete(name)

    def delete_many(self, names: Sequence[str]) -> None:
        self._overlay.delete_many(names)

    def modified_ms(self, name: str) -> int:
        return self._holder(name).modified_ms(name)

    def local_path(self, name: str) -> Path | None:
        # Not the place below where a new file would go: it would be written there.
        return self._below.local_path(name) if not self._overlay.exists(name) and self._below.exists(name) else None

    def settle(self, name: str) -> None:
        """Nothing to do: memory cannot be made durable, and what is below was made so by its writer."""

    def check_writable(self) -> None:
        """Memory is always writable."""

    def remove_unfinished(self, before_ms: int) -> None:
        """Nothing to do: what is below is not touched."""

    def clear(self) -> None:
        """Forget everything that was written here."""
        for name in self._overlay.list(""):
            self._overlay.delete(name)

    def _holder(self, name: str) -> Store:
        return self._overlay if self._overlay.exists(name) or not self._below.exists(name) else self._below
