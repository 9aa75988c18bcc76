"""What a join of two tables means: every row of one side with every row of the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["joined_tables"]

Table = Sequence[tuple[Any, ...]]


def joined_tables(
    kind: str, left: Table, right: Table, widths: tuple[int, int], matches: Callable[[Any, Any], bool | None]
) -> list[tuple[Any, ...]]:
    """The rows of a join. `matches` says of two rows whether they are partners; None, as NULL does, is no. `widths`:
    how many NULLs stand for a side that has none.

    >>> joined_tables("LEFT", [(1,), (2,)], [(2, "b")], (1, 2), lambda a, b: a[0] == b[0])
    [(1, None, None), (2, 2, 'b')]
    """
    results: list[tuple[Any, ...]] = []
    met = [False] * len(right)
    for a in left:
        partners = [at for at, b in enumerate(right) if matches(a, b)]
        for at in partners:
            met[at] = True
        if kind == "SEMI":
            results += [a] if partners else []
        elif kind == "ANTI":
            results += [] if partners else [a]
        else:
            results += [(*a, *right[at]) for at in partners]
            if not partners and kind in ("LEFT", "FULL"):
                results.append((*a, *[None] * widths[1]))
    if kind in ("RIGHT", "FULL"):
        results += [(*[None] * widths[0], *b) for at, b in enumerate(right) if not met[at]]
    return results
