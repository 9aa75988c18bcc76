"""Which epochs pins and leases hold, of those that are there.

A pin holds its epoch until it is removed; a lease holds its epoch as long as it is renewed in time. The age of a lease
is the difference of two dates that the same store gave: that of the lease, and that of a file written just now. So the
clocks of two machines are never compared.

A file that cannot be read must not cost anybody an epoch, and must not stop collection for ever either. It holds what
it might be about: the epoch in its name, or, if the name has none, every epoch that was there when it was written. It
does not hold later epochs, and an unreadable lease that is not renewed ends like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from millstream.checkpoint.leases import DURATION_MS, Lease, read_leases
from millstream.checkpoint.pins import Pin, read_pins
from millstream.checkpoint.sealed import seal
from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.names import epoch_of_lease, manifest_name, swept_name
from millstream.storage.store import Store

__all__ = ["held_epochs", "store_time_ms"]

Tell = Callable[[str, str], None]
FORMAT = 1


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
    now_ms = store_time_ms(store, max(epochs, default=0))
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
    store.put(swept_name(), seal("swept", FORMAT, {"epoch": epoch}))
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
