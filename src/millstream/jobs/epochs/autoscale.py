"""Whether a job should go on at another parallelism: a pure decision over its last epochs.

**Up** when epochs take longer than the target while input lags: work is waiting, and more subtasks would shorten it.
**Down** when epochs are so short that even a perfect slowdown would leave them well below the target, and no input
lags. Longer epochs without lag are no reason: an epoch that has caught up is as long as its input makes it.

Hysteresis, so that a constant load never makes it move to and fro: several epochs in a row must agree (`AGREEING`; any
single epoch may be slow), nothing changes within the cooldown after a change, and a step down is taken only if the
time it would lead to, at worst, is below `SAFE_SHARE` of the target. A step is at most to twice or half as many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from millstream.jobs.settings.driver_settings import AutoscaleSettings

__all__ = ["AGREEING", "SAFE_SHARE", "EpochLoad", "LoadHistory", "decide_parallelism"]

AGREEING = 4
SAFE_SHARE = 0.7


@dataclass(frozen=True)
class EpochLoad:
    """One epoch: how long its tasks ran, and whether there was more input than it was to read."""

    took_ms: float
    lags: bool


@dataclass(frozen=True)
class LoadHistory:
    """The epochs since the parallelism last changed (or the job started), as far back as they matter.

    >>> LoadHistory(2, changed_ms=0).followed_by(EpochLoad(120, lags=True), now_ms=300).epochs
    (EpochLoad(took_ms=120, lags=True),)
    """

    parallelism: int
    changed_ms: int
    now_ms: int = 0
    epochs: tuple[EpochLoad, ...] = ()

    def followed_by(self, epoch: EpochLoad, now_ms: int) -> LoadHistory:
        """The same with one more epoch, committed at `now_ms`."""
        return replace(self, now_ms=now_ms, epochs=(*self.epochs, epoch)[-AGREEING:])


def decide_parallelism(history: LoadHistory, settings: AutoscaleSettings) -> int | None:
    """The parallelism to go on with; None: the one it has.

    >>> settings = AutoscaleSettings(1, 8, target_ms=1000, cooldown_ms=60_000)
    >>> slow = (EpochLoad(1500, lags=True),) * AGREEING
    >>> decide_parallelism(LoadHistory(2, changed_ms=0, now_ms=60_000, epochs=slow), settings)
    3
    >>> decide_parallelism(LoadHistory(2, changed_ms=0, now_ms=59_000, epochs=slow), settings)
    """
    now = history.parallelism
    bounded = min(max(now, settings.parallelism_min), settings.parallelism_max)
    if bounded != now:
        return bounded  # outside its bounds it is not by a decision of ours
    if len(history.epochs) < AGREEING or history.now_ms - history.changed_ms < settings.cooldown_ms:
        return None
    wanted = _up(history, settings) or _down(history, settings) or now
    return None if wanted == now else wanted


def _up(history: LoadHistory, settings: AutoscaleSettings) -> int | None:
    if not all(epoch.lags and epoch.took_ms > settings.target_ms for epoch in history.epochs):
        return None
    shortest_ms = min(epoch.took_ms for epoch in history.epochs)
    needed = math.ceil(history.parallelism * shortest_ms / settings.target_ms)
    return min(max(needed, history.parallelism + 1), 2 * history.parallelism, settings.parallelism_max)


def _down(history: LoadHistory, settings: AutoscaleSettings) -> int | None:
    if any(epoch.lags for epoch in history.epochs):
        return None
    longest_ms = max(epoch.took_ms for epoch in history.epochs)
    # On fewer subtasks an epoch takes longer by no more than the ratio of their numbers.
    enough = math.ceil(history.parallelism * longest_ms / (SAFE_SHARE * settings.target_ms))
    fewer = max(enough, math.ceil(history.parallelism / 2), settings.parallelism_min)
    return fewer if fewer < history.parallelism else None
