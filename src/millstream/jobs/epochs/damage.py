"""When a segment of state is damaged: which epoch does not need it.

A damaged segment is never read as "no value"; the job stops and names the file. What its owner asks next is how far
back the damage reaches. The answer here is the newest retained epoch that does not name the damaged file and whose
other files are all there, at their full length. Nothing is changed: going back to it is for a person to decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.errors import StoreError
from millstream.jobs.epochs.manifests import subtask_accounts
from millstream.storage.store import Store

__all__ = ["newest_whole_epoch", "segments_of", "whole_epoch_advice"]

_SEGMENT = re.compile(r"segments/\S+?\.arrow")


def segments_of(manifest: Manifest) -> Iterator[tuple[str, int]]:
    """The segments of keyed state that a manifest names, with their lengths in bytes."""
    for account in subtask_accounts(manifest):
        if account.tables is not None:
            yield from ((file.name, file.bytes) for file in account.tables.files)


def newest_whole_epoch(log: ManifestLog, store: Store, damaged: str) -> int | None:
    """The newest epoch that can do without the file `damaged`, and has all others; None when there is none."""
    for epoch in reversed(log.epochs()):
        try:
            files = dict(segments_of(log.read(epoch)))
        except StoreError:
            continue
        if damaged not in files and all(_is_there(store, file, length) for file, length in files.items()):
            return epoch
    return None


def _is_there(store: Store, file: str, length: int) -> bool:
    if not store.exists(file):
        return False
    path = store.local_path(file)
    return path is None or path.stat().st_size == length


def whole_epoch_advice(message: str, log: ManifestLog, store: Store) -> str:
    """One more sentence for an error about a damaged segment; empty for any other."""
    named = _SEGMENT.search(message)
    if named is None:
        return ""
    epoch = newest_whole_epoch(log, store, named.group())
    if epoch is None:
        return " No retained epoch is whole without that file."
    return f" The newest epoch that is still whole is {epoch}."
