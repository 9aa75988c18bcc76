"""ROW_NUMBER, RANK, DENSE_RANK and Top-N, a row at a time: the slow reference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

from millstream.graph.table_nodes import OrderKey

__all__ = ["first_rows"]


def first_rows(
    kind: str,
    rows: Sequence[tuple[Any, ...]],
    partition: Sequence[int],
    order: Sequence[OrderKey],
    first: int,
    last: int,
    *,
    latest_first: bool = False,
) -> list[tuple[Any, ...]]:
    """The rows whose number is from `first` to `last`, with their numbers. Ties are in arrival order, or latest first.

    >>> first_rows("RANK", [("a", 2), ("a", 1), ("a", 2)], [0], [OrderKey(1)], 2, 2)
    [('a', 2, 2), ('a', 2, 2)]
    """

    def compared(a: tuple[Any, ...], b: tuple[Any, ...]) -> int:
        return _compared(a, b, order)

    partitions: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in rows:
        partitions.setdefault(tuple(row[at] for at in partition), []).append(row)
    results = []
    for members in partitions.values():
        arrived = list(reversed(members)) if latest_first else members
        ordered = sorted(arrived, key=cmp_to_key(compared))
        number = 0
        for place, row in enumerate(ordered):
            is_new = place == 0 or compared(ordered[place - 1], row) != 0
            if kind == "ROW_NUMBER" or (kind == "RANK" and is_new):
                number = place + 1
            elif is_new:
                number += 1
            if first <= number <= last:
                results.append((*row, number))
    return results


def _compared(a: Sequence[Any], b: Sequence[Any], order: Sequence[OrderKey]) -> int:
    """Negative if `a` sorts before `b`; 0 if the order does not distinguish them."""
    for key in order:
        one, other = a[key.column], b[key.column]
        if one is None and other is None:
            continue
        if one is None or other is None:
            return -1 if (one is None) == key.nulls_first else 1
        if one != other:
            return -1 if (one < other) != key.descending else 1
    return 0
