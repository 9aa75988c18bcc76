"""Leases keep an epoch for a while: a reader that holds a version does not lose it under its feet.

A lease is a small file that names an epoch. Its holder renews it in time by writing it again, and removes it when done.
If the holder dies, the lease ends after `DURATION_MS`, and its file is swept away. As with pins, the lease is written
before the manifest is looked for, so a reader either finds its epoch whole or is told that it is gone (`removals`).

`held_epochs` says which epochs pins and leases hold. A pin holds its epoch until it is removed; a lease holds its epoch
as long as it is renewed in time. The age of a lease is the difference of two dates that the same store gave: that of
the lease, and that of a file written just now. So the clocks of two machines are never compared; `ends_ms` is the end
by the holder's own clock, and is there for people.

A file that cannot be read must not cost anybody an epoch, and must not stop collection for ever either. It holds what
it might be about: the epoch in its name, or, if the name has none, every epoch that was there when it was written. It
does not hold later epochs, and an unreadable lease that is not renewed ends like any other.
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
"""How long a lease lasts unless it is written again. A holder does so at half of that."""


class EpochGoneError(StoreError):
    """The epoch was collected before it could be held. Its manifest may be there for a moment still."""


def system_ms() -> int:
    """The machine's clock."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Lease:
    """Somebody reads `epoch` until `ends_ms` at least."""

    id: str
    epoch: int
    ends_ms: int


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
        try:
            manifest = held_manifest(store, epoch)
        except BaseException:
            with suppress(StoreError):  # then it ends by itself
                self.close()
            raise
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


# --- what is held -------------------------------------------------------------------------------------------------

Tell = Callable[[str, str], None]
_SWEPT_FORMAT = 1


def held_epochs(store: Store, epochs: Collection[int], tell: Tell, written_ms: dict[int, int]) -> set[int]:
    """Of `epochs`, those that somebody holds. `tell` hears of every file that cannot be read, by its name and why.

    Leases that have ended are removed. `written_ms` keeps, from one call to the next, when manifests were written: the
    second call is about some that have just been removed.
    """
    held: set[int] = set()
    for name, pin in read_pins(store):
        if isinstance(pin, Pin):
            held.add(pin.epoch)
        else:
            tell(name, f"{pin.message} Until it is removed, every epoch stays that it may be of.")
            held |= _there_when_written(store, name, epochs, written_ms)
    return (held | _leased_epochs(store, epochs, tell, written_ms)) & set(epochs)


def _leased_epochs(store: Store, epochs: Collection[int], tell: Tell, written_ms: dict[int, int]) -> set[int]:
    leases = list(read_leases(store))
    if not leases:
        return set()
    held: set[int] = set()
    ended: list[str] = []
    try:
        now_ms = store_time_ms(store, max(epochs, default=0))
    except StoreFullError:
        now_ms = 0  # what time it is cannot be told: no lease has ended
    for name, lease in leases:
        try:
            age_ms = now_ms - store.modified_ms(name)
        except StoreDamagedError:
            continue  # its holder is done
        epoch = lease.epoch if isinstance(lease, Lease) else epoch_of_lease(name)
        if age_ms > DURATION_MS:
            ended.append(name)
        elif epoch is not None:
            held.add(epoch)
        else:
            assert isinstance(lease, StoreError)
            tell(name, f"{lease.message} It counts as a reader's for {DURATION_MS // 1000} s.")
            held |= _there_when_written(store, name, epochs, written_ms)
    store.delete_many(ended)
    return held


def store_time_ms(store: Store, epoch: int) -> int:
    """What time it is by the store's own clock. `epoch`: the newest, for people who read the file."""
    store.put(swept_name(), seal("swept", _SWEPT_FORMAT, {"epoch": epoch}))
    return store.modified_ms(swept_name())


def _there_when_written(store: Store, name: str, epochs: Collection[int], written_ms: dict[int, int]) -> set[int]:
    """The epochs whose manifests are not newer than the file `name`."""
    try:
        limit_ms = store.modified_ms(name)
        for epoch in epochs:
            if epoch not in written_ms:
                written_ms[epoch] = store.modified_ms(manifest_name(epoch))
    except StoreDamagedError:
        return set(epochs)  # something was removed just now; whoever looks next knows more
    # By the newest of them: a manifest that was put back is dated anew.
    newest = max((epoch for epoch in epochs if written_ms[epoch] <= limit_ms), default=0)
    return {epoch for epoch in epochs if epoch <= newest}
