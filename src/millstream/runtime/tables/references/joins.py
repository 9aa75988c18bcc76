"""Joins of two tables: the slow reference, which compares every row of one side with every row of the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["joined_tables"]

Table = Sequence[tuple[Any, ...]]


def joined_tables(
    kind: str, left: Table, right: Table, widths: tuple[int, int], matches: Callable[[Any, Any], bool | None]
) -> list[tuple[Any, ...]]:
    """The rows of a join. `matches` returns whether two rows match; None, like NULL, counts as false. `widths`: the
    number of NULLs that pad a side.

    >>> joined_tables("LEFT", [(1,), (2,)], [(2, "b")], (1, 2), lambda a, b: a[0] == b[0])
    [(1, None, None), (2, 2, 'b')]
    """
    results: list[tuple[Any, ...]] = []
    is_matched = [False] * len(right)
    for a in left:
        matched = [at for at, b in enumerate(right) if matches(a, b)]
        for at in matched:
            is_matched[at] = True
        if kind == "SEMI":
            results += [a] if matched else []
        elif kind == "ANTI":
            results += [] if matched else [a]
        else:
            results += [(*a, *right[at]) for at in matched]
            if not matched and kind in ("LEFT", "FULL"):
                results.append((*a, *[None] * widths[1]))
    if kind in ("RIGHT", "FULL"):
        results += [(*[None] * widths[0], *b) for at, b in enumerate(right) if not is_matched[at]]
    return results
