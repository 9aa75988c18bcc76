"""`verify`: whatever is damaged in a store is found, and said of the right epochs.

Every program of the test-suite is found whole in tests/golden/test_every_state_can_be_read.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.manifest import ManifestLog, decode, encode
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from millstream.errors import StoreError
from millstream.state.keys.hashing import xxhash64_column
from millstream.state.keys.key_columns import key_column_of_arrow
from millstream.state.segments.open_segments import WholeFile
from millstream.state.segments.segment_check import segment_problems
from millstream.state.segments.segment_writer import write_segment
from millstream.state.tables.layout import TableLayout, orders_of, rests_of
from millstream.state_reader import SavepointBuilder
from millstream.state_reader.verifying import verify
from millstream.storage import open_store
from millstream.storage.names import manifest_name
from millstream.testing import EPOCH, Collect, Script, run

STORES = count()


class Keeps(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.by_text = runtime_context.get_map_state(MapStateDescriptor("by text", Types.STRING(), Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + value)
        self.seen.add(value)
        self.by_text.put(str(value), value)
        self.by_text.clear() if value % 3 == 0 else self.by_text.remove("0")
        ctx.timer_service().register_event_time_timer(10**9 + value)


def ran(*, key_type: Any = None, parallelism: int = 1) -> str:
    store = f"test-verify-{next(STORES)}"

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([*range(20), EPOCH, *range(10), EPOCH, *range(30)]))
        numbers.key_by(lambda n: n % 7, key_type).process(Keeps()).uid("keeper").sink_to(Collect())

    run(build, store=store, parallelism=parallelism)
    return f"memory://{store}"


def segments_of(url: str, epoch: int) -> list[str]:
    named = json.dumps(dict(ManifestLog(open_store(url)).read(epoch).states))
    return [name for name in open_store(url).list("segments") if name in named]


@pytest.mark.parametrize("key_type", [None, Types.LONG()], ids=["untyped key", "typed key"])
def test_what_a_job_leaves_behind_is_whole(key_type: Any) -> None:
    url = ran(key_type=key_type, parallelism=2)
    report = verify(url)
    assert report.is_whole, report.text()
    assert [epoch.epoch for epoch in report.epochs] == ManifestLog(open_store(url)).epochs()
    assert all(epoch.files >= 4 for epoch in report.epochs)


def cut(data: bytes) -> bytes:
    return data[:-1]


def flipped(at: float) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        place = int(at * (len(data) - 1))
        return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]

    return flip


@pytest.mark.parametrize("change", [cut, *map(flipped, (0.0, 0.2, 0.5, 0.9, 1.0)), lambda data: b""])
def test_a_damaged_segment_damages_the_epochs_that_name_it_and_no_other(change: Callable[[bytes], bytes]) -> None:
    url = ran()
    store = open_store(url)
    newest = ManifestLog(store).epochs()[-1]
    [file] = sorted(set(segments_of(url, newest)) - set(segments_of(url, 2)))[:1]
    store.put(file, change(store.get(file)))
    report = verify(url)
    naming = {epoch for epoch in ManifestLog(store).epochs() if file in segments_of(url, epoch)}
    assert {epoch.epoch for epoch in report.epochs if not epoch.is_whole} == naming
    assert report.newest_whole == max(set(ManifestLog(store).epochs()) - naming)
    assert {problem.file for epoch in report.epochs for problem in epoch.problems} == {file}


@cache
def whole_store() -> str:
    return ran()


@pytest.mark.slow
@given(at=st.floats(0, 1), which=st.integers(0, 99))
def test_no_flipped_bit_of_a_named_file_goes_unnoticed(at: float, which: int) -> None:
    store = open_store(whole_store())
    epochs = ManifestLog(store).epochs()
    named = sorted({file for epoch in epochs for file in (manifest_name(epoch), *segments_of(whole_store(), epoch))})
    file = named[which % len(named)]
    before = store.get(file)
    store.put(file, flipped(at)(before))
    try:
        assert not verify(whole_store()).is_whole
    finally:
        store.put(file, before)


def test_a_missing_segment_is_named_with_its_state() -> None:
    url = ran()
    file = next(name for name in segments_of(url, 3) if "/total/" in name)
    open_store(url).delete(file)
    report = verify(f"{url}@3")
    assert [epoch.epoch for epoch in report.epochs] == [3] and not report.is_whole
    assert f"{file}: it is missing (state 'total' of" in report.text()
    assert report.text().endswith("No epoch is whole.")


def test_a_damaged_manifest_damages_its_epoch_only() -> None:
    url = ran()
    store = open_store(url)
    store.put(manifest_name(2), store.get(manifest_name(2)).replace(b'"epoch": 2', b'"epoch": 3'))
    report = verify(url)
    assert [epoch.epoch for epoch in report.epochs if not epoch.is_whole] == [2]
    assert "checksum does not match" in report.text()


def test_a_file_of_another_epoch_in_its_place_is_found() -> None:
    url = ran()
    store = open_store(url)
    one, other = [name for name in segments_of(url, 3) if "/seen/" in name][:2]
    store.put(one, store.get(other))
    [*_, epoch] = verify(url).epochs
    assert any(problem.file == one for problem in epoch.problems)


def test_a_half_copied_savepoint_is_not_whole() -> None:
    url = f"memory://test-verify-{next(STORES)}"
    rows = pa.table({"key": ["a", "b"], "value": [1, 2]})
    SavepointBuilder("saved").state("op", "s", rows, key_type=Types.STRING(), value_type=Types.LONG()).write(url)
    store = open_store(url)
    assert verify(url).is_whole
    kept = store.get("savepoint.json")
    store.delete("savepoint.json")
    assert "not copied whole" in verify(url).text()
    store.put("savepoint.json", kept)
    [segment] = store.list("segments")
    data = store.get(segment)
    store.put(segment, data + b" ")
    assert (
        f"{segment}: it has {len(data) + 1} bytes, expected {len(data)} (listed by savepoint.json)"
        in verify(url).text()
    )


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(StoreError, match="contains neither a job nor a savepoint"):
        verify("memory://test-verify-nothing")
    with pytest.raises(StoreError, match="has no epoch or savepoint 99; it has 1-4"):
        verify(f"{whole_store()}@99")


# --- segments that a writer of ours would never write: their checksums hold -------------------------------------------

LAYOUT = TableLayout("total", pa.int64(), value_type=pa.int64())


def written(keys: list[int], change: Callable[[dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is found wrong with a segment of these keys after `change`, written by a writer that checks nothing."""
    column = key_column_of_arrow(pa.array(keys, pa.int64()))
    sorting = np.argsort(orders_of(column.hashes, 128))
    column = column.take(sorting)
    columns = {
        "order": orders_of(column.hashes, 128),
        "rest": rests_of(column.hashes),
        "key": column.array,
        "kind": np.zeros(len(keys), dtype=np.uint8),
        "value": np.arange(len(keys)),
    }
    change(columns)
    batch = pa.RecordBatch.from_arrays([pa.array(columns[name]) for name in LAYOUT.schema.names], schema=LAYOUT.schema)
    monkeypatch.setattr(
        "millstream.state.segments.segment_writer._checked_chunks", lambda chunks, layout, groups: chunks
    )
    store = open_store(f"memory://test-verify-{next(STORES)}")
    ref = write_segment(store, "s.arrow", LAYOUT, 1, range(128), [batch], chunks_max=1)
    assert ref is not None
    file = WholeFile(pa.py_buffer(store.get("s.arrow")))
    return segment_problems(file, ref, "total", lambda keys, _: xxhash64_column(keys))


def swapped(columns: dict[str, Any]) -> None:
    order = [1, 0, *range(2, len(columns["kind"]))]
    for name, column in columns.items():
        columns[name] = column.take(pa.array(order)) if isinstance(column, pa.Array) else column[order]


def doubled(columns: dict[str, Any]) -> None:
    order = [0, 0, *range(2, len(columns["kind"]))]
    for name, column in columns.items():
        columns[name] = column.take(pa.array(order)) if isinstance(column, pa.Array) else column[order]


def other_key(columns: dict[str, Any]) -> None:
    columns["key"] = pa.array([10**6, *columns["key"].to_pylist()[1:]], pa.int64())


def other_kind(columns: dict[str, Any]) -> None:
    columns["kind"] = np.full(len(columns["kind"]), 9, dtype=np.uint8)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda columns: None, None),
        (swapped, "its rows are not sorted"),
        (doubled, "a key occurs twice"),
        (other_key, "1 keys are not in the order of their hashes"),
        (other_kind, "rows of an unknown kind"),
    ],
)
def test_order_and_place_of_keys_are_checked(change: Any, problem: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = written(list(range(50)), change, monkeypatch)
    assert (found == []) if problem is None else (len(found) == 1 and problem in found[0])


def test_a_manifest_that_tells_of_another_segment_is_found(tmp_path: Path) -> None:
    url = ran()
    store, local = open_store(url), open_store(str(tmp_path / "store"))
    for name in store.list(""):
        local.put(name, store.get(name))
    assert verify(str(tmp_path / "store")).is_whole
    manifest = decode(local.get(manifest_name(3)), "")
    states = json.loads(json.dumps(dict(manifest.states)).replace('"rows": ', '"rows": 1'))
    local.put(manifest_name(3), encode(replace(manifest, states=states)))
    report = verify(str(tmp_path / "store"))
    assert [epoch.epoch for epoch in report.epochs if not epoch.is_whole] == [3]
    assert "its footer has rows" in report.text()
