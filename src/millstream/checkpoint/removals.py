"""Removes manifests concurrently with new pins and leases, without a lock; safe if any participant dies.

To remove the manifests of a run of epochs, a sweeper

1. *announces* it: an empty file with the epochs in its name;
2. checks pins and leases. It decides against the removal if one of the epochs is held, otherwise for it;
3. *decides*: creates the decision file, empty for the removal. Only the first decision counts, and only if the
   announcement still exists at that time;
4. removes the manifests, then announcement and decision, in this order.

To hold an epoch, a client writes the pin or lease, checks for announced removals of the epoch, and reads the manifest,
in this order (`held_manifest`). If a removal is undecided, the client itself decides against it. So either the sweeper
sees the pin, or the pin's owner sees the announcement, and one of two decisions counts. A held manifest is never
removed, not even briefly, and a removed one never reappears, even if a suspended sweeper continues.

If a sweeper died, another one completes decided removals, and decides against all others (`settle_removals`). The
protocol creates only empty or tiny files, because the disk may be full.

Older versions removed manifests first, then checked for pins, and restored manifests. `restore_set_aside` reads the
files they left.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Collection, Sequence, Set
from contextlib import suppress
from dataclasses import replace

from millstream.checkpoint.manifest import Manifest, ManifestLog, decode, encode
from millstream.checkpoint.manifest_bytes import from_text
from millstream.errors import StoreAwayError, StoreDamagedError, StoreError
from millstream.storage.names import (
    MANIFESTS,
    REMOVALS,
    RemovalName,
    leaving_name,
    manifest_name,
    parse_removal,
    removal_name,
)
from millstream.storage.store import Store

__all__ = ["held_manifest", "remove_runs", "restore_set_aside", "set_aside_manifests", "settle_removals"]

_LOG = logging.getLogger(__name__)
_FOR, _AGAINST = b"", b"against\n"

Warn = Callable[[str, str], None]


def held_manifest(store: Store, epoch: int) -> Manifest | None:
    """The manifest of an epoch that the caller has just pinned or leased; None if it was or is being removed."""
    for removal in _announced(store):
        if removal.first <= epoch <= removal.last and _decide(store, removal, _AGAINST) == _FOR:
            return None
    return ManifestLog(store).read_if_present(epoch)


def remove_runs(
    store: Store, runs: Sequence[Sequence[int]], held_epochs: Callable[[Collection[int]], Set[int]]
) -> set[int]:
    """Removes the manifests of these runs of epochs; a run holds all existing epochs between its first and last.
    `held_epochs` returns those of its argument that are currently held. A run with a held epoch is left for a later
    try. Returns the removed epochs."""
    removals = {RemovalName(run[0], run[-1], secrets.token_hex(8)): run for run in runs if run}
    if not removals:
        return set()
    for removal in removals:
        store.put(removal_name(removal), b"")
    held = held_epochs({epoch for run in runs for epoch in run})
    decided = [r for r, run in removals.items() if held.isdisjoint(run) and _decide(store, r, _FOR) == _FOR]
    # Another sweeper may have settled these removals, and a client may have pinned an epoch since.
    announced = set(_announced(store))
    effective = [removal for removal in decided if removal in announced]
    removed = {epoch for removal in effective for epoch in removals[removal]}
    store.delete_many([manifest_name(epoch) for epoch in sorted(removed)])
    # Only its owner decides in favour of a removal: an abandoned one needs no decision.
    _delete_files(store, removals)
    return removed


def settle_removals(store: Store) -> None:
    """Completes the removals of sweepers that died, and cancels undecided ones."""
    names = [name for name in map(parse_removal, store.list_after(MANIFESTS, REMOVALS)) if name is not None]
    if not names:
        return
    log, settled = ManifestLog(store), [replace(name, is_decision=False) for name in names]
    for removal in dict.fromkeys(name for name in names if not name.is_decision):
        try:
            is_decided = _decide(store, removal, _AGAINST) == _FOR
        except StoreAwayError:
            # No space for a decision: the removal stays announced, which is harmless.
            settled = [name for name in settled if name != removal]
            continue
        if is_decided:
            remaining = [epoch for epoch in log.epochs() if removal.first <= epoch <= removal.last]
            store.delete_many([manifest_name(epoch) for epoch in remaining])
    _delete_files(store, dict.fromkeys(settled))


def _announced(store: Store) -> list[RemovalName]:
    names = map(parse_removal, store.list_after(MANIFESTS, REMOVALS))
    return [name for name in names if name is not None and not name.is_decision]


def _decide(store: Store, removal: RemovalName, decision: bytes) -> bytes:
    """Creates the decision; returns the one that counts, which may be an earlier one."""
    name = removal_name(replace(removal, is_decision=True))
    for _ in range(_TRIES):
        if store.create(name, decision):
            return decision
        with suppress(StoreDamagedError):  # the sweeper has just finished
            return _AGAINST if store.get(name) else _FOR
    raise StoreAwayError(f"store {store.url}: {name!r} appears and disappears. Try again.")


def _delete_files(store: Store, removals: Collection[RemovalName]) -> None:
    # Announcements first: a decision without an announcement has no effect.
    store.delete_many([removal_name(removal) for removal in removals])
    store.delete_many([removal_name(replace(removal, is_decision=True)) for removal in removals])


_TRIES = 20


# --- files of older versions --------------------------------------------------------------------------------------


def restore_set_aside(store: Store, warn: Warn, epochs: Collection[int] | None = None) -> bool:
    """Restores manifests that a sweeper of an older version had set aside when it died: all, or only these `epochs`.
    Returns whether a file of them existed."""
    if not store.exists(leaving_name()):
        return False
    for manifest in set_aside_manifests(store, warn):
        is_requested = epochs is None or manifest.epoch in epochs
        if is_requested and not store.exists(manifest_name(manifest.epoch)):
            store.create(manifest_name(manifest.epoch), encode(manifest))
    if epochs is None:
        store.delete(leaving_name())
    return True


def set_aside_manifests(store: Store, warn: Warn) -> list[Manifest]:
    """The intact manifests in the file of set-aside ones. Each has its own checksum."""
    intact: list[Manifest] = []
    if not store.exists(leaving_name()):
        return intact
    try:
        texts = json.loads(store.get(leaving_name()))["manifests"]
        for epoch, text in texts.items():
            try:
                intact.append(decode(from_text(text), f"epoch {epoch} in {leaving_name()}"))
            except StoreDamagedError as error:
                warn(leaving_name(), error.message)
    except StoreAwayError:
        raise
    except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        warn(leaving_name(), f"{leaving_name()} of store {store.url} is damaged ({error})")
    return intact
