"""Distinct values of large groups in append-only tables: one row per group, argument and value.

All DISTINCT aggregates of one argument (`aggregation.distinct_arguments`) share the rows of its values. A row stores
the **marks** of the aggregates that have counted the value: an epoch looks up and writes each value once, for all of
them, and writes it again only if another aggregate counts it. An aggregate that has spilled none of a group's values
yet (it was added later, or its FILTER passes few rows) has no marks in that group's rows; each aggregate's count of
spilled values shows which have.

An epoch's values are buffered until it is known which others spill in the same epoch, since both may share a row.

Before decision 0039 each aggregate had separate rows (`group_values`). They are converted to marks when their group
receives rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.counted_kernels import spilled_counts
from millstream.aggregation.distinct_arguments import value_kind
from millstream.aggregation.kernels import kernels_of
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.marked_kernels import MarkedPairs, united
from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import StateSchemaError
from millstream.runtime.tables import spilled_values
from millstream.runtime.tables.group_values import ValuesOfEachAggregate
from millstream.runtime.tables.spilled_values import ValueTables, add_to_sums, lists_of, take_lists
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, normalised, plain_view, plain_view_type
from millstream.state.stored.accounts import SubtaskAccount, tables_of
from millstream.state.stored.table_names import GROUP_MARKS
from millstream.state.tables.state_table import StateTable, last_versions
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["GroupMarks"]


@dataclass(frozen=True)
class _Aggregate:
    """An aggregate: the position of its parts in the stored accumulator, the type of its lists, and the kernel of its
    sums, if it has sums."""

    at: int
    list_kind: pa.DataType
    sums: Kernel | None

    @classmethod
    def of(cls, measure: BoundAggregate, at: int) -> _Aggregate:
        sums = kernels_of([measure.sums_elsewhere])[0] if measure.kind == "summed_values" else None
        return cls(at, kernels_of([measure])[0].part_kinds[0], sums)


@dataclass(frozen=True)
class _Argument:
    """An argument: its aggregates, in the order of their marks, and the table of its values."""

    aggregates: tuple[_Aggregate, ...]
    table: StateTable

    def subs(self, values: pa.Array) -> pa.Array:
        """Values as sub-keys of the table. Integers and times need no hash."""
        if plain_view_type(values.type) is not None:
            return pa.array(plain_view(values).astype(np.int64, copy=False))
        return pa.StructArray.from_arrays([normalised(values)], type=self.table.layout.sub_type)


class GroupMarks:
    """The spilled values of one subtask: a table for each argument. `arguments` lists the aggregates of each."""

    def __init__(
        self, stored_measures: Sequence[BoundAggregate], arguments: Sequence[Sequence[int]], tables: ValueTables
    ) -> None:
        places = np.cumsum([0, *(len(measure.parts) for measure in stored_measures)]).tolist()
        self._arguments: list[_Argument] = []
        for numbers in arguments:
            first = stored_measures[numbers[0]]
            table = tables.table(f"{GROUP_MARKS} of {first.name}", Types.LONG(), _sub_type(first))
            aggregates = tuple(_Aggregate.of(stored_measures[number], places[number]) for number in numbers)
            self._arguments.append(_Argument(aggregates, table))
        self._before = ValuesOfEachAggregate(stored_measures, arguments, tables)
        self._held_back: list[MarkedPairs] = []

    def check_names(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Reject values stored under an aggregate that used to be the first of its argument."""
        names = {argument.table.name for argument in self._arguments}
        for name, refs in last_versions(tables_of(accounts)).items():
            if refs and name.startswith(f"{GROUP_MARKS} of ") and name not in names:
                raise _shared_with_others(name)

    def absorb(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """An epoch's values as the accumulator stores them: values of aggregates that have spilled the group's values
        are buffered, the others become lists. The values of an argument are in the column of its first aggregate, with
        marks if it has several."""
        parts = list(parts)
        for argument, pairs in zip(self._arguments, self._before.remove(keys), strict=True):
            if len(pairs):
                marked = united(pairs, len(keys))
                subs = argument.subs(marked.values)
                argument.table.changes.put(keys.take(marked.codes), pa.array(marked.marks), subs=subs)
                argument.table.settle()
        self._held_back = []
        for argument in self._arguments:
            pairs = _pairs_of(parts[argument.aggregates[0].at])
            has_spilled = np.zeros(len(keys), dtype=np.int64)
            for bit, aggregate in enumerate(argument.aggregates):
                has_spilled[was_stored] |= (spilled_counts(stored[aggregate.at + 1]) > 0).astype(np.int64) << bit
            if argument.table.view.is_empty and has_spilled.any():
                raise _shared_with_others(argument.table.name)
            spilled_marks = has_spilled[pairs.codes]
            _list(argument, parts, pairs.with_marks(pairs.marks & ~spilled_marks), len(keys))
            self._held_back.append(pairs.with_marks(pairs.marks & spilled_marks))
        return parts

    def spill(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """The accumulators without the values of large groups."""
        parts = list(parts)
        for argument, held_back in zip(self._arguments, self._held_back, strict=True):
            pieces = [held_back]
            for bit, aggregate in enumerate(argument.aggregates):
                large = flat(parts[aggregate.at])[1] > spilled_values.VALUES_IN_ROW_MAX
                if large.any():
                    codes, rows = take_lists(parts, aggregate.at, large)
                    pieces.append(MarkedPairs(codes, rows.field(0), np.full(len(codes), 1 << bit, dtype=np.int64)))
            pairs = held_back if len(pieces) == 1 else united(MarkedPairs.concat(pieces), len(keys))
            if len(pairs):
                _count(argument, parts, pairs, _newly_marked(argument, keys, pairs))
        self._held_back = []
        return parts


def _shared_with_others(name: str) -> StateSchemaError:
    return StateSchemaError(
        f"state '{name}' was stored by a version in which other DISTINCT aggregates of this query shared an argument "
        "with it: lookups would miss its values and results would be wrong. Use the version that stored it, "
        "or start afresh with another store or another uid for the query"
    )


def _sub_type(measure: BoundAggregate) -> TypeInformation:
    """The type of a measure's values as sub-keys."""
    type_info = measure.arguments[0].type_info
    kind = value_kind(measure)
    assert type_info is not None and kind is not None
    return Types.LONG() if plain_view_type(kind) is not None else Types.ROW_NAMED(["value"], [type_info])


def _pairs_of(lists: pa.Array) -> MarkedPairs:
    """The input of an argument. The values of a single aggregate carry no marks: it uses the first mark."""
    rows, lengths = flat(lists)
    codes = np.repeat(np.arange(len(lists)), lengths)
    has_marks = rows.type.num_fields > 1
    marks = rows.field(1).to_numpy() if has_marks else np.ones(len(rows), dtype=np.int64)
    return MarkedPairs(codes, rows.field(0), marks)


def _list(argument: _Argument, parts: Parts, pairs: MarkedPairs, count: int) -> None:
    """Make lists of each aggregate's values."""
    for bit, aggregate in enumerate(argument.aggregates):
        own = pairs.filtered((pairs.marks >> bit & 1).astype(np.bool_))
        lengths = np.bincount(own.codes, minlength=count)
        rows = pa.StructArray.from_arrays([own.values], fields=list(aggregate.list_kind.value_type))
        parts[aggregate.at] = lists_of(rows, lengths, aggregate.list_kind)


def _newly_marked(argument: _Argument, keys: KeyColumn, pairs: MarkedPairs) -> Int64s:
    """The marks that are new for each value; also writes them to the store."""
    table, subs, pair_keys = argument.table, argument.subs(pairs.values), keys.take(pairs.codes)
    before = np.zeros(len(pairs), dtype=np.int64)
    if not table.view.is_empty:
        lookup = table.view.get_pairs(pair_keys, subs)
        assert lookup.values is not None
        before[lookup.mask] = lookup.values.to_numpy()
    fresh: Int64s = pairs.marks & ~before
    put = np.flatnonzero(fresh)
    if len(put):
        marks = pa.array((before | pairs.marks)[put])
        table.changes.put(pair_keys.take(put), marks, subs=subs.take(pa.array(put)))
    return fresh


def _count(argument: _Argument, parts: Parts, pairs: MarkedPairs, fresh: Int64s) -> None:
    """Add newly marked values to counts and sums."""
    for bit, aggregate in enumerate(argument.aggregates):
        marked = np.flatnonzero(fresh >> bit & 1)
        at, sums, codes, groups = aggregate.at, aggregate.sums, pairs.codes[marked], len(parts[aggregate.at])
        parts[at + 1] = pa.array(spilled_counts(parts[at + 1]) + np.bincount(codes, minlength=groups))
        if sums is None or not len(marked):
            continue
        lifted = sums.lift([pairs.values.take(pa.array(marked))], np.zeros(len(marked), dtype=np.int64))
        add_to_sums(parts, at + 2, sums, lifted, codes)
