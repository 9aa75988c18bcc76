"""`millstream sweep`: makes room in a store, also if its disk is full and the job cannot start.

It removes files that no epoch names, files left by sweepers that died, and, if requested, old epochs. Files held by
pins, leases and unpublished epochs stay. A running job continues. A dry run on the store's real files determines the
files to remove; `--dry-run` ends there.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TextIO

from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.retention import RetentionPolicy
from millstream.checkpoint.savepoints import open_job_store
from millstream.cli.job_argument import find_store, short_address
from millstream.cli.refusals import refuse
from millstream.errors import MillstreamError, StoreError
from millstream.jobs.console.amounts import bytes_text
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.storage.content import size_of
from millstream.storage.layered_stores import TrialStore
from millstream.storage.local import LocalStore
from millstream.storage.log_lock import is_surely_idle
from millstream.storage.memory import MemoryStore
from millstream.storage.names import epoch_of_manifest, job_name
from millstream.storage.store import Store, open_store

__all__ = ["sweep_store"]

_ALL_EPOCHS = 1 << 40


@dataclass(frozen=True)
class _Swept:
    """The removed files, or those that would be; `retained`: the number of retained epochs."""

    epochs: int
    files: int
    bytes: int
    retained: int


def sweep_store(
    job: str, root: str | None, keep: int | None, *, dry_run: bool, as_json: bool, screen: TextIO | None = None
) -> int:
    """Sweep the store of a job; returns the exit code. `keep`: the number of newest epochs to retain; None: all."""
    screen = screen or sys.stdout
    try:
        url = find_store(job, root)
        swept = _sweep(url, RetentionPolicy(keep_last=keep or _ALL_EPOCHS), dry_run=dry_run)
    except MillstreamError as error:
        return refuse(error, 1)
    if as_json:
        print(json.dumps({**asdict(swept), "dry_run": dry_run}), file=screen)
    else:
        print(_text(swept, short_address(url), keep, dry_run=dry_run), file=screen)
    return 0


def _sweep(url: str, policy: RetentionPolicy, *, dry_run: bool) -> _Swept:
    store = open_job_store(url, read_only=dry_run)
    if not store.exists(job_name()):
        raise StoreError(f"{url} holds no job. Use the store of one; `millstream list` shows where they are")
    plain_store = open_store(url)
    before = set(store.list(""))
    trial = TrialStore(MemoryStore(f"sweep-{secrets.token_hex(8)}"), store)
    is_idle = partial(_is_idle, plain_store)
    _run(trial, policy, is_idle)
    sizes = {name: size_of(plain_store, name) for name in trial.removed & before}
    if dry_run:
        left = before - sizes.keys()
    else:
        _run(store, policy, is_idle)
        left = set(store.list(""))
        sizes = {name: size for name, size in sizes.items() if name not in left}
    return _Swept(_epochs(sizes), len(sizes) - _epochs(sizes), sum(sizes.values()), _epochs(left))


def _run(store: Store, policy: RetentionPolicy, is_idle: Callable[[], bool]) -> None:
    newest, sweeper = ManifestLog(store).newest(), Sweeper(store, system_ms, policy)
    while sweeper.sweep_once(newest, is_idle):
        pass


def _is_idle(store: Store) -> bool:
    return isinstance(store, LocalStore) and is_surely_idle(store)


def _epochs(names: Iterable[str]) -> int:
    return sum(epoch_of_manifest(name) is not None for name in names)


def _text(swept: _Swept, place: str, keep: int | None, *, dry_run: bool) -> str:
    verb = "would remove" if dry_run else "removed"
    amount = f"{_counted(swept.files, 'file')} and {_counted(swept.epochs, 'epoch')}, {bytes_text(swept.bytes)}"
    text = f"{place}: {verb} {amount}; {_counted(swept.retained, 'epoch')} retained"
    if keep is None and swept.retained > 1:
        text += (
            ".\nThe job's own retention removes epochs while it runs. To remove them now, except the newest N and "
            "those that savepoints, forks and readers hold: --keep N"
        )
    return text


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
