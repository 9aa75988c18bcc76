"""Lookup joins: every row with the rows that another table has for its key now.

The distinct keys of a batch are asked for together, in a few requests side by side; nothing is asked for that is kept.
Rows keep their order, their times and their kinds. A row whose key is NULL finds nothing, and is not asked for.

What is found depends on when it is asked. An epoch that is done again asks again, and may find other rows; only one of
its results is ever committed.

The slow, obvious form of it is `looked_up_slowly`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import MillstreamError, ProgramError
from millstream.graph.changing_nodes import LookupJoin
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, stream_schema
from millstream.runtime.joins.matching import key_numbers, pairs
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.tables.lookup_cache import KeyCache
from millstream.runtime.tables.task_program import TaskProgram, functions_in
from millstream.state.keys.hashing import Int64s

__all__ = ["LookupJoinOperator", "looked_up_slowly"]

_FIRST_PAUSE_S = 0.1


class LookupJoinOperator(Operator):
    """Looks rows up. Many attributes: two programs, what is kept of the table, and the threads that ask for it."""

    role = "lookup join"

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, LookupJoin) and output_type is not None
        self._operation, self._type = operation, output_type
        schema = stream_schema(output_type)
        assert schema is not None
        self._schema = schema
        types, session = operation.input_types, operation.session
        self._keys = TaskProgram(operation.keys, types, None, session, self.call)
        self._condition = None
        if operation.condition is not None:
            pair_types = (*types, *operation.lookup.row_type.types)
            self._condition = TaskProgram((), pair_types, operation.condition, session, self.call)
        self._settings = operation.lookup.settings
        self._cache = KeyCache(self._settings) if self._settings.cache == "PARTIAL" else None
        self._whole: tuple[int, pa.RecordBatch] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._sleep: Callable[[float], None] = time.sleep

    def user_functions(self) -> Iterable[Any]:
        return functions_in(*self._operation.keys, self._operation.condition)

    def stateful(self) -> Any:
        return None

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
            self._threads = None
        self._operation.lookup.source.close()
        super().close()

    def apply(self, batch: Batch) -> Batch | None:
        keys = self._key_columns(batch)
        has_key = np.ones(len(batch), dtype=np.bool_)
        for column in keys.columns:
            has_key &= np.asarray(column.is_valid())
        asked = np.flatnonzero(has_key)
        left, right = np.empty(0, np.int64), np.empty(0, np.int64)
        found = self._no_rows()
        if len(asked):
            chosen = _struct(keys.take(pa.array(asked)))
            codes = key_numbers([chosen])[0]
            first = np.unique(codes, return_index=True)[1]
            found = self._rows(pa.RecordBatch.from_struct_array(chosen.take(pa.array(first))))
            left, right = self._matches(batch, chosen, asked, found)
        if self._operation.keeps_all:
            alone = np.setdiff1d(np.arange(len(batch)), left)
            left, right = np.concatenate([left, alone]), np.concatenate([right, np.full(len(alone), -1)])
        if not len(left):
            return None
        order = np.lexsort((right, left))
        return self._joined(batch, left[order], found, right[order])

    def _key_columns(self, batch: Batch) -> pa.RecordBatch:
        """The keys of the rows, as columns of the table's own types."""
        given = self._keys.run(batch, self.time.now_ms, self.time.watermark, "lookup key").columns
        row_type = self._operation.lookup.row_type
        fields = [row_type.schema.field(at) for at in self._operation.key_columns]
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(given, fields, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=[f"key{at}" for at in range(len(fields))])

    def _no_rows(self) -> pa.RecordBatch:
        schema = self._operation.lookup.row_type.schema
        return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)

    def _matches(
        self, batch: Batch, keys: pa.StructArray, places: Int64s, rows: pa.RecordBatch
    ) -> tuple[Int64s, Int64s]:
        """Pairs of rows of the batch, whose keys are those of `places`, and of those that were found."""
        if not rows.num_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        theirs = _struct(self._keys_of(rows))
        codes = key_numbers([keys, theirs])
        zeros = np.zeros(len(keys), np.int64), np.zeros(len(theirs), np.int64)
        lefts, rights = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for a, b in pairs(codes[0], zeros[0], zeros[0], codes[1], zeros[1]):
            left, right = places[a], b
            if self._condition is not None:
                columns = [column.take(pa.array(left)) for column in self._left_columns(batch)]
                columns += [column.take(pa.array(right)) for column in rows.columns]
                names = [f"f{at}" for at in range(len(columns))]
                pair = Batch.of_columns(pa.RecordBatch.from_arrays(columns, names=names), self._operation.pair_type)
                kept = self._condition.run(pair, self.time.now_ms, self.time.watermark, "join condition").selected
                if kept is not None:
                    left, right = left[kept], right[kept]
            lefts.append(left)
            rights.append(right)
        return np.concatenate(lefts), np.concatenate(rights)

    def _left_columns(self, batch: Batch) -> list[pa.Array]:
        return list(batch.columns().columns[: len(self._operation.input_types)])

    def _keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [rows.column(at) for at in self._operation.key_columns]
        return pa.RecordBatch.from_arrays(columns, names=[f"key{at}" for at in range(len(columns))])

    def _joined(self, batch: Batch, left: Int64s, rows: pa.RecordBatch, right: Int64s) -> Batch:
        at, there = pa.array(left), pa.array(right, mask=right < 0)
        columns = [column.take(at) for column in self._left_columns(batch)]
        columns += [column.take(there) for column in rows.columns]
        schema = self._schema
        given = batch.columns()
        kinds = given.schema.get_field_index(KIND_COLUMN)
        if kinds >= 0:
            columns, schema = [*columns, given.column(kinds).take(at)], schema.append(given.schema.field(kinds))
        times = None if batch.timestamps is None else batch.timestamps[left]
        return Batch.of_columns(pa.RecordBatch.from_arrays(columns, schema=schema), self._type, times)

    # --- the other table ----------------------------------------------------------------------------------------------

    def _rows(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """At least the rows of these keys, which are distinct."""
        source, now_ms = self._operation.lookup.source, self.time.now_ms
        if source.is_whole or self._settings.cache == "FULL":
            reload_ms = self._settings.reload_ms
            if self._whole is None or (reload_ms is not None and now_ms - self._whole[0] >= reload_ms):
                self._whole = (now_ms, self._answer(None))
            return self._whole[1]
        if self._cache is None:
            return self._asked(keys)
        names = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
        kept = [self._cache.get(name, now_ms) for name in names]
        missing = [at for at, rows in enumerate(kept) if rows is None]
        if missing:
            found = self._asked(keys.take(pa.array(missing)))
            by_key: dict[Any, list[int]] = {}
            theirs = zip(*(column.to_pylist() for column in self._keys_of(found).columns), strict=True)
            for row, name in enumerate(theirs):
                by_key.setdefault(name, []).append(row)
            for at in missing:
                kept[at] = found.take(pa.array(by_key.get(names[at], []), pa.int64()))
            self._cache.put([names[at] for at in missing], [kept[at] for at in missing], now_ms)
        return _concatenated([rows for rows in kept if rows is not None], self._no_rows())

    def _asked(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """What the table has for keys: asked again for those without a row, if it is to be."""
        found = self._requested(keys)
        for _ in range(self._settings.miss_attempts - 1):
            codes = key_numbers([_struct(keys), _struct(self._keys_of(found))])
            missing = np.flatnonzero(~np.isin(codes[0], codes[1]))
            if not len(missing):
                break
            self._sleep(self._settings.miss_pause_ms / 1000)
            again = self._requested(keys.take(pa.array(missing)))
            found = _concatenated([found, again], self._no_rows())
        return found

    def _requested(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        size = self._settings.request_keys
        requests = [keys.slice(start, size) for start in range(0, keys.num_rows, size)]
        if len(requests) == 1:
            return self._answer(requests[0])
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._settings.requests, thread_name_prefix="lookup")
        return _concatenated(list(self._threads.map(self._answer, requests)), self._no_rows())

    def _answer(self, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        """One request; again, after a pause, if it failed and may succeed."""
        for attempt in range(self._settings.retries_max + 1):
            try:
                return self._operation.lookup.source.rows(keys)
            except MillstreamError as error:
                raise self.call.failed(error, self.role) from error
            except Exception as error:
                if attempt == self._settings.retries_max:
                    wrapped = ProgramError(
                        f"the table could not be asked, {attempt + 1} times: {type(error).__name__}: {error}. Raise "
                        "'lookup.max-retries', or see why it does not answer"
                    )
                    raise self.call.failed(wrapped, self.role) from error
                self._sleep(_FIRST_PAUSE_S * 2**attempt)
        raise AssertionError


def _struct(columns: pa.RecordBatch) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns.columns, names=columns.schema.names)


def _concatenated(batches: Sequence[pa.RecordBatch], nothing: pa.RecordBatch) -> pa.RecordBatch:
    whole = pa.Table.from_batches([nothing, *batches]).combine_chunks().to_batches()
    return whole[0] if whole else nothing


def looked_up_slowly(
    rows: Iterable[tuple[Any, ...]], key: int, table: Sequence[tuple[Any, ...]], their_key: int, keeps_all: bool
) -> list[tuple[Any, ...]]:
    """The reference: every row with each row of the table that has its key; NULL finds nothing."""
    width = len(table[0]) if table else 0
    result: list[tuple[Any, ...]] = []
    for row in rows:
        found = [each for each in table if row[key] is not None and each[their_key] == row[key]]
        result += [(*row, *each) for each in found]
        if not found and keeps_all:
            result.append((*row, *[None] * width))
    return result
