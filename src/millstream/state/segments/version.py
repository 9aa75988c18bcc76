"""A version of a table: which segments make it up, oldest first, and for which key groups each still counts.

A `SegmentRef` names a file and the range of key groups for which it is live. One file may be named by several
refs with disjoint ranges. That is all that rescaling needs (`refs_for` clips the ranges, no file is touched),
and it lets compaction replace a file a few key groups at a time.

Invariant: for every key group, the refs that cover it are in order of age. Refs that share no key group may
stand in any order. Refs are plain JSON in a manifest, and equal refs are read back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from millstream.errors import StoreDamagedError
from millstream.state.tables.layout import NEVER_MS
from millstream.storage.json_records import is_whole_number

__all__ = ["Refs", "SegmentRef", "coalesced", "merge_versions", "refs_for", "refs_from_json", "refs_to_json"]


@dataclass(frozen=True)
class SegmentRef:
    """A segment file, live for the key groups `[group_start, group_stop)`.

    `rows`, `file_bytes`, the file's own range and its earliest due time are those of the whole file.
    """

    file: str
    epoch: int
    group_start: int
    group_stop: int
    file_group_start: int
    file_group_stop: int
    rows: int
    file_bytes: int
    due_min_ms: int = NEVER_MS

    def __post_init__(self) -> None:
        if not self.file_group_start <= self.group_start < self.group_stop <= self.file_group_stop:
            raise ValueError(
                f"{self.file} cannot be live for the key groups {self.group_start}..{self.group_stop}: "
                f"it holds {self.file_group_start}..{self.file_group_stop}"
            )

    @property
    def groups(self) -> range:
        """The key groups for which the file counts."""
        return range(self.group_start, self.group_stop)

    def live_bytes(self, groups: range | None = None) -> int:
        """About how many bytes of the file lie in its live key groups (those within `groups`, if given).

        >>> SegmentRef("f", 1, 0, 32, 0, 128, rows=10, file_bytes=4096).live_bytes()
        1024
        """
        start, stop = self.group_start, self.group_stop
        if groups is not None:
            start, stop = max(start, groups.start), min(stop, groups.stop)
        return max(stop - start, 0) * self.file_bytes // (self.file_group_stop - self.file_group_start)

    def clipped(self, groups: range) -> SegmentRef | None:
        """This ref for `groups` only; None where it has none of them."""
        start, stop = max(self.group_start, groups.start), min(self.group_stop, groups.stop)
        return dataclasses.replace(self, group_start=start, group_stop=stop) if start < stop else None

    def without(self, groups: range) -> list[SegmentRef]:
        """This ref without `groups`: itself, a part of it, two parts of it, or nothing.

        >>> [part.groups for part in SegmentRef("f", 1, 0, 9, 0, 9, 1, 1).without(range(3, 5))]
        [range(0, 3), range(5, 9)]
        """
        sides = (range(groups.start), range(groups.stop, self.file_group_stop)) if groups else (self.groups,)
        return [part for part in map(self.clipped, sides) if part is not None]


Refs: TypeAlias = tuple[SegmentRef, ...]


def refs_for(refs: Iterable[SegmentRef], groups: range) -> Refs:
    """The refs of a task that owns `groups`."""
    return coalesced([part for part in (ref.clipped(groups) for ref in refs) if part is not None])


def merge_versions(versions: Iterable[Sequence[SegmentRef]]) -> Refs:
    """The version of the whole table, from those of the tasks, which own disjoint key groups.

    >>> whole = SegmentRef("f", 1, 0, 9, 0, 9, rows=1, file_bytes=1)
    >>> merge_versions([refs_for([whole], range(0, 4)), refs_for([whole], range(4, 9))]) == (whole,)
    True
    """
    return coalesced([ref for version in versions for ref in version])


def coalesced(refs: Sequence[SegmentRef]) -> Refs:
    """The same version with neighbouring ranges of one file as one ref, where age allows it.

    Without this, every change of parallelism would leave more refs behind than it found.
    """
    result: list[SegmentRef] = []
    of_file: dict[str, list[int]] = {}  # where the refs of a file stand in `result`
    for ref in refs:
        at = _neighbour(result, of_file.get(ref.file, ()), ref)
        if at is None:
            of_file.setdefault(ref.file, []).append(len(result))
            result.append(ref)
        else:
            start, stop = (
                min(ref.group_start, result[at].group_start),
                max(ref.group_stop, result[at].group_stop),
            )
            result[at] = dataclasses.replace(ref, group_start=start, group_stop=stop)
    return tuple(result)


def _neighbour(refs: Sequence[SegmentRef], places: Sequence[int], ref: SegmentRef) -> int | None:
    """Of the refs of the same file, at `places`, the youngest beside `ref`; None if a younger one of any file overlaps
    `ref`, which must then stay the youngest itself."""
    for at in reversed(places):
        other = refs[at]
        if ref.group_start == other.group_stop or ref.group_stop == other.group_start:
            is_free = all(
                later.group_start >= ref.group_stop or ref.group_start >= later.group_stop for later in refs[at + 1 :]
            )
            return at if is_free else None
    return None


_FIELDS = tuple(field.name for field in dataclasses.fields(SegmentRef))
_FIELD_SET = frozenset(_FIELDS)
_NUMBERS = _FIELDS[1:]


def refs_to_json(refs: Iterable[SegmentRef]) -> list[Any]:
    """The refs as plain JSON, for a manifest."""
    return [dict(vars(ref)) for ref in refs]


def refs_from_json(written: Any, subject: str) -> Refs:
    """The refs that `refs_to_json` wrote; StoreDamagedError naming `subject` if it did not.

    >>> refs_from_json([{"file": "f"}], "state 'total'")
    Traceback (most recent call last):
    millstream.errors.StoreDamagedError: state 'total' lists a segment as {'file': 'f'}, expected the fields file, \
epoch, group_start, group_stop, file_group_start, file_group_stop, rows, file_bytes, due_min_ms, a text and whole \
numbers that fit together. Was the manifest written by another Millstream?
    """
    if not isinstance(written, list):
        raise StoreDamagedError(f"{subject} lists its segments as {type(written).__name__}, expected a list.")
    refs = []
    for entry in written:
        try:
            if entry.keys() != _FIELD_SET:
                raise TypeError("fields")
            if type(entry["file"]) is not str or not all(is_whole_number(entry[name]) for name in _NUMBERS):
                raise TypeError("kinds")
            refs.append(SegmentRef(**entry))
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreDamagedError(
                f"{subject} lists a segment as {entry!r}, expected the fields {', '.join(_FIELDS)}, a text and whole "
                "numbers that fit together. Was the manifest written by another Millstream?"
            ) from error
    return tuple(refs)
