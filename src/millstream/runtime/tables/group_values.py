"""The distinct values of large groups: a row of the store for each group and value, so that a count is a number.

COUNT(DISTINCT …) has the values of a small group in the group's row, which is read and written whole whenever the group
gets rows. What a group costs must not grow with it: when there are many, they move into rows of their own. From then on
an epoch's values are looked up by group and value. One that comes for the first time, or goes for the last, changes the
count by one. Of a table that only grows, a value that is there is not written again.

Where state expires, values stay in the group's row: they must go together with the count of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.aggregation.counted_kernels import elsewhere
from millstream.aggregation.list_kernels import flat
from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import ProgramError
from millstream.records.columns import arrow_type
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.runtime.keyed.states import StateHandle
from millstream.runtime.tables.group_extremes import has_head
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.stored.table_names import GROUP_VALUES
from millstream.state.tables.state_table import StateTable
from millstream.state.windows.measures import Measure

__all__ = ["VALUES_IN_ROW_MAX", "GroupValues", "counted", "with_counts"]

VALUES_IN_ROW_MAX = 256
"""A group of more distinct values has them in rows of their own."""


def counted(measures: Sequence[Measure], ttl_ms: int | None) -> tuple[Measure, ...]:
    """The measures as the group's row keeps them: with a count of values that are elsewhere."""
    return tuple(measure if ttl_ms else _counted(measure) for measure in measures)


def _counted(measure: Measure) -> Measure:
    if _is_counted(measure):
        return replace(measure, kind="counted_values", inner=measure)
    return replace(measure, kind="headed_values", inner=measure) if has_head(measure) else measure


def with_counts(measures: Sequence[Measure], stored_measures: Sequence[Measure], parts: Parts) -> Parts:
    """Parts as the exchange brings them, as they are kept: no value is elsewhere yet."""
    given: list[pa.Array] = []
    start = 0
    for measure, stored in zip(measures, stored_measures, strict=True):
        stop = start + len(measure.parts)
        given += parts[start:stop]
        if measure is not stored:
            given.append(pa.array(np.zeros(len(parts[start]), dtype=np.int64)))
        start = stop
    return given


def _is_counted(measure: Measure) -> bool:
    is_distinct = measure.kind == "distinct" or (measure.kind == "signed_values" and measure.detail == "distinct")
    if not is_distinct or measure.inner is None or measure.inner.kind != "count":
        return False
    kind = _value_kind(measure)
    # What is equal must be so by its bytes: floats have two zeros.
    t = pa.types
    return kind is not None and any(
        is_kind(kind) for is_kind in (t.is_integer, t.is_string, t.is_date, t.is_time, t.is_timestamp, t.is_decimal)
    )


def _value_kind(measure: Measure) -> pa.DataType | None:
    type_info = measure.looks[0].type_info
    return None if type_info is None else arrow_type(type_info)


class GroupValues:
    """The values of large groups in one subtask: a table for each type of them. A row is told from others of its group
    by the number of the measure's part, and the value."""

    def __init__(
        self,
        stored_measures: Sequence[Measure],
        key_type: TypeInformation,
        max_parallelism: int,
        backend: KeyedBackend,
        node: str,
    ) -> None:
        self._tables: dict[pa.DataType, StateTable] = {}
        self._parts: dict[pa.DataType, list[int]] = {}  # where the values of a type stand in what is kept
        types: dict[pa.DataType, list[Any]] = {}
        place = 0
        for measure in stored_measures:
            kind = _value_kind(measure) if measure.kind == "counted_values" else None
            if kind is not None:
                self._parts.setdefault(kind, []).append(place)
                types[kind] = [Types.SHORT(), measure.looks[0].type_info]
            place += len(measure.parts)
        for kind in self._parts:
            name = f"{GROUP_VALUES} of {kind}"
            where = f"state '{name}' of '{node}'"
            codec, sub = (
                task_codec(Types.LONG(), where),
                task_codec(Types.ROW_NAMED(["part", "value"], types[kind]), where),
            )
            self._tables[kind] = StateTable(name, key_type, max_parallelism, codec, sub, evolves=False)
            backend.keep(name, StateHandle(self._tables[kind], backend.scope))

    def brought(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What an epoch brought, as it is kept: values of groups whose values have moved become changes of counts.
        `had`: which groups are stored, `stored`: what of those."""

        def has_moved(part: int) -> Bools:
            moved = np.zeros(len(keys), dtype=np.bool_)
            moved[had] = elsewhere(stored[part + 1]) > 0
            return moved

        return self._moved(keys, list(parts), has_moved)

    def settled(self, keys: KeyColumn, parts: Parts) -> Parts:
        """What is kept of groups, without the values of those that are large."""
        return self._moved(keys, list(parts), lambda part: flat(parts[part])[1] > VALUES_IN_ROW_MAX)

    def _moved(self, keys: KeyColumn, parts: Parts, chosen_by: Callable[[int], Bools]) -> Parts:
        """The parts with the values of the chosen groups as counts."""
        for kind, places in self._parts.items():
            chosen = [chosen_by(part) for part in places]
            if not any(groups.any() for groups in chosen):
                continue
            values: list[_Values] = []
            for part, groups in zip(places, chosen, strict=True):
                rows, lengths = flat(parts[part])
                codes = np.repeat(np.arange(len(keys)), lengths)
                moves = groups[codes]
                values.append(_Values(part, codes[moves], rows.filter(pa.array(moves))))
                offsets = np.concatenate([[0], np.cumsum(np.where(groups, 0, lengths))]).astype(np.int32)
                parts[part] = pa.ListArray.from_arrays(
                    pa.array(offsets), rows.filter(pa.array(~moves)), type=parts[part].type
                )
            for each, change in zip(values, _changes(self._tables[kind], keys, values), strict=True):
                parts[each.part + 1] = pa.array(elsewhere(parts[each.part + 1]) + change)
        return parts


@dataclass(frozen=True)
class _Values:
    """Values of one measure: the group of each, and the value itself, with the number of times where rows may go."""

    part: int
    codes: Int64s
    rows: pa.Array


def _changes(table: StateTable, keys: KeyColumn, values: Sequence[_Values]) -> list[Int64s]:
    """By how much each group's number of values changes, for each measure; the store follows."""
    rows = pa.concat_arrays([each.rows for each in values])
    parts = np.repeat(np.array([each.part for each in values], dtype=np.int16), [len(each.rows) for each in values])
    subs = pa.StructArray.from_arrays([pa.array(parts), rows.field(0)], type=table.layout.sub_type)
    pairs = keys.take(np.concatenate([each.codes for each in values]))
    before = np.zeros(len(rows), dtype=np.int64)
    if not table.view.is_empty:
        lookup = table.view.get_pairs(pairs, subs)
        if lookup.values is not None:
            before[lookup.mask] = lookup.values.to_numpy()
    # Of a table that only grows it is enough that a value is there.
    is_signed = rows.type.num_fields > 1
    after = before + rows.field(1).to_numpy() if is_signed else np.ones(len(rows), dtype=np.int64)
    if (after < 0).any():
        at = int(np.flatnonzero(after < 0)[0])
        raise ProgramError(
            f"group {pairs.array[at].as_py()!r}: the value {rows.field(0)[at].as_py()!r} was taken away that had never "
            "been added. Look at what the source says of its changes: each -U and -D is of a row that it has given "
            "before"
        )
    put, gone = np.flatnonzero((after > 0) & (after != before)), np.flatnonzero((after == 0) & (before > 0))
    if len(put):
        table.changes.put(pairs.take(put), pa.array(after[put]), subs=subs.take(pa.array(put)))
    if len(gone):
        table.changes.delete(pairs.take(gone), subs=subs.take(pa.array(gone)))
    signs = np.split((after > 0).astype(np.int64) - (before > 0), np.cumsum([len(each.rows) for each in values])[:-1])
    return [
        np.bincount(each.codes, weights=sign, minlength=len(keys)).astype(np.int64)
        for each, sign in zip(values, signs, strict=True)
    ]
