"""Time zones by Java's rules: offsets over columns, local times that are skipped or repeated, and distant years."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.runtime.expressions.zones import zone_of

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
)
EPOCH = dt.datetime(1970, 1, 1)


def seconds(text: str) -> int:
    return int((dt.datetime.fromisoformat(text) - EPOCH).total_seconds())


@pytest.mark.slow
@given(st.sampled_from(ZONES), st.lists(st.datetimes(dt.datetime(1850, 1, 1), dt.datetime(2060, 1, 1)), min_size=1))
def test_offsets_are_those_of_the_tz_database(name: str, clocks: list[dt.datetime]) -> None:
    zone = zone_of(name)
    assert zone is not None
    moments = np.array([int((clock - EPOCH).total_seconds()) for clock in clocks], np.int64)
    rules = ZoneInfo(name)
    expected = [clock.replace(tzinfo=dt.UTC).astimezone(rules).utcoffset() for clock in clocks]
    assert zone.offsets(moments).tolist() == [offset.total_seconds() for offset in expected if offset is not None]
    # Python's rule for skipped or repeated local times is Java's: the offset before the change.
    local = [clock.replace(tzinfo=rules).utcoffset() for clock in clocks]
    assert zone.local_offsets(moments).tolist() == [offset.total_seconds() for offset in local if offset is not None]


@pytest.mark.parametrize(
    ("name", "clock", "moment", "moment_by_older_classes"),
    [
        ("Europe/Berlin", "2020-03-29 02:30:00", "2020-03-29 01:30:00", "2020-03-29 01:30:00"),  # skipped
        ("Europe/Berlin", "2020-10-25 02:30:00", "2020-10-25 00:30:00", "2020-10-25 01:30:00"),  # repeated
        ("America/New_York", "2021-11-07 01:30:00", "2021-11-07 05:30:00", "2021-11-07 06:30:00"),
        ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30 22:00:00", "2011-12-30 22:00:00"),  # a skipped day
    ],
)
def test_skipped_and_repeated_local_times(name: str, clock: str, moment: str, moment_by_older_classes: str) -> None:
    zone = zone_of(name)
    assert zone is not None
    local = seconds(clock)
    assert local - zone.local_offset(local) == seconds(moment)
    assert local - zone.local_offset(local, later=True) == seconds(moment_by_older_classes)


def test_years_beyond_pythons_calendar_have_the_last_rule() -> None:
    zone = zone_of("Europe/Berlin")
    assert zone is not None
    july_10020 = seconds("2020-07-01") + 20 * 146_097 * 86_400  # 8,000 years later
    assert zone.offsets(np.array([july_10020, july_10020 + 184 * 86_400], np.int64)).tolist() == [7200, 3600]
    assert zone.offsets(np.array([-(10**12)], np.int64)).tolist() == [3208]  # local mean time


@pytest.mark.parametrize(
    ("name", "offset"),
    [("+02:00", 7200), ("GMT+8", 28_800), ("UTC-05:30", -19_800), ("EST", -18_000), ("UTC", 0), ("Z", 0)],
)
def test_offsets_and_old_names_are_zones(name: str, offset: int) -> None:
    zone = zone_of(name)
    assert zone is not None
    assert zone.offset(0) == offset


@pytest.mark.parametrize("name", ["Nowhere/Land", "", "+19:00", "Europe"])
def test_other_names_are_not_zones(name: str) -> None:
    assert zone_of(name) is None
