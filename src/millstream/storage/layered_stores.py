"""Stores over other stores: layered, read-only, or with an overlay in memory.

    LayeredStore     reads from the stores below, and writes only to the top store
    ReadOnlyStore    refuses every request that writes, creates or removes
    SandboxStore     reads the store below; writes stay in memory
    TrialStore       a sandbox in which deleted files appear absent

**Layers.** A job that was started from a snapshot of another job shares that job's files: they are immutable, and no
name is ever reused (each contains a nonce). So a file that a manifest names (a segment, a staged file, a list of
finished splits) is looked up in the *top* store, which belongs to the job, and then in the *bases*, nearest first. All
other files are looked up only in the top store: each store records its own job and epochs, and the epochs of a base are
not epochs of the top job. A base is never written to, deleted from or listed.

**Read only** is for readers that may not write, or must leave no trace. Features that need writes are unavailable: no
lease retains the epoch they read, so the job may remove it, which causes an error but never a wrong result; and a query
server is not registered, so clients cannot discover it.

**A sandbox** is for rerunning epochs on a job's real files. All files of the job appear under the job's address, and
may be written, created and deleted, without changing the job's store. Only files of the overlay can be deleted.

**A trial** records which files an action on a store would remove.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.local import LocalStore
from millstream.storage.memory import MemoryStore
from millstream.storage.names import FINISHED, SEGMENTS, STAGED
from millstream.storage.store import Names, Store

__all__ = ["LayeredStore", "ReadOnlyStore", "SandboxStore", "TrialStore", "layered_store"]

_SHARED = tuple(f"{folder}/" for folder in (SEGMENTS, STAGED, FINISHED))
"""The folders of files that manifests name (`checkpoint.retention.named_files`)."""


def layered_store(store: Store, bases: tuple[Store, ...]) -> Store:
    """`store` on top of `bases`; `store` itself without bases."""
    return LayeredStore(store, bases) if bases else store


class LayeredStore:
    """A store that looks up missing files in other stores.

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
        """The store that holds `name`; the top store if no store does."""
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

    def list_after(self, folder: str, after: str) -> Names:
        return self._top.list_after(folder, after)

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


class ReadOnlyStore:
    """`below`, with all writes rejected.

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

    def list_after(self, folder: str, after: str) -> Names:
        return self._below.list_after(folder, after)

    def delete(self, name: str) -> None:
        self._refuse(name, "removed")

    def delete_many(self, names: Sequence[str]) -> None:
        self._refuse(names[0] if names else ".", "removed")

    def modified_ms(self, name: str) -> int:
        return self._below.modified_ms(name)

    def local_path(self, name: str) -> Path | None:
        # Not `local_path`, which would create the folder in a local store.
        return self._below.place(name) if isinstance(self._below, LocalStore) else self._below.local_path(name)

    def settle(self, name: str) -> None:
        """Make another writer's file durable before trusting it, where the system permits; its content is unchanged."""
        if isinstance(self._below, LocalStore):
            with suppress(StoreError):  # a read-only file system may refuse
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

    def list_after(self, folder: str, after: str) -> Names:
        return sorted({*self._overlay.list_after(folder, after), *self._below.list_after(folder, after)})

    def delete(self, name: str) -> None:
        self._overlay.delete(name)

    def delete_many(self, names: Sequence[str]) -> None:
        self._overlay.delete_many(names)

    def modified_ms(self, name: str) -> int:
        return self._holder(name).modified_ms(name)

    def local_path(self, name: str) -> Path | None:
        # Not the path in the store below: a new file would be written there.
        return self._below.local_path(name) if not self._overlay.exists(name) and self._below.exists(name) else None

    def settle(self, name: str) -> None:
        """Nothing to do: memory cannot be made durable, and files of the store below were synced by their writers."""

    def check_writable(self) -> None:
        """Memory is always writable."""

    def remove_unfinished(self, before_ms: int) -> None:
        """Nothing to do: the store below is never changed."""

    def clear(self) -> None:
        """Drop everything written to the overlay."""
        for name in self._overlay.list(""):
            self._overlay.delete(name)

    def _holder(self, name: str) -> Store:
        return self._overlay if self._overlay.exists(name) or not self._below.exists(name) else self._below


class TrialStore(SandboxStore):
    """`below`, in which the names in `removed` appear absent.

    >>> below = MemoryStore("doctest-below-a-trial")
    >>> below.put("a", b"1")
    >>> store = TrialStore(MemoryStore("doctest-trial"), below)
    >>> store.delete("a"), store.exists("a"), store.list(""), below.list(""), store.removed
    (None, False, [], ['a'], {'a'})
    """

    def __init__(self, overlay: MemoryStore, below: Store) -> None:
        super().__init__(overlay, below)
        self.removed: set[str] = set()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a trial is of one process")

    def put(self, name: str, data: bytes) -> None:
        super().put(name, data)
        self.removed.discard(name)

    def create(self, name: str, data: bytes) -> bool:
        is_free = not self.exists(name)
        if is_free:
            self.put(name, data)
        return is_free

    def exists(self, name: str) -> bool:
        return name not in self.removed and super().exists(name)

    def list(self, prefix: str) -> Names:
        return [name for name in super().list(prefix) if name not in self.removed]

    def list_after(self, folder: str, after: str) -> Names:
        return [name for name in super().list_after(folder, after) if name not in self.removed]

    def delete(self, name: str) -> None:
        self.delete_many([name])

    def delete_many(self, names: Sequence[str]) -> None:
        super().delete_many(names)
        self.removed.update(names)
