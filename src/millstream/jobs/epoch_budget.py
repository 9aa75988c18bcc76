"""How many records an epoch may read, so that it takes no longer than the checkpoint interval. Pure.

Every epoch is a checkpoint, so "a checkpoint every so often" means epochs no longer than that. They may well be
shorter: input is not kept waiting. An epoch that took too long makes the next one smaller in proportion, one that
took less than half lets it double, up to `millstream.epoch.max-records`. Below a 64th of that it is not the records
that take the time, and smaller epochs would only cost throughput.
"""

from __future__ import annotations

__all__ = ["next_budget"]

_LEAST_SHARE = 64


def next_budget(budget: int, records_max: int, interval_ms: int | None, took_ms: float, records: int) -> int:
    """The budget of the next epoch, after one of `records` records that took `took_ms` with this budget.

    >>> next_budget(500_000, 500_000, 1_000, took_ms=2_500, records=500_000)
    200000
    >>> next_budget(200_000, 500_000, 1_000, took_ms=900, records=200_000)
    200000
    >>> next_budget(200_000, 500_000, 1_000, took_ms=300, records=150_000)
    400000
    """
    if interval_ms is None or not records:
        return budget
    if took_ms > interval_ms:
        return max(1, records_max // _LEAST_SHARE, min(budget, int(records * interval_ms / took_ms)))
    return min(records_max, 2 * budget) if 2 * took_ms < interval_ms else budget
