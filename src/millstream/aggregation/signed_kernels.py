"""Aggregates of rows that come and go: kernels whose accumulators can be given back what they were given.

A row that is taken away is lifted like any other and then **negated**: its accumulator, combined with that of the row,
is that of no row. Counts and sums are numbers, which are negated by their sign (`negated`); a sum says how many values
are in it, since a sum of none is NULL. Floating numbers are kept exactly (`aggregation.exact_kernels`). All other
aggregates (`min`, `first`, `listagg`, distinct ones, …) keep every value with the number of times it is there
(`SignedValues`), in the order in which values came; what they give is another kernel's result over those values.
Rows with equal values are not told apart: a value is where it came first, as long as it is there; for LAST_VALUE where
it came last.

The number of times may be below zero in a partial, whose value stands elsewhere; never in what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts, column_from, numbers_of, totals_of
from millstream.aggregation.groups import Groups, groups_of, pair_groups
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.sql_list_kernels import ValuesForAnother
from millstream.state.keys.hashing import Int64s
from millstream.state.windows.measures import Measure

__all__ = ["SignedSum", "SignedValues", "negated"]


def negated(kernel: Kernel, parts: Parts, signs: Int64s) -> Parts:
    """The accumulators of rows, those of rows that are taken away (sign -1) negated."""
    signed_parts = getattr(kernel, "signed", None)
    if signed_parts is not None:
        return signed_parts(parts, signs)  # type: ignore[no-any-return]
    signed = []
    for part in parts:
        numbers = numbers_of(part, None)[0]
        signed.append(pa.array(numbers * signs.astype(numbers.dtype)))
    return signed


class SignedSum(Kernel):
    """The sum of whole numbers, which wraps around, and how many there are; NULL where there is none."""

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        values, valid = numbers_of(columns[0].cast(self.part_kinds[0]), np.int64)
        counts = np.ones(len(values), dtype=np.int64) if valid is None else valid.astype(np.int64)
        return [pa.array(values), pa.array(counts)]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return [pa.array(totals_of(numbers_of(part, None)[0], groups)) for part in parts]

    def results(self, parts: Parts) -> pa.Array:
        values, counts = (numbers_of(part, None)[0] for part in parts)
        with np.errstate(over="ignore"):
            narrow = values.astype(self.result_kind.to_pandas_dtype())
        return column_from(narrow, counts > 0, self.result_kind)


class SignedValues(ValuesForAnother):
    """Every value and how often it is there; results are those of another kernel over the values, each as often as it
    is there, or once (`distinct`)."""

    def __init__(self, measure: Measure, inner: Kernel) -> None:
        super().__init__(measure, inner)
        self._is_distinct = measure.detail == "distinct"
        self._comes_again = inner.measure.kind == "last" and not self._is_distinct

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        times = pa.array(np.ones(len(at), dtype=np.int64))
        return self.lists_of_single_rows([columns[0], times], self.has_value(columns), len(at))

    def signed(self, parts: Parts, signs: Int64s) -> Parts:
        """The lists of single rows, those of rows that are taken away with a number below zero."""
        rows, lengths = flat(parts[0])
        times = rows.field(1).to_numpy() * np.repeat(signs, lengths)
        rows = pa.StructArray.from_arrays([rows.field(0), pa.array(times)], fields=list(self._row_kind))
        return [self._lists(rows, lengths)]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        rows, lengths = flat(parts[0])
        codes = np.repeat(groups.codes, lengths)
        pairs = pair_groups(Groups(codes, groups.count), groups_of(rows.field(0)))
        first = pairs.firsts()
        times = totals_of(rows.field(1).to_numpy(), pairs)
        there = np.flatnonzero(times)
        came = first
        if self._comes_again:
            added = np.flatnonzero(rows.field(1).to_numpy() > 0)
            came = first.copy()
            came[pairs.codes[added]] = added  # of assignments to one place the last one stays
        # By group, then as they came.
        order = there[np.lexsort((came[there], codes[came[there]]))]
        kept = pa.StructArray.from_arrays(
            [rows.field(0).take(pa.array(came[order])), pa.array(times[order])], fields=list(self._row_kind)
        )
        return [self._lists(kept, np.bincount(codes[came[order]], minlength=groups.count))]

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        count = len(lengths)
        times = np.maximum(rows.field(1).to_numpy(), 0)
        times = np.minimum(times, 1) if self._is_distinct else times
        values = rows.field(0).take(pa.array(np.repeat(np.arange(len(times)), times)))
        codes = np.repeat(np.repeat(np.arange(count), lengths), times)
        return self.results_of(values, codes, count)
