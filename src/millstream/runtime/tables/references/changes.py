"""What a table holds after changes, a row at a time. Every committed epoch of a query must be the answer over that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["table_after"]


def table_after(changes: Iterable[tuple[tuple[Any, ...], bool]]) -> list[tuple[Any, ...]]:
    """The rows that are left, as they came; each change is a row, and whether it is added. Of equal rows the first
    goes.

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
            raise ValueError(f"{row} is taken away and was never added")
    return rows
