"""Aggregates over changelogs: kernels whose accumulators support retraction.

A deleted row is lifted like any other and then **negated**: combining the accumulators of its insert and its delete
yields the empty accumulator. Counts and sums are negated by their sign (`negated`); a sum also counts its values, since
a sum of no values is NULL. Floating-point numbers are summed exactly (`aggregation.exact_kernels`). All other
aggregates (`min`, `first`, `listagg`, DISTINCT, …) store every value with its multiplicity (`SignedValues`), in arrival
order; another kernel computes their results from these values. Rows with equal values are not distinguished: a value is
ordered by when it became present, and for LAST_VALUE by its last arrival.

A partial continues a history stored elsewhere: its multiplicities may be negative and, where order matters, a value may
be deleted and then inserted (`value_histories`). Neither occurs in stored accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts, column_from, numbers_of, totals_of
from millstream.aggregation.groups import Groups, groups_of, pair_groups
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.sql_list_kernels import ValuesForAnother
from millstream.aggregation.value_histories import by_arrival, by_stay, net
from millstream.state.keys.hashing import Int64s
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["SignedSum", "SignedValues", "negated"]


def negated(kernel: Kernel, parts: Parts, signs: Int64s) -> Parts:
    """The accumulators of rows, negated for deletes (sign -1)."""
    signed_parts = getattr(kernel, "signed", None)
    if signed_parts is not None:
        return signed_parts(parts, signs)  # type: ignore[no-any-return]
    signed = []
    for part in parts:
        numbers = numbers_of(part, None)[0]
        signed.append(pa.array(numbers * signs.astype(numbers.dtype)))
    return signed


class SignedSum(Kernel):
    """The sum of integers, which wraps around, and their count; NULL without values."""

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
    """Every value with its multiplicity; another kernel computes results from the values, repeated by their
    multiplicities, or once (`distinct`)."""

    def __init__(self, measure: BoundAggregate, inner: Kernel) -> None:
        super().__init__(measure, inner)
        self._is_distinct = measure.detail == "distinct"
        if inner.measure.kind == "last" and not self._is_distinct:
            self._history = by_arrival
        else:
            self._history = by_stay if inner.measure.goes_by_arrival else net

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        times = pa.array(np.ones(len(at), dtype=np.int64))
        return self.lists_of_single_rows([columns[0], times], self.has_value(columns), len(at))

    def signed(self, parts: Parts, signs: Int64s) -> Parts:
        """The lists of single rows, with negative multiplicities for deletes."""
        rows, lengths = flat(parts[0])
        times = rows.field(1).to_numpy() * np.repeat(signs, lengths)
        rows = pa.StructArray.from_arrays([rows.field(0), pa.array(times)], fields=list(self._row_kind))
        return [self._lists(rows, lengths)]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        rows, lengths = flat(parts[0])
        codes = np.repeat(groups.codes, lengths)
        pairs = pair_groups(Groups(codes, groups.count), groups_of(rows.field(0)))
        at, times = self._history(rows.field(1).to_numpy(), pairs)
        return [self._lists_of(rows, codes, groups.count, at, times)]

    def consolidated(self, parts: Parts) -> Parts:
        """Every value once. A multiplicity is negative only if the source is damaged or rows have expired."""
        rows, lengths = flat(parts[0])
        times = rows.field(1).to_numpy()
        if (times > 0).all():
            return parts
        codes = np.repeat(np.arange(len(lengths)), lengths)
        pairs = pair_groups(Groups(codes, len(lengths)), groups_of(rows.field(0)))
        totals = totals_of(times, pairs)
        left = np.flatnonzero(totals)
        return [self._lists_of(rows, codes, len(lengths), pairs.lasts()[left], totals[left])]

    def _lists_of(self, rows: pa.Array, codes: Int64s, count: int, at: Int64s, times: Int64s) -> pa.Array:
        """Lists of values with their multiplicities: the values of the rows `at`, by group, then by arrival."""
        order = np.lexsort((at, codes[at]))
        at = at[order]
        value_rows = pa.StructArray.from_arrays(
            [rows.field(0).take(pa.array(at)), pa.array(times[order])], fields=list(self._row_kind)
        )
        return self._lists(value_rows, np.bincount(codes[at], minlength=count))

    def results(self, parts: Parts) -> pa.Array:
        rows, lengths = flat(parts[0])
        count = len(lengths)
        times = np.maximum(rows.field(1).to_numpy(), 0)
        times = np.minimum(times, 1) if self._is_distinct else times
        values = rows.field(0).take(pa.array(np.repeat(np.arange(len(times)), times)))
        codes = np.repeat(np.repeat(np.arange(count), lengths), times)
        return self.results_of(values, codes, count)
