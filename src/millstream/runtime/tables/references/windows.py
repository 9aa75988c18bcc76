"""SQL windows, a row at a time: the windows of a row, and their aggregates.

Local times are computed by `zoneinfo`; no code of the fast implementation is used.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["aggregated_rows", "local_of", "windows_of"]

_EPOCH = dt.datetime(1970, 1, 1)


def local_of(moment_ms: int, zone: str) -> int:
    """The local time of a zone at an instant."""
    aware = (_EPOCH + dt.timedelta(milliseconds=moment_ms)).replace(tzinfo=dt.UTC).astimezone(ZoneInfo(zone))
    return (aware.replace(tzinfo=None) - _EPOCH) // dt.timedelta(milliseconds=1)


def windows_of(time_ms: int, windows: PaneWindows) -> list[tuple[int, int]]:
    """Start and end of every window that contains a (local) time."""
    bounds = []
    if windows.step_ms is not None:
        start = time_ms - (time_ms - windows.offset_ms) % windows.size_ms
        ends = range(start + windows.step_ms, start + windows.size_ms + 1, windows.step_ms)
        return [(start, end) for end in ends if time_ms < end]
    start = time_ms - (time_ms - windows.offset_ms) % windows.slide_ms
    while start + windows.size_ms > time_ms:
        bounds.append((start, start + windows.size_ms))
        start -= windows.slide_ms
    return sorted(bounds)


def aggregated_rows(
    rows: Iterable[Sequence[Any]],
    time_of: Callable[[Sequence[Any]], int],
    keys: Sequence[int],
    windows: PaneWindows,
    results: Sequence[Callable[[list[Sequence[Any]]], Any]],
    zone: str = "UTC",
) -> list[tuple[Any, ...]]:
    """For every group and non-empty window: the key's values, the results, start and end of the window."""
    groups: dict[tuple[Any, ...], list[Sequence[Any]]] = {}
    for row in rows:
        for start, end in windows_of(local_of(time_of(row), zone), windows):
            groups.setdefault((*(row[at] for at in keys), start, end), []).append(row)
    return [
        (*group[: len(keys)], *(result(members) for result in results), *group[len(keys) :])
        for group, members in groups.items()
    ]
