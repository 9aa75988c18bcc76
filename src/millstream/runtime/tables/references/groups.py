"""GROUP BY, a row at a time: the rows of each group, and aggregates of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = [
    "arrivals_of",
    "distinct_values",
    "extremes_of",
    "grouped_rows",
    "known_groups",
    "present_values",
    "values_by_arrival",
]

Rows = list[Sequence[Any]]


def grouped_rows(
    rows: Iterable[Sequence[Any]],
    keys: Sequence[int],
    results: Sequence[Callable[[Rows], Any]],
    *,
    was_ever_touched: bool = False,
) -> list[tuple[Any, ...]]:
    """The key values and results of every group. NULLs are one group. Without keys there is one group, which also
    exists without rows once it `was_ever_touched`."""
    groups: dict[tuple[Any, ...], Rows] = {} if keys or not was_ever_touched else {(): []}
    for row in rows:
        groups.setdefault(tuple(row[at] for at in keys), []).append(row)
    return [(*key, *(result(members) for result in results)) for key, members in groups.items()]


def present_values(rows: Rows, column: int, condition: Callable[[Sequence[Any]], Any] | None = None) -> list[Any]:
    """The values of a column that an aggregate reads: no NULLs, and with FILTER only rows that satisfy it."""
    return [row[column] for row in rows if row[column] is not None and (condition is None or condition(row))]


def distinct_values(values: Iterable[Any]) -> list[Any]:
    """Each value once.

    >>> distinct_values([2, 1, 2])
    [2, 1]
    """
    return list(dict.fromkeys(values))


def extremes_of(changes: Iterable[tuple[Any, int]]) -> tuple[Any, Any]:
    """The minimum and maximum of the present values, from inserts (1) and deletes (-1) in any order.

    >>> extremes_of([(3, 1), (5, -1), (4, 1), (5, 1), (3, -1)])
    (4, 4)
    """
    times: dict[Any, int] = {}
    for value, sign in changes:
        if value is not None:
            times[value] = times.get(value, 0) + sign
    values = [value for value, count in times.items() if count > 0]
    return min(values, default=None), max(values, default=None)


def arrivals_of(changes: Iterable[tuple[Any, int]]) -> tuple[Any, Any]:
    """The first and the last of the present values, from inserts (n times) and deletes (-n times). The first has been
    present the longest without interruption; the last arrived most recently.

    >>> arrivals_of([("a", 1), ("b", 1), ("a", 1), ("b", -1), ("a", -1), ("c", 1), ("a", 1)])
    ('a', 'a')
    """
    stays, arrivals = values_by_arrival(changes)
    return next(iter(stays), None), next(reversed(arrivals), None)


def values_by_arrival(changes: Iterable[tuple[Any, int]]) -> tuple[dict[Any, int], dict[Any, int]]:
    """The present values and their multiplicities: ordered by when they became present, and by their last arrival. A
    value deleted and inserted again arrives anew.

    >>> values_by_arrival([("a", 1), ("b", 2), ("a", -1), ("a", 1), ("b", 1)])
    ({'b': 3, 'a': 1}, {'a': 1, 'b': 3})
    """
    stays: dict[Any, int] = {}
    arrivals: dict[Any, None] = {}
    for value, times in changes:
        if value is None:
            continue
        stays[value] = stays.get(value, 0) + times
        if times > 0:
            arrivals.pop(value, None)
            arrivals[value] = None
        if stays[value] == 0:
            del stays[value], arrivals[value]
    return stays, {value: stays[value] for value in arrivals}


def known_groups(epochs: Iterable[Iterable[Any]]) -> set[Any]:
    """The groups fully seen by an aggregate added after the first of these epochs. Each epoch lists the groups that
    have rows at its end; a group missing from any of them has no unseen rows.

    >>> sorted(known_groups([["a", "b"], ["a"], ["a", "b", "c"]]))
    ['b', 'c']
    """
    before, *since = (set(groups) for groups in epochs)
    for groups in since:
        before &= groups
    return (since[-1] if since else set()) - before
