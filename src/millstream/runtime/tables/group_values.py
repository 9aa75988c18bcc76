"""The distinct values of large groups of tables that change: a row of the store for each group, aggregate and value, so
that a count is a number.

COUNT(DISTINCT …) has the values of a small group in the group's row, which is read and written whole whenever the group
gets rows. What a group costs must not grow with it: when there are many, they move into rows of their own. From then on
an epoch's values are looked up by group and value. One that comes for the first time, or goes for the last, changes the
count by one, and is added to the sums of SUM(DISTINCT …) and its kin, or taken away from them.

Values of tables that only grow have other rows (`group_marks`). Stores of before decision 0042 have these of them, too:
`ValuesOfEachAggregate` gives them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.counted_kernels import elsewhere
from millstream.aggregation.distinct_arguments import value_kind
from millstream.aggregation.kernels import kernels_of
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.marked_kernels import MarkedPairs
from millstream.aggregation.signed_kernels import negated
from millstream.common.typeinfo import RowTypeInfo, Types
from millstream.errors import StateSchemaError
from millstream.runtime.tables import spilled_values
from millstream.runtime.tables.spilled_values import ValueTables, add_to_sums, reject_absent, taken_out, totals
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, normalised
from millstream.state.stored.table_names import GROUP_VALUES
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["GroupValues", "ValuesOfEachAggregate"]


@dataclass(frozen=True)
class _Distinct:
    """A measure of distinct values: where its parts stand in what is kept, the number that its rows have in the table,
    and the kernel of sums, if there are any."""

    at: int
    number: int
    sums: Kernel | None


class GroupValues:
    """The values of large groups in one subtask: a table for each type of them. A row is told from others of its group
    by the number of the measure, and the value."""

    def __init__(self, stored_measures: Sequence[BoundAggregate], tables: ValueTables) -> None:
        self._tables: dict[pa.DataType, StateTable] = {}
        self._measures: dict[pa.DataType, list[_Distinct]] = {}
        self._behind: dict[pa.DataType, set[str]] = {}  # names of MIN and MAX before the values of a table
        heads: set[str] = set()
        place = 0
        for measure, number in zip(stored_measures, _numbers(stored_measures), strict=True):
            if measure.kind in ("counted_values", "summed_values") and _is_signed(measure):
                kind = value_kind(measure)
                assert kind is not None
                sums = kernels_of([measure.sums_elsewhere])[0] if measure.kind == "summed_values" else None
                self._measures.setdefault(kind, []).append(_Distinct(place, number, sums))
                self._behind.setdefault(kind, set()).update(heads)
                if kind not in self._tables:
                    self._tables[kind] = _table(measure, kind, tables)
            heads |= {measure.name} if measure.kind == "headed_values" else set()
            place += len(measure.parts)

    def check_numbers(self, groups: StateTable) -> None:
        """Refuse values that were stored when a MIN or MAX before them had one part, not two (until decision 0026):
        under the numbers of now they would not be found, and counts be too large. `groups`: the open table of groups'
        rows."""
        history = () if groups.schema is None else groups.schema.history
        for saved, following in pairwise(history):
            assert isinstance(saved.type, RowTypeInfo)
            names = set(saved.type.get_field_names())
            for kind, table in self._tables.items():
                moved = any(
                    f"{name}.values" in names and f"{name}.elsewhere" not in names for name in self._behind[kind]
                )
                if moved and any(ref.epoch < following.since for ref in table.view.refs):
                    raise StateSchemaError(
                        f"state '{table.name}' was stored by an earlier Millstream, which had the values of a DISTINCT "
                        "aggregate behind a MIN or MAX in other places than this one: they would not be found, and "
                        "results be wrong. Go on with the Millstream that stored it, or begin anew with another store, "
                        "or another uid of the query"
                    )

    def brought(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What an epoch brought, as it is kept: values of groups whose values have moved become changes of counts and
        sums."""

        def has_moved(part: int) -> Bools:
            moved = np.zeros(len(keys), dtype=np.bool_)
            moved[had] = elsewhere(stored[part + 1]) > 0
            return moved

        return self._moved(keys, list(parts), has_moved)

    def settled(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What is kept of groups, without the values of those that are large."""
        return self._moved(keys, list(parts), lambda part: flat(parts[part])[1] > spilled_values.VALUES_IN_ROW_MAX)

    def _moved(self, keys: KeyColumn, parts: Parts, chosen_by: Callable[[int], Bools]) -> Parts:
        """The parts with the values of the chosen groups as counts and sums."""
        for kind, measures in self._measures.items():
            chosen = [chosen_by(measure.at) for measure in measures]
            if not any(groups.any() for groups in chosen):
                continue
            values = [
                _Values(measure, *taken_out(parts, measure.at, groups))
                for measure, groups in zip(measures, chosen, strict=True)
            ]
            for each, signs in zip(values, _presence_changes(self._tables[kind], keys, values), strict=True):
                _count(parts, each, signs)
        return parts


class ValuesOfEachAggregate:
    """The rows that values of tables that only grow had when each aggregate had its own. `arguments`: the numbers of
    the aggregates of each."""

    def __init__(
        self, stored_measures: Sequence[BoundAggregate], arguments: Sequence[Sequence[int]], tables: ValueTables
    ) -> None:
        self._tables: dict[pa.DataType, StateTable] = {}
        self._arguments: list[tuple[pa.DataType, list[int]]] = []
        numbers = list(_numbers(stored_measures))
        for aggregates in arguments:
            first = stored_measures[aggregates[0]]
            kind = value_kind(first)
            assert kind is not None
            if kind not in self._tables:
                self._tables[kind] = _table(first, kind, tables)
            self._arguments.append((kind, [numbers[aggregate] for aggregate in aggregates]))

    def taken(self, keys: KeyColumn) -> Iterator[MarkedPairs]:
        """For each argument the values of these groups, which are no more; those of several aggregates not united."""
        rows = {kind: _all_of(table, keys) for kind, table in self._tables.items()}
        for kind, numbers in self._arguments:
            codes, subs = rows[kind]
            parts = subs.field(0).to_numpy()
            marks = np.zeros(len(parts), dtype=np.int64)
            for bit, number in enumerate(numbers):
                marks[parts == number] = 1 << bit
            yield MarkedPairs(codes, subs.field(1), marks).with_marks(marks)


def _all_of(table: StateTable, keys: KeyColumn) -> tuple[Int64s, pa.Array]:
    """The groups and subs of all rows of these groups, which are no more."""
    with_rows = np.flatnonzero(table.view.row_counts(keys)) if not table.view.is_empty else np.empty(0, dtype=np.int64)
    if not len(with_rows):
        return with_rows, pa.nulls(0, table.layout.sub_type)
    rows = table.view.scan_keys(keys.take(with_rows))
    codes = with_rows[rows.column("position").to_numpy()]
    table.changes.clear(keys.take(np.unique(codes)))
    return codes, rows.column("sub")


def _table(measure: BoundAggregate, kind: pa.DataType, tables: ValueTables) -> StateTable:
    type_info = measure.arguments[0].type_info
    assert type_info is not None
    sub = Types.ROW_NAMED(["part", "value"], [Types.SHORT(), type_info])
    return tables.table(f"{GROUP_VALUES} of {kind}", Types.LONG(), sub)


def _is_signed(measure: BoundAggregate) -> bool:
    """Whether rows are taken away, too."""
    return measure.inner is not None and measure.inner.kind == "signed_values"


def _numbers(stored_measures: Sequence[BoundAggregate]) -> Iterator[int]:
    """The number that the rows of each measure have in a table of values."""
    number = 0
    for measure in stored_measures:
        yield number
        number += _parts_once(measure)


def _parts_once(measure: BoundAggregate) -> int:
    """How many parts a measure had when rows of values were first numbered by them. More have come since; what is
    stored has the numbers of then."""
    if measure.kind in ("summed_values", "numbered_values"):
        assert measure.inner is not None
        return len(measure.inner.parts)
    if measure.kind == "counted_values":
        kind = value_kind(measure)
        assert kind is not None
        t = pa.types
        counted = (t.is_integer, t.is_string, t.is_date, t.is_time, t.is_timestamp, t.is_decimal)
        # Of other types all values were in the group's row then, and no number of those elsewhere.
        return 2 if any(is_kind(kind) for is_kind in counted) else 1
    return len(measure.parts)


@dataclass(frozen=True)
class _Values:
    """Values of one measure: the group of each, and the value itself, with how many times it comes or goes."""

    measure: _Distinct
    codes: Int64s
    rows: pa.Array


def _presence_changes(table: StateTable, keys: KeyColumn, values: Sequence[_Values]) -> list[Int64s]:
    """For each measure which of its values come (1), which go (-1); the store follows."""
    rows = pa.concat_arrays([each.rows for each in values])
    sizes = [len(each.rows) for each in values]
    numbers = np.repeat(np.array([each.measure.number for each in values], dtype=np.int16), sizes)
    subs = pa.StructArray.from_arrays([pa.array(numbers), normalised(rows.field(0))], type=table.layout.sub_type)
    pairs = keys.take(np.concatenate([each.codes for each in values]))
    before = np.zeros(len(rows), dtype=np.int64)
    if not table.view.is_empty:
        lookup = table.view.get_pairs(pairs, subs)
        if lookup.values is not None:
            before[lookup.mask] = lookup.values.to_numpy()
    after = before + rows.field(1).to_numpy()
    reject_absent(pairs, rows.field(0), after)
    put, gone = np.flatnonzero((after > 0) & (after != before)), np.flatnonzero((after == 0) & (before > 0))
    if len(put):
        table.changes.put(pairs.take(put), pa.array(after[put]), subs=subs.take(pa.array(put)))
    if len(gone):
        table.changes.delete(pairs.take(gone), subs=subs.take(pa.array(gone)))
    signs = (after > 0).astype(np.int64) - (before > 0)
    return np.split(signs, np.cumsum(sizes)[:-1])


def _count(parts: Parts, values: _Values, signs: Int64s) -> None:
    """Let counts and sums follow values that have come and gone."""
    at, sums, groups = values.measure.at, values.measure.sums, len(parts[values.measure.at])
    parts[at + 1] = pa.array(elsewhere(parts[at + 1]) + totals(values.codes, signs, groups))
    if sums is None:
        return
    changed = np.flatnonzero(signs)
    present = values.rows.field(0).take(pa.array(changed))
    lifted = negated(sums, sums.lift([present], np.zeros(len(changed), dtype=np.int64)), signs[changed])
    add_to_sums(parts, at + 2, sums, lifted, values.codes[changed])
