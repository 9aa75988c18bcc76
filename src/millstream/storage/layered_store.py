"""A store on top of others: it reads what they hold, and writes only to itself.

A job that was started from a snapshot of another one shares its files: they are immutable, and their names cannot be
given twice (every name that is written holds a nonce). So what a manifest names (a segment, a staged file, a list of
finished splits) is looked for in the job's own store first, then in the *bases*, nearest first. No other file is: which
epochs there are and whose the store is, is for each store to say, and an epoch of a base is none of the job that was
started from it. Nothing is ever written to a base, deleted from it or listed of it: to everybody who asks what the job
has, it has what its own store holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.errors import StoreDamagedError
from millstream.storage.names import FINISHED, SEGMENTS, STAGED
from millstream.storage.store import Names, Store

__all__ = ["LayeredStore", "layered_store"]

_SHARED = tuple(f"{folder}/" for folder in (SEGMENTS, STAGED, FINISHED))
"""Where the files lie that manifests name (`checkpoint.retention.named_files`)."""


def layered_store(store: Store, bases: tuple[Store, ...]) -> Store:
    """`store` on top of `bases`; itself where there are none."""
    return LayeredStore(store, bases) if bases else store


class LayeredStore:
    """A store whose missing files are looked for in others.

    >>> from millstream.storage.memory import MemoryStore
    >>> base, own = MemoryStore("doctest-base"), MemoryStore("doctest-own")
    >>> base.put("segments/a", b"1")
    >>> store = LayeredStore(own, (base,))
    >>> base.put("manifests/000000000001.json", b"its own")
    >>> store.get("segments/a"), store.list("segments"), store.exists("manifests/000000000001.json")
    (b'1', [], False)
    """

    def __init__(self, own: Store, bases: tuple[Store, ...]) -> None:
        self._own, self._bases = own, bases

    @property
    def url(self) -> str:
        return self._own.url

    @property
    def bases(self) -> tuple[Store, ...]:
        """The stores below, nearest first."""
        return self._bases

    def __repr__(self) -> str:
        return f"LayeredStore({self._own!r}, {self._bases!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (LayeredStore, (self._own, self._bases))

    def _sharing(self, name: str) -> tuple[Store, ...]:
        """The stores that may hold `name` if the own one does not."""
        return self._bases if name.startswith(_SHARED) else ()

    def _holder(self, name: str) -> Store:
        """The store that holds `name`; the own one where none does."""
        if self._own.exists(name):
            return self._own
        return next((base for base in self._sharing(name) if base.exists(name)), self._own)

    def put(self, name: str, data: bytes) -> None:
        self._own.put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        return self._own.create(name, data)

    def get(self, name: str) -> bytes:
        try:
            return self._own.get(name)
        except StoreDamagedError:
            for base in self._sharing(name):
                if base.exists(name):
                    return base.get(name)
            raise

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._holder(name).get_range(name, start, stop)

    def exists(self, name: str) -> bool:
        return any(store.exists(name) for store in (self._own, *self._sharing(name)))

    def list(self, prefix: str) -> Names:
        return self._own.list(prefix)

    def delete(self, name: str) -> None:
        self._own.delete(name)

    def delete_many(self, names: Sequence[str]) -> None:
        self._own.delete_many(names)

    def modified_ms(self, name: str) -> int:
        return self._holder(name).modified_ms(name)

    def local_path(self, name: str) -> Path | None:
        return self._holder(name).local_path(name)

    def settle(self, name: str) -> None:
        self._own.settle(name)

    def check_writable(self) -> None:
        self._own.check_writable()

    def remove_unfinished(self, before_ms: int) -> None:
        self._own.remove_unfinished(before_ms)
