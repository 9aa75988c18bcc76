"""A key group larger than an epoch can merge is merged by slices, which never changes a read result."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import StoreDamagedError
from millstream.state.keys.key_columns import key_column
from millstream.state.segments import compaction
from millstream.state.segments.compaction import next_compaction, plan_compaction, replace_merged
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment_merge import compact
from millstream.state.segments.version import (
    SLICES,
    Refs,
    SegmentRef,
    coalesced,
    merge_versions,
    places_of,
    refs_for,
    refs_from_json,
    refs_to_json,
)
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.table import TableView
from millstream.storage import open_store

MIB, GIB = 1 << 20, 1 << 30
NAMES = itertools.count()
GROUPS = range(2)
TOTALS = TableLayout("total", None, value_type=pa.int64(), has_ttl=True, max_parallelism=2)


def ref(size: int, groups: range = GROUPS) -> SegmentRef:
    edges = (groups.start, groups.stop)
    return SegmentRef(f"s{next(NAMES)}", 1, *edges, *edges, rows=size, file_bytes=size)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1, 16 * MIB, 100 * MIB])
@pytest.mark.parametrize("size", [1, 64 * MIB, GIB, 1000 * GIB])
def test_a_step_exceeds_its_budget_by_at_most_one_slice_for_any_key_group_size(budget: int, size: int) -> None:
    refs: Refs = tuple(ref(size) for _ in range(5))
    steps = 0
    while (step := plan_compaction(refs, budget)) is not None and steps < 300:
        cost = step.cost_bytes(refs)
        # Slices are counted completely, so a step may exceed the budget by one slice of each merged segment.
        assert cost <= max(budget, 64 * MIB) + 5 * (size // SLICES + 1)
        name = f"m{next(NAMES)}"
        edges = (step.groups.start, step.groups.stop)
        merged = SegmentRef(name, 2, *edges, *edges, rows=1, file_bytes=cost).of_file_places(step.places)
        assert abs(merged.live_bytes() - cost) <= 1
        refs, steps = replace_merged(refs, step, merged), steps + 1
        live = sum(one.live_bytes() for one in refs)
        assert abs(live - 5 * size) <= 6 * (steps + 5), "live rows are counted once"
    assert steps == 300 or max(sum(place in one.places for one in refs) for place in _edges(refs)) < 4


def _edges(refs: Refs) -> set[int]:
    return {edge for one in refs for edge in (one.places.start, one.places.stop - 1)}


def test_a_budget_of_full_groups_splits_none() -> None:
    groups = range(128)
    step = plan_compaction([ref(128 * GIB, groups) for _ in range(4)], 41 * GIB)
    assert step is not None and step.places == places_of(range(10))


class Table:
    """A table of two key groups in memory."""

    def __init__(self) -> None:
        self.store = open_store(f"memory://test-large-groups-{next(NAMES)}")
        self.segments = OpenSegments(self.store)
        self.refs: Refs = ()

    def write(self, numbers: list[int], value: int, *, removes: bool = False) -> None:
        changes = TableChanges(TOTALS)
        if removes:
            changes.delete(key_column(numbers, None))
        else:
            changes.put(key_column(numbers, None), pa.array([value] * len(numbers)))
        written = changes.write(self.store, f"segments/{next(NAMES)}.arrow", 1, GROUPS, chunk_rows=50)
        self.refs = (*self.refs, written) if written is not None else self.refs

    def step(self, budget_bytes: int) -> bool:
        step = plan_compaction(self.refs, budget_bytes)
        if step is not None:
            name = f"segments/{next(NAMES)}.arrow"
            self.refs = compact(self.segments, TOTALS, self.refs, step, 0, name=name, epoch=1, chunk_rows=50)
        return step is not None

    def rows(self, groups: range = GROUPS, refs: Refs | None = None) -> dict[bytes, int]:
        view = TableView(self.segments, TOTALS, self.refs if refs is None else refs, groups, 0)
        return {row["key"]: row["value"] for batch in view.scan() for row in batch.to_pylist()}

    def read(self, numbers: list[int]) -> list[int | None]:
        view = TableView(self.segments, TOTALS, self.refs, GROUPS, 0)
        result = view.get(key_column(numbers, None))
        values = iter(result.values.to_pylist() if result.values is not None else [])
        return [next(values) if has_row else None for has_row in result.mask]


@pytest.mark.slow
@pytest.mark.parametrize("slice_bytes", [3_000, 9_000])
def test_merging_by_slices_changes_no_result_and_terminates(slice_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_PIECE_BYTES_MIN", slice_bytes)
    table, random = Table(), np.random.default_rng(7)
    expected: dict[int, int] = {}
    everything = list(range(400))
    for epoch in range(12):
        numbers = random.choice(400, 60, replace=False).tolist()
        table.write(numbers, epoch, removes=epoch % 5 == 4)
        for number in numbers:
            expected.pop(number, None)
        expected |= {number: epoch for number in numbers if epoch % 5 != 4}
        before = table.rows()
        while table.step(1):
            assert table.rows() == before
        assert table.read(everything) == [expected.get(number) for number in everything]
        assert max(sum(place in one.places for one in table.refs) for place in _edges(table.refs)) <= 8
    assert any(one.places != places_of(one.groups) for one in table.refs), "no group was split: the test proves nothing"
    # Another parallelism reads the same files by key groups, and reads every row once.
    parts = [table.rows(range(group, group + 1), refs_for(table.refs, range(group, group + 1))) for group in GROUPS]
    assert parts[0] | parts[1] == table.rows() and not set(parts[0]) & set(parts[1])


def test_forced_steps_reduce_a_large_group() -> None:
    refs: Refs = tuple(ref(256 * MIB) for _ in range(compaction.SEGMENTS_MAX + 1))
    for steps in itertools.count():
        step = next_compaction(refs, 0, steps)
        if step is None:
            break
        cost, edges = step.cost_bytes(refs), (step.groups.start, step.groups.stop)
        merged = SegmentRef(f"m{steps}", 2, *edges, *edges, rows=1, file_bytes=cost).of_file_places(step.places)
        refs = replace_merged(refs, step, merged)
        assert steps < 2_000
    assert max(sum(place in one.places for one in refs) for place in _edges(refs)) <= compaction.SEGMENTS_MAX


PLACES = st.tuples(st.integers(0, 4 * SLICES - 1), st.integers(1, 4 * SLICES)).map(
    lambda pair: range(pair[0], min(pair[0] + pair[1], 4 * SLICES))
)


@given(PLACES, PLACES, st.integers(0, 3))
@settings(deadline=None, max_examples=50)
def test_slices_of_a_ref_cover_it_and_can_be_joined_again(cut: range, also: range, group: int) -> None:
    whole = ref(4096, range(4))
    parts = [left for part in whole.without(cut) for left in part.without(also)]
    left = [place for place in _samples(cut, also) if any(place in part.places for part in parts)]
    assert left == [place for place in _samples(cut, also) if place not in cut and place not in also]
    assert refs_from_json(refs_to_json(parts), "state 'x'") == tuple(parts)
    assert all(part.whole == whole for part in parts)
    inside = whole._clipped(cut)
    assert inside is not None and inside.places == cut
    in_order = sorted([*whole.without(cut), inside], key=lambda part: part.places.start)
    assert coalesced(in_order) == (whole,)
    clipped = inside.clipped(range(group, group + 1))
    shared = range(max(cut.start, group * SLICES), min(cut.stop, (group + 1) * SLICES))
    assert (clipped.places if clipped is not None else range(0)) == (shared if shared else range(0))
    assert merge_versions([refs_for([inside], range(2)), refs_for([inside], range(2, 4))]) == (inside,)


def _samples(*ranges: range) -> list[int]:
    edges = {edge for one in ranges for edge in (one.start - 1, one.start, one.stop - 1, one.stop)}
    return sorted(edge for edge in {0, 4 * SLICES - 1, *edges} if 0 <= edge < 4 * SLICES)


def test_refs_of_full_groups_retain_their_format_and_a_slice_out_of_range_is_rejected() -> None:
    whole = ref(4096, range(4))
    written = refs_to_json([whole])
    assert not any("slice" in name for name in written[0])
    assert refs_from_json(written, "state 'x'") == (whole,)
    for wrong in ({"slice_stop": SLICES + 1}, {"slice_start": -1}, {"slice_start": 1.0}, {"slices": 1}):
        with pytest.raises(StoreDamagedError, match="state 'x' lists a segment as"):
            refs_from_json([{**written[0], **wrong}], "state 'x'")
