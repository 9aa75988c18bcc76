"""Decides which files of a job's store may be deleted. Pure: works on names and numbers.

Every epoch leaves a manifest, segments of state and staged output; lost attempts leave segments and output too. A file
is deleted only if no start of the job and no reader, from any retained epoch, could request it:

- an epoch is retained while it is among the newest `keep_last`, not known to be published, selected by `every_ms`
  within `for_ms`, or named by a pin or a lease;
- a segment, or a list of finished splits, is deleted when its epoch is older than the newest and no retained manifest
  names it;
- a staged file is deleted when, in addition, its epoch is published.

Files at or after the newest epoch are never deleted: its tasks may be writing. Unknown files (not named by
`storage/names.py`) are left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from millstream.checkpoint.manifest import JSON, Manifest
from millstream.storage.names import epoch_of_finished, parse_segment, parse_staged

__all__ = [
    "RetentionPolicy",
    "epoch_of_file",
    "files_to_delete",
    "named_files",
    "retained_epochs",
    "runs_of",
    "written_by",
]


@dataclass(frozen=True)
class RetentionPolicy:
    """How much of its past a job retains: the newest epochs, and the first of every interval for some time."""

    keep_last: int = 10
    every_ms: int | None = None
    for_ms: int | None = None

    def __post_init__(self) -> None:
        if self.keep_last < 1:
            raise ValueError(f"keep_last is {self.keep_last}: the newest manifest is always retained, so use 1 or more")


def retained_epochs(
    created_ms: Mapping[int, int],
    policy: RetentionPolicy,
    *,
    published_through: int,
    now_ms: int,
    held: Collection[int] = frozenset(),
) -> set[int]:
    """The epochs whose manifests are retained, given their creation times. `held`: named by pins and leases.

    >>> policy = RetentionPolicy(keep_last=1)
    >>> sorted(retained_epochs({1: 0, 2: 5, 3: 9, 4: 12}, policy, published_through=2, now_ms=20))
    [3, 4]
    >>> hourly = RetentionPolicy(keep_last=1, every_ms=10, for_ms=100)
    >>> sorted(retained_epochs({1: 0, 2: 5, 3: 9, 4: 12, 5: 30, 6: 31}, hourly, published_through=6, now_ms=32))
    [1, 4, 5, 6]
    """
    epochs = sorted(created_ms)
    required = (epoch for epoch in epochs if epoch > published_through or epoch in held)
    retained = {*epochs[-policy.keep_last :], *required}
    if policy.every_ms:
        picked: dict[int, int] = {}
        for epoch in epochs:
            if policy.for_ms is None or created_ms[epoch] >= now_ms - policy.for_ms:
                picked.setdefault(created_ms[epoch] // policy.every_ms, epoch)
        retained |= set(picked.values())
    return retained


def runs_of(epochs: Iterable[int], chosen: Collection[int]) -> list[list[int]]:
    """Splits the chosen epochs into runs: all `epochs` between two members of a run are chosen, too.

    >>> runs_of([1, 2, 5, 6, 9], {1, 2, 6, 9})
    [[1, 2], [6, 9]]
    """
    runs: list[list[int]] = [[]]
    for epoch in sorted(epochs):
        if epoch in chosen:
            runs[-1].append(epoch)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def named_files(manifest: Manifest) -> frozenset[str]:
    """Every segment, staged file and list of finished splits that a manifest names, anywhere in a state or a sink's
    payload."""
    places: list[JSON] = [dict(manifest.states), *(p.payload for parts in manifest.staged.values() for p in parts)]
    texts = (text for place in places for text in _texts(place))
    lists = (list_file.file for files in manifest.finished.values() for list_file in files)
    return frozenset((*lists, *(text for text in texts if parse_segment(text) or parse_staged(text))))


def files_to_delete(files: Iterable[str], named: Collection[str], *, newest: int, published_through: int) -> list[str]:
    """The segments, staged files and lists that may be deleted. `named`: the files named by retained manifests.

    >>> files_to_delete(["segments/op/s/000000000001-00000-a.arrow"], (), newest=2, published_through=1)
    ['segments/op/s/000000000001-00000-a.arrow']
    """
    return sorted(name for name in files if name not in named and _is_past(name, newest, published_through))


def epoch_of_file(name: str) -> int:
    """The epoch that wrote a segment, a staged file or a list of finished splits; 0 for other files."""
    parsed = parse_segment(name) or parse_staged(name)
    return parsed.epoch if parsed is not None else epoch_of_finished(name) or 0


def written_by(name: str, runs: Collection[str]) -> bool:
    """Whether a task of one of these driver runs wrote the segment or staged file.

    >>> written_by("segments/op/s/000000000001-00000-a1t0n7.arrow", {"a1"})
    True
    """
    parsed = parse_segment(name) or parse_staged(name)
    return parsed is not None and any(parsed.nonce.startswith(f"{run}t") for run in runs)


def _is_past(name: str, newest: int, published_through: int) -> bool:
    segment = parse_segment(name)
    epoch = segment.epoch if segment is not None else epoch_of_finished(name)
    if epoch is not None:
        return epoch < newest
    staged = parse_staged(name)
    return staged is not None and staged.epoch <= published_through and staged.epoch < newest


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
