"""Where a range of a log may end, and how often the driver looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.databases.log_end import LogEnd, ScanPace


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 60)), min_size=1, max_size=40))
def test_a_range_ends_where_a_record_begins_and_only_on_disk(steps: list[tuple[int, int]]) -> None:
    """Records of any length are written, and any part of them reaches the disk, also half a record."""
    end, beginnings, next_record, flushed, before = LogEnd(), {0}, 8000, 8000, 0
    for length, disk in steps:
        next_record += length
        beginnings.add(next_record)
        flushed = min(next_record, flushed + disk)
        found = end.newest(next_record, flushed)
        assert found in beginnings and found <= flushed and found >= before
        before = found
    assert end.newest(next_record, next_record) == next_record


def test_empty_scans_take_a_third_of_the_time_at_most() -> None:
    now_s = [0.0]
    pace = ScanPace(lambda: now_s[0])
    started_s = pace.started_s()
    now_s[0] = 2.0
    pace.record_empty(started_s)
    now_s[0] = 5.9
    assert not pace.is_due()
    now_s[0] = 6.0
    assert pace.is_due()
