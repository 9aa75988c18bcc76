"""Looks up the rows of another table by key: batched into few parallel requests, and cached as configured.

Cached keys are not requested. A row whose key is NULL matches nothing and is not requested. Results depend on when a
request is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import MillstreamError, ProgramError
from millstream.graph.changing_nodes import LookupJoin
from millstream.records.batch import Batch
from millstream.runtime.joins.matching import key_numbers, pairs
from millstream.runtime.operators.operator import Operator
from millstream.runtime.tables.lookup_cache import KeyCache
from millstream.runtime.tables.task_program import TaskProgram
from millstream.state.keys.hashing import Int64s

__all__ = ["Lookups"]

_FIRST_PAUSE_S = 0.1


@dataclass(frozen=True)
class _WholeTable:
    """A table that is cached whole: when it was read, and whether its keys are unique."""

    read_ms: int
    rows: pa.RecordBatch
    is_unique: bool


class Lookups:
    """Performs the lookups of one operator."""

    def __init__(self, operation: LookupJoin, owner: Operator) -> None:
        self._operation, self._owner = operation, owner
        types, session = operation.input_types, operation.session
        self._keys = TaskProgram(operation.keys, types, None, session, owner.call)
        self._condition = None
        if operation.condition is not None:
            pair_types = (*types, *operation.lookup.row_type.types)
            self._condition = TaskProgram((), pair_types, operation.condition, session, owner.call)
        self._settings = operation.lookup.settings
        self._cache = KeyCache(self._settings) if self._settings.cache == "PARTIAL" else None
        self._whole: _WholeTable | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._sleep: Callable[[float], None] = time.sleep

    def close(self) -> None:
        """Stop all lookups and close the source."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
            self._threads = None
        self._operation.lookup.source.close()

    def pairs(self, batch: Batch) -> tuple[Int64s, list[pa.Array]]:
        """Row positions in the batch, in order: one per match, and one per unmatched row if these are preserved; and
        the columns of both tables for each."""
        keys = self._key_columns(batch)
        whole = self._whole_table()
        if whole is not None and whole.is_unique and keys.num_columns == 1:
            table_rows = whole.rows
            left, right = self._only_matches(batch, keys.column(0), table_rows)
        else:
            left, right, table_rows = self._all_matches(batch, keys, whole)
        if self._operation.keeps_all:
            unmatched = np.setdiff1d(np.arange(len(batch)), left)
            left, right = np.concatenate([left, unmatched]), np.concatenate([right, np.full(len(unmatched), -1)])
        order = np.lexsort((right, left))
        left, right = left[order], right[order]
        at, match_at = pa.array(left), pa.array(right, mask=right < 0)
        columns = [column.take(at) for column in self._left_columns(batch)]
        return left, columns + [column.take(match_at) for column in table_rows.columns]

    def _only_matches(self, batch: Batch, keys: pa.Array, rows: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Matching rows of the batch and of a table with unique keys."""
        table_keys = rows.column(self._operation.key_columns[0])
        places = pc.index_in(keys, value_set=table_keys, skip_nulls=True).fill_null(-1)
        right = places.to_numpy(zero_copy_only=False).astype(np.int64)
        left = np.flatnonzero(right >= 0)
        return self._filtered(batch, left, rows, right[left])

    def _all_matches(
        self, batch: Batch, keys: pa.RecordBatch, whole: _WholeTable | None
    ) -> tuple[Int64s, Int64s, pa.RecordBatch]:
        """Matching rows of the batch and of the table; and the table's rows."""
        has_key = np.ones(len(batch), dtype=np.bool_)
        for column in keys.columns:
            has_key &= np.asarray(column.is_valid())
        with_key = np.flatnonzero(has_key)
        if not len(with_key):
            return np.empty(0, np.int64), np.empty(0, np.int64), self._no_rows()
        chosen = _struct(keys.take(pa.array(with_key)))
        if whole is not None:
            table_rows = whole.rows
        else:
            first = np.unique(key_numbers([chosen])[0], return_index=True)[1]
            table_rows = self._rows(pa.RecordBatch.from_struct_array(chosen.take(pa.array(first))))
        return *self._matches(batch, chosen, with_key, table_rows), table_rows

    def _key_columns(self, batch: Batch) -> pa.RecordBatch:
        """The keys of the rows, as columns of the table's own types."""
        key_values = self._keys.run(batch, self._owner.time.now_ms, self._owner.time.watermark, "lookup key").columns
        row_type = self._operation.lookup.row_type
        fields = [row_type.schema.field(at) for at in self._operation.key_columns]
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(key_values, fields, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=[f"key{at}" for at in range(len(fields))])

    def _no_rows(self) -> pa.RecordBatch:
        schema = self._operation.lookup.row_type.schema
        return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)

    def _matches(
        self, batch: Batch, keys: pa.StructArray, places: Int64s, rows: pa.RecordBatch
    ) -> tuple[Int64s, Int64s]:
        """Matching rows of the batch, whose keys are at `places`, and of the looked-up rows."""
        if not rows.num_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        table_keys = _struct(self._keys_of(rows))
        codes = key_numbers([keys, table_keys])
        zeros = np.zeros(len(keys), np.int64), np.zeros(len(table_keys), np.int64)
        lefts, rights = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for a, b in pairs(codes[0], zeros[0], zeros[0], codes[1], zeros[1]):
            left, right = self._filtered(batch, places[a], rows, b)
            lefts.append(left)
            rights.append(right)
        return np.concatenate(lefts), np.concatenate(rights)

    def _filtered(self, batch: Batch, left: Int64s, rows: pa.RecordBatch, right: Int64s) -> tuple[Int64s, Int64s]:
        """The pairs, of equal keys, that satisfy the rest of the condition."""
        if self._condition is None or not len(left):
            return left, right
        columns = [column.take(pa.array(left)) for column in self._left_columns(batch)]
        columns += [column.take(pa.array(right)) for column in rows.columns]
        names = [f"f{at}" for at in range(len(columns))]
        pair = Batch.of_columns(pa.RecordBatch.from_arrays(columns, names=names), self._operation.pair_type)
        moment = self._owner.time
        passed = self._condition.run(pair, moment.now_ms, moment.watermark, "join condition").selected
        return (left, right) if passed is None else (left[passed], right[passed])

    def _left_columns(self, batch: Batch) -> list[pa.Array]:
        return list(batch.columns().columns[: len(self._operation.input_types)])

    def _keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [rows.column(at) for at in self._operation.key_columns]
        return pa.RecordBatch.from_arrays(columns, names=[f"key{at}" for at in range(len(columns))])

    # --- the other table ----------------------------------------------------------------------------------------------

    def _whole_table(self) -> _WholeTable | None:
        """All rows of a table that is cached whole; None for others."""
        source, now_ms, reload_ms = self._operation.lookup.source, self._owner.time.now_ms, self._settings.reload_ms
        if not source.is_whole and self._settings.cache != "FULL":
            return None
        if self._whole is None or (reload_ms is not None and now_ms - self._whole.read_ms >= reload_ms):
            rows = self._fetch(None)
            key = rows.column(self._operation.key_columns[0])
            # Engines disagree on whether NaN equals itself.
            is_plain = not pa.types.is_floating(key.type) and not pa.types.is_nested(key.type)
            is_unique = is_plain and pc.count_distinct(key, mode="all").as_py() == len(key)
            self._whole = _WholeTable(now_ms, rows, is_unique)
        return self._whole

    def _rows(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """At least the rows of these distinct keys."""
        now_ms = self._owner.time.now_ms
        if self._cache is None:
            return self._fetched_with_retries(keys)
        names = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
        cached = [self._cache.get(name, now_ms) for name in names]
        missing = [at for at, rows in enumerate(cached) if rows is None]
        if missing:
            table_rows = self._fetched_with_retries(keys.take(pa.array(missing)))
            by_key: dict[Any, list[int]] = {}
            row_keys = zip(*(column.to_pylist() for column in self._keys_of(table_rows).columns), strict=True)
            for row, name in enumerate(row_keys):
                by_key.setdefault(name, []).append(row)
            for at in missing:
                cached[at] = table_rows.take(pa.array(by_key.get(names[at], []), pa.int64()))
            self._cache.put([names[at] for at in missing], [cached[at] for at in missing], now_ms)
        return _concatenated([rows for rows in cached if rows is not None], self._no_rows())

    def _fetched_with_retries(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The table's rows for keys. Retries keys without a row, if so configured."""
        table_rows = self._fetched(keys)
        for _ in range(self._settings.miss_attempts - 1):
            codes = key_numbers([_struct(keys), _struct(self._keys_of(table_rows))])
            missing = np.flatnonzero(~np.isin(codes[0], codes[1]))
            if not len(missing):
                break
            self._sleep(self._settings.miss_pause_ms / 1000)
            again = self._fetched(keys.take(pa.array(missing)))
            table_rows = _concatenated([table_rows, again], self._no_rows())
        return table_rows

    def _fetched(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        size = self._settings.request_keys
        requests = [keys.slice(start, size) for start in range(0, keys.num_rows, size)]
        if len(requests) == 1:
            return self._fetch(requests[0])
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._settings.requests, thread_name_prefix="lookup")
        return _concatenated(list(self._threads.map(self._fetch, requests)), self._no_rows())

    def _fetch(self, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        """Send one request; retry it after a pause if the failure may be transient."""
        for attempt in range(self._settings.retries_max + 1):
            try:
                return self._operation.lookup.source.rows(keys)
            except MillstreamError as error:
                raise self._owner.call.failed(error, self._owner.role) from error
            except Exception as error:
                if attempt == self._settings.retries_max:
                    wrapped = ProgramError(
                        f"the lookup failed {attempt + 1} times: {type(error).__name__}: {error}. Raise "
                        "'lookup.max-retries', or check why the table does not answer"
                    )
                    raise self._owner.call.failed(wrapped, self._owner.role) from error
                self._sleep(_FIRST_PAUSE_S * 2**attempt)
        raise AssertionError


def _struct(columns: pa.RecordBatch) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns.columns, names=columns.schema.names)


def _concatenated(batches: Sequence[pa.RecordBatch], empty: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([empty, *batches])
