"""Unique names for the columns of rows, as Arrow and state require them."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.records.columns import KIND_COLUMN

__all__ = ["named_row"]


def named_row(names: Sequence[str], types: Sequence[DataType]) -> RowType:
    """A row type with unique column names.

    >>> from millstream.expressions.types import IntType
    >>> named_row(["id", "id"], [IntType(), IntType()]).names
    ('id', 'id0')
    """
    used: set[str] = {KIND_COLUMN}
    unique = []
    for name in names:
        candidate, number = name, 0
        while candidate in used:
            candidate, number = f"{name}{number}", number + 1
        used.add(candidate)
        unique.append(candidate)
    return RowType.of(unique, types, nullable=False)
