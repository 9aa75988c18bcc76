"""Concurrent requests to a store, on threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from millstream.errors import StoreError
from millstream.storage.request_counts import REQUESTS

__all__ = ["side_by_side"]

_THREADS = 8


def side_by_side(requests: Sequence[Callable[[], object]]) -> None:
    """Make all requests concurrently; the store's errors are ignored. The requests are counted as the caller's.

    >>> kept = []
    >>> side_by_side([lambda: kept.append(1), lambda: kept.append(2)])
    >>> sorted(kept)
    [1, 2]
    """
    with ThreadPoolExecutor(min(_THREADS, len(requests)), "millstream-fetch") as threads:
        REQUESTS.take_over(sum(threads.map(_count, requests)))


def _count(request: Callable[[], object]) -> int:
    before = REQUESTS.of_thread()
    with suppress(StoreError):
        request()
    return REQUESTS.of_thread() - before
