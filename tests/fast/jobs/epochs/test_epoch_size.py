"""The size of epochs: it adapts quickly, whatever an epoch costs, and is robust against single outliers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.jobs.epochs.epoch_size import (
    DEBT_RECORDS_MIN,
    FIRST_RECORDS,
    UNHURRIED_MS,
    UNHURRIED_RECORDS,
    EpochCost,
    EpochSizing,
    SizeBounds,
    first_sizing,
    next_sizing,
    recooled,
)

RECORDS_MAX = 500_000
BOUNDS = SizeBounds(RECORDS_MAX, bytes_max=1 << 40, interval_ms=1_000)
FIFTH = 1 / 5


@dataclass(frozen=True)
class Costs:
    """The costs of the epochs of a scripted job: a fixed part and a part per record, both `slowed` in some epochs."""

    fixed_ms: float
    record_ms: float
    jitter: float = 0.0
    slowed: Callable[[int], float] = lambda epoch: 1.0
    first_ms: float = 0.0

    def elapsed_ms(self, epoch: int, records: int, draw: random.Random) -> float:
        extra_ms = self.first_ms if epoch == 0 else 0.0
        plain_ms = (self.fixed_ms + records * self.record_ms) * self.slowed(epoch)
        return extra_ms + plain_ms * (1 + draw.uniform(-self.jitter, self.jitter))

    def rate(self, records: float) -> float:
        """Records per millisecond with epochs of this size."""
        return records / (self.fixed_ms + records * self.record_ms)

    def best(self, bounds: SizeBounds) -> float:
        """The size that fills the interval, or makes the fixed part a fifth where that is more."""
        assert bounds.interval_ms is not None
        wanted_ms = max(bounds.interval_ms, self.fixed_ms / FIFTH)
        return min(bounds.records_max, (wanted_ms - self.fixed_ms) / self.record_ms)


def sizes(costs: Costs, epochs: int, bounds: SizeBounds = BOUNDS, seed: int = 0) -> Iterator[int]:
    """The sizes of the epochs of a job with an endless backlog."""
    draw, sizing = random.Random(seed), first_sizing(bounds)
    for epoch in range(epochs):
        yield sizing.budget
        elapsed_ms = costs.elapsed_ms(epoch, sizing.budget, draw)
        sizing = next_sizing(sizing, EpochCost(sizing.budget, sizing.budget * 100, elapsed_ms), bounds)


def throughput_share(costs: Costs, epoch_sizes: list[int]) -> float:
    """The throughput of these epochs, once warm, relative to the best possible one."""
    elapsed_ms = sum(costs.fixed_ms + records * costs.record_ms for records in epoch_sizes)
    return sum(epoch_sizes) / elapsed_ms / costs.rate(costs.best(BOUNDS))


anything = {
    "fixed_ms": st.floats(5, 900),
    "record_ms": st.sampled_from([0.0005, 0.002, 0.01, 0.1, 1.0]),
    "jitter": st.sampled_from([0.0, 0.1, 0.2]),
    "seed": st.integers(0, 1_000),
}


@given(**anything, warming=st.booleans())
def test_the_throughput_is_near_its_best_ten_epochs_after_a_cold_start(
    fixed_ms: float, record_ms: float, jitter: float, seed: int, warming: bool
) -> None:
    warm_up = (lambda epoch: 1 + math.exp(-epoch / 2)) if warming else (lambda epoch: 1.0)
    costs = Costs(fixed_ms, record_ms, jitter, warm_up, first_ms=4_000)
    epoch_sizes = list(sizes(costs, 60, seed=seed))
    assert throughput_share(costs, epoch_sizes[10:]) >= 0.75
    assert max(epoch_sizes) <= RECORDS_MAX


@pytest.mark.parametrize("record_ms", [0.0015, 0.002, 0.01])
def test_without_jitter_nine_tenths_of_the_best_throughput_are_reached_within_ten_epochs(record_ms: float) -> None:
    costs = Costs(fixed_ms=100, record_ms=record_ms, first_ms=5_000)
    epoch_sizes = list(sizes(costs, 60))
    best = costs.rate(costs.best(BOUNDS))
    reached = next(epoch for epoch, size in enumerate(epoch_sizes) if costs.rate(size) >= 0.9 * best)
    assert reached < 10
    # Apart from an occasional epoch of half the size, which measures the fixed part, the size is constant.
    steady = epoch_sizes[10:]
    assert max(steady) <= 1.1 * min(size for size in steady if size > max(steady) * 0.6)
    assert sum(size < max(steady) * 0.6 for size in steady) <= len(steady) / 6


def test_a_slow_first_epoch_does_not_make_the_next_ones_small() -> None:
    assert list(sizes(Costs(80, 0.0016, first_ms=30_000), 6))[-1] > 400_000


def test_one_slow_epoch_changes_little_and_two_are_adapted_to() -> None:
    once = list(sizes(Costs(100, 0.002, slowed=lambda epoch: 6.0 if epoch == 20 else 1.0), 40))
    assert min(once[21:]) >= 0.45 * once[20]
    lasting = list(sizes(Costs(100, 0.002, slowed=lambda epoch: 4.0 if epoch >= 20 else 1.0), 40))
    # The fixed part is slowed too, to 400 ms: its target share of a fifth requires epochs of 2 s.
    assert lasting[20] > 300_000 and all(150_000 < size < 260_000 for size in lasting[25:28])
    back = list(sizes(Costs(100, 0.002, slowed=lambda epoch: 4.0 if 20 <= epoch < 30 else 1.0), 50))
    assert max(back[30:36]) > 400_000


def test_small_epochs_in_quiet_times_do_not_shrink_the_size_for_the_next_burst() -> None:
    sizing = EpochSizing(400_000, fixed_ms=100, recent=(EpochCost(400_000, 1, 900),), cold_epochs=0)
    for _ in range(100):
        sizing = next_sizing(sizing, EpochCost(10, 1_000, 140), BOUNDS)
    assert sizing.budget == 400_000 and 130 < (sizing.fixed_ms or 0) <= 140


def test_epochs_of_large_records_are_bounded_by_bytes() -> None:
    bounds = SizeBounds(RECORDS_MAX, bytes_max=1_000_000, interval_ms=None)
    sizing = next_sizing(first_sizing(bounds), EpochCost(1_000, 50_000_000, 200), bounds)
    assert sizing.budget == 20
    assert next_sizing(sizing, EpochCost(20, 2_000, 200), bounds).budget == 10_000


@given(fixed_ms=st.floats(0, 50), record_us=st.floats(0.1, 100), interval_ms=st.integers(1_000, 10_000))
def test_epochs_converge_to_the_checkpoint_interval(fixed_ms: float, record_us: float, interval_ms: int) -> None:
    costs, bounds = Costs(fixed_ms, record_us / 1000), SizeBounds(RECORDS_MAX, 1 << 40, interval_ms)
    epoch_sizes = list(sizes(costs, 40, bounds))
    assert all(fixed_ms + size * record_us / 1000 <= 1.15 * interval_ms for size in epoch_sizes[15:])
    assert max(epoch_sizes[15:]) >= 0.85 * costs.best(bounds)


def test_without_an_interval_slow_records_have_epochs_of_a_fixed_size_after_the_first() -> None:
    bounds = SizeBounds(4 * UNHURRIED_RECORDS, 1 << 40)
    assert list(sizes(Costs(100, 1.0), 3, bounds)) == [FIRST_RECORDS, UNHURRIED_RECORDS, UNHURRIED_RECORDS]
    assert list(sizes(Costs(100, 1.0), 3, SizeBounds(9, 1 << 40))) == [9, 9, 9]


def test_without_an_interval_quick_records_have_epochs_of_some_seconds_or_the_maximum_size() -> None:
    quick = Costs(100, 0.002)
    *_, last = sizes(quick, 5, SizeBounds(1 << 40, 1 << 40))
    assert last * 0.002 <= UNHURRIED_MS and last * 0.002 >= UNHURRIED_MS - 2 * 100
    assert list(sizes(quick, 3, SizeBounds(2 * UNHURRIED_RECORDS, 1 << 40)))[2] == 2 * UNHURRIED_RECORDS


@pytest.mark.parametrize("interval_ms", [None, 1_000])
def test_epochs_shrink_while_compaction_is_overdue_and_grow_again_afterwards(interval_ms: int | None) -> None:
    bounds, sizing = SizeBounds(RECORDS_MAX, 1 << 40, interval_ms), EpochSizing(80_000, cold_epochs=0)
    budgets = []
    for debt_bytes in (1 << 30, 1 << 20, 0):
        sizing = next_sizing(sizing, EpochCost(sizing.budget, 1, 100, debt_bytes), bounds)
        budgets.append(sizing.budget)
    assert budgets[:2] == [60_000, 45_000] and budgets[2] > 45_000


def test_a_long_compaction_debt_does_not_stall_a_job() -> None:
    sizing = EpochSizing(RECORDS_MAX, cold_epochs=0)
    for _ in range(500):
        sizing = next_sizing(sizing, EpochCost(sizing.budget, 1, 100, debt_bytes=1 << 40), BOUNDS)
    assert sizing.budget == DEBT_RECORDS_MIN


def test_empty_epochs_do_not_adapt_the_size_and_the_budget_is_at_least_one_record() -> None:
    sizing = EpochSizing(500, cold_epochs=0)
    assert next_sizing(sizing, EpochCost(0, 0, 9_000), BOUNDS) == sizing
    assert next_sizing(EpochSizing(1, cold_epochs=0), EpochCost(1, 1 << 50, 9_000), BOUNDS).budget == 1


def test_after_a_change_of_plan_the_first_epochs_are_cold_again() -> None:
    sizing = EpochSizing(400_000, fixed_ms=100, recent=(EpochCost(400_000, 1, 900),), cold_epochs=0)
    assert next_sizing(recooled(sizing), EpochCost(400_000, 1, 20_000), BOUNDS).budget == 400_000


@pytest.mark.parametrize("block", [1, 100], ids=["single records", "blocks of records"])
def test_a_job_with_huge_first_records_recovers_from_epochs_of_one_record(block: int) -> None:
    """An epoch costs more than the interval at any size: that is not the cost of its one record."""
    bounds = SizeBounds(records_max=500_000, bytes_max=1 << 28, interval_ms=1_000)
    sizing = first_sizing(bounds)
    for record_bytes, epochs in ((300 << 20, 20), (100, 60)):
        for _ in range(epochs):
            records = -(-sizing.budget // block) * block
            cost = EpochCost(records, records * record_bytes, elapsed_ms=1_500 + records * 0.01)
            sizing = next_sizing(sizing, cost, bounds)
    assert sizing.budget > 100_000


def test_very_slow_records_are_still_read_one_at_a_time() -> None:
    bounds = SizeBounds(records_max=500_000, bytes_max=1 << 28, interval_ms=1_000)
    sizing, budgets = EpochSizing(1, cold_epochs=0), []
    for _ in range(40):
        sizing = next_sizing(sizing, EpochCost(sizing.budget, 100, elapsed_ms=20 + sizing.budget * 5_000), bounds)
        budgets.append(sizing.budget)
    assert max(budgets) == 2 and budgets.count(1) > 30


def test_a_slow_epoch_that_exceeded_its_budget_is_followed_by_a_smaller_one() -> None:
    bounds = SizeBounds(records_max=500_000, bytes_max=1 << 28, interval_ms=1_000)
    sizing = EpochSizing(65_536, cold_epochs=0)
    assert next_sizing(sizing, EpochCost(80_000, 100, elapsed_ms=10_000), bounds).budget < 65_536


def test_the_first_epoch_is_large_if_bytes_bound_it_and_no_interval_is_set() -> None:
    throughput = SizeBounds(records_max=500_000, bytes_max=1 << 28)
    latency = SizeBounds(records_max=500_000, bytes_max=1 << 28, interval_ms=1_000)
    assert first_sizing(throughput, ends_by_bytes=True).budget == 500_000
    assert first_sizing(throughput, ends_by_bytes=False).budget == FIRST_RECORDS
    assert first_sizing(latency, ends_by_bytes=True).budget == FIRST_RECORDS
    assert first_sizing(SizeBounds(10, 1 << 28), ends_by_bytes=True).budget == 10
