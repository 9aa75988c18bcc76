"""`millstream savepoint`: saves an epoch of a job, running or not.

The command works on the job's store (`jobs/snapshots/saving.py`); it queries a running job only for its newest epoch,
once that is published. Standard output has one line, the argument of `--from`; everything else is printed to standard
error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import Pin, pins_of, unpin
from millstream.checkpoint.receipts import known_published
from millstream.cli.job_argument import open_store_of_job, short_address
from millstream.cli.refusals import refuse
from millstream.errors import MillstreamError, StoreError
from millstream.jobs.control.requests import Mailbox, UnansweredError
from millstream.jobs.snapshots.program_changes import derived_uids_text
from millstream.jobs.snapshots.saving import check_folder, epoch_to_save, save_newest
from millstream.storage.local import LocalStore
from millstream.storage.store import Store, open_store

__all__ = ["dispose_savepoint", "save", "take_savepoint"]

_ACCEPTED_WITHIN_S = 3.0
_PUBLISHED_WITHIN_S = 60.0


def take_savepoint(job: str, root: str | None, to: str | None, name: str | None) -> int:
    """Save the newest published epoch, in the folder `to`, or (None) by reference in the job's store; returns the exit
    code."""
    try:
        store = open_store_of_job(job, root)
    except MillstreamError as error:
        return refuse(error)
    try:
        save(store, to, name)
    except MillstreamError as error:
        return refuse(error, 1)
    return 0


def dispose_savepoint(job: str, root: str | None, name: str) -> int:
    """Remove a savepoint by reference: its epoch is then subject to retention again; returns the exit code."""
    try:
        store = open_store_of_job(job, root)
        pin = next((pin for pin in pins_of(store) if pin.name == name), None)
        if pin is not None and _is_in_use(pin):
            raise StoreError(
                f"'{name}' is not a savepoint: the fork in {short_address(pin.by)} reads epoch {pin.epoch} of this "
                "store. Remove that store first"
            )
        unpin(store, name)
    except MillstreamError as error:
        return refuse(error)
    print(f"'{name}' is removed; its epoch is retained no longer than others", file=sys.stderr)
    return 0


def save(store: Store, to: str | None, name: str | None) -> None:
    """Save the newest published epoch of the job in `store`, and print how to start from it."""
    if to is not None:
        check_folder(to)
    snapshot = save_newest(store, lambda: published_epoch(store), system_ms, to=to, name=name, note=_progress())
    how = "by reference; its files stay in the store" if to is None else "in a folder of its own"
    place = short_address(snapshot.name)
    print(
        f"saved epoch {snapshot.manifest.epoch}, {how}. Start from it with: millstream run JOB.PY --from {place}",
        file=sys.stderr,
    )
    advice = derived_uids_text(snapshot.manifest)
    if advice:
        print(f"millstream: {advice}", file=sys.stderr)
    print(place)


def published_epoch(store: Store) -> int:
    """The newest epoch that is known to be published. Queries a running job, which knows more than its store: it waits
    for epochs that are acknowledged but not committed."""
    newest = ManifestLog(store).newest()
    is_published = newest is None or known_published(store, newest, newest.job_id) == newest.epoch
    if newest is None or (is_published and (newest.status != "RUNNING" or isinstance(store, LocalStore))):
        return epoch_to_save(store)
    try:
        mailbox = Mailbox(store)
        return int(mailbox.send("published", {}, system_ms(), _ACCEPTED_WITHIN_S, _PUBLISHED_WITHIN_S, "savepoint"))
    except UnansweredError:
        epoch = epoch_to_save(store)
        if not is_published:
            print(
                "millstream: no driver answered, so the job is not running or is only starting, and "
                f"epoch {newest.epoch} is not known to be published: saving epoch {epoch}",
                file=sys.stderr,
            )
        return epoch


def _is_in_use(pin: Pin) -> bool:
    return pin.reason == "fork" and read_job_record(open_store(pin.by)) is not None


def _progress() -> Callable[[int, int], None] | None:
    """Shows the progress of a copy, in a terminal."""
    if not sys.stderr.isatty():
        return None
    return lambda done, of: print(f"\r{done} of {of} files", end="\n" if done == of else "", file=sys.stderr)


def absolute(place: str) -> str:
    """A folder as an absolute path."""
    return place if "://" in place else str(Path(place).absolute())
