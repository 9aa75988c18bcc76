"""Reads the archived rows of a table at one epoch, from the files that the state of that epoch names.

Files are selected by time and by key, from their entries in the state; then the rows of state and files are combined:

    by primary key    the newest version of a key counts: the state's, otherwise that of the file with the greatest
                      version, unless that version deletes the key, or the state records that the key was deleted at
                      that version or later
    counted           counts of equal rows are summed over the state and all files

A time excludes a file only if all versions of a key have one time (`has_fixed_times`). Otherwise a file of later times
may hold the newest version of a key, which invalidates the older ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.groups import groups_of
from millstream.connectors.archives.archived_files import (
    ARCHIVED_COUNT,
    ARCHIVED_REMOVED,
    ARCHIVED_VERSION,
    ArchivedFile,
    births_of,
    entries_of,
    milliseconds,
    read_file,
)
from millstream.connectors.files.group_filters import GroupFilter
from millstream.errors import StoreDamagedError
from millstream.query.keyed_reads import KeyEncoding
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import KeyColumn, key_groups
from millstream.state.stored.queryable import Queryable
from millstream.state.tables.table import TableView

__all__ = ["ANY_TIME", "ArchivedRows", "TimeRange"]

_READ_AT_ONCE = 8
_KEYED = (pa.field(ARCHIVED_VERSION, pa.int64()), pa.field(ARCHIVED_REMOVED, pa.bool_()))
_COUNTED = (pa.field(ARCHIVED_COUNT, pa.int64()),)


@dataclass(frozen=True)
class TimeRange:
    """Times from `low_ms` to `high_ms`, both inclusive; None: no bound."""

    low_ms: int | None = None
    high_ms: int | None = None

    def meets(self, file: ArchivedFile) -> bool:
        """Whether a file may have a row in this range."""
        is_early = self.low_ms is not None and file.high_ms < self.low_ms
        is_late = self.high_ms is not None and file.low_ms > self.high_ms
        return not is_early and not is_late


ANY_TIME = TimeRange()


class ArchivedRows:
    """The archived rows of one table. `files` and `removed` are tables of its state, None if they have no rows."""

    def __init__(
        self, table: Queryable, schema: pa.Schema, keys: KeyEncoding, files: TableView | None, removed: TableView | None
    ) -> None:
        self._schema, self._keys, self._removed = schema, keys, removed
        self._key_names = table.primary_key
        self.by = table.archived_by or ""
        self.has_fixed_times = bool(self.by) and (not table.primary_key or self.by in table.primary_key)
        self._groups_max = 0 if files is None else files.layout.max_parallelism
        self._named, self._births = files, births_of([name for name, _ in table.columns], table.births)

    @cached_property
    def files(self) -> list[ArchivedFile]:
        """The files that the state names, the oldest first."""
        return entries_of(block.column("value") for block in (() if self._named is None else self._named.scan()))

    def within(self, times: TimeRange) -> list[ArchivedFile]:
        """The files that may contain a row of these times."""
        return [file for file in self.files if times.meets(file)] if self.has_fixed_times else self.files

    # --- by primary key -------------------------------------------------------------------------------------------

    def current(self, files: Sequence[ArchivedFile], state: TableView | None) -> pa.Table:
        """The rows of these files that belong to the table and are not in its state."""
        rows = self._read(files)
        return self._current_rows(rows, self.key_column(rows), state)

    def of_keys(self, wanted: KeyColumn, state: TableView | None) -> pa.Table:
        """The rows of these keys that belong to the table and are not in its state."""
        rows = self._read(self._files_of(wanted), self._key_parts(wanted))
        keys = self.key_column(rows)
        # Both are numbered together, so that equal keys have the same number.
        codes = groups_of(pa.concat_arrays([wanted.array, keys.array])).codes
        matching = np.flatnonzero(np.isin(codes[len(wanted) :], codes[: len(wanted)]))
        return self._current_rows(rows.take(pa.array(matching)), keys.take(matching), state)

    def key_column(self, rows: pa.Table) -> KeyColumn:
        """The primary keys of rows."""
        columns = [rows.column(name).combine_chunks() for name in self._key_names]
        if len(columns) == 1:
            return self._keys.of_arrow(columns[0])
        names = [f"key{number}" for number in range(len(columns))]
        return self._keys.of_arrow(pa.StructArray.from_arrays(columns, names=names))

    def _current_rows(self, rows: pa.Table, keys: KeyColumn, state: TableView | None) -> pa.Table:
        """Given rows in the order of their versions, the newest row of each key that was not deleted."""
        versions = rows.column(ARCHIVED_VERSION).to_numpy()
        groups = groups_of(keys.array)
        last = np.zeros(groups.count, dtype=np.int64)
        last[groups.codes] = np.arange(len(groups.codes))  # for equal indices numpy assigns the last value
        last = np.sort(last)
        last = last[~rows.column(ARCHIVED_REMOVED).fill_null(False).to_numpy()[last]]
        if state is not None and len(last):
            last = last[~state.get(keys.take(last)).mask]
        if self._removed is not None and len(last):
            lookup = self._removed.get(keys.take(last))
            removed_at = np.full(len(last), -1, dtype=np.int64)
            if lookup.values is not None:
                removed_at[lookup.mask] = lookup.values.to_numpy()
            last = last[removed_at < versions[last]]
        return rows.take(pa.array(last)).select(self._schema.names)

    def _files_of(self, wanted: KeyColumn) -> list[ArchivedFile]:
        """The files that may contain rows of these keys: selected by key group and, if keys have a time, by time."""
        groups = np.unique(key_groups(wanted.hashes, self._groups_max)) if self.files else np.zeros(0)
        files = [file for file in self.files if ((groups >= file.group_low) & (groups <= file.group_high)).any()]
        if not self.has_fixed_times or not files:
            return files
        at = self._key_names.index(self.by)
        times_ms = milliseconds(wanted.array if len(self._key_names) == 1 else wanted.array.field(at))
        return [file for file in files if ((times_ms >= file.low_ms) & (times_ms <= file.high_ms)).any()]

    def _key_parts(self, wanted: KeyColumn) -> dict[str, pa.Array]:
        """The values of each column of the primary key in these keys."""
        several = len(self._key_names) > 1
        columns = [wanted.array.field(at) for at in range(len(self._key_names))] if several else [wanted.array]
        return {name: pc.unique(column) for name, column in zip(self._key_names, columns, strict=True)}

    # --- counted --------------------------------------------------------------------------------------------------

    def counted(self, files: Sequence[ArchivedFile], rows: pa.Table, counts: Int64s) -> tuple[pa.Table, Int64s]:
        """Rows of the state and of these files, each once, with its count."""
        archived = self._read(files)
        both = pa.concat_tables([archived.select(self._schema.names), rows]).combine_chunks()
        every = np.concatenate([archived.column(ARCHIVED_COUNT).to_numpy(), counts])
        if not len(every):
            return both, every
        [batch] = both.to_batches()
        groups = groups_of(batch.to_struct_array())
        sums = np.zeros(groups.count, dtype=np.int64)
        np.add.at(sums, groups.codes, every)
        if (sums < 0).any():
            row = both.slice(int(groups.firsts()[np.flatnonzero(sums < 0)[0]]), 1).to_pylist()[0]
            raise StoreDamagedError(
                f"a row was deleted more often than it was inserted: {row}. Check the changes that the source of the "
                "job emits: each -U and -D must retract a row that was emitted before"
            )
        there = np.flatnonzero(sums)
        return both.take(pa.array(groups.firsts()[there])), sums[there]

    # --- files ----------------------------------------------------------------------------------------------------

    def _read(self, files: Sequence[ArchivedFile], parts: Mapping[str, pa.Array] | None = None) -> pa.Table:
        """The rows of files, in the order of their versions, with the archive's own columns. `parts`: read only the row
        groups of each file that may contain these values, so memory grows with the keys, not with the files."""
        own = _KEYED if self._key_names else _COUNTED
        schema = pa.schema([*self._schema, *own])
        if not files:
            return schema.empty_table()
        # These filters exclude row groups.
        filters = [GroupFilter(name, "IN", tuple(values.to_pylist())) for name, values in (parts or {}).items()]

        def read(file: ArchivedFile) -> pa.Table:
            return _with_values(read_file(file, schema, filters, self._births), parts or {})

        # Reading a remote store one file after another would be slow.
        with ThreadPoolExecutor(min(len(files), _READ_AT_ONCE)) as threads:
            tables = list(threads.map(read, files))
        return pa.concat_tables(tables)


def _with_values(rows: pa.Table, parts: Mapping[str, pa.Array]) -> pa.Table:
    """The rows in which each column has one of its values, and possibly others: values with several equal
    representations (-0.0, NaN) and nested values are not compared here."""
    for name, values in parts.items():
        column = rows.column(name)
        if not (pa.types.is_floating(column.type) or pa.types.is_nested(column.type)):
            rows = rows.filter(pc.is_in(column, value_set=values.cast(column.type)))
    return rows
