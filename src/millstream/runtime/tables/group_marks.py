"""The distinct values of large groups of tables that only grow: a row for each group, argument and value.

All DISTINCT aggregates of one argument (`aggregation.distinct_arguments`) share the rows of its values. What a row has
is the **marks** of those aggregates that have counted the value: a value is looked up once and written once, however
many of them saw it, and not again as long as no other aggregate does. An aggregate of whose values none have left the
group's row yet (it was added later, or its FILTER lets few rows pass) has no marks in that group's rows: whose values
have left, each aggregate's number of values elsewhere says.

What an epoch brought waits until it is known which other values leave their row with it, since both may be of one row.

Until decision 0042 each aggregate had rows of its own (`group_values`). Those of groups that get rows become marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.counted_kernels import elsewhere
from millstream.aggregation.distinct_arguments import value_kind
from millstream.aggregation.kernels import kernels_of
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.marked_kernels import MarkedPairs, united
from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import StateSchemaError
from millstream.runtime.tables import spilled_values
from millstream.runtime.tables.group_values import ValuesOfEachAggregate
from millstream.runtime.tables.spilled_values import ValueTables, add_to_sums, lists_of, taken_out
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, normalised, plain_view, plain_view_type
from millstream.state.stored.accounts import SubtaskAccount, tables_of
from millstream.state.stored.table_names import GROUP_MARKS
from millstream.state.tables.state_table import StateTable, last_versions
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["GroupMarks"]


@dataclass(frozen=True)
class _Marked:
    """An aggregate: where its parts stand in what is kept, the type of its lists, and the kernel of sums, if there are
    any."""

    at: int
    list_kind: pa.DataType
    sums: Kernel | None

    @classmethod
    def of(cls, measure: BoundAggregate, at: int) -> _Marked:
        sums = kernels_of([measure.sums_elsewhere])[0] if measure.kind == "summed_values" else None
        return cls(at, kernels_of([measure])[0].part_kinds[0], sums)


@dataclass(frozen=True)
class _Argument:
    """An argument: its aggregates, in the order of their marks, and the table of its values."""

    aggregates: tuple[_Marked, ...]
    table: StateTable

    def subs(self, values: pa.Array) -> pa.Array:
        """Values as the table tells rows of a group apart by them: whole numbers and times need no hash."""
        if plain_view_type(values.type) is not None:
            return pa.array(plain_view(values).astype(np.int64, copy=False))
        return pa.StructArray.from_arrays([normalised(values)], type=self.table.layout.sub_type)


class GroupMarks:
    """The values of large groups in one subtask: a table for each argument. `arguments`: the numbers of the aggregates
    of each."""

    def __init__(
        self, stored_measures: Sequence[BoundAggregate], arguments: Sequence[Sequence[int]], tables: ValueTables
    ) -> None:
        places = np.cumsum([0, *(len(measure.parts) for measure in stored_measures)]).tolist()
        self._arguments: list[_Argument] = []
        for numbers in arguments:
            first = stored_measures[numbers[0]]
            table = tables.table(f"{GROUP_MARKS} of {first.name}", Types.LONG(), _sub_type(first))
            aggregates = tuple(_Marked.of(stored_measures[number], places[number]) for number in numbers)
            self._arguments.append(_Argument(aggregates, table))
        self._before = ValuesOfEachAggregate(stored_measures, arguments, tables)
        self._waiting: list[MarkedPairs] = []

    def check_names(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Refuse values of aggregates that were the first of an argument, and are not so now."""
        names = {argument.table.name for argument in self._arguments}
        for name, refs in last_versions(tables_of(accounts)).items():
            if refs and name.startswith(f"{GROUP_MARKS} of ") and name not in names:
                raise _shared_otherwise(name)

    def brought(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What an epoch brought, as it is kept: values of aggregates whose values have left a group wait, the others
        are lists. The values of an argument come in the place of its first aggregate, with marks if it has several."""
        parts = list(parts)
        for argument, pairs in zip(self._arguments, self._before.taken(keys), strict=True):
            if len(pairs):
                marked = united(pairs, len(keys))
                subs = argument.subs(marked.values)
                argument.table.changes.put(keys.take(marked.codes), pa.array(marked.marks), subs=subs)
                argument.table.settle()
        self._waiting = []
        for argument in self._arguments:
            pairs = _pairs_of(parts[argument.aggregates[0].at])
            have_left = np.zeros(len(keys), dtype=np.int64)
            for bit, aggregate in enumerate(argument.aggregates):
                have_left[had] |= (elsewhere(stored[aggregate.at + 1]) > 0).astype(np.int64) << bit
            if argument.table.view.is_empty and have_left.any():
                raise _shared_otherwise(argument.table.name)
            away = have_left[pairs.codes]
            _list(argument, parts, pairs.with_marks(pairs.marks & ~away), len(keys))
            self._waiting.append(pairs.with_marks(pairs.marks & away))
        return parts

    def settled(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What is kept of groups, without the values of those that are large."""
        parts = list(parts)
        for argument, waiting in zip(self._arguments, self._waiting, strict=True):
            pieces = [waiting]
            for bit, aggregate in enumerate(argument.aggregates):
                large = flat(parts[aggregate.at])[1] > spilled_values.VALUES_IN_ROW_MAX
                if large.any():
                    codes, rows = taken_out(parts, aggregate.at, large)
                    pieces.append(MarkedPairs(codes, rows.field(0), np.full(len(codes), 1 << bit, dtype=np.int64)))
            pairs = waiting if len(pieces) == 1 else united(MarkedPairs.concat(pieces), len(keys))
            if len(pairs):
                _count(argument, parts, pairs, _newly_marked(argument, keys, pairs))
        self._waiting = []
        return parts


def _shared_otherwise(name: str) -> StateSchemaError:
    return StateSchemaError(
        f"state '{name}' was stored by a Millstream in which other DISTINCT aggregates of this query had an argument "
        "in common: their values would not be found, and results be wrong. Go on with the Millstream that stored it, "
        "or begin anew with another store, or another uid of the query"
    )


def _sub_type(measure: BoundAggregate) -> TypeInformation:
    """The type by which the values of a measure are told apart."""
    type_info = measure.arguments[0].type_info
    kind = value_kind(measure)
    assert type_info is not None and kind is not None
    return Types.LONG() if plain_view_type(kind) is not None else Types.ROW_NAMED(["value"], [type_info])


def _pairs_of(lists: pa.Array) -> MarkedPairs:
    """What came of an argument. The values of one aggregate alone have no marks: it has the first."""
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
    """The marks of each value that it did not have; the store follows."""
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
    """Let counts and sums follow values that are marked for the first time."""
    for bit, aggregate in enumerate(argument.aggregates):
        marked = np.flatnonzero(fresh >> bit & 1)
        at, sums, codes, groups = aggregate.at, aggregate.sums, pairs.codes[marked], len(parts[aggregate.at])
        parts[at + 1] = pa.array(elsewhere(parts[at + 1]) + np.bincount(codes, minlength=groups))
        if sums is None or not len(marked):
            continue
        lifted = sums.lift([pairs.values.take(pa.array(marked))], np.zeros(len(marked), dtype=np.int64))
        add_to_sums(parts, at + 2, sums, lifted, codes)
