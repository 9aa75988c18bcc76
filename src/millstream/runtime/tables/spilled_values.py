"""What the ways share in which values of large groups have rows of their own, apart from the group's row.

What a group costs must not grow with it, but some aggregates need all of its values: when one goes, another may be the
smallest, or the first. A **keeper** (`SpilledValues`) keeps them in tables of its own; the group's row has what the
result needs. In an epoch it is asked twice: what the epoch `brought` becomes changes of those tables, and what is to
be stored is `settled`: values of a group that has become large move.

Where state expires, values stay in the group's row, with which they go. So groups whose values have left cannot come to
expire.
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
    "taken_out",
    "totals",
]

VALUES_IN_ROW_MAX = 256
"""A group of more values has them in rows of their own."""

_TABLES = (GROUP_ARRIVALS, GROUP_EXTREMES, GROUP_MARKS, GROUP_VALUE_PLACES, GROUP_VALUES)


class SpilledValues(Protocol):
    """Keeps values of groups in one subtask. `had`: which of the groups are stored, `stored`: what of those."""

    def brought(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What an epoch brought, as it is kept."""

    def settled(self, keys: KeyColumn, parts: Parts, had: Bools, stored: Parts) -> Parts:
        """What is kept of groups, without the values that move."""


@dataclass(frozen=True)
class ValueTables:
    """Makes tables of an operator's groups in one subtask."""

    key_type: TypeInformation
    max_parallelism: int
    backend: KeyedBackend
    node: str

    def table(self, name: str, value: TypeInformation, sub: TypeInformation | pa.DataType) -> StateTable:
        """A table of values by group and sub: of this type, or a column of numbers."""
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
    """The measures of these kinds, each with the number of its first part in what is kept."""
    place = 0
    for measure in stored_measures:
        if measure.kind in kinds:
            yield place, measure
        place += len(measure.parts)


def lists_of(rows: pa.Array, lengths: Int64s, kind: pa.DataType) -> pa.Array:
    """Rows, one after another, as lists of these lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), rows, type=kind)


def taken_out(parts: Parts, at: int, groups: Bools) -> tuple[Int64s, pa.Array]:
    """The values of these groups, out of their lists in the part `at`: the group of each, and its row."""
    rows, lengths = flat(parts[at])
    codes = np.repeat(np.arange(len(lengths)), lengths)
    moves = groups[codes]
    left = rows.filter(pa.array(~moves))
    parts[at] = lists_of(left, np.where(groups, 0, lengths), parts[at].type)
    return codes[moves], rows.filter(pa.array(moves))


def add_to_sums(parts: Parts, at: int, sums: Kernel, lifted: Parts, codes: Int64s) -> None:
    """Let the sums of groups, whose parts stand from `at` on, follow these values of them."""
    own, groups = slice(at, at + len(lifted)), len(parts[at])
    both = [pa.concat_arrays(pair) for pair in zip(parts[own], lifted, strict=True)]
    parts[own] = sums.combine(both, Groups(np.concatenate([np.arange(groups), codes]), groups))


def totals(codes: Int64s, amounts: Int64s, groups: int) -> Int64s:
    """Sums of amounts by group."""
    sums = np.zeros(groups, dtype=np.int64)
    np.add.at(sums, codes, amounts)
    return sums


def reject_absent(keys: KeyColumn, values: pa.Array, times: Int64s) -> None:
    """Refuse values that would be there less than no times."""
    if (times < 0).any():
        at = int(np.flatnonzero(times < 0)[0])
        raise ProgramError(
            f"group {keys.array[at].as_py()!r}: the value {values[at].as_py()!r} was taken away that had never "
            "been added. Look at what the source says of its changes: each -U and -D is of a row that it has given "
            "before"
        )


def reject_expiry(groups: str, accounts: Mapping[int, SubtaskAccount]) -> None:
    """Refuse a time-to-live for groups whose values have left their rows: rows alone would be counted from then on."""
    prefixes = tuple(f"{each} of " for each in _TABLES)
    for name, refs in last_versions(tables_of(accounts)).items():
        if refs and name.startswith(prefixes):
            raise StateSchemaError(
                f"'{groups}' was kept for ever so far, and has a time-to-live now: values of its large groups are "
                f"apart from the groups (state '{name}'), and would not expire with them. Take 'table.exec.state.ttl' "
                "or the STATE_TTL hint away (for this SELECT alone: STATE_TTL of '0'), or begin anew with another store"
            )
