"""FIRST_VALUE and LAST_VALUE of groups whose rows go, too: values of large groups by the order in which they came.

When the first value goes, the next one must be known, so every value is kept. Rows with equal values are not told
apart: for FIRST_VALUE a value is where its stay began, so one that goes and comes again, be it in one epoch, is behind
those that stayed; for LAST_VALUE it is where it came last. A small group has its values in its row, as they came
(`SignedValues`). Those of a large one are in two tables:

    places of values       (group, value) → how often it is there, and its number
    values as they came    (group, place) → the value

A group counts what arrives: that is a value's **number**. Its **place** is the number, for LAST_VALUE the other way
round, so that the result is always at the first place. The group's row has the result, with its place. A change is
looked up by its value; where the result goes, the next one is the first row behind its place, found by an ordered read.
So what a change costs does not grow with the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.counted_kernels import elsewhere
from millstream.aggregation.distinct_arguments import value_kind
from millstream.aggregation.groups import Groups, groups_of, pair_groups
from millstream.aggregation.list_kernels import flat
from millstream.common.typeinfo import Types
from millstream.runtime.tables import spilled_values
from millstream.runtime.tables.spilled_values import ValueTables, measures_at, reject_absent, taken_out, totals
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, normalised
from millstream.state.stored.table_names import GROUP_ARRIVALS, GROUP_VALUE_PLACES
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["GroupArrivals", "has_arrivals"]

_COUNT, _ARRIVALS, _PLACE, _VALUE = 1, 2, 3, 4  # parts behind the list


def has_arrivals(measure: BoundAggregate) -> bool:
    """Whether it is a FIRST_VALUE or LAST_VALUE of rows that are taken away, too."""
    if measure.kind != "signed_values" or measure.inner is None or measure.inner.kind not in ("first", "last"):
        return False
    return value_kind(measure) is not None


@dataclass(frozen=True)
class _Edge:
    """A measure: where its parts stand in what is kept, and its tables. `is_last`: the result is the value that came
    last. `comes_again`: a value that is there already has come anew."""

    at: int
    is_last: bool
    comes_again: bool
    places: StateTable
    arrivals: StateTable

    def places_of(self, numbers: Int64s) -> Int64s:
        return ~numbers if self.is_last else numbers


@dataclass(frozen=True)
class _Values:
    """Values of groups, each once: how often it goes, and how often it comes after that; the group of each, and its
    key. Those of a group stand together, as they came."""

    codes: Int64s
    values: pa.Array
    losses: Int64s
    gains: Int64s
    keys: KeyColumn


class GroupArrivals:
    """The values of large groups in one subtask: two tables for each measure."""

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

    def brought(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What an epoch brought, as it is kept: values of groups whose values have moved go to the tables, and perhaps
        another one is the result."""
        parts = list(parts)
        for edge in self._edges:
            moved = np.zeros(len(keys), dtype=np.bool_)
            moved[had] = elsewhere(stored[edge.at + _COUNT]) > 0
            values = _taken(edge, keys, parts, moved) if moved.any() else None
            if values is not None and len(values.codes):
                arrived, results = (np.zeros(len(keys), dtype=np.int64) for _ in range(2))
                arrived[had] = elsewhere(stored[edge.at + _ARRIVALS])
                results[had] = elsewhere(stored[edge.at + _PLACE])
                _follow(edge, keys, parts, values, arrived, results)
        return parts

    def settled(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What is kept of groups, without the values of those that are large."""
        parts = list(parts)
        for edge in self._edges:
            large = flat(parts[edge.at])[1] > spilled_values.VALUES_IN_ROW_MAX
            if large.any():
                _move(edge, keys, parts, _taken(edge, keys, parts, large))
        return parts


def _taken(edge: _Edge, keys: KeyColumn, parts: Parts, groups: Bools) -> _Values:
    """The values of these groups, out of their lists."""
    codes, rows = taken_out(parts, edge.at, groups)
    # A value may stand twice in a list: it goes, and then it comes.
    values, times = rows.field(0), rows.field(1).to_numpy()
    losses, gains = -np.minimum(times, 0), np.maximum(times, 0)
    if losses.any():
        pairs = pair_groups(Groups(codes, len(keys)), groups_of(values))
        places = np.sort(pairs.lasts()[pairs.sizes > 0])  # where it comes, if it does
        chosen = pairs.codes[places]
        losses, gains = (totals(pairs.codes, each, pairs.count)[chosen] for each in (losses, gains))
        codes, values = codes[places], values.take(pa.array(places))
    return _Values(codes, values, losses, gains, keys.take(codes))


def _follow(
    edge: _Edge, keys: KeyColumn, parts: Parts, values: _Values, arrived: Int64s, result_places: Int64s
) -> None:
    """Let the tables follow changes, and the parts say what is the result, where that is another one. `arrived`: how
    many values had come to each group, `result_places`: where its result was."""
    subs = _subs(edge, values)
    before, known_numbers = _known(edge, values, subs)
    lowest = before - values.losses
    after = lowest + values.gains
    reject_absent(values.keys, values.values, after)
    comes = (after > 0) & (values.gains > 0 if edge.comes_again else lowest <= 0)
    goes = (before > 0) & ((after == 0) | comes)
    old_places, numbers = edge.places_of(known_numbers), known_numbers.copy()
    fresh = np.flatnonzero(comes)
    numbers[fresh] = arrived[values.codes[fresh]] + _ranks(values.codes[fresh])
    _write(edge, values, subs, np.flatnonzero((after > 0) & ((after != before) | comes)), after, numbers)
    gone = np.flatnonzero((after == 0) & (before > 0))
    if len(gone):
        edge.places.changes.delete(values.keys.take(gone), subs=subs.take(pa.array(gone)))
    left = np.flatnonzero(goes)
    if len(left):
        edge.arrivals.changes.delete(values.keys.take(left), subs=pa.array(old_places[left]))
    _arrive(edge, values, fresh, numbers)
    counts = totals(values.codes, (after > 0).astype(np.int64) - (before > 0), len(keys))
    _add(parts, edge.at + _COUNT, counts)
    _add(parts, edge.at + _ARRIVALS, np.bincount(values.codes[fresh], minlength=len(keys)))
    is_away = np.zeros(len(keys), dtype=np.bool_)
    is_away[values.codes[left][old_places[left] == result_places[values.codes[left]]]] = True
    at = np.full(len(keys), -1, dtype=np.int64)
    if edge.is_last:  # what came last is the result
        at[values.codes[fresh]] = fresh
    places, results = edge.places_of(numbers)[at], values.values.take(pa.array(at, mask=at < 0))
    _set_results(edge, parts, at >= 0, places, results)
    _find_next(edge, keys, parts, np.flatnonzero(is_away & (at < 0)), result_places)


def _known(edge: _Edge, values: _Values, subs: pa.Array) -> tuple[Int64s, Int64s]:
    """How often each value was there, and its number."""
    times, numbers = (np.zeros(len(values.codes), dtype=np.int64) for _ in range(2))
    if not edge.places.view.is_empty:
        lookup = edge.places.view.get_pairs(values.keys, subs)
        assert lookup.values is not None
        times[lookup.mask] = lookup.values.field("times").to_numpy()
        numbers[lookup.mask] = lookup.values.field("number").to_numpy()
    return times, numbers


def _subs(edge: _Edge, values: _Values) -> pa.Array:
    """Values as they are looked up: what is equal is so by its bytes."""
    return pa.StructArray.from_arrays([normalised(values.values)], type=edge.places.layout.sub_type)


def _ranks(codes: Int64s) -> Int64s:
    """0, 1, 2, … within each run of equal codes."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    return np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))


def _write(edge: _Edge, values: _Values, subs: pa.Array, rows: Int64s, times: Int64s, numbers: Int64s) -> None:
    """Note how often values are there, and their numbers."""
    if len(rows):
        columns = [pa.array(times[rows]), pa.array(numbers[rows])]
        noted = pa.StructArray.from_arrays(columns, type=edge.places.layout.value_type)
        edge.places.changes.put(values.keys.take(rows), noted, subs=subs.take(pa.array(rows)))


def _arrive(edge: _Edge, values: _Values, rows: Int64s, numbers: Int64s) -> None:
    """Put values to their places."""
    if len(rows):
        places = pa.array(edge.places_of(numbers[rows]))
        edge.arrivals.changes.put(values.keys.take(rows), values.values.take(pa.array(rows)), subs=places)


def _add(parts: Parts, at: int, amounts: Int64s) -> None:
    parts[at] = pa.array(elsewhere(parts[at]) + amounts)


def _set_results(edge: _Edge, parts: Parts, groups: Bools, places: Int64s, values: pa.Array) -> None:
    """Say what is the result of these groups; `places` and `values` have one for each group, whether it counts or
    not."""
    place, value = edge.at + _PLACE, edge.at + _VALUE
    at = pa.array(np.where(groups, len(groups), 0) + np.arange(len(groups)))
    parts[place] = pa.concat_arrays([parts[place], pa.array(places)]).take(at)
    parts[value] = pa.concat_arrays([parts[value], values]).take(at)


def _find_next(edge: _Edge, keys: KeyColumn, parts: Parts, groups: Int64s, result_places: Int64s) -> None:
    """The values that follow where results have gone. A group that has none left has none in its tables, too."""
    if not len(groups):
        return
    table = edge.arrivals
    table.settle()  # what this epoch changed counts
    found = table.view.first_rows(keys.take(groups), result_places[groups] + 1, 1)
    owners = groups[found.column("position").to_numpy()]
    at = np.full(len(keys), -1, dtype=np.int64)
    at[owners] = np.arange(len(owners))
    places = np.zeros(len(keys), dtype=np.int64)
    places[owners] = found.column("sub").to_numpy()
    _set_results(edge, parts, at >= 0, places, found.column("value").take(pa.array(at, mask=at < 0)))


def _move(edge: _Edge, keys: KeyColumn, parts: Parts, values: _Values) -> None:
    """Give the values of groups that have become large rows of their own. The tables have none of these groups."""
    times = values.gains - values.losses
    reject_absent(values.keys, values.values, times)
    ranks = _ranks(values.codes)
    numbers = elsewhere(parts[edge.at + _ARRIVALS])[values.codes] + ranks
    everything = np.arange(len(numbers))
    _write(edge, values, _subs(edge, values), everything, times, numbers)
    _arrive(edge, values, everything, numbers)
    sizes = np.bincount(values.codes, minlength=len(keys))
    _add(parts, edge.at + _COUNT, sizes)
    _add(parts, edge.at + _ARRIVALS, sizes)
    ends = np.cumsum(sizes)
    at = np.where(sizes > 0, ends - 1 if edge.is_last else ends - sizes, -1)
    _set_results(edge, parts, at >= 0, edge.places_of(numbers)[at], values.values.take(pa.array(at, mask=at < 0)))
