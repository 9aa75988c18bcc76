"""A list of splits that is made on demand is the list that planning everything at once would give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors import splits_on_demand
from millstream.connectors.contracts import Split
from millstream.connectors.splits_on_demand import SplitsOnDemand


@given(
    st.lists(st.integers(1, 4), max_size=30),
    st.lists(st.one_of(st.integers(0, 80), st.none()), max_size=60),
    st.integers(1, 5),
)
def test_accesses_in_any_order_equal_a_complete_plan(counts: list[int], requests: list[int | None], kept: int) -> None:
    things: list[tuple[int, int]] = []
    lengths = [0]
    planned = 0

    def plan(thing: tuple[int, int]) -> list[Split]:
        nonlocal planned
        planned += 1
        return [Split(f"{thing[0]}#{part}") for part in range(thing[1])]

    monkey, splits_on_demand._RECENT_MAX = splits_on_demand._RECENT_MAX, kept
    try:
        splits = SplitsOnDemand(things, plan)
        waiting = list(enumerate(counts))
        for request in requests:
            whole = [split for thing in things for split in plan(thing)]
            if request is None:
                things.extend(waiting[:2])
                del waiting[:2]
            elif request < len(whole):
                assert splits[request] == whole[request]
            assert len(splits) >= lengths[-1] and len(splits) <= len([s for t in things for s in plan(t)])
            lengths.append(len(splits))
        assert list(splits) == [split for thing in things for split in plan(thing)]
        assert len(splits) == len(list(splits))
    finally:
        splits_on_demand._RECENT_MAX = monkey


def test_only_accessed_items_are_planned() -> None:
    planned: list[int] = []

    def plan(thing: int) -> list[Split]:
        planned.append(thing)
        return [Split(str(thing))]

    splits = SplitsOnDemand(range(1_000_000), plan)
    assert splits[2].name == "2" and len(splits) == 1_000_000 and planned == [0, 1, 2]
