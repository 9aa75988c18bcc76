"""Removals: how manifests go although pins and leases are set beside it, without a lock, and whoever dies meanwhile.

A sweeper that wants to remove the manifests of a run of epochs

1. *announces* it: an empty file whose name says which epochs;
2. looks for pins and leases. If somebody holds one of the epochs it decides against the removal, else for it;
3. *decides*: creates the decision, empty for the removal. Only the first decision counts. It counts only if the
   announcement still stands then;
4. removes the manifests, then announcement and decision, in this order.

Who wants to hold an epoch writes the pin or lease, looks for removals of the epoch, and reads the manifest, in this
order (`held_manifest`). A removal that nobody has decided yet he decides himself: against it. So either the sweeper
sees the pin, or its owner sees the announcement, and of two decisions one counts. A manifest that somebody holds is
never removed, not even for a moment, and one that was removed never comes back: a sweeper that slept may go on.

Where a sweeper died, another one brings to its end what is decided, and decides against all else (`settle_removals`).
Nothing here needs room on a disk but for names: the disk may be full.

Older Millstreams removed manifests first, looked for pins, and put manifests back. `put_back` reads what they left.
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

__all__ = ["held_manifest", "manifests_aside", "put_back", "remove_runs", "settle_removals"]

_LOG = logging.getLogger(__name__)
_FOR, _AGAINST = b"", b"against\n"

Tell = Callable[[str, str], None]


def held_manifest(store: Store, epoch: int) -> Manifest | None:
    """The manifest of an epoch that the caller has just pinned or leased; None if it is gone, or is going."""
    for removal in _announced(store):
        if removal.first <= epoch <= removal.last and _decide(store, removal, _AGAINST) == _FOR:
            return None
    return ManifestLog(store).read_if_there(epoch)


def remove_runs(
    store: Store, runs: Sequence[Sequence[int]], held_epochs: Callable[[Collection[int]], Set[int]]
) -> set[int]:
    """Remove the manifests of these runs of epochs; a run holds all epochs that are there between its first and last.
    `held_epochs` says which of some epochs are held now. A run of which any is held stays as it is, to be tried again.
    Returns the epochs that were removed."""
    removals = {RemovalName(run[0], run[-1], secrets.token_hex(8)): run for run in runs if run}
    if not removals:
        return set()
    for removal in removals:
        store.put(removal_name(removal), b"")
    held = held_epochs({epoch for run in runs for epoch in run})
    decided = [r for r, run in removals.items() if held.isdisjoint(run) and _decide(store, r, _FOR) == _FOR]
    # Another sweeper may have settled ours meanwhile, and somebody may have pinned an epoch since.
    standing = set(_announced(store))
    counting = [removal for removal in decided if removal in standing]
    removed = {epoch for removal in counting for epoch in removals[removal]}
    store.delete_many([manifest_name(epoch) for epoch in sorted(removed)])
    # Nobody but its owner decides for a removal: one that is given up needs no decision.
    _forget(store, removals)
    return removed


def settle_removals(store: Store) -> None:
    """Bring to an end what sweepers have left that died, and stop those that are about to remove something."""
    names = [name for name in map(parse_removal, store.list_after(MANIFESTS, REMOVALS)) if name is not None]
    if not names:
        return
    log, settled = ManifestLog(store), [replace(name, is_decision=False) for name in names]
    for removal in dict.fromkeys(name for name in names if not name.is_decision):
        try:
            is_decided = _decide(store, removal, _AGAINST) == _FOR
        except StoreAwayError:
            # No room for a word: it stays announced, which costs nobody anything.
            settled = [name for name in settled if name != removal]
            continue
        if is_decided:
            going = [epoch for epoch in log.epochs() if removal.first <= epoch <= removal.last]
            store.delete_many([manifest_name(epoch) for epoch in going])
    _forget(store, dict.fromkeys(settled))


def _announced(store: Store) -> list[RemovalName]:
    names = map(parse_removal, store.list_after(MANIFESTS, REMOVALS))
    return [name for name in names if name is not None and not name.is_decision]


def _decide(store: Store, removal: RemovalName, decision: bytes) -> bytes:
    """The decision that counts: this one, or the one that was there before."""
    name = removal_name(replace(removal, is_decision=True))
    for _ in range(_TRIES):
        if store.create(name, decision):
            return decision
        with suppress(StoreDamagedError):  # the sweeper has just come to its end
            return _AGAINST if store.get(name) else _FOR
    raise StoreAwayError(f"store {store.url}: {name!r} is there and is not, by turns. Ask again.")


def _forget(store: Store, removals: Collection[RemovalName]) -> None:
    # First the announcements: a decision without one counts for nothing.
    store.delete_many([removal_name(removal) for removal in removals])
    store.delete_many([removal_name(replace(removal, is_decision=True)) for removal in removals])


_TRIES = 20


# --- what older Millstreams have left -----------------------------------------------------------------------------


def put_back(store: Store, tell: Tell, epochs: Collection[int] | None = None) -> bool:
    """Put back what a sweeper of an older Millstream had set aside when it died: all of it, or only these `epochs`.
    Returns whether there was anything."""
    if not store.exists(leaving_name()):
        return False
    for manifest in manifests_aside(store, tell):
        is_wanted = epochs is None or manifest.epoch in epochs
        if is_wanted and not store.exists(manifest_name(manifest.epoch)):
            store.create(manifest_name(manifest.epoch), encode(manifest))
    if epochs is None:
        store.delete(leaving_name())
    return True


def manifests_aside(store: Store, tell: Tell) -> list[Manifest]:
    """The manifests in the file aside. Each has a checksum of its own: what is whole of a damaged file counts."""
    whole: list[Manifest] = []
    if not store.exists(leaving_name()):
        return whole
    try:
        texts = json.loads(store.get(leaving_name()))["manifests"]
        for epoch, text in texts.items():
            try:
                whole.append(decode(from_text(text), f"epoch {epoch} in {leaving_name()}"))
            except StoreDamagedError as error:
                tell(leaving_name(), error.message)
    except StoreAwayError:
        raise
    except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        tell(leaving_name(), f"{leaving_name()} of store {store.url} is damaged ({error})")
    return whole
