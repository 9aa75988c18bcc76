"""Local time of a time zone, for windows aligned to it: whole arrays, in milliseconds.

In a zone with summer time, a one-day window has 23 hours once a year, and 25 once. So windows of TIMESTAMP_LTZ are
computed in **local time**: the wall-clock time, as if it were UTC. The conversion is not one to one:

    in autumn an hour occurs twice        local time goes back by an hour: both hours are in the same windows, and the
                                          windows end with the second one
    in spring an hour is skipped          its local times map to the instant of the change

Local time never advances past future input: `reached_ms` is the last local time that no later instant maps to.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ProgramError
from millstream.state.keys.hashing import Int64s

__all__ = ["arrow_zone", "local_ms", "moments_ms", "reached_ms"]

_MOMENT = pa.timestamp("ms")
# Clocks are set back by a day at most; times outside these years are treated as UTC.
_STEP_BACK_MAX_MS = 26 * 3_600_000
_FAR_MS = 200_000_000_000_000
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


def arrow_zone(zone: str) -> str:
    """The zone's name in Arrow; a ProgramError for an unknown zone.

    >>> arrow_zone("GMT-8"), arrow_zone("Europe/Berlin"), arrow_zone("Z")
    ('-08:00', 'Europe/Berlin', 'UTC')
    """
    if match := _OFFSET.fullmatch(zone):
        return f"{match[1]}{int(match[2]):02}:{match[3] or '00'}"
    name = "UTC" if zone in ("Z", "UTC", "GMT", "UT") else zone
    try:
        pc.local_timestamp(pa.array([0], pa.timestamp("ms", name)))
    except pa.ArrowException as error:
        raise ProgramError(
            f"there is no time zone {zone!r}. Use a region such as 'Europe/Berlin' or an offset such as 'GMT+02:00'"
        ) from error
    return name


def local_ms(moments: Int64s, zone: str) -> Int64s:
    """The local time of each instant.

    >>> local_ms(np.array([0]), "Europe/Berlin").tolist()
    [3600000]
    """
    if zone == "UTC":
        return moments
    shown = pc.local_timestamp(pa.array(moments).view(pa.timestamp("ms", zone)))
    local: Int64s = shown.view(pa.int64()).to_numpy()
    return local


def moments_ms(locals_: Int64s, zone: str) -> Int64s:
    """The last instant with each local time; for a skipped local time, the instant of the change."""
    if zone == "UTC":
        return locals_
    walls = pa.array(locals_).view(_MOMENT)
    moments: Int64s = (
        pc.assume_timezone(walls, zone, ambiguous="latest", nonexistent="latest").view(pa.int64()).to_numpy()
    )
    return moments


def reached_ms(moment: int, zone: str) -> int:
    """The last local time that no later instant maps to.

    >>> reached_ms(0, "UTC")
    0
    """
    if zone == "UTC" or abs(moment) > _FAR_MS:
        return moment
    shown = int(local_ms(np.array([moment]), zone)[0])
    if int(moments_ms(np.array([shown]), zone)[0]) <= moment:
        return shown
    # The local time will recur: binary search for the last one before it, since instants are monotonic.
    low, high = shown - _STEP_BACK_MAX_MS, shown
    while high - low > 1:
        middle = (low + high) // 2
        if int(moments_ms(np.array([middle]), zone)[0]) <= moment:
            low = middle
        else:
            high = middle
    return low
