"""What is asked of rows that change, where a table begins and where it ends, as operations of the graph.

Column 0 of the input is the key, the others are `row_type`. Operations are frozen data; `runtime.tables` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.common.types import RowKind
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import RowExpression
from millstream.expressions.types import BigIntType
from millstream.graph.nodes import Operation
from millstream.graph.table_nodes import TableSession
from millstream.records.table_type import TableRowType

__all__ = [
    "ChangesAsRows",
    "ChangingLookupJoin",
    "LatestRows",
    "LookupJoin",
    "MaterialiseRows",
    "NormaliseRows",
    "RowsAsChanges",
]

_NOBODY = TableSession()
_NO_COLUMNS = RowType([], nullable=False)
_NUMBER = BigIntType(False)


@dataclass(frozen=True)
class NormaliseRows(Operation):
    """The last row of each key, in full: -U as it was, +U as it is. `rowtime` is the column of event time. `ttl_ms`:
    how long a row is kept that nobody touches."""

    row_type: RowType
    rowtime: int | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True)
class ChangesAsRows(Operation):
    """Changes as rows that are only added, with the code of their kind behind their columns. `codes`: one for each
    kind, in their order; kinds without one are left out."""

    codes: tuple[str | None, ...]


@dataclass(frozen=True)
class RowsAsChanges(Operation):
    """Rows as changes of the kind that the code in column `op` says; with `skips`, rows with another code are left
    out."""

    op: int
    kinds: tuple[tuple[str, RowKind], ...]
    skips: bool = False


@dataclass(frozen=True)
class MaterialiseRows(Operation):
    """For each key of a sink one change in an epoch: its row, or its deletion. `is_stored`: several rows of the query
    may have one key, and are kept; the one that came last stands for all."""

    row_type: RowType
    is_stored: bool = False
    ttl_ms: int | None = None


@dataclass(frozen=True)
class LookupJoin(Operation):
    """Every row with the rows that a table has for its key now: `lookup`, asked for the values of `keys` in its columns
    `key_columns`. `condition` is over the columns of both. `keeps_all`: rows that find nothing stay, with NULLs."""

    lookup: Any  # a `TableLookup` of the connectors
    keys: tuple[RowExpression, ...]
    key_columns: tuple[int, ...]
    input_types: tuple[DataType, ...]
    condition: RowExpression | None = None
    keeps_all: bool = False
    session: TableSession = _NOBODY

    @property
    def function(self) -> tuple[Any, ...]:
        """What travels to tasks and may hold code of the program's."""
        return (self.lookup, *self.keys, self.condition)

    @property
    def pair_type(self) -> TableRowType:
        """The type of a pair, as the condition sees it."""
        types = (*self.input_types, *self.lookup.row_type.types)
        return TableRowType(RowType.of([f"f{number}" for number in range(len(types))], types, nullable=False))


@dataclass(frozen=True)
class ChangingLookupJoin(LookupJoin):
    """The same of rows that go again: what was found for a row is kept, and goes with it. Column 0 of the input is a
    key of its rows, the others are `row_type`. `ttl_ms`: how long it is kept."""

    row_type: RowType = _NO_COLUMNS
    number_type: DataType = _NUMBER
    ttl_ms: int | None = None


@dataclass(frozen=True)
class LatestRows(Operation):
    """Rows without those that say what was before an update: a sink puts the row after it in their place."""
