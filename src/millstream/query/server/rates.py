"""How fast one client may ask: a bucket of tokens per client that fills up with time. Pure; the clock is passed in.

The number of clients that are remembered is bounded: the one that asked longest ago is forgotten first, and its bucket
is then full again. So a flood of strangers costs no memory.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Rates"]

_CLIENTS_MAX = 10_000
_BURST_S = 2.0


class Rates:
    """So many requests a second for each client, with twice that at once.

    >>> rates = Rates(1.0)
    >>> [rates.wait_s("a", now_s) for now_s in (0.0, 0.0, 0.0, 1.0)]
    [0.0, 0.0, 1.0, 0.0]
    """

    def __init__(self, requests_per_s: float | None) -> None:
        self._per_s = requests_per_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str, now_s: float) -> float:
        """Zero if the request may be answered, else how long its client should wait."""
        if self._per_s is None:
            return 0.0
        full = max(1.0, self._per_s * _BURST_S)
        left, then_s = self._buckets.pop(client, (full, now_s))
        left = min(full, left + max(0.0, now_s - then_s) * self._per_s)
        allowed = left >= 1.0
        self._buckets[client] = (left - 1.0 if allowed else left, now_s)
        if len(self._buckets) > _CLIENTS_MAX:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._per_s
