"""Shared code for spilling values of large groups to separate rows.

The cost of a group must not grow with its size, but some aggregates need all of its values: when one is deleted,
another may become the minimum or the first. A `SpilledValues` stores them in separate tables; the group's row holds
only the data that the result needs. It is called twice per epoch: `absorb` turns input for spilled groups into changes
of those tables, and `spill` moves the values of groups that have become large.

With a time-to-live, values stay in the group's row and expire with it. So a time-to-live cannot be added to a query
whose groups have spilled values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.groups import Groups
from millstream.aggregation.list_kernels import flat
from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError, StateSchemaError
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.runtime.keyed.states import StateHandle
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn
from millstream.state.stored.accounts import SubtaskAccount, tables_of
from millstream.state.stored.table_names import (
    GROUP_ARRIVALS,
    GROUP_EXTREMES,
    GROUP_MARKS,
    GROUP_VALUE_PLACES,
    GROUP_VALUES,
)
from millstream.state.tables.state_table import StateTable, last_versions
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = [
    "VALUES_IN_ROW_MAX",
    "SpilledValues",
    "ValueTables",
    "add_to_sums",
    "lists_of",
    "measures_at",
    "reject_absent",
    "reject_expiry",
    "take_lists",
    "totals",
]

VALUES_IN_ROW_MAX = 256
"""A group with more values spills them to separate rows."""

_TABLES = (GROUP_ARRIVALS, GROUP_EXTREMES, GROUP_MARKS, GROUP_VALUE_PLACES, GROUP_VALUES)


class SpilledValues(Protocol):
    """Stores spilled values of groups in one subtask. `stored` has the accumulators of the groups that `was_stored`
    masks."""

    def absorb(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """An epoch's input as it is stored in the group's row."""

    def spill(self, keys: KeyColumn, parts: Parts, was_stored: Bools, stored: Parts) -> Parts:
        """The accumulators to store, without the values that spill."""


@dataclass(frozen=True)
class ValueTables:
    """Makes tables for an operator's groups in one subtask."""

    key_type: TypeInformation
    max_parallelism: int
    backend: KeyedBackend
    node: str

    def table(self, name: str, value: TypeInformation, sub: TypeInformation | pa.DataType) -> StateTable:
        """A table of values by group and sub-key: of this type, or a column of numbers."""
        where = f"state '{name}' of '{self.node}'"
        codec, settings = task_codec(value, where), dict[str, Any](evolves=False)
        if isinstance(sub, pa.DataType):
            settings["sub_type"] = sub
        else:
            settings["sub"] = task_codec(sub, where)
        table = StateTable(name, self.key_type, self.max_parallelism, codec, **settings)
        self.backend.keep(name, StateHandle(table, self.backend.scope))
        return table


def measures_at(stored_measures: Sequence[BoundAggregate], *kinds: str) -> Iterator[tuple[int, BoundAggregate]]:
    """The measures of these kinds, each with the position of its first column in the accumulator."""
    place = 0
    for measure in stored_measures:
        if measure.kind in kinds:
            yield place, measure
        place += len(measure.parts)


def lists_of(rows: pa.Array, lengths: Int64s, kind: pa.DataType) -> pa.Array:
    """Concatenated rows as lists of these lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), rows, type=kind)


def take_lists(parts: Parts, at: int, groups: Bools) -> tuple[Int64s, pa.Array]:
    """Removes the values of these groups from their lists in column `at`; returns the group of each value, and its
    row."""
    rows, lengths = flat(parts[at])
    codes = np.repeat(np.arange(len(lengths)), lengths)
    moves = groups[codes]
    left = rows.filter(pa.array(~moves))
    parts[at] = lists_of(left, np.where(groups, 0, lengths), parts[at].type)
    return codes[moves], rows.filter(pa.array(moves))


def add_to_sums(parts: Parts, at: int, sums: Kernel, lifted: Parts, codes: Int64s) -> None:
    """Add values to the sums of groups, whose columns start at `at`."""
    own, groups = slice(at, at + len(lifted)), len(parts[at])
    both = [pa.concat_arrays(pair) for pair in zip(parts[own], lifted, strict=True)]
    parts[own] = sums.combine(both, Groups(np.concatenate([np.arange(groups), codes]), groups))


def totals(codes: Int64s, amounts: Int64s, groups: int) -> Int64s:
    """Sums of amounts by group."""
    sums = np.zeros(groups, dtype=np.int64)
    np.add.at(sums, codes, amounts)
    return sums


def reject_absent(keys: KeyColumn, values: pa.Array, times: Int64s) -> None:
    """Reject values whose multiplicity would be negative."""
    if (times < 0).any():
        at = int(np.flatnonzero(times < 0)[0])
        raise ProgramError(
            f"group {keys.array[at].as_py()!r}: the value {values[at].as_py()!r} was retracted that was never "
            "inserted. Check the source's changelog: every -U and -D must be of a row that it emitted "
            "before"
        )


def reject_expiry(groups: str, accounts: Mapping[int, SubtaskAccount]) -> None:
    """Reject a time-to-live for groups with spilled values, which would not expire with the groups."""
    prefixes = tuple(f"{each} of " for each in _TABLES)
    for name, refs in last_versions(tables_of(accounts)).items():
        if refs and name.startswith(prefixes):
            raise StateSchemaError(
                f"'{groups}' had no time-to-live so far and has one now: values of its large groups are stored "
                f"separately (state '{name}') and would not expire with them. Remove 'table.exec.state.ttl' "
                "or the STATE_TTL hint (for this SELECT alone: STATE_TTL of '0'), or start afresh with another store"
            )
