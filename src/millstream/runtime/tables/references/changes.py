"""Applies changes to a table, a row at a time. The output of every committed epoch must equal the query's result over
that table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["table_after"]


def table_after(changes: Iterable[tuple[tuple[Any, ...], bool]]) -> list[tuple[Any, ...]]:
    """The remaining rows, in arrival order; each change is a row and whether it is an insert. A delete removes the
    first of equal rows.

    >>> table_after([(("a",), True), (("b",), True), (("a",), False)])
    [('b',)]
    """
    rows: list[tuple[Any, ...]] = []
    for row, is_added in changes:
        if is_added:
            rows.append(row)
        elif row in rows:
            rows.remove(row)
        else:
            raise ValueError(f"{row} is deleted but was never inserted")
    return rows
