"""Which server answers for which of many keys: as few servers as can be, each for all keys that it holds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.query.client.directory import ServerPlace

__all__ = ["shares_of"]


def shares_of(groups: Sequence[int | None], places: Sequence[ServerPlace]) -> list[list[int]]:
    """The rows of every share, given the key group of each row: whoever holds most takes all it holds, then the next.

    A group that nobody holds is a share of its own: asking for it says so. Rows without a group (None), which every
    server answers for, go with the first.

    >>> shares_of([1, 70, 2, 99, 98], [ServerPlace("a", 0, 63), ServerPlace("b", 64, 97)])
    [[0, 2], [1], [4], [3]]
    >>> shares_of([None, 70, 2], [ServerPlace("a", 0, 63), ServerPlace("b", 64, 97)])
    [[0, 2], [1]]
    """
    left = {group for group in groups if group is not None}
    if not left:
        return [list(range(len(groups)))]
    taken: list[set[int]] = []
    while left:
        best = max(({group for group in left if place.holds([group])} for place in places), key=len, default=set())
        taken.append(best or {min(left)})
        left -= taken[-1]
    share_of = {group: i for i, share in enumerate(taken) for group in share}
    rows: list[list[int]] = [[] for _ in taken]
    for row, group in enumerate(groups):
        rows[0 if group is None else share_of[group]].append(row)
    return rows
