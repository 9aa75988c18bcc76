"""Segments that are not memory-mapped: cached bytes are bounded, and a truncated file raises instead of crashing."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import StoreDamagedError, StoreError
from millstream.state.keys.key_columns import key_column_of_arrow
from millstream.state.segments import open_segments
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment import SegmentMemory
from millstream.state.segments.version import SegmentRef
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.table import TableView
from millstream.storage.local import LocalStore
from millstream.storage.memory import MemoryStore
from millstream.storage.names import segment_name
from millstream.storage.store import Store
from millstream.storage.tier.tiered_store import store_with_cache

LAYOUT = TableLayout("total", pa.string(), value_type=pa.int64())
ROWS, CHUNK_ROWS = 400, 50


def write_segments(store: Store, at: int) -> SegmentRef:
    changes = TableChanges(LAYOUT)
    keys = key_column_of_arrow(pa.array([f"key {at} {i}" for i in range(ROWS)]))
    changes.put(keys, pa.array(np.arange(ROWS)))
    ref = changes.write(store, segment_name("count", "total", 7, at, "a1"), 7, range(128), chunk_rows=CHUNK_ROWS)
    assert ref is not None
    return ref


def scanned(segments: OpenSegments, refs: list[SegmentRef]) -> dict[str, int]:
    view = TableView(segments, LAYOUT, refs, range(LAYOUT.max_parallelism), 0)
    return {row["key"]: row["value"] for batch in view.scan() for row in batch.to_pylist()}


def expected_rows(count: int) -> dict[str, int]:
    return {f"key {at} {i}": i for at in range(count) for i in range(ROWS)}


class CountingStore(MemoryStore):
    """A store with the latency of an object store, that counts its reads."""

    gets = ranges = 0

    def get(self, name: str) -> bytes:
        self.gets += 1
        return super().get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        self.ranges += 1
        return MemoryStore.get(self, name)[start:stop]


def test_cached_segments_of_a_remote_store_are_bounded_and_fetched_again() -> None:
    store = CountingStore("held-segments-bound")
    refs = [write_segments(store, at) for at in range(6)]
    memory = SegmentMemory(bytes_max=2 * refs[0].file_bytes + 100)
    segments = OpenSegments(store, memory=memory)
    for _ in range(2):
        for ref in refs:
            assert len(scanned(segments, [ref])) == ROWS
            assert memory.held_bytes <= 2 * refs[0].file_bytes + 100
    assert store.gets == 2 * len(refs)  # each was evicted before it was read again
    scanned(segments, [refs[-1]])
    assert store.gets == 2 * len(refs)  # and the most recently used one is still cached


def test_only_parts_of_a_large_remote_segment_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_segments, "WHOLE_BYTES_MAX", 100)
    monkeypatch.setattr(open_segments, "_HEAD_BYTES", 64)
    monkeypatch.setattr(open_segments, "_TAIL_BYTES", 4096)
    store = CountingStore("held-segments-ranges")
    refs = [write_segments(store, at) for at in range(3)]
    memory = SegmentMemory(bytes_max=refs[0].file_bytes)
    segments = OpenSegments(store, memory=memory)
    assert scanned(segments, refs) == expected_rows(3)
    assert memory.held_bytes <= refs[0].file_bytes and not store.gets
    ranges_before = store.ranges
    view = TableView(segments, LAYOUT, refs, range(LAYOUT.max_parallelism), 0)
    assert view.get_value("key 1 7") == 7
    assert store.ranges - ranges_before <= len(refs)  # one chunk of a segment, not all of it


def test_closed_segments_are_no_longer_counted() -> None:
    store = MemoryStore("held-segments-closed")
    ref, memory = write_segments(store, 0), SegmentMemory()
    segments = OpenSegments(store, memory=memory)
    scanned(segments, [ref])
    assert memory.held_bytes == ref.file_bytes
    segments.keep_only([], LAYOUT)
    gc.collect()
    other = OpenSegments(MemoryStore("held-segments-closed"), memory=memory)
    scanned(other, [ref])
    assert memory.held_bytes == ref.file_bytes


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=60), st.integers(1, 40))
def test_the_cache_evicts_the_least_recently_used_part(uses: list[tuple[int, int]], bytes_max: int) -> None:
    class Owner:
        def __init__(self, at: int) -> None:
            self.at = at

        def let_go(self, part: int) -> None:
            held.remove((self.at, part))

    held: list[tuple[int, int]] = []
    memory, owners = SegmentMemory(bytes_max), [Owner(at) for at in range(4)]
    tokens = [memory.join(owner) for owner in owners]
    for at, part in uses:
        expected = [place for place in held if place != (at, part)] + [(at, part)]
        while sum(place[1] + 5 for place in expected) > bytes_max and len(expected) > 1:
            expected.pop(0)
        if (at, part) in held:
            held.remove((at, part))
        held.append((at, part))
        memory.use(tokens[at], part, part + 5)
        assert held == expected and memory.held_bytes == sum(place[1] + 5 for place in held)


# --- files truncated while they are open --------------------------------------------------------------------------


def test_a_file_truncated_under_an_unmapped_reader_raises(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    refs = [write_segments(store, at) for at in range(2)]
    segments = OpenSegments(store, maps=False)
    for ref in refs:
        segments.segment(ref, LAYOUT).chunk(0)
    os.truncate(tmp_path / refs[0].file, 10)
    assert segments.segment(refs[0], LAYOUT).chunk(0).rows == CHUNK_ROWS  # data read and checked before stays valid
    with pytest.raises(StoreDamagedError, match=r"segment segments/count.* was truncated while open.*Nothing may"):
        segments.segment(refs[0], LAYOUT).chunk(3)
    assert scanned(segments, refs[1:])  # and other files remain readable


def test_a_segment_collected_while_open_is_readable_to_its_end(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ref = write_segments(store, 0)
    segments = OpenSegments(store, maps=False)
    segments.segment(ref, LAYOUT)
    store.delete(ref.file)
    assert scanned(segments, [ref]) == expected_rows(1)


def test_above_the_open_file_limit_files_are_reopened_for_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_segments, "_DESCRIPTORS_MAX", 0)
    store = LocalStore(tmp_path)
    ref = write_segments(store, 0)
    segments = OpenSegments(store, maps=False)
    assert scanned(segments, [ref]) == expected_rows(1)
    unread = OpenSegments(store, maps=False).segment(ref, LAYOUT)
    store.delete(ref.file)
    with pytest.raises(StoreDamagedError, match=r"cannot be read.*moved or removed"):
        unread.chunk(0)


@pytest.mark.slow
def test_threads_reading_during_evictions_read_the_same_rows() -> None:
    store = MemoryStore("held-segments-threads")
    refs = [write_segments(store, at) for at in range(4)]
    segments = OpenSegments(store, memory=SegmentMemory(bytes_max=refs[0].file_bytes))
    for ref in refs:
        segments.segment(ref, LAYOUT)
    wrong: list[object] = []

    def read() -> None:
        for _ in range(5):
            if scanned(segments, refs) != expected_rows(4):
                wrong.append("other rows")

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- the cache folder ---------------------------------------------------------------------------------------------


def test_a_cache_folder_writable_by_others_is_rejected_and_a_new_one_is_private(tmp_path: Path) -> None:
    store = MemoryStore("held-segments-cache")
    ref = write_segments(store, 0)
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(StoreError, match=r"can be written by others than this user.*chmod go-w"):
        OpenSegments(store_with_cache(store, shared)).segment(ref, LAYOUT)
    assert OpenSegments(store_with_cache(store, own)).segment(ref, LAYOUT).rows == ROWS
    assert own.stat().st_mode & 0o777 == 0o700
