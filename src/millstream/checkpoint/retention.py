"""What may be deleted from a job's store: a pure decision over names and numbers.

Two kinds of files pile up: manifests, and staged output, the losing attempts' included. The rule for both is that a
file goes only when no start of the job, from any epoch that is kept, could ask for it:

- a manifest goes when it is neither among the newest `keep_last` nor of an epoch not known to be published;
- a staged file goes when its epoch is published, older than the newest, and no kept manifest names the file.

Nothing at or after the newest epoch is ever touched: its tasks may be writing. Files this module does not know
(not named by `storage/names.py`) are not its business and stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from millstream.checkpoint.manifest import JSON, Manifest
from millstream.storage.names import manifest_name, parse_segment, parse_staged

__all__ = ["KEEP_LAST", "kept_epochs", "named_files", "segments_to_delete", "what_to_delete"]

KEEP_LAST = 10


def what_to_delete(
    epochs: Collection[int],
    staged: Iterable[str],
    *,
    published_through: int,
    named: Collection[str] = frozenset(),
    keep_last: int = KEEP_LAST,
) -> list[str]:
    """The names to delete, in the order to delete them: manifests oldest first, then staged files.

    `epochs` are those of the manifests there are, `staged` the names below `staged/`, `named` what `named_files` finds
    in the manifests that stay (`kept_epochs` says which those are).

    >>> what_to_delete([1, 2, 3], [], published_through=3, keep_last=2)
    ['manifests/000000000001.json']
    >>> what_to_delete([4, 5], ["staged/out/000000000004-00000-a1-00000"], published_through=4, keep_last=1)
    ['manifests/000000000004.json', 'staged/out/000000000004-00000-a1-00000']
    """
    if not epochs:
        return []
    kept, newest = kept_epochs(epochs, published_through=published_through, keep_last=keep_last), max(epochs)
    manifests = [manifest_name(epoch) for epoch in sorted(set(epochs) - kept)]
    return manifests + sorted(name for name in staged if _is_done(name, newest, published_through, named))


def kept_epochs(epochs: Collection[int], *, published_through: int, keep_last: int = KEEP_LAST) -> set[int]:
    """The epochs whose manifests stay: the newest ones, and all not known to be published.

    >>> sorted(kept_epochs([1, 2, 3, 4], published_through=2, keep_last=1))
    [3, 4]
    """
    if keep_last < 1:
        raise ValueError(f"keep_last is {keep_last}: the newest manifest always stays, so give 1 or more")
    newest = sorted(epochs)[-keep_last:]
    return {*newest, *(epoch for epoch in epochs if epoch > published_through)}


def named_files(manifests: Iterable[Manifest]) -> set[str]:
    """Every staged file that the output listed in `manifests` mentions, wherever in a sink's payload it stands."""
    return {
        text
        for manifest in manifests
        for parts in manifest.staged.values()
        for part in parts
        for text in _texts(part.payload)
        if parse_staged(text) is not None
    }


def segments_to_delete(segments: Iterable[str], kept: Iterable[Manifest], newest: int) -> list[str]:
    """The segments of keyed state that no kept manifest names, of epochs before the newest: compacted away, or
    written by attempts that lost. A segment of the newest epoch or a later one may be in the making.

    >>> segments_to_delete(["segments/op/s/000000000001-00000-a.arrow"], [], newest=2)
    ['segments/op/s/000000000001-00000-a.arrow']
    """
    named = {text for manifest in kept for text in _texts(dict(manifest.states))}
    found = ((name, parse_segment(name)) for name in segments)
    return sorted(name for name, said in found if said is not None and said.epoch < newest and name not in named)


def _is_done(name: str, newest: int, published_through: int, named: Collection[str]) -> bool:
    said = parse_staged(name)
    return said is not None and said.epoch <= published_through and said.epoch < newest and name not in named


def _texts(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
