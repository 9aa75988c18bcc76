"""One state of an operator in one subtask and epoch: a view of the last version, and the changes to it.

State handles (`runtime.keyed.states`) hold the Python values that functions read and set; a `StateTable` exchanges them
with the store: bulk reads of many keys at once, and at the end of the epoch one segment with all changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.records.columns import arrow_type
from millstream.state.keys.canonical import decode
from millstream.state.keys.key_columns import Bools, KeyColumn, key_column
from millstream.state.keys.settled_keys import keys_of_canonical, settled_declared
from millstream.state.schemas.evolution import Evolution
from millstream.state.schemas.schema_history import History
from millstream.state.schemas.state_schemas import TableSchema
from millstream.state.segments.compaction import (
    FAN_IN,
    RARE_FAN_IN,
    CompactionStep,
    budget_of,
    compaction_debt,
    next_compaction,
    plan_rewriting,
    replace_merged,
)
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment import Segment
from millstream.state.segments.segment_merge import compact
from millstream.state.segments.version import Refs, SegmentRef, coalesced
from millstream.state.stored.accounts import StoredTables
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.key_rows import KeyRows
from millstream.state.tables.layout import NEVER_MS, TableLayout
from millstream.state.tables.table import TableView
from millstream.storage.names import segment_name

__all__ = ["StateTable", "TableSetting", "last_versions"]

# Looking up a key in another segment costs at most about as much as writing this many rows.
_ROWS_PER_LOOKUP = 8


@dataclass(frozen=True)
class TableSetting:
    """The setting shared by all tables of an operator in one subtask and epoch."""

    uid: str
    epoch: int
    subtask: int
    nonce: str
    groups: range
    now_ms: int
    segments: OpenSegments
    schemas: Mapping[str, History] = field(default_factory=dict)
    """The schema history of each state, by name."""
    decode_key: Callable[[bytes], Any] = decode
    """Decodes the bytes of untyped keys; a task's decoder also restores keys of the program's classes."""
    rows_numbered: Mapping[str, int] = field(default_factory=dict)
    """The next row number of each table, by name (`runtime.keyed.state_store`)."""


class StateTable:
    """The rows of one state. `sub` is the codec of the subs of a key; None: one row per key."""

    def __init__(
        self,
        name: str,
        key_type: TypeInformation | None,
        max_parallelism: int,
        value: StateCodec | None,
        sub: StateCodec | None = None,
        *,
        sub_type: pa.DataType | None = None,
        has_due: bool = False,
        ttl_ms: int | None = None,
        sees_expired: bool = False,
        evolution: Evolution | None = None,
        evolves: bool = True,
    ) -> None:
        self.name = name
        self._key_type = key_type
        self._value = value
        self._sub = sub
        self._ttl_ms = ttl_ms
        self._sees_expired = sees_expired
        self.keys_read: int | None = None  # the number of keys looked up in this epoch, if counted
        self.layout = TableLayout(
            state=name,
            key_type=_stored_key_type(key_type),
            sub_type=sub.arrow_type if sub is not None else sub_type,
            value_type=None if value is None else value.arrow_type,
            is_pickled=value is not None and value.is_pickled,
            has_due=has_due,
            has_ttl=ttl_ms is not None,
            max_parallelism=max_parallelism,
            serializer_version=None if value is None else value.version,
        )
        self.schema: TableSchema | None = None  # rows without values have no schema to evolve
        if value is not None:
            shape = "value" if self.layout.sub_type is None else "list" if sub is None else "map"
            self.schema = TableSchema(
                value, shape=shape, map_key=sub, ttl_ms=ttl_ms, evolution=evolution, evolves=evolves
            )
        self._key_decoder = StateCodec(key_type, f"the key of {name!r}") if self.layout.key_type is not None else None

    def begin(self, setting: TableSetting, refs: Sequence[SegmentRef]) -> None:
        """Open the last version, without changes."""
        self._setting = setting
        # A state that may return expired values until cleanup is read as of time zero.
        read_ms = -(2**63) if self._sees_expired else setting.now_ms
        if self.schema is not None:
            self.layout = self.schema.opened(self.layout, refs, setting)
        self.view = TableView(setting.segments, self.layout, refs, setting.groups, read_ms)
        self._written: list[SegmentRef] = []
        self.changes = TableChanges(self.layout, self._write)
        self.debt_bytes = 0

    def settle(self) -> None:
        """Make the changes so far in this epoch visible to reads."""
        rows = self.changes.settle()
        if rows is not None:
            self.view = self.view.above(rows)

    @property
    def holds_rows(self) -> bool:
        """Whether the table may have any row."""
        return not self.view.is_empty

    def column(self, keys: list[Any]) -> KeyColumn:
        """Keys as a column in stored form."""
        return key_column(keys, self._key_type)

    def keys_of(self, column: pa.Array) -> list[Any]:
        """Stored keys as settled Python values."""
        if self._key_decoder is None:
            return keys_of_canonical(column.to_pylist(), self._key_type, self._setting.decode_key)
        return settled_declared(self._key_decoder.decode(column), column.type)

    def distinct_keys(self) -> list[Any]:
        """All keys with a row, as Python values, in the order of segments."""
        if self.view.is_empty:
            return []
        return list(dict.fromkeys(key for block in self.view.scan() for key in self.keys_of(block.column("key"))))

    def read_values(self, keys: KeyColumn) -> tuple[Bools, list[Any]]:
        """A mask of the keys with a value, and the value of every key, None if absent."""
        assert self._value is not None
        if self.view.is_empty:
            return np.zeros(len(keys), dtype=np.bool_), [None] * len(keys)
        lookup = self.view.get(keys)
        values = self._value.decode(lookup.values) if lookup.values is not None else []
        return lookup.mask, _spread(lookup.mask, values)

    def read(self, keys: list[Any]) -> list[Any]:
        """The value of every key, None if absent."""
        return self.read_values(self.column(keys))[1]

    def read_pairs(self, keys: list[Any], subs: list[Any], absent: Any) -> list[Any]:
        """The value of every (key, sub), or `absent`."""
        assert self._value is not None and self._sub is not None
        if self.view.is_empty:
            return [absent] * len(keys)
        lookup = self.view.get_pairs(self.column(keys), self._sub.encode(subs))
        return _spread(lookup.mask, self._value.decode(lookup.values) if lookup.values is not None else [], absent)

    def read_rows(self, keys: list[Any]) -> list[list[tuple[Any, Any]]]:
        """All (sub, value) of every key, in the order of subs."""
        gathered: list[list[tuple[Any, Any]]] = [[] for _ in keys]
        if self.view.is_empty:
            return gathered
        rows = self.view.scan_keys(self.column(keys))
        subs = self._sub.decode(rows.column("sub")) if self._sub is not None else [None] * rows.num_rows
        values = self._value.decode(rows.column("value")) if self._value is not None else [None] * rows.num_rows
        for position, sub, value in zip(rows.column("position").to_pylist(), subs, values, strict=True):
            gathered[position].append((sub, value))
        return gathered

    def key_rows(self, key: Any) -> KeyRows:
        """The rows of a key, read on demand."""
        return self.view.key_rows(self.column([key]))

    @property
    def row_bytes(self) -> int:
        """The approximate size of a stored row in bytes; 0 if the table is empty."""
        refs = self.view.refs
        rows = sum(ref.rows for ref in refs)
        return sum(ref.file_bytes for ref in refs) // rows if rows else 0

    @property
    def holds_unwritten(self) -> bool:
        """Whether reads see changes of this epoch."""
        return self.view.has_changes

    @property
    def stored_bytes(self) -> int:
        """The approximate size of all stored rows in bytes."""
        return sum(ref.live_bytes() for ref in self.view.refs)

    def within(self, keys: list[Any], bytes_max: int) -> int:
        """The number of leading keys whose rows take about `bytes_max` together; at least one."""
        if self.stored_bytes <= bytes_max:  # everything fits
            return len(keys)
        sizes = np.cumsum(self.view.row_counts(self.column(keys)) * self.row_bytes)
        return max(1, int(np.searchsorted(sizes, bytes_max, side="right")))

    def count(self, keys: list[Any]) -> list[int]:
        """An upper bound of every key's number of rows, without reading them."""
        counts: list[int] = self.view.row_counts(self.column(keys)).tolist()
        return counts

    @property
    def epoch(self) -> int:
        """The epoch whose changes this table collects."""
        return self._setting.epoch

    @property
    def rows_numbered(self) -> int:
        """The first row number not used in an earlier epoch or round, from their accounts."""
        return self._setting.rows_numbered.get(self.name, 0)

    def put(self, keys: list[Any], values: list[Any] | None, subs: pa.Array | None = None, due_ms: Any = None) -> None:
        """Set rows; they expire after the state's TTL."""
        if keys:
            self.put_values(self.column(keys), values, subs, due_ms)

    def put_values(
        self, keys: KeyColumn, values: list[Any] | None, subs: pa.Array | None = None, due_ms: Any = None
    ) -> None:
        """As `put`, for keys that are already a column."""
        if len(keys):
            encoded = None if self._value is None else self._value.encode(values or [])
            expires = None if self._ttl_ms is None else np.full(len(keys), self._expiry_ms(), dtype=np.int64)
            self.changes.put(keys, encoded, subs=subs, due_ms=due_ms, expires_ms=expires)

    def put_settled(self, keys: KeyColumn, values: list[Any]) -> None:
        """Set the one row of each key to values that the codec has settled."""
        if len(keys):
            assert self._value is not None
            expires = None if self._ttl_ms is None else np.full(len(keys), self._expiry_ms(), dtype=np.int64)
            self.changes.put(keys, self._value.encode_settled(values), expires_ms=expires)

    def delete_keys(self, keys: KeyColumn) -> None:
        """Remove the one row of each key."""
        if len(keys):
            self.changes.delete(keys)

    def _expiry_ms(self) -> int:
        assert self._ttl_ms is not None
        return min(self._setting.now_ms + self._ttl_ms, NEVER_MS)

    def encode_subs(self, subs: list[Any]) -> pa.Array:
        """Map keys as a column."""
        assert self._sub is not None
        return self._sub.encode(subs)

    def delete(self, keys: list[Any], subs: pa.Array | None = None) -> None:
        """Remove rows."""
        if keys:
            self.changes.delete(self.column(keys), subs=subs)

    def clear(self, keys: list[Any]) -> None:
        """Remove all rows of keys."""
        if keys:
            self.changes.clear(self.column(keys))

    def end(self) -> tuple[SegmentRef, ...]:
        """Write the changes as one or more segments, run due compaction, and return the new version."""
        refs, left_bytes, steps = self._merged_unwritten() or self._written_first()
        refs = self._compacted(refs, left_bytes, steps)
        self.debt_bytes = compaction_debt(refs)
        return refs

    def _merged_unwritten(self) -> tuple[Refs, int, int] | None:
        """Take the first step of compaction with the changes in memory, if it would merge all of them right after
        writing: their segment would be synced or uploaded without being named by any version. None if not
        applicable."""
        if not self.changes:
            return None
        setting = self._setting
        newest = self.changes.unwritten_ref(self._next_file(), setting.epoch, setting.groups)
        refs = (*self.view.refs, newest)
        left_bytes = budget_of(sum(ref.file_bytes for ref in (*self._written, newest)))
        step = next_compaction(refs, left_bytes, 0, self._fan_in(newest))
        if step is None or any(ref.file == newest.file for ref in replace_merged(refs, step, None)):
            return None
        rows = self.changes.rows()
        self.changes = TableChanges(self.layout, self._write)  # releases the sources of the sorted rows
        left_bytes -= max(step.cost_bytes(refs), 1)
        with setting.segments.holding(newest, Segment.of_rows(rows, self.layout)):
            merged_refs = self._merged(refs, step, 0)
        self._written.append(newest)
        self.view = TableView(setting.segments, self.layout, merged_refs, setting.groups, self.view.now_ms)
        return merged_refs, left_bytes, 1

    def _written_first(self) -> tuple[Refs, int, int]:
        """Write the changes; returns the refs to compact, the budget left, and the number of steps taken."""
        self._write()
        # Overdue merges of earlier epochs also run in quiet epochs.
        return tuple(self.view.refs), budget_of(sum(ref.file_bytes for ref in self._written)), 0

    def _write(self) -> None:
        """Write the changes so far as the newest segment of the version; reads see it from then on."""
        setting = self._setting
        ref = self.changes.write(setting.segments.store, self._next_file(), setting.epoch, setting.groups)
        if ref is not None:
            self._written.append(ref)
            refs = (*self.view.refs, ref)
            self.view = TableView(setting.segments, self.layout, refs, setting.groups, self.view.now_ms)
            self.changes = TableChanges(self.layout, self._write)

    def _compacted(self, refs: Refs, left_bytes: int, steps: int) -> Refs:
        """The version after all due steps of compaction, `steps` of which are already done."""
        for step_count in itertools.count(steps):
            step = next_compaction(refs, left_bytes, step_count, self._fan_in())
            if step is None:
                break
            left_bytes -= max(step.cost_bytes(refs), 1)
            refs = self._merged(refs, step, step_count)
        return self._rewritten(refs, step_count)

    def _rewritten(self, refs: Refs, steps: int) -> Refs:
        """The version after rewriting some of the values that only user functions can read."""
        since = 0 if self.schema is None else self.schema.upgraded_since
        step = plan_rewriting(refs, since) if since else None
        return refs if step is None else self._merged(refs, step, steps)

    def _merged(self, refs: Refs, step: CompactionStep, number: int) -> Refs:
        setting, name = self._setting, self._file(f"c{number or ''}")
        return compact(setting.segments, self.layout, refs, step, setting.now_ms, name=name, epoch=setting.epoch)

    def _fan_in(self, *unwritten: SegmentRef) -> int:
        """The fan-in of compaction: higher if this epoch looked up far fewer keys than it wrote rows."""
        rows = sum(ref.rows for ref in (*self._written, *unwritten))
        is_rarely_read = self.keys_read is not None and self.keys_read * _ROWS_PER_LOOKUP <= rows
        return RARE_FAN_IN if is_rarely_read else FAN_IN

    def _next_file(self) -> str:
        """The name of the next segment of changes."""
        return self._file(f"w{len(self._written) or ''}")

    def _file(self, kind: str) -> str:
        setting = self._setting
        return segment_name(setting.uid, self.name, setting.epoch, setting.subtask, f"{setting.nonce}{kind}")


def last_versions(tables: Iterable[StoredTables | None], groups: range | None = None) -> dict[str, Refs]:
    """The version of every table by name, from the subtasks' last acknowledged tables, in their order; clipped to
    `groups` if passed."""
    gathered: dict[str, list[SegmentRef]] = {}
    for several in tables:
        for name, refs in ({} if several is None else several.versions).items():
            # Clipped before merging: most segments of all subtasks lie outside these groups.
            own = refs if groups is None else [part for ref in refs if (part := ref.clipped(groups)) is not None]
            gathered.setdefault(name, []).extend(own)
    return {name: coalesced(refs) for name, refs in gathered.items()}


def _stored_key_type(key_type: TypeInformation | None) -> pa.DataType | None:
    """The Arrow type of stored keys, as used by `key_column`; None for canonical bytes."""
    if key_type is None or arrow_type(key_type) is None:
        return None
    sample = key_column([], key_type).array.type
    return None if sample == pa.binary() and arrow_type(key_type) != pa.binary() else sample


def _spread(mask: Any, values: list[Any], absent: Any = None) -> list[Any]:
    """Values where `mask` is true, `absent` elsewhere."""
    if len(values) == len(mask):
        return values
    remaining = iter(values)
    return [next(remaining) if has_value else absent for has_value in mask.tolist()]
