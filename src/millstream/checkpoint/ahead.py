"""Bounds on how far epochs may run ahead of the newest manifest: plain numbers, and one decision.

An epoch is *acknowledged* when all its tasks have reported. Where epochs run ahead, the next one starts from there
while files of earlier ones are uploaded and their manifest is written. If the job dies before that, these epochs never
happened. So running ahead is bounded: by the number of epochs, which bounds the delay of visible output; by bytes,
which occupy the machines' disks until they are committed; and by time.

While the store is unavailable, nothing can be committed and the number of epochs does not count: the job continues
within the limits of bytes and time, then pauses until the store is available.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["NOT_AHEAD", "Acknowledged", "AheadBounds", "may_run_ahead"]


@dataclass(frozen=True)
class AheadBounds:
    """Maximum epochs, bytes and milliseconds that may be acknowledged but not committed. `epochs_max` 0: every epoch is
    committed before the next one is planned."""

    epochs_max: int = 0
    bytes_max: int = 0
    age_max_ms: int = 0


NOT_AHEAD = AheadBounds()


@dataclass(frozen=True)
class Acknowledged:
    """An epoch that ran ahead. `joins`: it is committed together with the previous epoch."""

    bytes: int
    at_ms: int
    final: bool
    joins: bool


def may_run_ahead(acknowledged: Sequence[Acknowledged], bounds: AheadBounds, *, store_unavailable: bool) -> bool:
    """Whether another epoch may run after these.

    >>> bounds = AheadBounds(epochs_max=2, bytes_max=100, age_max_ms=1_000)
    >>> first, second = Acknowledged(60, 0, False, False), Acknowledged(30, 500, False, True)
    >>> may_run_ahead([first], bounds, store_unavailable=False)
    True
    >>> may_run_ahead([first, second], bounds, store_unavailable=False)
    False
    >>> may_run_ahead([first, second], bounds, store_unavailable=True)
    True
    """
    if not acknowledged:
        return True
    if len(acknowledged) >= bounds.epochs_max and not (store_unavailable and bounds.epochs_max):
        return False
    age_ms = acknowledged[-1].at_ms - acknowledged[0].at_ms
    return sum(epoch.bytes for epoch in acknowledged) < bounds.bytes_max and age_ms < bounds.age_max_ms
