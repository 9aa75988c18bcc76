"""A version of a table: which segments make it up, oldest first, and for which key groups each still counts.

A `SegmentRef` names a file and the range of key groups for which it is live. One file may be named by several
refs with disjoint ranges. That is all that rescaling needs (`refs_for` clips the ranges, no file is touched),
and it lets compaction replace a file a few key groups at a time.

A key group may be too large for that, so its keys are cut into `SLICES` by the top bits of their hashes, and a ref may
begin or end within a group. Counted through all groups, slices are *places*: a range of places is what is live. Only
compaction makes refs that cut a group apart, and only where a group is large; what is written in an epoch is whole.

Invariant: for every place, the refs that cover it are in order of age. Refs that share no place may stand in any
order. Refs are plain JSON in a manifest, and equal refs are read back.
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
"""Into so many places a key group is cut: by the upper 16 of the 48 bits of a hash that stand in an order."""

_ORDER_SHIFT = 32


def order_of_place(place: int) -> int:
    """The smallest order of a place; of the place after the last, the end of all."""
    return place << _ORDER_SHIFT


@dataclass(frozen=True)
class SegmentRef:
    """A segment file, live for the key groups `[group_start, group_stop)`, or some slices of the first and the last.

    `rows`, `file_bytes`, the file's own range and its earliest due time are those of the whole file. Many fields: they
    are those of the manifest.
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
    # Of the first group, the slice it begins with, and of the last one, the slice before which it ends.
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
        """The key groups for which the file counts, all or some of their keys."""
        return range(self.group_start, self.group_stop)

    @property
    def places(self) -> range:
        """The places for which the file counts."""
        return range(self.group_start * SLICES + self.slice_start, (self.group_stop - 1) * SLICES + self.slice_stop)

    @property
    def file_places(self) -> range:
        """All places of the file."""
        start = self.file_group_start * SLICES + self.file_slice_start
        return range(start, (self.file_group_stop - 1) * SLICES + self.file_slice_stop)

    @property
    def whole(self) -> SegmentRef:
        """The ref for all that the file holds."""
        return self._live_for(self.file_places)

    @property
    def live_rows(self) -> int:
        """About how many rows of the file are live; at least one where there are any."""
        return max(self.rows * len(self.places) // len(self.file_places), min(self.rows, 1))

    def live_bytes(self, places: range | None = None) -> int:
        """About how many bytes of the file lie in its live places (those within `places`, if given).

        >>> SegmentRef("f", 1, 0, 32, 0, 128, rows=10, file_bytes=4096).live_bytes()
        1024
        """
        live = self.places if places is None else _shared(self.places, places)
        return len(live) * self.file_bytes // len(self.file_places)

    def clipped(self, groups: range) -> SegmentRef | None:
        """This ref for `groups` only; None where it has none of them."""
        return self._clipped(places_of(groups))

    def of_file_places(self, places: range) -> SegmentRef:
        """The ref of a file that, within its key groups, has rows of these places only: it is live for all of them."""
        groups, first, last = _cut(places)
        assert groups == range(self.file_group_start, self.file_group_stop)
        return dataclasses.replace(
            self, slice_start=first, slice_stop=last, file_slice_start=first, file_slice_stop=last
        )

    def without(self, places: range) -> list[SegmentRef]:
        """This ref without `places`: itself, a part of it, two parts of it, or nothing.

        >>> [part.groups for part in SegmentRef("f", 1, 0, 9, 0, 9, 1, 1).without(places_of(range(3, 5)))]
        [range(0, 3), range(5, 9)]
        """
        sides = (range(places.start), range(places.stop, self.file_places.stop)) if places else (self.places,)
        return [part for part in map(self._clipped, sides) if part is not None]

    def joined(self, other: SegmentRef) -> SegmentRef:
        """This ref and a neighbour of the same file, as one."""
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
    """The key groups that places lie in, the slice of the first one they begin with, and of the last they end before.

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
            result[at] = result[at].joined(ref)
    return tuple(result)


def _neighbour(refs: Sequence[SegmentRef], known_at: Sequence[int], ref: SegmentRef) -> int | None:
    """Of the refs of the same file, at `known_at`, the youngest beside `ref`; None if a younger one of any file covers
    some of its places: `ref` must then stay the youngest itself."""
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
            # Hardly any ref cuts a key group apart, and older Millstreams read those that do not.
            if values[name] == default:
                del values[name]
        written.append(values)
    return written


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
            if entry.keys() != _FIELD_SET and not _FIELD_SET <= entry.keys() <= _ALL_FIELDS:
                raise TypeError("fields")
            numbers = (value for name, value in entry.items() if name != "file")
            if type(entry["file"]) is not str or not all(map(is_whole_number, numbers)):
                raise TypeError("kinds")
            refs.append(SegmentRef(**entry))
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreDamagedError(
                f"{subject} lists a segment as {entry!r}, expected the fields {', '.join(_FIELDS)}, a text and whole "
                "numbers that fit together. Was the manifest written by another Millstream?"
            ) from error
    return tuple(refs)
