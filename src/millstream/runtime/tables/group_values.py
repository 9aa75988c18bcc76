"""Distinct values of large groups over a changelog: one row per group, aggregate and value; the group's row has the
count.

COUNT(DISTINCT …) stores the values of a small group in the group's row, which is read and written whole whenever the
group receives rows. The cost of a group must not grow with its size, so values of large groups spill to separate rows.
From then on an epoch looks up its values by group and value. A value that appears first, or disappears, changes the
count by one and is added to or subtracted from the sums of SUM(DISTINCT …) and similar aggregates.

Values of append-only tables are stored in `group_marks`. Stores from before decision 0039 have them in these rows:
`ValuesOfEachAggregate` reads and removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.counted_kernels import spilled_counts
from millstream.aggregation.distinct_arguments import value_kind
from millstream.aggregation.kernels import kernels_of
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.marked_kernels import MarkedPairs
from millstream.aggregation.signed_kernels import negated
from millstream.common.typeinfo import RowTypeInfo, Types
from millstream.errors import StateSchemaError
from millstream.runtime.tables import spilled_values
from millstream.runtime.tables.spilled_values import ValueTables, add_to_sums, reject_absent, take_lists, totals
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, normalised
from millstream.state.stored.table_names import GROUP_VALUES
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["GroupValues", "ValuesOfEachAggregate"]


@dataclass(frozen=True)
class _Distinct:
    """A measure of distinct values: the position of its parts in the accumulator, the number of its rows in the table,
    and the kernel of its sums, if it has sums."""

    at: int
    number: int
    sums: Kernel | None


class GroupValues:
    """The spilled values of one subtask: a table for each value type. The sub-key of a row is the number of the
    measure, and the value."""

    def __init__(self, stored_measures: Sequence[BoundAggregate], tables: ValueTables) -> None:
        self._tables: dict[pa.DataType, StateTable] = {}
        self._measures: dict[pa.DataType, list[_Distinct]] = {}
        self._preceding_heads: dict[
            pa.DataType, set[str]
        ] = {}  # names of the MIN and MAX that precede the values of a table
        heads: set[str] = set()
        place = 0
        for measure, number in zip(stored_measures, _numbers(stored_measures), strict=True):
            if measure.kind in ("counted_values", "summed_values") and _is_signed(measure):
                kind = value_kind(measure)
                assert kind is not None
                sums = kernels_of([measure.sums_elsewhere])[0] if measure.kind == "summed_values" else None
                self._measures.setdefault(kind, []).append(_Distinct(place, number, sums))
                self._preceding_heads.setdefault(kind, set()).update(heads)
                if kind not in self._tables:
                    self._tables[kind] = _table(measure, kind, tables)
            heads |= {measure.name} if measure.kind == "headed_values" else set()
            place += len(measure.parts)

    def check_numbers(self, groups: StateTable) -> None:
        """Reject values that were stored when a preceding MIN or MAX had one part, not two (until decision 0026):
        lookups would miss them under their old numbers, and counts would be too large. `groups`: the open table of
        group rows."""
        history = () if groups.schema is None else groups.schema.history
        for saved, following in pairwise(history):
            assert isinstance(saved.type, RowTypeInfo)
            names = set(saved.type.get_field_names())
            for kind, table in self._tables.items():
                moved = any(
                    f"{name}.values" in names and f"{name}.elsewhere" not in names
                    for name in self._preceding_heads[kind]
                )
                if moved and any(ref.epoch < following.since for ref in table.view.refs):
                    raise StateSchemaError(
                        f"state '{table.name}' was stored by an older version, which numbered the values of a DISTINCT "
                        "aggregate after a MIN or MAX differently: lookups would miss them and "
                        "results would be wrong. Use the version that stored it, or start afresh with another store "
                        "or another uid for the query"
                    )

    def absorb(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """An epoch's input as it is stored: values of groups that have spilled become changes of counts and sums."""

        def has_moved(part: int) -> Bools:
            moved = np.zeros(len(keys), dtype=np.bool_)
            moved[was_stored] = spilled_counts(stored[part + 1]) > 0
            return moved

        return self._spilled(keys, list(parts), has_moved)

    def spill(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """The accumulators without the values of large groups."""
        return self._spilled(keys, list(parts), lambda part: flat(parts[part])[1] > spilled_values.VALUES_IN_ROW_MAX)

    def _spilled(self, keys: KeyColumn, parts: Parts, chosen_by: Callable[[int], Bools]) -> Parts:
        """The parts with the values of the chosen groups replaced by counts and sums."""
        for kind, measures in self._measures.items():
            chosen = [chosen_by(measure.at) for measure in measures]
            if not any(groups.any() for groups in chosen):
                continue
            values = [
                _Values(measure, *take_lists(parts, measure.at, groups))
                for measure, groups in zip(measures, chosen, strict=True)
            ]
            for each, signs in zip(values, _presence_changes(self._tables[kind], keys, values), strict=True):
                _count(parts, each, signs)
        return parts


class ValuesOfEachAggregate:
    """Values of append-only tables in the old layout, with separate rows for each aggregate. `arguments` lists the
    aggregates of each argument."""

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

    def remove(self, keys: KeyColumn) -> Iterator[MarkedPairs]:
        """Remove these groups' values and return them for each argument; values of several aggregates are not
        merged."""
        rows = {kind: _all_of(table, keys) for kind, table in self._tables.items()}
        for kind, numbers in self._arguments:
            codes, subs = rows[kind]
            parts = subs.field(0).to_numpy()
            marks = np.zeros(len(parts), dtype=np.int64)
            for bit, number in enumerate(numbers):
                marks[parts == number] = 1 << bit
            yield MarkedPairs(codes, subs.field(1), marks).with_marks(marks)


def _all_of(table: StateTable, keys: KeyColumn) -> tuple[Int64s, pa.Array]:
    """Remove all rows of these groups; their groups and sub-keys."""
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
    """Whether the input has deletes."""
    return measure.inner is not None and measure.inner.kind == "signed_values"


def _numbers(stored_measures: Sequence[BoundAggregate]) -> Iterator[int]:
    """The number of each measure's rows in a table of values."""
    number = 0
    for measure in stored_measures:
        yield number
        number += _parts_at_first(measure)


def _parts_at_first(measure: BoundAggregate) -> int:
    """The number of accumulator columns a measure had when its rows were first numbered by them. Columns have been
    added since; stored rows keep the old numbers."""
    if measure.kind in ("summed_values", "numbered_values"):
        assert measure.inner is not None
        return len(measure.inner.parts)
    if measure.kind == "counted_values":
        kind = value_kind(measure)
        assert kind is not None
        t = pa.types
        counted = (t.is_integer, t.is_string, t.is_date, t.is_time, t.is_timestamp, t.is_decimal)
        # At that time values of other types were all in the group's row, without a count of spilled values.
        return 2 if any(is_kind(kind) for is_kind in counted) else 1
    return len(measure.parts)


@dataclass(frozen=True)
class _Values:
    """Values of one measure, each with its group and the change of its multiplicity."""

    measure: _Distinct
    codes: Int64s
    rows: pa.Array


def _presence_changes(table: StateTable, keys: KeyColumn, values: Sequence[_Values]) -> list[Int64s]:
    """For each measure, 1 for each value that appears and -1 for each that disappears; also updates the store."""
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
    put, removed = np.flatnonzero((after > 0) & (after != before)), np.flatnonzero((after == 0) & (before > 0))
    if len(put):
        table.changes.put(pairs.take(put), pa.array(after[put]), subs=subs.take(pa.array(put)))
    if len(removed):
        table.changes.delete(pairs.take(removed), subs=subs.take(pa.array(removed)))
    signs = (after > 0).astype(np.int64) - (before > 0)
    return np.split(signs, np.cumsum(sizes)[:-1])


def _count(parts: Parts, values: _Values, signs: Int64s) -> None:
    """Update counts and sums by values that appeared and disappeared."""
    at, sums, groups = values.measure.at, values.measure.sums, len(parts[values.measure.at])
    parts[at + 1] = pa.array(spilled_counts(parts[at + 1]) + totals(values.codes, signs, groups))
    if sums is None:
        return
    changed = np.flatnonzero(signs)
    present = values.rows.field(0).take(pa.array(changed))
    lifted = negated(sums, sums.lift([present], np.zeros(len(changed), dtype=np.int64)), signs[changed])
    add_to_sums(parts, at + 2, sums, lifted, values.codes[changed])
