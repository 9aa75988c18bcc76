"""Leases keep an epoch for a while: a reader that holds a version does not lose it under its feet.

A lease is a small file that names an epoch. Its holder renews it in time by writing it again, and removes it when done.
If the holder dies, the lease ends after `DURATION_MS`, and its file is swept away. As with pins, the lease is written
before the manifest is looked for, so a reader either finds its epoch whole or is told that it is gone.

The age of a lease is measured by the store, which dates every file: two machines need not agree on the time
(`holds.py`). `ends_ms` is the end by the holder's own clock; it is there for people.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.sealed import read_sealed, seal, unseal
from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.names import LEASES, is_lease, lease_id, lease_name
from millstream.storage.store import Store

__all__ = ["DURATION_MS", "EpochGoneError", "Lease", "LeasedEpoch", "leases_of", "read_leases"]

FORMAT = 1
DURATION_MS = 60_000
"""How long a lease lasts unless it is written again. A holder does so at half of that."""


class EpochGoneError(StoreError):
    """The epoch was collected before it could be held. It may show again for a moment, but is not kept."""


@dataclass(frozen=True)
class Lease:
    """Somebody reads `epoch` until `ends_ms` at least."""

    id: str
    epoch: int
    ends_ms: int


def leases_of(store: Store) -> list[Lease]:
    """All leases of a store that can be read, ended ones included."""
    return [lease for _, lease in read_leases(store) if isinstance(lease, Lease)]


def read_leases(store: Store) -> Iterator[tuple[str, Lease | StoreError]]:
    """Every lease's file, with the lease, or why it cannot be read; one that its holder removes meanwhile is left out.

    The epoch that an unreadable one is of may still be told by its name.
    """
    return read_sealed(store, filter(is_lease, store.list(LEASES)), _decoded)


def _decoded(data: bytes, where: str) -> Lease:
    fields = unseal(data, "lease", FORMAT, where)
    id, epoch, ends_ms = fields.get("id"), fields.get("epoch"), fields.get("ends_ms")
    if not isinstance(id, str) or type(epoch) is not int or type(ends_ms) is not int:
        raise StoreDamagedError(f"{where} is no whole lease: it names no epoch. Remove it.")
    return Lease(id, epoch, ends_ms)


class LeasedEpoch:
    """An epoch that stays as it is while this is open; close it, or use it in a `with` block.

    >>> from millstream.storage import open_store
    >>> LeasedEpoch(open_store("memory://doctest-lease"), 3, now_ms=lambda: 0)
    Traceback (most recent call last):
    millstream.checkpoint.leases.EpochGoneError: store memory://doctest-lease has no epoch 3 any more. Read a newer one.
    """

    def __init__(self, store: Store, epoch: int, now_ms: Callable[[], int]) -> None:
        self._store, self._now_ms = store, now_ms
        self._lease = Lease(lease_id(epoch, secrets.token_hex(8)), epoch, now_ms() + DURATION_MS)
        self._write()
        manifest = ManifestLog(store).read_if_there(epoch)
        if manifest is None:
            self.close()
            raise EpochGoneError(f"store {store.url} has no epoch {epoch} any more. Read a newer one.")
        self.manifest: Manifest = manifest

    def _write(self) -> None:
        self._store.put(lease_name(self._lease.id), seal("lease", FORMAT, asdict(self._lease)))

    def renew(self) -> None:
        """Hold on for another duration, if half of the last one is over, or the clock was set back."""
        now_ms = self._now_ms()
        if not DURATION_MS // 2 <= self._lease.ends_ms - now_ms <= DURATION_MS:
            self._lease = replace(self._lease, ends_ms=now_ms + DURATION_MS)
            self._write()

    def close(self) -> None:
        """Let the epoch go."""
        self._store.delete(lease_name(self._lease.id))

    def __enter__(self) -> LeasedEpoch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
