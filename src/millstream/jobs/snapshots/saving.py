"""Saves an epoch of a job, running or not: by reference in its own store, or as a folder to copy elsewhere.

The driver is not involved. A committed and published epoch never changes; saving it is a pin, or a copy made
under a lease. So a savepoint of a running job stops nothing and waits only for the publishing of its epoch, and a
failed savepoint does not affect the job.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from millstream.checkpoint.leases import LeasedEpoch
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch
from millstream.checkpoint.receipts import known_published
from millstream.checkpoint.savepoints import StoredSnapshot, copy_savepoint, find_snapshot
from millstream.checkpoint.snapshot_names import check_savepoint_name, parse_snapshot_name
from millstream.errors import StoreError
from millstream.jobs.snapshots.program_changes import warn_of_derived_uids
from millstream.storage.local import LocalStore, is_private
from millstream.storage.store import Store, open_store, shown_address

__all__ = ["Savepoints", "check_folder", "epoch_to_save", "save_epoch", "save_newest"]

Note = Callable[[int, int], None]
_TRIES = 3


def epoch_to_save(store: Store) -> int:
    """The newest epoch that is known to be published; raises StoreError if there is none."""
    newest = ManifestLog(store).newest()
    published = 0 if newest is None else known_published(store, newest, newest.job_id)
    if not published:
        raise StoreError(
            f"store {store.url} has no published epoch yet, so there is nothing to save. Try again when the job has "
            "run for a moment."
        )
    return published


def save_newest(
    store: Store,
    newest: Callable[[], int],
    now_ms: Callable[[], int],
    *,
    to: str | None,
    name: str | None,
    note: Note | None = None,
) -> StoredSnapshot:
    """Save the epoch that `newest` returns; call `newest` again if a fast job with short retention has removed that
    epoch.

    Returns the snapshot's name, which is the argument to start from it.
    """
    for tries_left in reversed(range(_TRIES)):
        epoch = newest()
        try:
            return find_snapshot(parse_snapshot_name(save_epoch(store, epoch, now_ms, to=to, name=name, note=note)))
        except StoreError:
            if not tries_left or ManifestLog(store).has(epoch):
                raise
    raise AssertionError("the last try returns or raises")


def save_epoch(
    store: Store, epoch: int, now_ms: Callable[[], int], *, to: str | None, name: str | None, note: Note | None = None
) -> str:
    """Save `epoch`; returns the name to start from it with (`--from`). `to`: a folder, in which the savepoint gets a
    subfolder; None: save by reference."""
    if name is not None:
        check_savepoint_name(name)
    if to is None:
        name = name or f"savepoint-{epoch}-{secrets.token_hex(3)}"
        pin_epoch(store, Pin(name, epoch, "savepoint", now_ms()))
        return f"{shown_address(store.url)}@{name}"
    with LeasedEpoch(store, epoch, now_ms) as leased:
        place = f"{to.rstrip('/')}/{name or f'savepoint-{leased.manifest.job_id[:6]}-{secrets.token_hex(6)}'}"
        target = open_store(place)
        if is_private(store) and isinstance(target, LocalStore):
            target.make_private()  # a copy is as confidential as the store

        def copied(files: int, of: int) -> None:
            leased.renew()
            if note is not None:
                note(files, of)

        copy_savepoint(StoredSnapshot(place, store, leased.manifest), target, copied)
    return shown_address(target.url)


class Savepoints:
    """The savepoints of a job that runs in this process. `folder`: the default folder for them; None: by reference, in
    the job's own store."""

    def __init__(self, store: Store, now_ms: Callable[[], int], folder: str | None) -> None:
        self._store, self._now_ms, self._folder = store, now_ms, folder
        self._has_warned = False

    def save(self, newest: Callable[[], int], folder: str | None, name: str | None) -> str:
        """Save the epoch that `newest` returns; returns the name to start from it with."""
        to = folder or self._folder
        if to is not None and name is None:
            check_folder(to)
        snapshot = save_newest(self._store, newest, self._now_ms, to=to, name=name)
        if not self._has_warned:
            self._has_warned = True
            warn_of_derived_uids(snapshot.manifest)
        return snapshot.name


def check_folder(to: str) -> None:
    """Reject a folder that cannot be written, before waiting or copying."""
    open_store(to).check_writable()
