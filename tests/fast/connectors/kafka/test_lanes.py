"""Lanes of an epoch: no message is lost or duplicated between them, and every process divides the output alike."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.kafka import lanes
from millstream.connectors.kafka.lanes import DRIVER_LANE, divided

parts = st.lists(
    st.builds(
        lambda number, size, topic: {"number": number, "bytes": size, "first_topic": topic, "staged_ms": number},
        st.integers(0, 10**6),
        st.one_of(st.integers(1, 1000), st.integers(1, 30_000_000)),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=20,
)


@given(parts)
def test_every_part_is_in_one_lane_and_every_lane_is_non_empty_and_uniquely_named(staged: list[Any]) -> None:
    publish = divided(staged)
    listed = [json.dumps(part) for lane in publish for part in lane["parts"]]
    assert Counter(listed) == Counter(json.dumps(part) for part in staged)
    assert all(lane["parts"] for lane in publish)
    assert len({lane["lane"] for lane in publish}) == len(publish)
    assert all(lane["mark_topic"] == min(part["first_topic"] for part in lane["parts"]) for lane in publish)


@given(parts)
def test_a_small_epoch_is_one_driver_lane_and_lanes_are_balanced(staged: list[Any]) -> None:
    publish = divided(staged)
    total = sum(part["bytes"] for part in staged)
    if staged and total <= lanes.DRIVER_BYTES_MAX:
        assert [lane["lane"] for lane in publish] == [DRIVER_LANE]
    for lane in publish:
        largest = max(part["bytes"] for part in lane["parts"])
        assert sum(part["bytes"] for part in lane["parts"]) <= 2 * max(lanes.LANE_BYTES, largest)


def test_an_epoch_without_output_has_no_lanes() -> None:
    assert divided([]) == ()
