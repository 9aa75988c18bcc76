"""Compaction: which segments are merged, which rows are dropped, and that no read result changes."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.state.keys.key_columns import key_column, key_column_of_arrow
from millstream.state.segments.compaction import CompactionStep, plan_compaction, plan_full_compaction
from millstream.state.segments.lookup import Layer
from millstream.state.segments.merging import merged_blocks
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment_merge import compact
from millstream.state.segments.version import Refs, SegmentRef
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.table import TableView
from millstream.storage import open_store

NAMES = itertools.count()
ALL = range(128)
LARGE = 1 << 40
TOTALS = TableLayout("total", None, value_type=pa.int64(), has_ttl=True)
CARTS = TableLayout("carts", None, pa.string(), pa.int64())


def ref(size: int, groups: range = ALL) -> SegmentRef:
    edges = (groups.start, groups.stop)
    return SegmentRef(f"s{next(NAMES)}", 1, *edges, *edges, rows=size, file_bytes=size)


def merged(step: CompactionStep | None) -> list[tuple[range, tuple[int, ...], bool]]:
    return [] if step is None else [(piece.groups, piece.positions, piece.is_bottom) for piece in step.pieces]


def test_fewer_than_four_segments_or_growing_older_ones_are_not_merged() -> None:
    assert plan_compaction([], LARGE) is None
    assert plan_compaction([ref(100)] * 3, LARGE) is None
    assert plan_compaction([ref(80_000), ref(9_000), ref(1_000), ref(100)], LARGE) is None


def test_four_segments_of_similar_size_are_merged_without_a_much_larger_older_one() -> None:
    refs = [ref(1_000_000), ref(1_000), ref(1_200), ref(900), ref(1_000)]
    assert merged(plan_compaction(refs, LARGE)) == [(ALL, (1, 2, 3, 4), False)]


def test_older_segments_no_larger_than_the_younger_ones_combined_are_merged_too() -> None:
    refs = [ref(8_000), ref(4_000), *(ref(1_000) for _ in range(4))]
    assert merged(plan_compaction(refs, LARGE)) == [(ALL, (0, 1, 2, 3, 4, 5), True)]


def test_a_budget_smaller_than_the_merge_selects_some_key_groups_only() -> None:
    refs = [ref(128_000) for _ in range(4)]
    assert merged(plan_compaction(refs, 40_000)) == [(range(10), (0, 1, 2, 3), True)]
    assert merged(plan_compaction(refs, 1)) == [(range(1), (0, 1, 2, 3), True)]


def test_the_tallest_stack_is_merged_first_and_its_neighbours_join() -> None:
    low, high = range(64), range(64, 128)
    refs = [*(ref(6_400, low) for _ in range(4)), *(ref(6_400, high) for _ in range(5))]
    assert merged(plan_compaction(refs, LARGE)) == [(high, (4, 5, 6, 7, 8), True)]
    refs = [*(ref(6_400, low) for _ in range(5)), *(ref(6_400, high) for _ in range(4))]
    assert merged(plan_compaction(refs, LARGE)) == [(low, (0, 1, 2, 3, 4), True), (high, (5, 6, 7, 8), True)]


def test_neighbours_whose_ages_cannot_be_reconciled_are_not_joined() -> None:
    low, high = range(1), range(1, 128)
    across = ref(12_800)  # too small to be merged with the low groups, too large for the high ones
    # Merged for the low groups, the result is older than `across`; for the high groups, it is younger.
    refs = [*(ref(6_400, low) for _ in range(5)), across, *(ref(1_000, high) for _ in range(4))]
    assert merged(plan_compaction(refs, LARGE)) == [(low, (0, 1, 2, 3, 4), True)]


class Table:
    """A table in memory that is compacted as it grows."""

    def __init__(self, layout: TableLayout) -> None:
        self.layout = layout
        self.store = open_store(f"memory://test-compaction-{next(NAMES)}")
        self.segments = OpenSegments(self.store)
        self.refs: Refs = ()
        self.rewritten_rows = 0

    def commit(self, changes: TableChanges) -> None:
        written = changes.write(self.store, f"segments/{next(NAMES)}.arrow", 1, ALL, chunk_rows=50)
        self.refs = (*self.refs, written) if written is not None else self.refs

    def compact(self, step: CompactionStep | None, now_ms: int = 0) -> bool:
        if step is None:
            return False
        name, before = f"segments/{next(NAMES)}.arrow", {ref.file for ref in self.refs}
        self.refs = compact(self.segments, self.layout, self.refs, step, now_ms, name=name, epoch=1, chunk_rows=50)
        self.rewritten_rows += sum({ref.file: ref.rows for ref in self.refs if ref.file not in before}.values())
        return True

    def rows(self, now_ms: int = 0) -> dict[tuple[bytes, str | None], int]:
        view = TableView(self.segments, self.layout, self.refs, ALL, now_ms)
        rows = [row for batch in view.scan() for row in batch.to_pylist()]
        return {(row["key"], row.get("sub")): row["value"] for row in rows}

    @property
    def stored_rows(self) -> int:
        return sum(self.segments.segment(ref, self.layout).rows for ref in self.refs)


def put(table: Table, numbers: list[int], value: int, expires_ms: int | None = None) -> None:
    changes = TableChanges(table.layout)
    expires = None if expires_ms is None else np.full(len(numbers), expires_ms)
    changes.put(key_column(numbers, None), pa.array([value] * len(numbers)), expires_ms=expires)
    table.commit(changes)


@pytest.mark.slow
@pytest.mark.parametrize("budget_bytes", [3_000, 30_000, LARGE])
def test_compaction_terminates_and_changes_no_result(budget_bytes: int) -> None:
    table = Table(TOTALS)
    random = np.random.default_rng(3)
    for epoch in range(12):
        put(table, random.integers(0, 600, 200).tolist(), epoch)
    before = table.rows()
    steps = 0
    while table.compact(plan_compaction(table.refs, budget_bytes)):
        assert table.rows() == before
        steps += 1
        assert steps < 400
    covering = [sum(group in ref.groups for ref in table.refs) for group in ALL]
    assert max(covering) < 4
    assert (steps == 1) == (budget_bytes == LARGE)


def test_over_many_epochs_segments_stay_few_and_rows_are_rewritten_a_few_times() -> None:
    table = Table(TOTALS)
    epochs, rows = 64, 100
    tallest = 0
    for epoch in range(epochs):
        put(table, list(range(epoch * rows, epoch * rows + rows)), epoch)
        table.compact(plan_compaction(table.refs, LARGE))
        tallest = max(tallest, len(table.refs))
    assert len(table.rows()) == epochs * rows
    assert tallest <= 9
    assert table.rewritten_rows <= 6 * epochs * rows


def test_deleted_cleared_and_expired_rows_are_dropped_without_a_trace() -> None:
    table = Table(CARTS)
    changes = TableChanges(CARTS)
    changes.put(key_column([1, 1, 2, 3], None), pa.array([1, 2, 3, 4]), subs=pa.array(["x", "y", "x", "x"]))
    table.commit(changes)
    changes = TableChanges(CARTS)
    changes.clear(key_column([1], None))
    changes.delete(key_column([2], None), subs=pa.array(["x"]))
    table.commit(changes)
    assert (len(table.rows()), table.stored_rows) == (1, 6)
    table.compact(plan_full_compaction(table.refs))
    assert (len(table.rows()), table.stored_rows) == (1, 1)

    totals = Table(TOTALS)
    put(totals, [1, 2], 1, expires_ms=50)
    totals.compact(plan_full_compaction(totals.refs), now_ms=50)
    assert totals.refs == ()


def test_a_delete_or_an_expired_row_above_an_older_segment_continues_to_hide_it() -> None:
    table = Table(TOTALS)
    put(table, list(range(2_000)), 1)
    changes = TableChanges(TOTALS)
    changes.delete(key_column([1], None))
    table.commit(changes)
    put(table, [2], 7, expires_ms=50)
    put(table, [3], 8)
    put(table, [4], 9)
    step = plan_compaction(table.refs, LARGE)
    assert merged(step) == [(ALL, (1, 2, 3, 4), False)]
    before = table.rows(now_ms=60)
    assert len(before) == 1_998
    table.compact(step, now_ms=60)
    assert len(table.refs) == 2 and table.rows(now_ms=60) == before
    # The expired value itself is dropped; the remaining row only hides older ones.
    merged_rows = table.segments.segment(table.refs[1], TOTALS).chunk(0).batch
    assert sorted(value for value in merged_rows.column("value").to_pylist() if value is not None) == [8, 9]


def test_merging_key_group_by_key_group_equals_one_full_merge() -> None:
    whole, piecewise = Table(TOTALS), Table(TOTALS)
    for table in (whole, piecewise):
        for epoch in range(4):
            put(table, list(range(epoch, 300, 2)), epoch)
    whole.compact(plan_compaction(whole.refs, LARGE))
    while piecewise.compact(plan_compaction(piecewise.refs, 2_000)):
        pass
    assert len(whole.refs) == 1 and len(piecewise.refs) > 1
    assert piecewise.rows() == whole.rows()
    assert piecewise.stored_rows == whole.stored_rows == len(whole.rows())


RANGES = st.builds(lambda start, length: range(start, min(start + length, 12)), st.integers(0, 11), st.integers(1, 12))


@given(st.lists(st.tuples(RANGES, st.integers(1, 5_000)), max_size=12), st.sampled_from([1, 500, 5_000, LARGE]))
@example([(range(1), 1), (range(2), 1), (range(1), 1), (range(2), 1)], 1)
@settings(max_examples=50, deadline=None)
def test_a_step_merges_only_segments_adjacent_in_age(shapes: list[tuple[range, int]], budget: int) -> None:
    refs = [ref(size, groups) for groups, size in shapes]
    step = plan_compaction(refs, budget, fan_in=2)
    if step is None:
        return
    for piece in step.pieces:
        assert len(piece.positions) >= 2
        for group in piece.groups:
            stack = [at for at, covering in enumerate(refs) if group in covering.groups]
            first = stack.index(piece.positions[0])
            assert tuple(stack[first : first + len(piece.positions)]) == piece.positions
            assert piece.is_bottom == (first == 0)
            assert all(at < step.position for at in stack[:first])
            assert all(at >= step.position for at in stack[first + len(piece.positions) :])
    assert [a.groups.stop for a in step.pieces[:-1]] == [b.groups.start for b in step.pieces[1:]]


def test_large_values_are_merged_in_small_blocks_and_chunks() -> None:
    # With 65,536 rows of 40 KB each, one column would exceed its 32-bit offsets.
    layout, store = TableLayout("large", pa.int64(), value_type=pa.binary()), open_store("memory://large-values")
    segments, refs = OpenSegments(store), []
    for number in range(4):
        changes = TableChanges(layout)
        values = pa.array([bytes([number]) * 1_000 for _ in range(300)])
        changes.put(key_column_of_arrow(pa.array(range(100 * number, 100 * number + 300))), values)
        refs.append(changes.write(store, f"s{number}", number + 1, range(128)))
    step = plan_full_compaction(refs)
    assert step is not None
    merged = compact(segments, layout, refs, step, 0, name="merged", epoch=5, chunk_bytes=50_000)
    chunks = segments.segment(merged[0], layout).entries
    assert len(merged) == 1 and len(chunks) > 8 and max(entry.length for entry in chunks) < 200_000
    layers = [Layer(segments.segment(ref, layout), 0, 128 << 48) for ref in refs]
    blocks = list(merged_blocks(layers, layout, 0, 128 << 48, block_bytes=50_000))
    assert max(block.nbytes for block in blocks) < 100_000
    for version in (merged, refs):
        view = TableView(segments, layout, version, range(128), now_ms=0)
        rows = pa.Table.from_batches(view.scan()).to_pylist()
        assert {row["key"]: row["value"][0] for row in rows} == {key: min(key // 100, 3) for key in range(600)}
        assert len(rows) == 600
