"""Time zones by Java's rules, over whole columns of seconds.

Setting clocks forward skips an hour; setting them back repeats an hour. Java resolves these local times with the offset
before the change: a skipped time becomes a later one, a repeated time is the first of the two. The older calendar
classes, which FROM_UNIXTIME and related functions use, choose the second instead.

The offset changes are located once per zone and year, by sampling every half day and bisecting the intervals whose ends
differ; the offsets of all values are then determined by one binary search. Before 1800 all zones use local mean time.
After 2100 a zone follows only its last rule, so later years use the changes of the corresponding year before 2500,
since the calendar repeats every 400 years.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

__all__ = ["Zone", "zone_of"]

Int64s = npt.NDArray[np.int64]
_DAY = 86_400
_CYCLE = 146_097 * _DAY  # 400 years
_FIRST = -5_364_662_400  # 1800
_LAST = 16_725_225_600  # 2500
_SIMPLE_FIRST = -2_208_988_800  # 1900
# Three-letter names that Java still accepts.
_SHORT_NAMES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00", "Z": "+00:00",
}  # fmt: skip
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


class Zone:
    """A zone, with its offsets in seconds east of UTC."""

    def __init__(self, name: str, rules: tzinfo) -> None:
        self.name = name
        self.rules = rules
        self._years: dict[int, tuple[list[int], list[int]]] = {}
        fixed = rules.utcoffset(None)
        self._fixed = None if fixed is None else int(fixed.total_seconds())

    def offset(self, moment: int) -> int:
        """The offset at one instant, in seconds since 1970 UTC, without the table of changes."""
        offset = self._clock(moment).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    def _clock(self, moment: int) -> datetime:
        """The zone's local time at an instant, or at an equivalent instant within the range of Python's calendar."""
        if moment >= _LAST:
            moment -= ((moment - _LAST) // _CYCLE + 1) * _CYCLE
        return datetime.fromtimestamp(max(moment, _FIRST), self.rules)

    def local_offset(self, local: int, later: bool = False) -> int:
        """The offset of a local time; `later` selects the second of a repeated time."""
        return int(self.local_offsets(np.array([local], np.int64), later)[0])

    def offsets(self, moments: Int64s) -> Int64s:
        """The offset at each instant."""
        if self._fixed is not None or not len(moments):
            return np.full(moments.shape, self._fixed or 0, np.int64)
        folded = np.clip(moments, _FIRST, None)
        if int(folded.max()) >= _LAST:
            folded = np.where(folded >= _LAST, folded - ((folded - _LAST) // _CYCLE + 1) * _CYCLE, folded)
        starts, offsets = self._changes(int(folded.min()), int(folded.max()), folded)
        if len(starts) == 1:
            return np.full(moments.shape, offsets[0], np.int64)
        return offsets[np.searchsorted(starts, folded, side="right") - 1]

    def local_offsets(self, local: Int64s, later: bool = False) -> Int64s:
        """The offsets of local times: the offset before a change (`later`: after it, for repeated times)."""
        if self._fixed is not None:
            return np.full(local.shape, self._fixed, np.int64)
        before = self.offsets(local - _DAY)
        after = self.offsets(local - before)
        if not later and np.array_equal(before, after):
            return before
        again = self.offsets(local - after)
        # After a change both agree on the new offset. In a gap they differ, and the old offset applies.
        result = np.where(again == after, after, before)
        if later:
            following = self.offsets(local + _DAY)
            is_second = self.offsets(local - following) == following
            result = np.where(is_second & (following < result), following, result)
        return result

    @cached_property
    def standard_offset(self) -> int:
        """The offset without daylight saving time, by the last rule of the zone."""
        return min(self.offset(_LAST - 1), self.offset(_LAST - 183 * _DAY))

    def simple_offsets(self, moments: Int64s) -> Int64s:
        """The offset at each instant by Java's older classes: the standard offset before 1900."""
        return np.where(moments < _SIMPLE_FIRST, self.standard_offset, self.offsets(moments))

    def simple_local_offsets(self, local: Int64s) -> Int64s:
        """The offset of each local time by Java's older classes."""
        return np.where(local < _SIMPLE_FIRST, self.standard_offset, self.local_offsets(local, later=True))

    def abbreviation(self, moment: int) -> str:
        """The zone's abbreviation at an instant, such as CET or CEST."""
        return self._clock(moment).tzname() or self.name

    def _changes(self, low: int, high: int, moments: Int64s) -> tuple[Int64s, Int64s]:
        """The start of each offset, for all years between two instants (or only those that occur)."""
        first, last = (1970 + (each // (365.2425 * _DAY)) for each in (low, high))
        years = np.arange(int(first) - 1, int(last) + 2)
        if len(years) > 300:
            near = np.unique((moments // int(365.2425 * _DAY)).astype(np.int64)) + 1970
            years = np.concatenate([near - 1, near, near + 1])
        years = np.unique(np.clip(years, 1800, 2500))
        starts: list[int] = []
        offsets: list[int] = []
        for year in years.tolist():
            of_year = self._years.get(year) or self._years.setdefault(year, self._of_year(year))
            starts += of_year[0]
            offsets += of_year[1]
        starts[0] = -(2**62)
        return np.array(starts, np.int64), np.array(offsets, np.int64)

    def _of_year(self, year: int) -> tuple[list[int], list[int]]:
        start, stop = (np.array([year - 1970, year - 1969], "M8[Y]").astype("M8[s]").astype(np.int64)).tolist()
        starts, offsets = [start], [self.offset(start)]
        low = start
        while low < stop:
            high = min(low + _DAY // 2, stop - 1)
            if high == low:
                break
            offset = self.offset(high)
            if offset != offsets[-1]:
                at, beyond = low, high
                while beyond - at > 1:
                    middle = (at + beyond) // 2
                    at, beyond = (middle, beyond) if self.offset(middle) == offsets[-1] else (at, middle)
                starts.append(beyond)
                offsets.append(self.offset(beyond))
            low = high
        return starts, offsets


@lru_cache(maxsize=256)
def zone_of(name: str) -> Zone | None:
    """The zone of a name by Java's rules; None if unknown."""
    name = _SHORT_NAMES.get(name, name)
    if match := _OFFSET.fullmatch(name):
        sign, hours, minutes, seconds = match.groups()
        offset = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
        if offset > 18 * 3600:
            return None
        return Zone(name, timezone(timedelta(seconds=-offset if sign == "-" else offset)))
    if name in ("UTC", "GMT", "UT"):
        return Zone(name, UTC)
    try:
        return Zone(name, ZoneInfo(name))
    except (OSError, ValueError, KeyError):
        return None
