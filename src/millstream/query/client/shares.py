"""Which server answers for which of many keys: as few servers as can be, each for all keys that it holds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.query.client.directory import ServerPlace

__all__ = ["shares_of"]


def shares_of(groups: Sequence[int], places: Sequence[ServerPlace]) -> list[list[int]]:
    """The rows of every share, given the key group of each row: whoever holds most takes all it holds, then the next.

    A group that nobody holds is a share of its own: asking for it says so.

    >>> shares_of([1, 70, 2, 99, 98], [ServerPlace("a", 0, 63), ServerPlace("b", 64, 97)])
    [[0, 2], [1], [4], [3]]
    """
    left = set(groups)
    taken: list[set[int]] = []
    while left:
        best = max(({group for group in left if place.holds([group])} for place in places), key=len, default=set())
        taken.append(best or {min(left)})
        left -= taken[-1]
    share_of = {group: i for i, share in enumerate(taken) for group in share}
    rows: list[list[int]] = [[] for _ in taken]
    for row, group in enumerate(groups):
        rows[share_of[group]].append(row)
    return rows
