"""Visiting records key by key: none is lost, and every key's records stay in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.typeinfo import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.records.batch import Batch
from millstream.runtime.keyed import keyed_backend
from millstream.runtime.keyed.keyed_backend import GatheredKeys, KeyRange, visits
from millstream.state.keys.key_columns import KeyColumn, key_column_of_arrow
from millstream.state.tables.state_table import StateTable
from millstream.testing import EPOCH, Collect, Script, run

OWNED = KeyRange(range(128), 128)

arrow_keys = st.one_of(
    st.lists(st.none() | st.integers(-5, 20)).map(lambda keys: pa.array(keys, pa.int64())),
    st.lists(st.none() | st.text("abc", max_size=2)).map(lambda keys: pa.array(keys, pa.string())),
    st.lists(st.sampled_from([0.0, 1.5, float("nan")])).map(lambda keys: pa.array(keys, pa.float64())),
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.text("ab", max_size=1))).map(
        lambda keys: pa.array([{"a": a, "b": b} for a, b in keys], pa.struct([("a", pa.int64()), ("b", pa.string())]))
    ),
)


def numbered_batch(count: int) -> Batch:
    return Batch.of_values(list(range(count)), Types.LONG())


def check(keys: list[Any], results: Any, records_max: int) -> None:
    """Every record is visited once, with its own key, in arrival order per key; no key is visited twice."""
    visited: list[int] = []
    met: list[Any] = []
    results = list(results)
    assert len(results) <= 1 or len(keys) > records_max
    for visit in results:
        own = visit.keys.array.to_pylist() if visit.values is None else visit.values
        met += map(repr, own)
        rows = visit.records.values()
        for key in set(visit.codes.tolist()):
            of_key = [row for row, code in zip(rows, visit.codes, strict=True) if code == key]
            assert of_key == sorted(of_key)
        assert [repr(own[code]) for code in visit.codes] == [repr(keys[row]) for row in rows]
        orders = OWNED.orders(visit.keys.hashes)
        assert (orders[1:] >= orders[:-1]).all()
        visited += rows
    assert sorted(visited) == list(range(len(keys)))
    assert len(met) == len(set(met)) and set(met) == set(map(repr, keys))


@settings(deadline=None)
@given(arrow_keys, st.sampled_from([4, 1_000]))
def test_every_record_is_visited_once_with_its_own_key(keys: pa.Array, records_max: int) -> None:
    gathered = GatheredKeys(key_column_of_arrow(keys))
    check(keys.to_pylist(), visits(numbered_batch(len(keys)), gathered, OWNED, records_max), records_max)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9) | st.text("ab", max_size=2) | st.none()), st.sampled_from([4, 1_000]))
def test_keys_without_a_type_are_visited_the_same_way(keys: list[Any], records_max: int) -> None:
    gathered = GatheredKeys.of_values(keys, None)
    check(keys, visits(numbered_batch(len(keys)), gathered, OWNED, records_max), records_max)


def test_few_keys_are_one_visit_in_arrival_order_however_many_records() -> None:
    keys = key_column_of_arrow(pa.array(np.arange(1_000) % 7))
    (visit,) = visits(numbered_batch(1_000), GatheredKeys(keys), OWNED, 100)
    assert visit.records.values() == list(range(1_000))


def test_many_keys_are_many_small_visits() -> None:
    keys = key_column_of_arrow(pa.array(np.arange(10_000)))
    assert max(map(len, visits(numbered_batch(10_000), GatheredKeys(keys), OWNED, 1_000))) <= 1_000


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1))))
def test_nested_keys_with_one_hash_are_distinguished(drawn: list[tuple[int, int]]) -> None:
    array = pa.array([{"a": a} for a, _ in drawn], pa.struct([("a", pa.int64())]))
    hashes = np.array([a % 2 for a, _ in drawn], dtype=np.int64)  # three keys share each hash
    check(
        array.to_pylist(), visits(numbered_batch(len(drawn)), GatheredKeys(KeyColumn(hashes, array)), OWNED), 1_000_000
    )


@pytest.mark.parametrize("parts", [1, 3, 64])
def test_parts_cover_the_owned_range_evenly(parts: int) -> None:
    owned = KeyRange(range(32, 64), 128)
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63, 50_000)
    owned_hashes = hashes[(hashes % 128 >= 32) & (hashes % 128 < 64)]
    counts = np.bincount(owned.parts(owned.orders(owned_hashes), parts), minlength=parts)
    assert len(counts) == parts and counts.min() > 0.5 * len(owned_hashes) / parts


def test_a_visit_reads_no_more_bytes_of_large_values_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 keys with a value of 10 KiB each, all of them in every epoch; a visit may read 64 KiB."""
    monkeypatch.setattr(keyed_backend, "_VISIT_BYTES_MAX", 64 << 10)
    read: list[int] = []
    read_values = StateTable.read_values

    def counted(self: StateTable, keys: KeyColumn) -> Any:
        results = read_values(self, keys)
        read.append(sum(len(value) for value in results[1] if value is not None))
        return results

    monkeypatch.setattr(StateTable, "read_values", counted)
    out = Collect()

    class Longer(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.text = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))

        def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
            text = (self.text.value() or "") + "x" * 10_240
            self.text.update(text)
            ctx.timer_service().register_event_time_timer(10**9)
            yield value, len(text)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
            yield ctx.get_current_key(), len(self.text.value())

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = [*range(100), EPOCH, *range(100)]
        keyed = env.add_source(Script(numbers, type_info=Types.LONG())).key_by(lambda n: n, Types.LONG())
        keyed.process(Longer()).sink_to(out)

    run(build)
    assert sorted(out.values) == sorted([(n, 10_240) for n in range(100)] + [(n, 20_480) for n in range(100)] * 2)
    assert 0 < max(read) <= 128 << 10
