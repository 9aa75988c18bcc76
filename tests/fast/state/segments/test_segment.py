"""Segments: rows survive a round trip, and a damaged segment is never read as "no value"."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import StateSchemaError, StoreDamagedError
from millstream.state.keys.key_columns import key_column_of_arrow, same
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment_writer import write_segment
from millstream.state.segments.version import SegmentRef, merge_versions, refs_for, refs_from_json, refs_to_json
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.reference_table import identity
from millstream.state.tables.table import TableView
from millstream.storage import open_store
from millstream.storage.local import LocalStore
from millstream.storage.names import parse_segment, segment_name
from millstream.storage.store import Store
from millstream.storage.tier.local_tier import LocalTier
from millstream.storage.tier.tiered_store import TieredStore

COMPATIBILITY = Path(__file__).resolve().parents[3] / "compatibility"
LAYOUT = TableLayout("total", pa.string(), value_type=pa.int64(), has_ttl=True)
MAP_LAYOUT = TableLayout("carts", pa.int64(), pa.string(), pa.list_(pa.string()), has_due=True)
NAME = segment_name("count", "total", 7, 0, "a1")


def stored_segment(store: Store, rows: int = 10, chunk_rows: int = 4, name: str = NAME) -> SegmentRef:
    changes = TableChanges(LAYOUT)
    keys = key_column_of_arrow(pa.array([f"key {i}" for i in range(rows)]))
    changes.put(keys, pa.array(np.arange(rows)), expires_ms=np.full(rows, 1_000))
    ref = changes.write(store, name, 7, range(128), chunk_rows=chunk_rows)
    assert ref is not None
    return ref


def contents(store: Store, *refs: SegmentRef, layout: TableLayout = LAYOUT) -> dict[str, int]:
    """All rows of a table, read anew from the store."""
    view = TableView(OpenSegments(store), layout, refs, range(layout.max_parallelism), 0)
    rows = [row for batch in view.scan() for row in batch.to_pylist()]
    return {row["key"]: row["value"] for row in rows}


ALL_ROWS = {f"key {i}": i for i in range(10)}


def test_a_segment_is_an_arrow_file_readable_by_other_tools(tmp_path: Path) -> None:
    ref = stored_segment(LocalStore(tmp_path))
    with pa.memory_map(str(tmp_path / ref.file)) as source:
        table = pa.ipc.open_file(source).read_all()
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == ALL_ROWS
    orders = table["order"].to_pylist()
    assert orders == sorted(orders)


def test_a_ref_records_size_rows_and_key_groups(tmp_path: Path) -> None:
    ref = stored_segment(LocalStore(tmp_path))
    assert (ref.rows, ref.epoch, ref.groups) == (10, 7, range(128))
    assert ref.file_bytes == (tmp_path / ref.file).stat().st_size


def test_an_epoch_without_changes_writes_no_segment(tmp_path: Path) -> None:
    assert TableChanges(LAYOUT).write(LocalStore(tmp_path), NAME, 1, range(128)) is None
    assert LocalStore(tmp_path).list("") == []


@pytest.mark.parametrize("cut", [0, 1, 5, 23, 100, 1_000, -1, -9, -11])
def test_a_truncated_segment_raises_and_names_state_epoch_and_file(tmp_path: Path, cut: int) -> None:
    store = LocalStore(tmp_path)
    ref = stored_segment(store)
    path = tmp_path / ref.file
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(StoreDamagedError, match=rf"State 'total', epoch 7: segment {ref.file} is damaged"):
        contents(store, ref)


def test_a_missing_segment_raises_and_is_not_an_empty_table(tmp_path: Path) -> None:
    for store in (LocalStore(tmp_path), open_store("memory://test-missing-segment")):
        ref = stored_segment(store)
        store.delete(ref.file)
        with pytest.raises(StoreDamagedError, match=rf"State 'total', epoch 7: segment {ref.file} is missing"):
            contents(store, ref)


def test_every_flipped_byte_is_detected(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)
    ref = stored_segment(store)
    path = tmp_path / ref.file
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 0x20
        path.write_bytes(bytes(damaged))
        with pytest.raises(StoreDamagedError, match=r"State 'total', epoch 7.* is damaged"):
            raise AssertionError(f"byte {at}: read as {contents(store, ref)}")
    path.write_bytes(whole)
    assert contents(store, ref) == ALL_ROWS


def test_damage_in_one_chunk_is_reported_and_leaves_the_others_readable(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ref = stored_segment(store)
    segments = OpenSegments(store)
    segment = segments.segment(ref, LAYOUT)
    assert len(segment.entries) == 3
    path = tmp_path / ref.file
    data = bytearray(path.read_bytes())
    data[segment.entries[1].offset + segment.entries[1].length // 2] ^= 1
    path.write_bytes(bytes(data))
    view = TableView(OpenSegments(store), LAYOUT, [ref], range(128), 0)
    readable, broken = 0, 0
    for key, value in ALL_ROWS.items():
        try:
            result = view.get(key_column_of_arrow(pa.array([key])))
            assert result.values is not None and result.values.to_pylist() == [value]
            readable += 1
        except StoreDamagedError as error:
            assert "chunk 1 is damaged: its checksum" in str(error)
            broken += 1
    assert (readable, broken) == (6, 4)


def test_a_file_in_anothers_place_is_detected(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ref = stored_segment(store)
    other = stored_segment(store, rows=11, name=segment_name("count", "total", 7, 0, "b2"))
    (tmp_path / other.file).rename(tmp_path / ref.file)
    with pytest.raises(StoreDamagedError, match=r"the manifest says .* and 10 rows .* Was a file copied or renamed"):
        contents(store, ref)


def test_a_segment_of_a_newer_format_requires_an_upgrade(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ref = stored_segment(store)
    path = tmp_path / ref.file
    path.write_bytes(path.read_bytes().replace(b"millstream-segment-1", b"millstream-segment-2"))
    with pytest.raises(StoreDamagedError, match=r"has segment format 2, this Millstream reads up to 1.*Upgrade"):
        contents(store, ref)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (TableLayout("total", pa.string(), value_type=pa.string(), has_ttl=True), "value int64, is now string"),
        (TableLayout("total", None, value_type=pa.int64(), has_ttl=True), "key string, is now canonical"),
        (TableLayout("total", pa.string(), value_type=pa.int64()), "ttl True, is now False"),
        (TableLayout("total", pa.string(), value_type=pa.int64(), has_ttl=True, max_parallelism=8), "max_parallelism"),
    ],
)
def test_a_state_whose_declaration_differs_from_storage_is_rejected(
    tmp_path: Path, layout: TableLayout, message: str
) -> None:
    ref = stored_segment(LocalStore(tmp_path))
    with pytest.raises(StateSchemaError, match=rf"state 'total' was saved with {message}.*new name"):
        OpenSegments(LocalStore(tmp_path)).segment(ref, layout)


def test_a_writer_rejects_unsorted_or_duplicate_rows(tmp_path: Path) -> None:
    changes = TableChanges(LAYOUT)
    changes.put(key_column_of_arrow(pa.array(["a", "b"])), pa.array([1, 2]))
    rows = changes.rows()
    store = LocalStore(tmp_path)
    for wrong, message in (([1, 0], "not sorted"), ([0, 0], "two changes of one row")):
        with pytest.raises(AssertionError, match=message):
            write_segment(store, NAME, LAYOUT, 1, range(128), [rows.take(pa.array(wrong))], chunks_max=1)
    with pytest.raises(AssertionError, match="outside the key groups"):
        write_segment(store, NAME, LAYOUT, 1, range(1), [rows], chunks_max=1)


def open_tier(store: Store, folder: Path) -> TieredStore:
    """The store as seen by another process on this machine."""
    return TieredStore(store, LocalTier(folder, 1 << 20))


def cached_copy(folder: Path) -> Path:
    (copy,) = (path for path in folder.glob("stores/*/files/**/*") if path.is_file())
    return copy


def test_a_remote_segment_is_downloaded_once_for_all_processes_of_a_machine(tmp_path: Path) -> None:
    store = open_store("memory://test-remote-segment")
    ref = stored_segment(store)
    segments = OpenSegments(open_tier(store, tmp_path))
    segments.segment(ref, LAYOUT)
    store.delete(ref.file)  # the copy now suffices, in another process too
    assert OpenSegments(open_tier(store, tmp_path)).segment(ref, LAYOUT).rows == 10
    segments.keep_only([], LAYOUT)
    assert segments.open_files == []


def test_a_truncated_cached_copy_is_downloaded_again(tmp_path: Path) -> None:
    store = open_store("memory://test-cut-copy")
    ref = stored_segment(store)
    OpenSegments(open_tier(store, tmp_path)).segment(ref, LAYOUT)
    copy = cached_copy(tmp_path)
    copy.write_bytes(copy.read_bytes()[:50])
    assert OpenSegments(open_tier(store, tmp_path)).segment(ref, LAYOUT).rows == 10


@pytest.mark.parametrize("at", [0.3, 0.9, -30])
def test_a_cached_copy_with_a_flipped_byte_is_fetched_again_on_access(tmp_path: Path, at: float) -> None:
    """In a chunk, in the footer and in the tier's trailer."""
    store = open_store(f"memory://test-wrong-byte-{at}")
    ref = stored_segment(store)
    expected = contents(store, ref)
    assert contents(open_tier(store, tmp_path), ref) == expected
    copy = cached_copy(tmp_path)
    data = bytearray(copy.read_bytes())
    data[int(at * len(data)) if at > 0 else int(at)] ^= 1
    copy.write_bytes(data)
    assert contents(open_tier(store, tmp_path), ref) == expected
    assert cached_copy(tmp_path).read_bytes() != bytes(data)


def test_segments_of_older_formats_are_readable() -> None:
    """Files written by the first version of each format; they are never written again, only read."""
    store = LocalStore(COMPATIBILITY)
    expected = json.loads((COMPATIBILITY / "segment-1.json").read_text())
    refs = refs_from_json(expected["total"]["refs"], "the fixture")
    assert contents(store, *refs) == dict(expected["total"]["rows"])
    refs = refs_from_json(expected["carts"]["refs"], "the fixture")
    view = TableView(OpenSegments(store), MAP_LAYOUT, refs, range(128), 0)
    rows = [row for batch in view.scan() for row in batch.to_pylist()]
    assert sorted(([row["key"], row["sub"], row["value"], row["due_ms"]] for row in rows), key=repr) == sorted(
        expected["carts"]["rows"], key=repr
    )


def test_a_segment_name_identifies_its_writer() -> None:
    name = segment_name("count words", "a/b", 7, 2, "x9")
    parsed = parse_segment(name)
    assert parsed is not None and (parsed.epoch, parsed.subtask, parsed.nonce) == (7, 2, "x9")
    assert parse_segment(name + ".old") is None
    with pytest.raises(ValueError, match="letters and digits"):
        segment_name("count", "total", 1, 0, "a/b")


REF = SegmentRef("f", 1, 0, 12, 0, 12, rows=120, file_bytes=1200)


def test_refs_survive_a_round_trip_through_json() -> None:
    refs = (REF, SegmentRef("g", 2, 3, 5, 0, 12, rows=1, file_bytes=10, due_min_ms=-4))
    assert refs_from_json(json.loads(json.dumps(refs_to_json(refs))), "a test") == refs


def test_splitting_and_merging_a_version_returns_the_same_refs() -> None:
    refs = (REF, SegmentRef("g", 2, 0, 12, 0, 12, rows=1, file_bytes=10))
    for parts in (1, 2, 3, 5):
        edges = [12 * i // parts for i in range(parts + 1)]
        ranges = [range(a, b) for a, b in itertools.pairwise(edges)]
        assert merge_versions([refs_for(refs, groups) for groups in ranges]) == refs


def test_refs_are_not_joined_across_one_whose_age_lies_between_them() -> None:
    between = SegmentRef("g", 2, 4, 8, 4, 8, rows=1, file_bytes=10)
    low, high = refs_for([REF], range(6)), refs_for([REF], range(6, 12))
    assert merge_versions([low, [between], high]) == (*low, between, *high)


def test_a_ref_cannot_be_live_for_groups_missing_from_its_file() -> None:
    with pytest.raises(ValueError, match="cannot be live"):
        SegmentRef("f", 1, 0, 13, 0, 12, rows=1, file_bytes=1)
    with pytest.raises(StoreDamagedError, match="state 'x' lists its segments as dict"):
        refs_from_json({}, "state 'x'")


VALUES = st.one_of(st.none(), st.integers(0, 2), st.sampled_from([0.0, -0.0, float("nan"), 1.5]))
TYPES: list[tuple[pa.DataType, Any]] = [
    (pa.int32(), st.none() | st.integers(0, 2)),
    (pa.float64(), st.none() | st.sampled_from([0.0, -0.0, float("nan"), 1.5])),
    (pa.string(), st.none() | st.sampled_from(["", "a", "é"])),
    (pa.bool_(), st.none() | st.booleans()),
    (pa.list_(pa.float64()), st.none() | st.lists(st.none() | st.sampled_from([float("nan"), 1.0]), max_size=2)),
    (
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
        st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 1), "y": st.sampled_from(["a", "b", None])}),
    ),
    (pa.null(), st.none()),
]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_values_are_equal_exactly_when_their_identities_are(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(TYPES))
    pairs = data.draw(st.lists(st.tuples(values, values), min_size=1, max_size=8))
    skip = data.draw(st.integers(0, len(pairs)))  # slices have offsets, which views must respect
    left, right = (pa.array([pair[i] for pair in pairs], kind)[skip:] for i in (0, 1))
    expected = [identity(a) == identity(b) for a, b in pairs[skip:]]
    assert same(left, right).tolist() == expected
