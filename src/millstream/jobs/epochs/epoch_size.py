"""Chooses the size of epochs, so that an epoch takes about as long as the checkpoint interval, and the parallelism that
the load requires.

The decisions are pure functions; the `EpochTuner` carries the estimates from one epoch to the next.

Every epoch is a checkpoint, so a checkpoint interval means epochs of about that length. An epoch takes

    fixed_ms + records * record_ms

a fixed cost per epoch (scheduling, barriers, files, the manifest) and a cost per record. Both are estimated from the
last epochs, and the next epoch is made as large as the interval allows. Where the fixed part is large, epochs are
longer than the interval: while input waits, the fixed part should be at most a fifth of an epoch, or the job would
spend most of its time on commits. Three more bounds hold whatever the interval: `millstream.epoch.max-records`; the
bytes of an epoch's input, because the number of records does not bound memory; and compaction: while it is behind
(`state/segments/compaction.py`), epochs shrink.

Without an interval latency does not matter, and large epochs have the lowest cost per record. An epoch then reads
`UNHURRIED_RECORDS`, or as many records as take about `UNHURRIED_MS` if that is more, within the same three bounds.

Three kinds of epochs are weaker evidence than others:

- **cold ones**, the first after a start or a change of the plan: Spark and the workers are still warming up. A cold
  epoch that was short nevertheless may enlarge the next one, but a cold epoch never shrinks it;
- **small ones**, which read far less than allowed because there was no more input: they only measure the fixed cost;
- **a single slow one**: the median of the last three epochs counts, so two slow epochs are needed for a change.

Epochs of the same size cannot separate the two costs. So the first warm epoch is followed by one of twice or half its
size, and after `RECENT_EPOCHS` epochs of similar size one of half the size follows. That adds half the fixed cost. An
epoch that cannot be halved, because it is one record or one block, is doubled.

The last epochs also decide whether the job should change its parallelism (`decide_parallelism`). **Up** when epochs
take longer than the target while input lags: work is waiting, and more subtasks would shorten it. **Down** when epochs
are so short that even a proportional slowdown would leave them well below the target, and no input lags. Long epochs
without lag are not a reason: an epoch that has caught up is as long as its input makes it.

Hysteresis prevents oscillation under constant load: several consecutive epochs must agree (`AGREEING`; any single epoch
may be slow), nothing changes within the cooldown after a change, and a step down requires that the worst-case epoch
time at the lower parallelism is below `SAFE_SHARE` of the target. A step at most doubles or halves the parallelism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median, median_low

from millstream.checkpoint.manifest import Manifest
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.jobs.settings.driver_settings import AutoscaleSettings, DriverSettings

__all__ = [
    "AGREEING",
    "DEBT_RECORDS_MIN",
    "FIRST_RECORDS",
    "SAFE_SHARE",
    "UNHURRIED_MS",
    "UNHURRIED_RECORDS",
    "EpochCost",
    "EpochLoad",
    "EpochSizing",
    "EpochTuner",
    "LoadHistory",
    "SizeBounds",
    "decide_parallelism",
    "first_sizing",
    "next_sizing",
    "recooled",
]

AGREEING = 4
SAFE_SHARE = 0.7


@dataclass(frozen=True)
class EpochLoad:
    """The load of one epoch: how long its tasks ran, and whether more input was waiting than it was allowed to read."""

    elapsed_ms: float
    lags: bool


@dataclass(frozen=True)
class LoadHistory:
    """The epochs since the parallelism last changed (or the job started), as many as decisions need.

    >>> LoadHistory(2, changed_ms=0).followed_by(EpochLoad(120, lags=True), now_ms=300).epochs
    (EpochLoad(elapsed_ms=120, lags=True),)
    """

    parallelism: int
    changed_ms: int
    now_ms: int = 0
    epochs: tuple[EpochLoad, ...] = ()

    def followed_by(self, epoch: EpochLoad, now_ms: int) -> LoadHistory:
        """The history with one more epoch, committed at `now_ms`."""
        return replace(self, now_ms=now_ms, epochs=(*self.epochs, epoch)[-AGREEING:])


def decide_parallelism(history: LoadHistory, settings: AutoscaleSettings) -> int | None:
    """The parallelism to continue with; None: the current one.

    >>> settings = AutoscaleSettings(1, 8, target_ms=1000, cooldown_ms=60_000)
    >>> slow = (EpochLoad(1500, lags=True),) * AGREEING
    >>> decide_parallelism(LoadHistory(2, changed_ms=0, now_ms=60_000, epochs=slow), settings)
    3
    >>> decide_parallelism(LoadHistory(2, changed_ms=0, now_ms=59_000, epochs=slow), settings)
    """
    now = history.parallelism
    bounded = min(max(now, settings.parallelism_min), settings.parallelism_max)
    if bounded != now:
        return bounded  # a parallelism outside the bounds was not chosen by this function
    if len(history.epochs) < AGREEING or history.now_ms - history.changed_ms < settings.cooldown_ms:
        return None
    wanted = _up(history, settings) or _down(history, settings) or now
    return None if wanted == now else wanted


def _up(history: LoadHistory, settings: AutoscaleSettings) -> int | None:
    if not all(epoch.lags and epoch.elapsed_ms > settings.target_ms for epoch in history.epochs):
        return None
    shortest_ms = min(epoch.elapsed_ms for epoch in history.epochs)
    needed = math.ceil(history.parallelism * shortest_ms / settings.target_ms)
    return min(max(needed, history.parallelism + 1), 2 * history.parallelism, settings.parallelism_max)


def _down(history: LoadHistory, settings: AutoscaleSettings) -> int | None:
    if any(epoch.lags for epoch in history.epochs):
        return None
    longest_ms = max(epoch.elapsed_ms for epoch in history.epochs)
    # With fewer subtasks an epoch takes longer by at most the ratio of the two parallelisms.
    enough = math.ceil(history.parallelism * longest_ms / (SAFE_SHARE * settings.target_ms))
    fewer = max(enough, math.ceil(history.parallelism / 2), settings.parallelism_min)
    return fewer if fewer < history.parallelism else None


FIRST_RECORDS = 65_536
"""The first epoch is rarely larger: the size of its records, and the time they take, are not known yet."""

UNHURRIED_RECORDS = 500_000
UNHURRIED_MS = 3_000
"""Without an interval, an epoch larger than `UNHURRIED_RECORDS` should not take longer than this."""

COLD_EPOCHS = 2
RECENT_EPOCHS = 8
AGREEING_EPOCHS = 3
AGREEING_PAIRS = 5
GROWTH_MAX = 4
FIXED_SHARE_MAX = 1 / 5
DEBT_SHARE = 3 / 4
"""While state is written faster than it is merged, each epoch shrinks to this share of the one before."""
DEBT_RECORDS_MIN = 16_384
"""Lower bound of that shrinking: merging a large backlog takes many epochs, and the job must make progress in them."""
STEADY_SHARE = 0.1
"""A change smaller than this is noise."""
LONGEST_SHARE = 4
"""An epoch should take no more than this part of the time after which it is cancelled."""
_SMALL_SHARE = 1 / 4
_DISTINCT_RATIO = 2
"""Epochs whose sizes differ by this factor separate the fixed part from the part per record."""


@dataclass(frozen=True)
class SizeBounds:
    """Upper bounds of an epoch. `interval_ms` None: latency does not matter. `longest_ms`: the bound on duration
    without an interval; a longer epoch would be cancelled."""

    records_max: int
    bytes_max: int
    interval_ms: int | None = None
    longest_ms: int | None = None


@dataclass(frozen=True)
class EpochCost:
    """The cost of one epoch: what it read, the time from its trigger until its manifest was made, and how many
    bytes of state were due for compaction at its end."""

    records: int
    input_bytes: int
    elapsed_ms: float
    debt_bytes: int = 0


@dataclass(frozen=True)
class EpochSizing:
    """The size of the next epoch (`budget`, in records), and the estimates so far."""

    budget: int
    fixed_ms: float | None = None
    recent: tuple[EpochCost, ...] = ()
    cold_epochs: int = COLD_EPOCHS


def first_sizing(bounds: SizeBounds, *, ends_by_bytes: bool = False) -> EpochSizing:
    """The sizing before the first epoch. `ends_by_bytes`: all sources stop reading at the byte limit of an epoch, so
    the size of records need not be known; without an interval, the first epoch is then large.

    >>> bounds = SizeBounds(records_max=500_000, bytes_max=1 << 28)
    >>> first_sizing(bounds).budget, first_sizing(bounds, ends_by_bytes=True).budget
    (65536, 500000)
    """
    if ends_by_bytes and bounds.interval_ms is None:
        return EpochSizing(max(1, min(bounds.records_max, UNHURRIED_RECORDS)))
    return EpochSizing(max(1, min(bounds.records_max, FIRST_RECORDS)))


def recooled(sizing: EpochSizing) -> EpochSizing:
    """The sizing after a restart or a change of plan: the next epochs are cold, and costs are estimated anew."""
    return EpochSizing(sizing.budget)


def next_sizing(sizing: EpochSizing, epoch: EpochCost, bounds: SizeBounds) -> EpochSizing:
    """The sizing after an epoch. `epoch.records` may differ from the budget if input was scarce or is read in blocks.

    >>> bounds = SizeBounds(records_max=500_000, bytes_max=1 << 28, interval_ms=1_000)
    >>> warm = EpochSizing(100_000, cold_epochs=0)
    >>> next_sizing(warm, EpochCost(100_000, 1_000_000, elapsed_ms=500), bounds).budget
    200000
    >>> next_sizing(warm, EpochCost(100_000, 1_000_000, elapsed_ms=4_000), bounds).budget
    25000
    >>> unhurried = SizeBounds(records_max=500_000, bytes_max=1 << 28, longest_ms=150_000)
    >>> next_sizing(warm, EpochCost(100_000, 1_000_000, elapsed_ms=300_000), unhurried).budget
    50000
    """
    if not epoch.records:
        return sizing
    if bounds.interval_ms is None:
        quick = int(epoch.records * UNHURRIED_MS / max(1.0, epoch.elapsed_ms))
        learnt = replace(sizing, budget=max(UNHURRIED_RECORDS, quick))
    elif sizing.cold_epochs:
        learnt = _after_cold(sizing, epoch, bounds.interval_ms)
    elif epoch.records < sizing.budget * _SMALL_SHARE and epoch.elapsed_ms <= bounds.interval_ms:
        learnt = _after_small(sizing, epoch)
    else:
        learnt = _after_full(sizing, epoch, bounds.interval_ms)
    in_bytes = bounds.bytes_max * epoch.records // max(1, epoch.input_bytes)
    in_debt = max(int(sizing.budget * DEBT_SHARE), DEBT_RECORDS_MIN) if epoch.debt_bytes else learnt.budget
    is_long = bounds.longest_ms is not None and epoch.elapsed_ms > bounds.longest_ms
    in_time = int(epoch.records * (bounds.longest_ms or 0) / epoch.elapsed_ms) if is_long else learnt.budget
    return replace(learnt, budget=max(1, min(learnt.budget, bounds.records_max, in_bytes, in_debt, in_time)))


def _after_cold(sizing: EpochSizing, epoch: EpochCost, interval_ms: int) -> EpochSizing:
    short = 2 * epoch.elapsed_ms < interval_ms and 2 * epoch.records >= sizing.budget
    budget = sizing.budget * GROWTH_MAX if short else sizing.budget
    return replace(sizing, budget=budget, cold_epochs=sizing.cold_epochs - 1)


def _after_small(sizing: EpochSizing, epoch: EpochCost) -> EpochSizing:
    known_ms = sizing.fixed_ms or 0.0
    fixed_ms = max(0.0, epoch.elapsed_ms - epoch.records * _record_ms(sizing.recent, known_ms))
    # Averages with the previous estimate: small epochs are short, so their times vary widely.
    return replace(sizing, fixed_ms=fixed_ms if sizing.fixed_ms is None else (known_ms + fixed_ms) / 2)


def _after_full(sizing: EpochSizing, epoch: EpochCost, interval_ms: int) -> EpochSizing:
    recent = (*sizing.recent, epoch)[-RECENT_EPOCHS:]
    learnt_ms = _fixed_ms(recent, sizing.fixed_ms)
    fixed_ms = learnt_ms or 0.0
    record_ms = _record_ms(recent, fixed_ms)
    wanted_ms = max(interval_ms, fixed_ms / FIXED_SHARE_MAX) - fixed_ms
    step = wanted_ms / (record_ms * sizing.budget) if record_ms > 0 else GROWTH_MAX
    is_alike = not _pairs(recent) and len(recent) in (1, RECENT_EPOCHS)
    is_near = 1 / _DISTINCT_RATIO < step < _DISTINCT_RATIO
    # A smaller epoch would read the same amount, and its whole time would be attributed to its records permanently.
    overshoot = 1 + STEADY_SHARE if is_near else _DISTINCT_RATIO
    is_smallest = sizing.budget < _DISTINCT_RATIO or epoch.records >= overshoot * sizing.budget
    if is_alike and step < _DISTINCT_RATIO and (is_near or is_smallest):
        grows = is_smallest or (len(recent) == 1 and step >= 1)
        step = _DISTINCT_RATIO if grows else 1 / _DISTINCT_RATIO
    if abs(step - 1) > STEADY_SHARE:
        step = min(max(step, 1 / GROWTH_MAX), GROWTH_MAX)
        return replace(sizing, budget=round(sizing.budget * step), fixed_ms=learnt_ms, recent=recent)
    return replace(sizing, fixed_ms=learnt_ms, recent=recent)


def _pairs(recent: tuple[EpochCost, ...]) -> list[tuple[EpochCost, EpochCost]]:
    """Pairs of a small epoch and one at least twice as large; pairs of the newest epochs first."""
    ordered = (sorted(pair, key=lambda epoch: epoch.records) for pair in combinations(reversed(recent), 2))
    return [(small, large) for small, large in ordered if large.records >= _DISTINCT_RATIO * small.records]


def _fixed_ms(recent: tuple[EpochCost, ...], known_ms: float | None) -> float | None:
    """The estimated time of an epoch without records, from epochs of different sizes; `known_ms` if there are none."""
    estimates = [
        (small.elapsed_ms * large.records - large.elapsed_ms * small.records) / (large.records - small.records)
        for small, large in _pairs(recent)[:AGREEING_PAIRS]
    ]
    fixed_ms = median(estimates) if estimates else known_ms
    return None if fixed_ms is None else min(max(fixed_ms, 0.0), *(epoch.elapsed_ms for epoch in recent))


def _record_ms(recent: tuple[EpochCost, ...], fixed_ms: float) -> float:
    """The time per record: the median of the last epochs (of two, the faster one); 0: not known."""
    estimates = [max(0.0, epoch.elapsed_ms - fixed_ms) / epoch.records for epoch in recent[-AGREEING_EPOCHS:]]
    return median_low(estimates) if estimates else 0.0


class EpochTuner:
    """Carries one driver's estimates from epoch to epoch: the size of the next one, and its parallelism."""

    def __init__(self, settings: DriverSettings, now_ms: int, *, ends_by_bytes: bool = False) -> None:
        checkpoints = settings.checkpoints
        longest_ms = checkpoints.timeout_ms // LONGEST_SHARE if checkpoints.is_timeout_firm else None
        self._bounds = SizeBounds(settings.records_max, settings.bytes_max, settings.target_ms, longest_ms)
        self._sizing = first_sizing(self._bounds, ends_by_bytes=ends_by_bytes)
        self._autoscale = settings.autoscale
        self.load = LoadHistory(settings.parallelism, now_ms)

    @property
    def budget(self) -> int:
        """How many records the next epoch may read."""
        return self._sizing.budget

    def timed_out(self) -> None:
        """An epoch was cancelled because it took too long: the next one reads less."""
        self._sizing = replace(self._sizing, budget=max(1, self._sizing.budget // GROWTH_MAX))

    def recool(self) -> None:
        """The job was restarted, or has another plan: its next epochs are cold."""
        self._sizing = recooled(self._sizing)

    def rescaled(self, parallelism: int, now_ms: int) -> None:
        """The job will continue at another parallelism."""
        self.load = LoadHistory(parallelism, now_ms)

    def rescaling_refused(self) -> None:
        """The parallelism that `learn` returned is not possible: wait as after a change before proposing another."""
        self.load = replace(self.load, changed_ms=self.load.now_ms, epochs=())

    def learn(self, manifest: Manifest, now_ms: int) -> int | None:
        """Adjust the next epoch's size to the duration of this one. Returns the parallelism to continue with, None for
        the same."""
        statistics = statistics_of(manifest)
        if statistics is None or manifest.status != "RUNNING":
            return None
        cost = EpochCost(
            statistics["in"], statistics["in_bytes"], statistics["duration_ms"], statistics["compaction_debt_bytes"]
        )
        self._sizing = next_sizing(self._sizing, cost, self._bounds)
        self.load = self.load.followed_by(EpochLoad(statistics["run_ms"], statistics["lags"]), now_ms)
        return None if self._autoscale is None else decide_parallelism(self.load, self._autoscale)
