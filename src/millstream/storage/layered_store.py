"""A store on top of others: it reads what they hold, and writes only to itself.

A job that was started from a snapshot of another job shares that job's files: they are immutable, and no name is ever
used twice (each holds a nonce). So a file that a manifest names (a segment, a staged file, a list of finished splits)
is looked for in the *top* store, which is the job's own, and then in the *bases*, nearest first. All other files are
looked for in the top store only: each store alone says which epochs it has and to which job it belongs, and the epochs
of a base are not epochs of the job on top. A base is never written to, deleted from or listed.
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
    """`store` on top of `bases`; `store` itself where there are no bases."""
    return LayeredStore(store, bases) if bases else store


class LayeredStore:
    """A store whose missing files are looked for in others.

    >>> from millstream.storage.memory import MemoryStore
    >>> base, top = MemoryStore("doctest-base"), MemoryStore("doctest-top")
    >>> base.put("segments/a", b"1")
    >>> store = LayeredStore(top, (base,))
    >>> base.put("manifests/000000000001.json", b"of the base")
    >>> store.get("segments/a"), store.list("segments"), store.exists("manifests/000000000001.json")
    (b'1', [], False)
    """

    def __init__(self, top: Store, bases: tuple[Store, ...]) -> None:
        self._top, self._bases = top, bases

    @property
    def url(self) -> str:
        return self._top.url

    @property
    def bases(self) -> tuple[Store, ...]:
        """The stores below, nearest first."""
        return self._bases

    def __repr__(self) -> str:
        return f"LayeredStore({self._top!r}, {self._bases!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (LayeredStore, (self._top, self._bases))

    def _bases_for(self, name: str) -> tuple[Store, ...]:
        """The bases that may hold `name` if the top store does not."""
        return self._bases if name.startswith(_SHARED) else ()

    def _holder(self, name: str) -> Store:
        """The store that holds `name`; the top store where none does."""
        if self._top.exists(name):
            return self._top
        return next((base for base in self._bases_for(name) if base.exists(name)), self._top)

    def put(self, name: str, data: bytes) -> None:
        self._top.put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        return self._top.create(name, data)

    def get(self, name: str) -> bytes:
        try:
            return self._top.get(name)
        except StoreDamagedError:
            for base in self._bases_for(name):
                if base.exists(name):
                    return base.get(name)
            raise

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._holder(name).get_range(name, start, stop)

    def exists(self, name: str) -> bool:
        return any(store.exists(name) for store in (self._top, *self._bases_for(name)))

    def list(self, prefix: str) -> Names:
        return self._top.list(prefix)

    def delete(self, name: str) -> None:
        self._top.delete(name)

    def delete_many(self, names: Sequence[str]) -> None:
        self._top.delete_many(names)

    def modified_ms(self, name: str) -> int:
        return self._holder(name).modified_ms(name)

    def local_path(self, name: str) -> Path | None:
        return self._holder(name).local_path(name)

    def settle(self, name: str) -> None:
        self._top.settle(name)

    def check_writable(self) -> None:
        self._top.check_writable()

    def remove_unfinished(self, before_ms: int) -> None:
        self._top.remove_unfinished(before_ms)
