"""The type of a stream that is a table: its columns are those of a SQL row type, as Arrow has them.

A batch of a table is a batch of columns, always. Where rows may change, a column `__kind` follows (`row_codec`); where
it is absent, all rows are inserted. Python values are made of it only where the program wants some: rows of
`millstream.common.Row` with PyFlink's values.
"""

from __future__ import annotations

from millstream.common.typeinfo import TypeInformation
from millstream.expressions.nested_types import RowType

__all__ = ["TableRowType"]


class TableRowType(TypeInformation):
    """Rows of a table."""

    def __init__(self, row_type: RowType) -> None:
        self.row_type = row_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableRowType) and self.row_type == other.row_type

    def __hash__(self) -> int:
        return hash((TableRowType, self.row_type))

    def __repr__(self) -> str:
        return f"Table<{', '.join(f'{field.name} {field.data_type}' for field in self.row_type.fields)}>"
