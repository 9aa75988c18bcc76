"""A version of a table: its segments, oldest first, and the key groups for which each is live.

A `SegmentRef` names a file and the range of key groups for which it is live. One file may be named by several refs with
disjoint ranges. So rescaling only clips ranges (`refs_for`) without rewriting files, and compaction can replace a file
a few key groups at a time.

A key group may be too large for that, so its keys are divided into `SLICES` by the top bits of their hashes, and a ref
may begin or end within a group. Numbered through all groups, slices are *places*: the live range is a range of places.
Only compaction creates refs that split a group, and only if the group is large; epochs write whole groups.

Invariant: for every place, the refs that cover it are ordered by age. Refs that share no place may be in any order.
Refs are plain JSON in a manifest, and are read back equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from millstream.errors import StoreDamagedError
from millstream.state.tables.layout import NEVER_MS
from millstream.storage.json_records import is_whole_number

__all__ = [
    "SLICES",
    "Refs",
    "SegmentRef",
    "coalesced",
    "merge_versions",
    "order_of_place",
    "places_of",
    "refs_for",
    "refs_from_json",
    "refs_to_json",
]

SLICES = 1 << 16
"""The number of slices of a key group, from the upper 16 of the 48 hash bits in an order."""

_ORDER_SHIFT = 32


def order_of_place(place: int) -> int:
    """The smallest order of a place; for the place after the last, the end of all orders."""
    return place << _ORDER_SHIFT


@dataclass(frozen=True)
class SegmentRef:
    """A segment file, live for the key groups `[group_start, group_stop)`, or some slices of the first and the last.

    `rows`, `file_bytes`, the file's own range and its earliest due time describe the whole file. Many fields: they are
    the fields of the manifest.
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
    # The first slice of the first group, and the exclusive end slice of the last group.
    slice_start: int = 0
    slice_stop: int = SLICES
    file_slice_start: int = 0
    file_slice_stop: int = SLICES

    def __post_init__(self) -> None:
        start, stop = self.group_start * SLICES + self.slice_start, (self.group_stop - 1) * SLICES + self.slice_stop
        file_start = self.file_group_start * SLICES + self.file_slice_start
        file_stop = (self.file_group_stop - 1) * SLICES + self.file_slice_stop
        fits = file_start <= start < stop <= file_stop
        if not (fits and 0 <= self.slice_start < SLICES and 0 < self.slice_stop <= SLICES):
            edges = ((start, stop), (file_start, file_stop))
            live, whole = (f"{first / SLICES:g}..{last / SLICES:g}" for first, last in edges)
            raise ValueError(f"{self.file} cannot be live for the key groups {live}: it holds {whole}")

    @property
    def groups(self) -> range:
        """The key groups for which the file is live, in whole or in part."""
        return range(self.group_start, self.group_stop)

    @property
    def places(self) -> range:
        """The places for which the file is live."""
        return range(self.group_start * SLICES + self.slice_start, (self.group_stop - 1) * SLICES + self.slice_stop)

    @property
    def file_places(self) -> range:
        """All places of the file."""
        start = self.file_group_start * SLICES + self.file_slice_start
        return range(start, (self.file_group_stop - 1) * SLICES + self.file_slice_stop)

    @property
    def whole(self) -> SegmentRef:
        """The ref for the whole file."""
        return self._live_for(self.file_places)

    @property
    def live_rows(self) -> int:
        """The approximate number of live rows of the file; at least one if there are any."""
        return max(self.rows * len(self.places) // len(self.file_places), min(self.rows, 1))

    def live_bytes(self, places: range | None = None) -> int:
        """The approximate number of bytes of the file in its live places (within `places`, if passed).

        >>> SegmentRef("f", 1, 0, 32, 0, 128, rows=10, file_bytes=4096).live_bytes()
        1024
        """
        live = self.places if places is None else _shared(self.places, places)
        return len(live) * self.file_bytes // len(self.file_places)

    def clipped(self, groups: range) -> SegmentRef | None:
        """This ref clipped to `groups`; None if they are disjoint."""
        return self._clipped(places_of(groups))

    def of_file_places(self, places: range) -> SegmentRef:
        """The ref of a file with rows of only these places within its key groups, live for all of them."""
        groups, first, last = _cut(places)
        assert groups == range(self.file_group_start, self.file_group_stop)
        return dataclasses.replace(
            self, slice_start=first, slice_stop=last, file_slice_start=first, file_slice_stop=last
        )

    def without(self, places: range) -> list[SegmentRef]:
        """This ref without `places`: unchanged, one or two parts, or nothing.

        >>> [part.groups for part in SegmentRef("f", 1, 0, 9, 0, 9, 1, 1).without(places_of(range(3, 5)))]
        [range(0, 3), range(5, 9)]
        """
        sides = (range(places.start), range(places.stop, self.file_places.stop)) if places else (self.places,)
        return [part for part in map(self._clipped, sides) if part is not None]

    def joined(self, other: SegmentRef) -> SegmentRef:
        """This ref and an adjacent one of the same file, as one."""
        start, stop = min(self.places.start, other.places.start), max(self.places.stop, other.places.stop)
        return self._live_for(range(start, stop))

    def _clipped(self, places: range) -> SegmentRef | None:
        live = _shared(self.places, places)
        return self._live_for(live) if live else None

    def _live_for(self, places: range) -> SegmentRef:
        if places == self.places:
            return self
        groups, first, last = _cut(places)
        return dataclasses.replace(
            self, group_start=groups.start, group_stop=groups.stop, slice_start=first, slice_stop=last
        )


def places_of(groups: range) -> range:
    """All places of these key groups."""
    return range(groups.start * SLICES, groups.stop * SLICES)


def _cut(places: range) -> tuple[range, int, int]:
    """The key groups of places, the first slice in the first group, and the end slice in the last group.

    >>> _cut(range(3 * SLICES, 3 * SLICES + 5))
    (range(3, 4), 0, 5)
    """
    groups = range(places.start // SLICES, (places.stop - 1) // SLICES + 1)
    return groups, places.start % SLICES, places.stop - (groups.stop - 1) * SLICES


def _shared(places: range, other: range) -> range:
    return range(max(places.start, other.start), min(places.stop, other.stop))


Refs: TypeAlias = tuple[SegmentRef, ...]


def refs_for(refs: Iterable[SegmentRef], groups: range) -> Refs:
    """The refs of a task that owns `groups`."""
    return coalesced([part for part in (ref.clipped(groups) for ref in refs) if part is not None])


def merge_versions(versions: Iterable[Sequence[SegmentRef]]) -> Refs:
    """The version of the whole table, from the versions of the tasks, which own disjoint key groups.

    >>> whole = SegmentRef("f", 1, 0, 9, 0, 9, rows=1, file_bytes=1)
    >>> merge_versions([refs_for([whole], range(0, 4)), refs_for([whole], range(4, 9))]) == (whole,)
    True
    """
    return coalesced([ref for version in versions for ref in version])


def coalesced(refs: Sequence[SegmentRef]) -> Refs:
    """The same version with adjacent ranges of one file joined into one ref, where the order by age allows it.

    Without this, every change of parallelism would add refs.
    """
    result: list[SegmentRef] = []
    of_file: dict[str, list[int]] = {}  # positions of a file's refs in `result`
    for ref in refs:
        at = _neighbour(result, of_file.get(ref.file, ()), ref)
        if at is None:
            of_file.setdefault(ref.file, []).append(len(result))
            result.append(ref)
        else:
            result[at] = result[at].joined(ref)
    return tuple(result)


def _neighbour(refs: Sequence[SegmentRef], known_at: Sequence[int], ref: SegmentRef) -> int | None:
    """The youngest ref of the same file, at `known_at`, adjacent to `ref`; None if a younger ref of any file covers
    some of its places: `ref` must then stay the youngest."""
    places = ref.places
    for at in reversed(known_at):
        other = refs[at].places
        if places.start == other.stop or places.stop == other.start:
            return at if all(not _shared(places, later.places) for later in refs[at + 1 :]) else None
    return None


_SLICES = {field.name: field.default for field in dataclasses.fields(SegmentRef) if "slice" in field.name}
_FIELDS = tuple(field.name for field in dataclasses.fields(SegmentRef) if field.name not in _SLICES)
_FIELD_SET, _ALL_FIELDS = frozenset(_FIELDS), frozenset((*_FIELDS, *_SLICES))


def refs_to_json(refs: Iterable[SegmentRef]) -> list[Any]:
    """The refs as plain JSON, for a manifest."""
    written = []
    for ref in refs:
        values = dict(vars(ref))
        for name, default in _SLICES.items():
            # Few refs split a key group, and older versions can read the others.
            if values[name] == default:
                del values[name]
        written.append(values)
    return written


def refs_from_json(written: Any, subject: str) -> Refs:
    """The inverse of `refs_to_json`; StoreDamagedError naming `subject` for anything else.

    >>> refs_from_json([{"file": "f"}], "state 'total'")
    Traceback (most recent call last):
    millstream.errors.StoreDamagedError: state 'total' lists a segment as {'file': 'f'}, expected the fields file, \
epoch, group_start, group_stop, file_group_start, file_group_stop, rows, file_bytes, due_min_ms, a string and whole \
numbers that fit together. Was the manifest written by another Millstream?
    """
    if not isinstance(written, list):
        raise StoreDamagedError(f"{subject} lists its segments as {type(written).__name__}, expected a list.")
    refs = []
    for entry in written:
        try:
            if entry.keys() != _FIELD_SET and not _FIELD_SET <= entry.keys() <= _ALL_FIELDS:
                raise TypeError("fields")
            numbers = (value for name, value in entry.items() if name != "file")
            if type(entry["file"]) is not str or not all(map(is_whole_number, numbers)):
                raise TypeError("kinds")
            refs.append(SegmentRef(**entry))
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreDamagedError(
                f"{subject} lists a segment as {entry!r}, expected the fields {', '.join(_FIELDS)}, a string and whole "
                "numbers that fit together. Was the manifest written by another Millstream?"
            ) from error
    return tuple(refs)
