"""Leases retain an epoch for a limited time, so that it is not removed while a reader uses it.

A lease is a small file that names an epoch. Its holder renews it by writing it again, and removes it when done. If the
holder dies, the lease expires after `DURATION_MS`, and its file is swept. As with pins, the lease is written before the
manifest is read, so a reader gets either the complete epoch or an error that it was removed (`removals`).

`held_epochs` determines the epochs held by pins and leases. A pin holds its epoch until the pin is removed, a lease as
long as it is renewed in time. The age of a lease is the difference of two dates from the same store: that of the lease,
and that of a newly written file. So clocks of two machines are never compared; `ends_ms` is the expiry by the holder's
own clock, for display.

An unreadable file must neither cost an epoch nor stop collection permanently. It holds the epoch in its name or, if the
name contains none, every epoch that existed when it was written. It does not hold later epochs, and an unreadable lease
that is not renewed expires like any other.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.pins import Pin, read_pins
from millstream.checkpoint.removals import held_manifest
from millstream.checkpoint.sealed import read_sealed, seal, unseal
from millstream.errors import StoreDamagedError, StoreError, StoreFullError
from millstream.storage.names import manifest_name, swept_name
from millstream.storage.shared_names import LEASES, epoch_of_lease, is_lease, lease_id, lease_name
from millstream.storage.store import Store

__all__ = [
    "DURATION_MS",
    "EpochGoneError",
    "Lease",
    "LeasedEpoch",
    "held_epochs",
    "read_leases",
    "store_time_ms",
    "system_ms",
]

FORMAT = 1
DURATION_MS = 60_000
"""Duration of a lease unless it is renewed. A holder renews it at half of that."""


class EpochGoneError(StoreError):
    """The epoch was collected before it could be held. Its manifest may still exist briefly."""


def system_ms() -> int:
    """The machine's clock."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Lease:
    """A reader uses `epoch` at least until `ends_ms`."""

    id: str
    epoch: int
    ends_ms: int


def read_leases(store: Store) -> Iterator[tuple[str, Lease | StoreError]]:
    """Every lease file with its lease, or the error of an unreadable one. Files removed concurrently are skipped.

    An unreadable lease may still have its epoch in its name.
    """
    return read_sealed(store, filter(is_lease, store.list(LEASES)), _decoded)


def _decoded(data: bytes, where: str) -> Lease:
    fields = unseal(data, "lease", FORMAT, where)
    id, epoch, ends_ms = fields.get("id"), fields.get("epoch"), fields.get("ends_ms")
    if not isinstance(id, str) or type(epoch) is not int or type(ends_ms) is not int:
        raise StoreDamagedError(f"{where} is not a complete lease: it names no epoch. Remove it.")
    return Lease(id, epoch, ends_ms)


class LeasedEpoch:
    """Retains an epoch while this is open; close it, or use it in a `with` block.

    >>> from millstream.storage import open_store
    >>> LeasedEpoch(open_store("memory://doctest-lease"), 3, now_ms=lambda: 0)
    Traceback (most recent call last):
    millstream.checkpoint.leases.EpochGoneError: store memory://doctest-lease has no epoch 3 any more. Read a newer one.
    """

    def __init__(self, store: Store, epoch: int, now_ms: Callable[[], int]) -> None:
        self._store, self._now_ms = store, now_ms
        self._lease = Lease(lease_id(epoch, secrets.token_hex(8)), epoch, now_ms() + DURATION_MS)
        self._write()
        try:
            manifest = held_manifest(store, epoch)
        except BaseException:
            with suppress(StoreError):  # then it expires
                self.close()
            raise
        if manifest is None:
            self.close()
            raise EpochGoneError(f"store {store.url} has no epoch {epoch} any more. Read a newer one.")
        self.manifest: Manifest = manifest

    def _write(self) -> None:
        self._store.put(lease_name(self._lease.id), seal("lease", FORMAT, asdict(self._lease)))

    def renew(self) -> None:
        """Extends the lease if half of it has passed, or the clock was set back."""
        now_ms = self._now_ms()
        if not DURATION_MS // 2 <= self._lease.ends_ms - now_ms <= DURATION_MS:
            self._lease = replace(self._lease, ends_ms=now_ms + DURATION_MS)
            self._write()

    def close(self) -> None:
        """Releases the epoch."""
        self._store.delete(lease_name(self._lease.id))

    def __enter__(self) -> LeasedEpoch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- held epochs --------------------------------------------------------------------------------------------------

Warn = Callable[[str, str], None]
_SWEPT_FORMAT = 1


def held_epochs(store: Store, epochs: Collection[int], warn: Warn, written_ms: dict[int, int]) -> set[int]:
    """Those of `epochs` that are held. `warn` is called for every unreadable file, with its name and the problem.

    Expired leases are removed. `written_ms` caches the dates of manifests between calls, because a second call may
    concern manifests that have just been removed.
    """
    held: set[int] = set()
    for name, pin in read_pins(store):
        if isinstance(pin, Pin):
            held.add(pin.epoch)
        else:
            warn(name, f"{pin.message} Until it is removed, it retains every epoch that it may refer to.")
            held |= _epochs_when_written(store, name, epochs, written_ms)
    return (held | _leased_epochs(store, epochs, warn, written_ms)) & set(epochs)


def _leased_epochs(store: Store, epochs: Collection[int], warn: Warn, written_ms: dict[int, int]) -> set[int]:
    leases = list(read_leases(store))
    if not leases:
        return set()
    held: set[int] = set()
    ended: list[str] = []
    try:
        now_ms = store_time_ms(store, max(epochs, default=0))
    except StoreFullError:
        now_ms = 0  # the store's time is unknown: no lease has expired
    for name, lease in leases:
        try:
            age_ms = now_ms - store.modified_ms(name)
        except StoreDamagedError:
            continue  # its holder has released it
        epoch = lease.epoch if isinstance(lease, Lease) else epoch_of_lease(name)
        if age_ms > DURATION_MS:
            ended.append(name)
        elif epoch is not None:
            held.add(epoch)
        else:
            assert isinstance(lease, StoreError)
            warn(name, f"{lease.message} It counts as a reader's for {DURATION_MS // 1000} s.")
            held |= _epochs_when_written(store, name, epochs, written_ms)
    store.delete_many(ended)
    return held


def store_time_ms(store: Store, epoch: int) -> int:
    """The current time by the store's own clock. `epoch`: the newest one, written to the file for display."""
    store.put(swept_name(), seal("swept", _SWEPT_FORMAT, {"epoch": epoch}))
    return store.modified_ms(swept_name())


def _epochs_when_written(store: Store, name: str, epochs: Collection[int], written_ms: dict[int, int]) -> set[int]:
    """The epochs whose manifests are not newer than the file `name`."""
    try:
        limit_ms = store.modified_ms(name)
        for epoch in epochs:
            if epoch not in written_ms:
                written_ms[epoch] = store.modified_ms(manifest_name(epoch))
    except StoreDamagedError:
        return set(epochs)  # a file was just removed; the next call gets consistent dates
    # Up to the newest of them: a restored manifest has a new date.
    newest = max((epoch for epoch in epochs if written_ms[epoch] <= limit_ms), default=0)
    return {epoch for epoch in epochs if epoch <= newest}
