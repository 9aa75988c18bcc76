"""Where a range of a replication log may end, and how often the driver scans for the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.databases.log_end import LogEnd, ScanPace


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 60)), min_size=1, max_size=40))
def test_a_range_ends_at_the_start_of_a_flushed_record(steps: list[tuple[int, int]]) -> None:
    """Records of any length are written; any prefix of the log may be flushed, including half a record."""
    end, beginnings, next_record, flushed, before = LogEnd(), {0}, 8000, 8000, 0
    for length, disk in steps:
        next_record += length
        beginnings.add(next_record)
        flushed = min(next_record, flushed + disk)
        range_end = end.newest(next_record, flushed)
        assert range_end in beginnings and range_end <= flushed and range_end >= before
        before = range_end
    assert end.newest(next_record, next_record) == next_record


def test_empty_scans_take_at_most_a_third_of_the_time() -> None:
    now_s = [0.0]
    pace = ScanPace(lambda: now_s[0])
    started_s = pace.started_s()
    now_s[0] = 2.0
    pace.record_empty(started_s)
    now_s[0] = 5.9
    assert not pace.is_due()
    now_s[0] = 6.0
    assert pace.is_due()
