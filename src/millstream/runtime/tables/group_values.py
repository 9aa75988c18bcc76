"""The distinct values of large groups: a row of the store for each group and value, so that a count is a number.

COUNT(DISTINCT …) has the values of a small group in the group's row, which is read and written whole whenever the group
gets rows. What a group costs must not grow with it: when there are many, they move into rows of their own. From then on
an epoch's values are looked up by group and value. One that comes for the first time, or goes for the last, changes the
count by one, and is added to the sums of SUM(DISTINCT …) and its kin, or taken away from them. Of a table that only
grows, a value that is there is not written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.counted_kernels import elsewhere
from millstream.aggregation.groups import Groups
from millstream.aggregation.kernels import kernels_of
from millstream.aggregation.list_kernels import flat
from millstream.aggregation.signed_kernels import negated
from millstream.common.typeinfo import RowTypeInfo, Types
from millstream.errors import StateSchemaError
from millstream.runtime.tables import values_apart
from millstream.runtime.tables.values_apart import ValueTables, lists_of, refuse_absent, totals, value_kind
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, normalised
from millstream.state.stored.table_names import GROUP_VALUES
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.measures import Measure, signed_numbers

__all__ = ["GroupValues", "distinct_kind"]


def distinct_kind(measure: Measure) -> str | None:
    """What is kept of an aggregate of distinct values that is a count or a sum; None of others."""
    is_distinct = measure.kind == "distinct" or (measure.kind == "signed_values" and measure.detail == "distinct")
    if not is_distinct or measure.inner is None or value_kind(measure) is None:
        return None
    if measure.inner.kind == "count":
        return "counted_values"
    return None if signed_numbers(measure.inner) is None else "summed_values"


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

    def __init__(self, stored_measures: Sequence[Measure], tables: ValueTables) -> None:
        self._tables: dict[pa.DataType, StateTable] = {}
        self._measures: dict[pa.DataType, list[_Distinct]] = {}
        self._behind: dict[pa.DataType, set[str]] = {}  # names of MIN and MAX before the values of a table
        heads: set[str] = set()
        types: dict[pa.DataType, list[Any]] = {}
        place = number = 0
        for measure in stored_measures:
            if measure.kind in ("counted_values", "summed_values"):
                kind = value_kind(measure)
                assert kind is not None
                sums = kernels_of([measure.sums_elsewhere])[0] if measure.kind == "summed_values" else None
                self._measures.setdefault(kind, []).append(_Distinct(place, number, sums))
                self._behind.setdefault(kind, set()).update(heads)
                types[kind] = [Types.SHORT(), measure.looks[0].type_info]
            heads |= {measure.name} if measure.kind == "headed_values" else set()
            place += len(measure.parts)
            number += _parts_once(measure)
        for kind in self._measures:
            sub = Types.ROW_NAMED(["part", "value"], types[kind])
            self._tables[kind] = tables.table(f"{GROUP_VALUES} of {kind}", Types.LONG(), sub)

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
        return self._moved(keys, list(parts), lambda part: flat(parts[part])[1] > values_apart.VALUES_IN_ROW_MAX)

    def _moved(self, keys: KeyColumn, parts: Parts, chosen_by: Callable[[int], Bools]) -> Parts:
        """The parts with the values of the chosen groups as counts and sums."""
        for kind, measures in self._measures.items():
            chosen = [chosen_by(measure.at) for measure in measures]
            if not any(groups.any() for groups in chosen):
                continue
            values: list[_Values] = []
            for measure, groups in zip(measures, chosen, strict=True):
                rows, lengths = flat(parts[measure.at])
                codes = np.repeat(np.arange(len(keys)), lengths)
                moves = groups[codes]
                values.append(_Values(measure, codes[moves], rows.filter(pa.array(moves))))
                left = rows.filter(pa.array(~moves))
                parts[measure.at] = lists_of(left, np.where(groups, 0, lengths), parts[measure.at].type)
            for each, signs in zip(values, _presence_changes(self._tables[kind], keys, values), strict=True):
                _count(parts, each, signs)
        return parts


def _parts_once(measure: Measure) -> int:
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
    """Values of one measure: the group of each, and the value itself, with the number of times where rows may go."""

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
    # Of a table that only grows it is enough that a value is there.
    is_signed = rows.type.num_fields > 1
    after = before + rows.field(1).to_numpy() if is_signed else np.ones(len(rows), dtype=np.int64)
    refuse_absent(pairs, rows.field(0), after)
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
    own = slice(at + 2, at + 2 + len(lifted))
    both = [pa.concat_arrays(pair) for pair in zip(parts[own], lifted, strict=True)]
    parts[own] = sums.combine(both, Groups(np.concatenate([np.arange(groups), values.codes[changed]]), groups))
