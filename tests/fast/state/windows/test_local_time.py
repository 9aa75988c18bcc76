"""Local time conversion, the hour shown twice and the hour never shown at a clock change."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.errors import ProgramError
from millstream.runtime.tables.references.windows import local_of
from millstream.state.windows.local_time import arrow_zone, local_ms, moments_ms, reached_ms

ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata", "Australia/Lord_Howe"])
MOMENTS = st.integers(0, 2_000_000_000_000)
HOUR = 3_600_000
BERLIN = ZoneInfo("Europe/Berlin")
AUTUMN = int(dt.datetime(2023, 10, 29, 1, tzinfo=dt.UTC).timestamp() * 1000)
SPRING = int(dt.datetime(2024, 3, 31, 1, tzinfo=dt.UTC).timestamp() * 1000)


@given(MOMENTS, ZONES)
def test_local_times_equal_zoneinfo(moment: int, zone: str) -> None:
    assert int(local_ms(np.array([moment]), zone)[0]) == local_of(moment, zone)


@given(st.integers(-3 * HOUR, 3 * HOUR), st.sampled_from([AUTUMN, SPRING]))
@example(-HOUR, AUTUMN)
@example(-1, AUTUMN)
@example(0, AUTUMN)
def test_local_time_progress_is_the_largest_time_not_shown_again(distance: int, change: int) -> None:
    moment = change + distance
    reached = reached_ms(moment, "Europe/Berlin")
    later = np.concatenate([np.arange(moment + 1, moment + 4 * HOUR, 60_000), [change] * (change > moment)])
    shown = local_ms(later.astype(np.int64), "Europe/Berlin")
    assert reached < int(shown.min())
    # And it is the largest: the next local time may still occur, or is never shown.
    assert int(moments_ms(np.array([reached + 1]), "Europe/Berlin")[0]) > moment


@given(MOMENTS, ZONES)
def test_an_ambiguous_local_time_means_its_last_instant(moment: int, zone: str) -> None:
    local = local_ms(np.array([moment]), zone)
    last = int(moments_ms(local, zone)[0])
    assert last >= moment
    assert local_of(last, zone) == int(local[0])


def test_an_ambiguous_hour_is_complete_after_its_second_occurrence() -> None:
    wall = int(dt.datetime(2023, 10, 29, 2, 30, tzinfo=dt.UTC).timestamp() * 1000)
    assert int(moments_ms(np.array([wall]), "Europe/Berlin")[0]) == AUTUMN + HOUR // 2
    start = int(dt.datetime(2023, 10, 29, 2, tzinfo=dt.UTC).timestamp() * 1000)
    assert reached_ms(AUTUMN - HOUR // 2, "Europe/Berlin") == start - 1


def test_a_skipped_hour_means_the_instant_of_the_change() -> None:
    wall = int(dt.datetime(2024, 3, 31, 2, 30, tzinfo=dt.UTC).timestamp() * 1000)
    assert int(moments_ms(np.array([wall]), "Europe/Berlin")[0]) == SPRING


def test_an_unknown_zone_is_rejected() -> None:
    with pytest.raises(ProgramError, match="there is no time zone 'Europe/Berln'"):
        arrow_zone("Europe/Berln")


@pytest.mark.parametrize(("zone", "offset"), [("GMT+08:00", 8), ("UTC-3", -3), ("+02:00", 2), ("UTC", 0)])
def test_offsets_are_zones(zone: str, offset: int) -> None:
    assert local_ms(np.array([0]), arrow_zone(zone)).tolist() == [offset * HOUR]


def test_the_limits_of_the_time_range_have_no_zone() -> None:
    for end in (2**63 - 1, -(2**63)):
        assert reached_ms(end, "Europe/Berlin") == end
