"""Operations over changing rows, and operations at the beginning and end of a table's query.

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
    """Normalises upserts to full changes: -U with the previous row of a key, +U with the new one. `rowtime` is the
    column of event time. `ttl_ms`: rows expire after this time without access."""

    row_type: RowType
    rowtime: int | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True)
class ChangesAsRows(Operation):
    """Converts changes to inserts with the code of the change's kind as an additional column. `codes`: one per kind, in
    their order; changes of kinds without a code are dropped."""

    codes: tuple[str | None, ...]


@dataclass(frozen=True)
class RowsAsChanges(Operation):
    """Converts rows to changes of the kind given by the code in column `op`. With `skips`, rows with other codes are
    dropped."""

    op: int
    kinds: tuple[tuple[str, RowKind], ...]
    skips: bool = False


@dataclass(frozen=True)
class MaterialiseRows(Operation):
    """Emits at most one change per sink key and epoch: the key's row, or its delete. `is_stored`: several rows of the
    query may share a key, and are stored; the last to arrive is emitted."""

    row_type: RowType
    is_stored: bool = False
    ttl_ms: int | None = None


@dataclass(frozen=True)
class LookupJoin(Operation):
    """Joins every row with the current rows of a table for its key: `lookup` receives the values of `keys` for its
    columns `key_columns`. `condition` is over the columns of both sides. `keeps_all`: unmatched rows are emitted with
    NULLs."""

    lookup: Any  # a `TableLookup` of the connectors
    keys: tuple[RowExpression, ...]
    key_columns: tuple[int, ...]
    input_types: tuple[DataType, ...]
    condition: RowExpression | None = None
    keeps_all: bool = False
    session: TableSession = _NOBODY

    @property
    def function(self) -> tuple[Any, ...]:
        """User code that is sent to tasks."""
        return (self.lookup, *self.keys, self.condition)

    @property
    def pair_type(self) -> TableRowType:
        """The type of a joined row, on which the condition is evaluated."""
        types = (*self.input_types, *self.lookup.row_type.types)
        return TableRowType(RowType.of([f"f{number}" for number in range(len(types))], types, nullable=False))


@dataclass(frozen=True)
class ChangingLookupJoin(LookupJoin):
    """A lookup join over changing rows: the lookup result of a row is stored, and retracted with it. Column 0 of the
    input is a key of its rows, the others are `row_type`. `ttl_ms`: the result expires after this time."""

    row_type: RowType = _NO_COLUMNS
    number_type: DataType = _NUMBER
    ttl_ms: int | None = None


@dataclass(frozen=True)
class LatestRows(Operation):
    """Drops update-before rows: a sink replaces a row by the row after the update."""
