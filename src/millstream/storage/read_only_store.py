"""A store that is only read: every request to write, make or remove something is refused.

It is for readers that may not write, or that must leave no trace. They do without what writing gives: no lease holds
the epoch that is being read, so the job may remove it, which is then an error and never a wrong answer; and a query
server is not registered, so that clients cannot discover it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from millstream.errors import StoreError
from millstream.storage.local import LocalStore
from millstream.storage.store import Names, Store

__all__ = ["ReadOnlyStore"]


class ReadOnlyStore:
    """`below`, without any way to change it.

    >>> from millstream.storage.memory import MemoryStore
    >>> store = ReadOnlyStore(MemoryStore("doctest-read-only"))
    >>> store.list("")
    []
    >>> store.put("a", b"1")
    Traceback (most recent call last):
    millstream.errors.StoreError: store memory://doctest-read-only was opened to be read only, so 'a' cannot be \
written. Open it without read_only (--read-only) to write.
    """

    def __init__(self, below: Store) -> None:
        self._below = below

    @property
    def url(self) -> str:
        return self._below.url

    def __repr__(self) -> str:
        return f"ReadOnlyStore({self._below!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (ReadOnlyStore, (self._below,))

    def put(self, name: str, data: bytes) -> None:
        self._refuse(name, "written")

    def create(self, name: str, data: bytes) -> bool:
        self._refuse(name, "written")

    def get(self, name: str) -> bytes:
        return self._below.get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._below.get_range(name, start, stop)

    def exists(self, name: str) -> bool:
        return self._below.exists(name)

    def list(self, prefix: str) -> Names:
        return self._below.list(prefix)

    def delete(self, name: str) -> None:
        self._refuse(name, "removed")

    def delete_many(self, names: Sequence[str]) -> None:
        self._refuse(names[0] if names else ".", "removed")

    def modified_ms(self, name: str) -> int:
        return self._below.modified_ms(name)

    def local_path(self, name: str) -> Path | None:
        # A local store makes the folder for whoever asks where a file stands.
        return self._below.place(name) if isinstance(self._below, LocalStore) else self._below.local_path(name)

    def settle(self, name: str) -> None:
        """Make another's file durable before it is believed, where the system lets us; that changes nothing in it."""
        if isinstance(self._below, LocalStore):
            with suppress(StoreError):  # a file system that is mounted to be read only may refuse
                self._below.sync(name)

    def check_writable(self) -> None:
        self._refuse(".", "written")

    def remove_unfinished(self, before_ms: int) -> None:
        self._refuse(".", "removed")

    def _refuse(self, name: str, act: str) -> NoReturn:
        raise StoreError(
            f"store {self.url} was opened to be read only, so {name!r} cannot be {act}. Open it without read_only "
            "(--read-only) to write."
        )
