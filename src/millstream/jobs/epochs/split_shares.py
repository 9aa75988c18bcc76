"""How an epoch's budget is shared out among splits: those that have little leave the rest to those that have more.

How much a split has is not known: an offset means something to its source only. What a source can be asked is how far
a number of records would go, and two answers can be compared. So all splits are asked with a fair share and with a
small part of it. A split that gets no further with the larger number has no more; it is taken to need the smaller one.
What is left of the budget is shared out among the others in the same way, in larger and larger shares.

The shares add up to no more than the budget (or to one record each, if there are more splits than that). A split that
could not be read further than its share has one that no other split's is larger than.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["share_out"]

_SMALL_PART = 64
_GROWTH_MIN = 1.25
"""Asking again is worth it for so much more."""


def share_out(offsets: Sequence[Any], budget: int, reach: Callable[[int, int], Any]) -> list[tuple[Any, int]]:
    """Where each split is read to, and the share it was given for that; 0: it cannot be read now.

    `reach(i, share)` says how far split `i`, which stands at `offsets[i]`, can be read with so many records.

    >>> stored = [3, 0, 1000, 0]
    >>> share_out([0, 0, 0, 0], 100, lambda i, share: min(stored[i], share))
    [(3, 25), (0, 0), (75, 75), (0, 0)]
    """
    shares: list[tuple[Any, int]] = [(offset, 0) for offset in offsets]
    hungry, left, given = list(range(len(offsets))), budget, 0
    while hungry:
        fair = max(1, left // len(hungry))
        if given and fair < given * _GROWTH_MIN:
            break
        first = () if given or fair == 1 else (max(1, fair // _SMALL_PART),)
        for share in (*first, fair):
            further = []
            for i in hungry:
                stop = reach(i, share)
                if stop == shares[i][0]:
                    left -= shares[i][1]
                else:
                    shares[i] = (stop, share)
                    further.append(i)
            hungry, given = further, share
    return shares
