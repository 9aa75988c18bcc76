"""Leases keep an epoch for a while: a reader that holds a version does not lose it under its feet.

A lease is a small file that names an epoch and when it ends; its holder renews it in time and removes it when done. A
holder that dies leaves a file that means nothing once it has ended, and is then swept away. As with pins, the lease is
written before the manifest is looked for, so a reader either finds its epoch whole or is told that it is gone.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.names import LEASES, is_lease, lease_name
from millstream.storage.store import Store

__all__ = ["DURATION_MS", "EpochGoneError", "Lease", "LeasedEpoch", "leases_of"]

FORMAT = 1
DURATION_MS = 60_000
"""How long a lease lasts unless it is renewed. A holder renews it at half of that."""


class EpochGoneError(StoreError):
    """The epoch was collected before it could be held. It may show again for a moment, but is not kept."""


@dataclass(frozen=True)
class Lease:
    """Somebody reads `epoch` until `ends_ms` at least."""

    id: str
    epoch: int
    ends_ms: int


def leases_of(store: Store) -> list[Lease]:
    """All leases of a store, ended ones included; one that its holder removes meanwhile is left out."""
    found = []
    for name in store.list(LEASES):
        if is_lease(name):
            try:
                data = store.get(name)
            except StoreDamagedError:
                continue  # it was there a moment ago: its holder is done
            found.append(Lease(**unseal(data, "lease", FORMAT, f"{name} of store {store.url}")))
    return found


class LeasedEpoch:
    """An epoch that stays as it is while this is open; close it, or use it in a `with` block.

    >>> from millstream.storage import open_store
    >>> LeasedEpoch(open_store("memory://doctest-lease"), 3, now_ms=lambda: 0)
    Traceback (most recent call last):
    millstream.checkpoint.leases.EpochGoneError: store memory://doctest-lease has no epoch 3 any more. Read a newer one.
    """

    def __init__(self, store: Store, epoch: int, now_ms: Callable[[], int], duration_ms: int = DURATION_MS) -> None:
        self._store, self._now_ms, self._duration_ms = store, now_ms, duration_ms
        self._lease = Lease(secrets.token_hex(8), epoch, now_ms() + duration_ms)
        self._write()
        manifest = ManifestLog(store).read_if_there(epoch)
        if manifest is None:
            self.close()
            raise EpochGoneError(f"store {store.url} has no epoch {epoch} any more. Read a newer one.")
        self.manifest: Manifest = manifest

    def _write(self) -> None:
        self._store.put(lease_name(self._lease.id), seal("lease", FORMAT, asdict(self._lease)))

    def renew(self) -> None:
        """Hold on for another duration, if half of the last one is over."""
        now_ms = self._now_ms()
        if self._lease.ends_ms - now_ms < self._duration_ms // 2:
            self._lease = replace(self._lease, ends_ms=now_ms + self._duration_ms)
            self._write()

    def close(self) -> None:
        """Let the epoch go."""
        self._store.delete(lease_name(self._lease.id))

    def __enter__(self) -> LeasedEpoch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
