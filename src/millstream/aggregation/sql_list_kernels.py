"""SQL aggregates that store all values of a group: DISTINCT aggregates, LISTAGG, COLLECT and ARRAY_AGG.

The accumulator is a list column, as in `list_kernels`. Values are ordered by event time, then by arrival. DISTINCT
stores each value once; another kernel computes the result when the window ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.groups import Groups, groups_of, places_of_pairs
from millstream.aggregation.list_kernels import Collected, Listed, flat
from millstream.aggregation.rolling_columns import order_numbers
from millstream.errors import ProgramError
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.segments.sorting import ascending_below
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["Array", "DistinctValues", "JoinedTexts", "JsonTexts", "Multiset", "ValuesForAnother"]


class ValuesForAnother(Listed):
    """Values stored for another kernel, which computes the result."""

    def __init__(self, measure: BoundAggregate, inner: Kernel) -> None:
        super().__init__(measure)
        self._inner = inner
        # Only ARRAY_AGG includes NULLs; its second column masks the rows that count.
        self._includes_nulls = inner.measure.kind == "array"

    def has_value(self, columns: Sequence[pa.Array]) -> Bools | None:
        """Mask of the rows with a value to store; None: all."""
        if self._includes_nulls:
            return None if len(columns) < 2 else np.asarray(columns[1].fill_null(False))
        return np.asarray(columns[0].is_valid()) if columns[0].null_count else None

    def results_of(self, values: pa.Array, codes: Int64s, count: int) -> pa.Array:
        """The other kernel's results for the values of each group."""
        # Append an ignored NULL for each group, so that every group has a row.
        counts = [pa.array(np.arange(len(values) + count) < len(values))] if self._includes_nulls else []
        values = pa.concat_arrays([values, pa.nulls(count, values.type)])
        lifted = self._inner.lift([values, *counts], np.arange(len(values)))
        return self._inner.results(self._inner.combine(lifted, Groups(np.append(codes, np.arange(count)), count)))


class DistinctValues(ValuesForAnother):
    """Another aggregate of the distinct values."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        return self.lists_of_single_rows([columns[0]], self.has_value(columns), len(at))

    def _order_of_results(self, rows: pa.Array, codes: Int64s, count: int) -> Int64s:
        places, bound = places_of_pairs(codes, rows.field(0), count)
        order = ascending_below(bound, places)
        sorted_places = places[order]
        is_first = np.ones(len(order), dtype=np.bool_)
        is_first[1:] = sorted_places[1:] != sorted_places[:-1]
        firsts: Int64s = order[is_first]
        if self._inner.measure.kind == "count":  # order is irrelevant, and lists sorted by value merge fast
            return firsts
        # Arrival order: value numbers depend on other groups.
        firsts.sort()
        by_group: Int64s = firsts[ascending_below(count, codes[firsts])]
        return by_group

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        if self._inner.measure.kind == "count":  # no value is NULL
            return pa.array(lengths)
        return self.results_of(rows.field(0), np.repeat(np.arange(len(lengths)), lengths), len(lengths))


class JoinedTexts(Collected):
    """LISTAGG: strings joined by a separator; NULL without strings."""

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), rows.field(1)), self.measure.detail)
        return pc.if_else(pa.array(lengths > 0), joined, pa.scalar(None, pa.string()))


class JsonTexts(Collected):
    """JSON_ARRAYAGG and JSON_OBJECTAGG. Values arrive as JSON: each an array of the value (empty if NULLs are
    excluded), or of key and value. The result for no rows is empty."""

    _ENTRY = r'^\[(?P<key>"(?:[^"\\]|\\.)*"),(?P<value>(?s:.*))\]$'

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        codes = np.repeat(np.arange(len(lengths)), lengths)
        if self.measure.detail == "object":
            opening, closing = "{", "}"
            texts = self._entries(rows.field(1), codes)
        else:
            opening, closing = "[", "]"
            texts = pc.utf8_slice_codeunits(rows.field(1), 1, -1)
        has_value = np.asarray(pc.not_equal(texts, ""))
        counts = np.bincount(codes[has_value], minlength=len(lengths))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), texts.filter(pa.array(has_value)))
        return pc.binary_join_element_wise(opening, pc.binary_join(lists, ","), closing, "")

    def _entries(self, texts: pa.Array, codes: Int64s) -> pa.Array:
        """`"key":value` of each row, an empty string without a value. Keys must be unique and not NULL."""
        if pc.any(pc.starts_with(texts, "[null")).as_py():
            raise ProgramError(
                "JSON_OBJECTAGG: Key must not be NULL. Exclude such rows: FILTER (WHERE key IS NOT NULL)"
            )
        entries = pc.extract_regex(texts, self._ENTRY)
        keys, values = entries.flatten()
        key_groups = groups_of(keys)
        pairs = (codes * max(key_groups.count, 1) + key_groups.codes)[np.asarray(entries.is_valid())]
        if len(np.unique(pairs)) < len(pairs):
            _, first, times = np.unique(pairs, return_index=True, return_counts=True)
            key = keys.filter(entries.is_valid())[int(first[times > 1][0])].as_py()
            raise ProgramError(f"JSON_OBJECTAGG: Key {key} occurs twice in a group. Use one value, as in MAX(value)")
        return pc.binary_join_element_wise(keys, values, ":").fill_null("")


class Multiset(Collected):
    """COLLECT: every value with its multiplicity. Empty for no values."""

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        values = groups_of(rows.field(1))
        lists = np.repeat(np.arange(len(lengths)), lengths)
        _, first, counts = np.unique(lists * max(values.count, 1) + values.codes, return_index=True, return_counts=True)
        # Arrival order, independent of other groups: a retraction must equal the emitted value.
        order = np.argsort(first, kind="stable")
        first, counts = first[order], counts[order]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(lists[first], minlength=len(lengths)))])
        keys, items = rows.field(1).take(pa.array(first)), pa.array(counts.astype(np.int32))
        return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, items, type=self.result_kind)


class Array(Collected):
    """ARRAY_AGG: all values, NULLs included; NULL for no rows. A second column masks the rows that count."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        has_row = None if len(columns) < 2 else np.asarray(columns[1].fill_null(False))
        return self.lists_of_single_rows([pa.array(at), columns[0]], has_row, len(at))

    def results(self, parts: Parts) -> pa.Array:
        if self.measure.order:
            rows, lengths = flat(parts[0])
            parts = [self._lists(rows.take(pa.array(self._sorted(rows.field(1), lengths))), lengths)]
        lists = super().results(parts)
        lengths = np.diff(lists.offsets.to_numpy())
        return pc.if_else(pa.array(lengths > 0), lists, pa.scalar(None, lists.type))

    def _sorted(self, rows: pa.Array, lengths: Int64s) -> Int64s:
        """The rows of each list in the measure's order, stable."""
        keys: list[Int64s] = []
        for field, descending, nulls_first in reversed(self.measure.order):
            column = rows.field(field)
            valid = np.asarray(column.is_valid())
            numbers = np.where(valid, order_numbers(column), 0)
            keys += [~numbers if descending else numbers, np.where(valid, 0, -1 if nulls_first else 1)]
        order: Int64s = np.lexsort((*keys, np.repeat(np.arange(len(lengths)), lengths)))
        return order
