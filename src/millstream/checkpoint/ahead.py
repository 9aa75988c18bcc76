"""How far epochs may run ahead of the newest manifest: plain numbers, and one decision.

An epoch is *acknowledged* when all its tasks have told what they did. Where epochs run ahead, the next one starts from
there, while the files of the last ones are on their way to the store and their manifest is written. If the job dies
meanwhile, what ran ahead never happened. So it is bounded: by a number of epochs, which bounds how late output becomes
visible, by bytes, which lie on the machines' disks until then, and by time.

While the store is away, nothing can be committed and the number is not asked: the job goes on as far as the bytes and
the time allow. Then it holds, until the store is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["NOT_AHEAD", "Acknowledged", "AheadBounds", "may_run_ahead"]


@dataclass(frozen=True)
class AheadBounds:
    """So many epochs, bytes and milliseconds may be acknowledged and not committed. `epochs_max` 0: none may, every
    epoch is committed before the next one is planned."""

    epochs_max: int = 0
    bytes_max: int = 0
    age_max_ms: int = 0


NOT_AHEAD = AheadBounds()


@dataclass(frozen=True)
class Acknowledged:
    """An epoch that ran ahead. `joins`: it is committed as one with the epoch before it."""

    bytes: int
    at_ms: int
    final: bool
    joins: bool


def may_run_ahead(acknowledged: Sequence[Acknowledged], bounds: AheadBounds, *, is_away: bool) -> bool:
    """Whether another epoch may be run behind these.

    >>> bounds = AheadBounds(epochs_max=2, bytes_max=100, age_max_ms=1_000)
    >>> first, second = Acknowledged(60, 0, False, False), Acknowledged(30, 500, False, True)
    >>> may_run_ahead([first], bounds, is_away=False), may_run_ahead([first, second], bounds, is_away=False)
    (True, False)
    >>> may_run_ahead([first, second], bounds, is_away=True)
    True
    """
    if not acknowledged:
        return True
    if len(acknowledged) >= bounds.epochs_max and not (is_away and bounds.epochs_max):
        return False
    age_ms = acknowledged[-1].at_ms - acknowledged[0].at_ms
    return sum(epoch.bytes for epoch in acknowledged) < bounds.bytes_max and age_ms < bounds.age_max_ms
