"""The difference of a state between two epochs: rows added, removed and changed, in columns.

Both versions are lists of immutable segments. Key groups with the same segments in both are not read: they differ only
by expiry, which is not reported as a change. For the others both versions are scanned, a range of key groups at a time,
and the rows of each are looked up in the other as in a segment (`state.segments.lookup`), so the comparison is
vectorised for every key type.

A row is changed if its value or its due time differs. A different expiry time alone is not a change. If the type of the
values changed, old ones are converted to the new type; if only the program can do that, or has already converted all of
them, each side has its own type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, same
from millstream.state.segments.lookup import Probe, find_rows
from millstream.state.segments.merging import live_rows, merged_blocks, presented
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment import Segment
from millstream.state.segments.version import Refs
from millstream.state.tables.layout import TableLayout, order_of_group
from millstream.state_reader.catalog import StoredState
from millstream.state_reader.rows import RowSource, StateRows
from millstream.state_reader.table_source import ALL_KEYS, Shown, TableSource, layout_of, reads_older, shown, view_of

if TYPE_CHECKING:
    from millstream.state_reader.snapshot import Snapshot

__all__ = ["StateDiff", "changed_groups", "state_diff"]

# The approximate number of stored rows compared at once; a key group is never split.
_ROWS_AT_ONCE = 262_144
_CHANGE = pa.field("change", pa.string())


class StateDiff(StateRows):
    """Rows with `change` ("added", "removed" or "changed"), the columns that identify a row, and its value `before` and
    `after`. For a state without values (timers) the last two are omitted."""

    def counts(self) -> dict[str, int]:
        """The number of rows added, removed and changed."""
        counted: dict[str, int] = dict.fromkeys(("added", "removed", "changed"), 0)
        for batch in self.batches():
            for entry in batch.column("change").value_counts().to_pylist():
                counted[entry["values"]] += entry["counts"]
        return counted

    def to_spark(self, session: Any, partitions: int | None = None) -> Any:
        """A Spark DataFrame, computed in this process: differences are small even for large states."""
        return session.createDataFrame(self.to_arrow().read_all())


def state_diff(
    before: Snapshot,
    after: Snapshot,
    operator: str,
    state: str,
    *,
    raw: bool = False,
    unpickle: Callable[[bytes], Any] | None = None,
) -> StateDiff:
    """The difference of a state between two snapshots; a state absent from one of them has no rows there."""
    old, new = _stored(before, after, operator, state)
    source: _ListDiff | _TableDiff
    known = new or old
    if known is not None and known.scope in ("list", "loop"):
        sides = [None if one is None else at.source(one, raw=raw) for at, one in ((before, old), (after, new))]
        source = _ListDiff(sides[0], sides[1])
    else:
        source = _TableDiff(_side(before, old), _side(after, new), raw)

    def renew() -> None:
        before.renew()
        after.renew()

    return StateDiff(source, renew, unpickle=unpickle)


def _stored(
    before: Snapshot, after: Snapshot, operator: str, state: str
) -> tuple[StoredState | None, StoredState | None]:
    def there(snapshot: Snapshot) -> StoredState | None:
        names = {o.uid for o in snapshot.operators if operator in (o.uid, o.name) and state in o.states}
        return snapshot.stored(operator, state) if names else None

    old, new = there(before), there(after)
    if old is None and new is None:
        after.stored(operator, state)  # raises, listing the existing states
    return old, new


@dataclass(frozen=True)
class _Side:
    segments: OpenSegments
    state: StoredState | None

    @property
    def refs(self) -> Refs:
        return () if self.state is None else self.state.refs


def _side(snapshot: Snapshot, state: StoredState | None) -> _Side:
    return _Side(snapshot.segments, state)


def changed_groups(before: Refs, after: Refs, groups: int) -> list[range]:
    """The key groups in which the segments of the two versions differ, as ranges of a bounded number of rows.

    >>> from millstream.state.segments.version import SegmentRef
    >>> old = SegmentRef("a", 1, 0, 8, 0, 8, rows=10, file_bytes=1)
    >>> changed_groups((old,), (old, SegmentRef("b", 2, 4, 8, 4, 8, rows=2, file_bytes=1)), 8)
    [range(4, 8)]
    """
    ranges: list[range] = []
    rows = 0.0
    for group in range(groups):
        stacks = [[ref for ref in refs if group in ref.groups] for refs in (before, after)]
        if [ref.file for ref in stacks[0]] == [ref.file for ref in stacks[1]]:
            continue
        more = sum(ref.rows / (ref.file_group_stop - ref.file_group_start) for stack in stacks for ref in stack)
        if ranges and ranges[-1].stop == group and rows + more <= _ROWS_AT_ONCE:
            ranges[-1], rows = range(ranges[-1].start, group + 1), rows + more
        else:
            ranges.append(range(group, group + 1))
            rows = more
    return ranges


class _TableDiff:
    """The difference of two versions of a table."""

    def __init__(self, before: _Side, after: _Side, raw: bool) -> None:
        self._before, self._after = before, after
        newest = after if after.state is not None else before
        assert newest.state is not None
        self.state = newest.state
        self._layout = layout_of(newest.segments, self.state)
        self._old_layout = self._layout
        if before.state is not None and newest is after and not reads_older(self.state, before.state):
            self._old_layout = layout_of(before.segments, before.state)
        # The kinds of keys are collected from both versions: a removed key has a kind too.
        columns = shown(newest.segments, self.state, self._layout, raw=raw, flatten=False)
        old_columns = columns
        if before.state is not None and newest is after:
            old_columns = shown(before.segments, before.state, self._old_layout, raw=raw, flatten=False)
            if _naming(old_columns) != _naming(columns):
                columns = shown(newest.segments, self.state, self._layout, raw=True, flatten=False)
        store = newest.segments.store
        self._named = TableSource(store, self.state, self._layout, _naming(columns))
        self._values = tuple(
            TableSource(store, self.state, layout, tuple(column for column in shown_ if column.part == "value"))
            for layout, shown_ in ((self._old_layout, old_columns), (self._layout, columns))
        )

    @property
    def schema(self) -> pa.Schema:
        sides = zip(("before", "after"), self._values, strict=True)
        values = [field.with_name(_side_name(side, field.name)) for side, source in sides for field in source.schema]
        return pa.schema([_CHANGE, *self._named.schema, *values])

    def blocks(self, groups: range | None = None, key: Any = ALL_KEYS) -> Iterator[pa.RecordBatch]:
        if key is not ALL_KEYS:
            raise ProgramError("a difference is of a whole state. Filter its rows by their key.")
        for part in changed_groups(self._before.refs, self._after.refs, self._layout.max_parallelism):
            old = self._rows(self._before, self._old_layout, part)
            yield from self._compared(old, self._rows(self._after, self._layout, part))

    def _rows(self, side: _Side, layout: TableLayout, groups: range) -> pa.RecordBatch:
        """The live rows of some key groups, sorted as in a segment."""
        empty = pa.RecordBatch.from_pylist([], schema=layout.schema)
        if side.state is None:
            return empty
        view = view_of(side.segments, side.state, layout)
        edges = order_of_group(groups.start), order_of_group(groups.stop)
        blocks = [
            block.filter(pa.array(live_rows(block, layout, side.state.now_ms)))
            for block in merged_blocks(view.layers, layout, *edges)
        ]
        return pa.concat_batches([empty, *blocks])

    def _compared(self, old: pa.RecordBatch, new: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        old_at, new_at = paired(old, new, self._layout)
        removed_at, added_at = _others(old_at, old.num_rows), _others(new_at, new.num_rows)
        differs = ~self._is_same(old, old_at, new, new_at)
        yield self._block("removed", old, removed_at, None, None)
        yield self._block("added", None, None, new, added_at)
        yield self._block("changed", old, old_at[differs], new, new_at[differs])

    def _is_same(self, old: pa.RecordBatch, old_at: Int64s, new: pa.RecordBatch, new_at: Int64s) -> Bools:
        answer: Bools = np.ones(len(old_at), dtype=np.bool_)
        for name in ("value", "due_ms"):
            if name in self._layout.schema.names:
                left, right = old.column(name).take(pa.array(old_at)), new.column(name).take(pa.array(new_at))
                answer &= same(left, right) if left.type == right.type else _are_equal(left, right)
        return answer

    def _block(
        self,
        change: str,
        old: pa.RecordBatch | None,
        old_at: Int64s | None,
        new: pa.RecordBatch | None,
        new_at: Int64s | None,
    ) -> pa.RecordBatch:
        sides = [
            None if rows is None or at is None else (presented(rows, layout), pa.array(at))
            for rows, at, layout in ((old, old_at, self._old_layout), (new, new_at, self._layout))
        ]
        rows, at = next(side for side in (sides[1], sides[0]) if side is not None)
        if self.state.kind == "list":  # an index in a list is relative to the other elements
            named = self._named.presented(rows).take(at)
        else:
            named = self._named.presented(rows.take(at))
        arrays = [pa.array([change] * len(at), pa.string()), *named.columns]
        for side, source in zip(sides, self._values, strict=True):
            if side is None:
                arrays += [pa.nulls(len(at), field.type) for field in source.schema]
            else:
                arrays += source.presented(side[0].take(side[1])).columns
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _naming(columns: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """The columns that identify a row."""
    return tuple(column for column in columns if column.part not in ("value", "expires_ms"))


def _are_equal(left: pa.Array, right: pa.Array) -> Bools:
    """Mask of equal values of two types, as Python compares them: 1 equals 1.0, but not "1"."""
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return np.fromiter((old == new for old, new in pairs), dtype=np.bool_, count=len(left))


def _side_name(side: str, column: str) -> str:
    """The column's name on one side: `value` becomes `before`; a value in several columns keeps their names."""
    return side if column == "value" else f"{side}_{column}"


def paired(old: pa.RecordBatch, new: pa.RecordBatch, layout: TableLayout) -> tuple[Int64s, Int64s]:
    """Pairs the rows of two batches by key and sub; both must be sorted and unique."""
    none = np.empty(0, dtype=np.int64)
    if not old.num_rows or not new.num_rows:
        return none, none
    hits = list(find_rows(Segment.of_rows(new, layout), Probe.of_rows(old, layout), np.arange(old.num_rows)))
    return np.concatenate([none, *(hit.at for hit in hits)]), np.concatenate([none, *(hit.rows for hit in hits)])


def _others(at: Int64s, rows: int) -> Int64s:
    left = np.ones(rows, dtype=np.bool_)
    left[at] = False
    return np.flatnonzero(left)


class _ListDiff:
    """The difference of subtasks' state, row by row at the same index. It is small."""

    def __init__(self, before: RowSource | None, after: RowSource | None) -> None:
        self._sides = (before, after)
        newest = after or before
        assert newest is not None
        self.state = newest.state
        self._value = newest.schema.field("value")
        self._named = [field for field in newest.schema if field.name not in ("value", "timestamp_ms")]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([_CHANGE, *self._named, self._value.with_name("before"), self._value.with_name("after")])

    def blocks(self, groups: range | None = None, key: Any = ALL_KEYS) -> Iterator[pa.RecordBatch]:
        if key is not ALL_KEYS:
            raise ProgramError("a difference is of a whole state. Filter its rows by their key.")
        old, new = (self._rows(side) for side in self._sides)
        rows = []
        for place in dict.fromkeys([*old, *new]):
            before, after = old.get(place), new.get(place)
            change = "added" if before is None else "removed" if after is None else "changed"
            known = after or before
            assert known is not None
            if before is None or after is None or before["value"] != after["value"]:
                values = (None if side is None else side["value"] for side in (before, after))
                rows.append((change, *(known[field.name] for field in self._named), *values))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.schema)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, self.schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _rows(self, side: RowSource | None) -> dict[str, dict[str, Any]]:
        if side is None:
            return {}
        rows = (row for block in side.blocks() for row in block.to_pylist())
        # Sorted by their string form: map keys may have any type.
        return {repr([row[field.name] for field in self._named]): row for row in rows}
