"""FIRST_VALUE and LAST_VALUE of groups over a changelog: values of large groups in arrival order.

When the first value is deleted, the next one must be known, so every value is stored. Rows with equal values are not
distinguished: FIRST_VALUE orders a value by when it last became present, so one that is deleted and inserted again,
even in one epoch, follows those that stayed; LAST_VALUE orders it by its last arrival. A small group stores its values
in its row, in arrival order (`SignedValues`). A large group stores them in two tables:

    places of values       (group, value) → its multiplicity, and its number
    values by place        (group, place) → the value

A group counts arrivals: the count at its arrival is a value's **number**. Its **place** is the number, negated for
LAST_VALUE, so that the result always has the smallest place. The group's row stores the result with its place. A change
is looked up by its value; when the result is deleted, an ordered read finds the next one after its place. So the cost
of a change does not grow with the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.counted_kernels import spilled_counts
from millstream.aggregation.distinct_arguments import value_kind
from millstream.aggregation.groups import Groups, groups_of, pair_groups
from millstream.aggregation.list_kernels import flat
from millstream.common.typeinfo import Types
from millstream.runtime.tables import spilled_values
from millstream.runtime.tables.spilled_values import ValueTables, measures_at, reject_absent, take_lists, totals
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, normalised
from millstream.state.stored.table_names import GROUP_ARRIVALS, GROUP_VALUE_PLACES
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["GroupArrivals", "has_arrivals"]

_COUNT, _ARRIVALS, _PLACE, _VALUE = 1, 2, 3, 4  # parts after the list


def has_arrivals(measure: BoundAggregate) -> bool:
    """Whether it is a FIRST_VALUE or LAST_VALUE over a changelog."""
    if measure.kind != "signed_values" or measure.inner is None or measure.inner.kind not in ("first", "last"):
        return False
    return value_kind(measure) is not None


@dataclass(frozen=True)
class _Edge:
    """A measure: the position of its columns in the accumulator, and its tables. `is_last`: the result is the last
    arrival. `rearrives`: inserting a value that is present counts as a new arrival."""

    at: int
    is_last: bool
    rearrives: bool
    places: StateTable
    arrivals: StateTable

    def places_of(self, numbers: Int64s) -> Int64s:
        return ~numbers if self.is_last else numbers


@dataclass(frozen=True)
class _Values:
    """Distinct values of groups: each with its group and key, its number of deletes, and its number of inserts after
    them. The values of a group are adjacent, in arrival order."""

    codes: Int64s
    values: pa.Array
    losses: Int64s
    gains: Int64s
    keys: KeyColumn


class GroupArrivals:
    """The spilled values of one subtask: two tables for each measure."""

    def __init__(self, stored_measures: Sequence[BoundAggregate], tables: ValueTables) -> None:
        self._edges: list[_Edge] = []
        for at, measure in measures_at(stored_measures, "numbered_values"):
            assert measure.inner is not None and measure.inner.inner is not None
            type_info = measure.arguments[0].type_info
            assert type_info is not None
            place = Types.ROW_NAMED(["times", "number"], [Types.LONG(), Types.LONG()])
            by_value = tables.table(
                f"{GROUP_VALUE_PLACES} of {measure.name}", place, Types.ROW_NAMED(["value"], [type_info])
            )
            by_place = tables.table(f"{GROUP_ARRIVALS} of {measure.name}", type_info, pa.int64())
            is_last = measure.inner.inner.kind == "last"
            self._edges.append(_Edge(at, is_last, is_last and measure.inner.detail != "distinct", by_value, by_place))

    def absorb(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """An epoch's input as it is stored: values of spilled groups are written to the tables, and the result may
        change."""
        parts = list(parts)
        for edge in self._edges:
            has_spilled = np.zeros(len(keys), dtype=np.bool_)
            has_spilled[was_stored] = spilled_counts(stored[edge.at + _COUNT]) > 0
            values = _take_values(edge, keys, parts, has_spilled) if has_spilled.any() else None
            if values is not None and len(values.codes):
                arrived, results = (np.zeros(len(keys), dtype=np.int64) for _ in range(2))
                arrived[was_stored] = spilled_counts(stored[edge.at + _ARRIVALS])
                results[was_stored] = spilled_counts(stored[edge.at + _PLACE])
                _apply(edge, keys, parts, values, arrived, results)
        return parts

    def spill(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """The accumulators without the values of large groups."""
        parts = list(parts)
        for edge in self._edges:
            large = flat(parts[edge.at])[1] > spilled_values.VALUES_IN_ROW_MAX
            if large.any():
                _spill(edge, keys, parts, _take_values(edge, keys, parts, large))
        return parts


def _take_values(edge: _Edge, keys: KeyColumn, parts: Parts, groups: Bools) -> _Values:
    """Remove the values of these groups from their lists."""
    codes, rows = take_lists(parts, edge.at, groups)
    # A value may be in a list twice: deleted, then inserted.
    values, times = rows.field(0), rows.field(1).to_numpy()
    losses, gains = -np.minimum(times, 0), np.maximum(times, 0)
    if losses.any():
        pairs = pair_groups(Groups(codes, len(keys)), groups_of(values))
        places = np.sort(pairs.lasts()[pairs.sizes > 0])  # the last occurrence of each value
        chosen = pairs.codes[places]
        losses, gains = (totals(pairs.codes, each, pairs.count)[chosen] for each in (losses, gains))
        codes, values = codes[places], values.take(pa.array(places))
    return _Values(codes, values, losses, gains, keys.take(codes))


def _apply(edge: _Edge, keys: KeyColumn, parts: Parts, values: _Values, arrived: Int64s, result_places: Int64s) -> None:
    """Apply changes to the tables, and to the result parts where the result changes. `arrived`: the arrival count of
    each group before; `result_places`: the place of its result before."""
    subs = _subs(edge, values)
    before, known_numbers = _stored_entries(edge, values, subs)
    lowest = before - values.losses
    after = lowest + values.gains
    reject_absent(values.keys, values.values, after)
    arrives = (after > 0) & (values.gains > 0 if edge.rearrives else lowest <= 0)
    leaves = (before > 0) & ((after == 0) | arrives)
    old_places, numbers = edge.places_of(known_numbers), known_numbers.copy()
    fresh = np.flatnonzero(arrives)
    numbers[fresh] = arrived[values.codes[fresh]] + _ranks(values.codes[fresh])
    _write(edge, values, subs, np.flatnonzero((after > 0) & ((after != before) | arrives)), after, numbers)
    removed = np.flatnonzero((after == 0) & (before > 0))
    if len(removed):
        edge.places.changes.delete(values.keys.take(removed), subs=subs.take(pa.array(removed)))
    leaving = np.flatnonzero(leaves)
    if len(leaving):
        edge.arrivals.changes.delete(values.keys.take(leaving), subs=pa.array(old_places[leaving]))
    _arrive(edge, values, fresh, numbers)
    counts = totals(values.codes, (after > 0).astype(np.int64) - (before > 0), len(keys))
    _add(parts, edge.at + _COUNT, counts)
    _add(parts, edge.at + _ARRIVALS, np.bincount(values.codes[fresh], minlength=len(keys)))
    result_left = np.zeros(len(keys), dtype=np.bool_)
    result_left[values.codes[leaving][old_places[leaving] == result_places[values.codes[leaving]]]] = True
    at = np.full(len(keys), -1, dtype=np.int64)
    if edge.is_last:  # the last arrival is the result
        at[values.codes[fresh]] = fresh
    places, results = edge.places_of(numbers)[at], values.values.take(pa.array(at, mask=at < 0))
    _set_results(edge, parts, at >= 0, places, results)
    _find_next(edge, keys, parts, np.flatnonzero(result_left & (at < 0)), result_places)


def _stored_entries(edge: _Edge, values: _Values, subs: pa.Array) -> tuple[Int64s, Int64s]:
    """The stored multiplicity of each value, and its number."""
    times, numbers = (np.zeros(len(values.codes), dtype=np.int64) for _ in range(2))
    if not edge.places.view.is_empty:
        lookup = edge.places.view.get_pairs(values.keys, subs)
        assert lookup.values is not None
        times[lookup.mask] = lookup.values.field("times").to_numpy()
        numbers[lookup.mask] = lookup.values.field("number").to_numpy()
    return times, numbers


def _subs(edge: _Edge, values: _Values) -> pa.Array:
    """Values as sub-keys, normalised so that equal values have equal bytes."""
    return pa.StructArray.from_arrays([normalised(values.values)], type=edge.places.layout.sub_type)


def _ranks(codes: Int64s) -> Int64s:
    """0, 1, 2, … within each run of equal codes."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    return np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))


def _write(edge: _Edge, values: _Values, subs: pa.Array, rows: Int64s, times: Int64s, numbers: Int64s) -> None:
    """Store multiplicities and numbers of values."""
    if len(rows):
        columns = [pa.array(times[rows]), pa.array(numbers[rows])]
        entries = pa.StructArray.from_arrays(columns, type=edge.places.layout.value_type)
        edge.places.changes.put(values.keys.take(rows), entries, subs=subs.take(pa.array(rows)))


def _arrive(edge: _Edge, values: _Values, rows: Int64s, numbers: Int64s) -> None:
    """Store values at their places."""
    if len(rows):
        places = pa.array(edge.places_of(numbers[rows]))
        edge.arrivals.changes.put(values.keys.take(rows), values.values.take(pa.array(rows)), subs=places)


def _add(parts: Parts, at: int, amounts: Int64s) -> None:
    parts[at] = pa.array(spilled_counts(parts[at]) + amounts)


def _set_results(edge: _Edge, parts: Parts, groups: Bools, places: Int64s, values: pa.Array) -> None:
    """Set the results of these groups; `places` and `values` have an entry for every group, used or not."""
    place, value = edge.at + _PLACE, edge.at + _VALUE
    at = pa.array(np.where(groups, len(groups), 0) + np.arange(len(groups)))
    parts[place] = pa.concat_arrays([parts[place], pa.array(places)]).take(at)
    parts[value] = pa.concat_arrays([parts[value], values]).take(at)


def _find_next(edge: _Edge, keys: KeyColumn, parts: Parts, groups: Int64s, result_places: Int64s) -> None:
    """Set the next value as the result where the result was deleted. A group without values has no rows in the
    tables."""
    if not len(groups):
        return
    table = edge.arrivals
    table.settle()  # includes this epoch's changes
    following = table.view.first_rows(keys.take(groups), result_places[groups] + 1, 1)
    owners = groups[following.column("position").to_numpy()]
    at = np.full(len(keys), -1, dtype=np.int64)
    at[owners] = np.arange(len(owners))
    places = np.zeros(len(keys), dtype=np.int64)
    places[owners] = following.column("sub").to_numpy()
    _set_results(edge, parts, at >= 0, places, following.column("value").take(pa.array(at, mask=at < 0)))


def _spill(edge: _Edge, keys: KeyColumn, parts: Parts, values: _Values) -> None:
    """Spill the values of groups that have become large. The tables have no rows of these groups yet."""
    times = values.gains - values.losses
    reject_absent(values.keys, values.values, times)
    ranks = _ranks(values.codes)
    numbers = spilled_counts(parts[edge.at + _ARRIVALS])[values.codes] + ranks
    everything = np.arange(len(numbers))
    _write(edge, values, _subs(edge, values), everything, times, numbers)
    _arrive(edge, values, everything, numbers)
    sizes = np.bincount(values.codes, minlength=len(keys))
    _add(parts, edge.at + _COUNT, sizes)
    _add(parts, edge.at + _ARRIVALS, sizes)
    ends = np.cumsum(sizes)
    at = np.where(sizes > 0, ends - 1 if edge.is_last else ends - sizes, -1)
    _set_results(edge, parts, at >= 0, edge.places_of(numbers)[at], values.values.take(pa.array(at, mask=at < 0)))
