"""Tables of state: what a view answers, with real hashes and rows enough for many chunks."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.time import Instant
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row
from millstream.errors import TypeMismatchError
from millstream.records.columns import from_record_batch, to_record_batch
from millstream.records.unpickling import unpickled
from millstream.state.keys.canonical import decode
from millstream.state.keys.key_columns import KeyColumn, key_column, key_column_of_arrow, key_group_range
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.version import SegmentRef
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import NEVER_MS, TableLayout
from millstream.state.tables.reference_table import ReferenceTable
from millstream.state.tables.table import TableView
from millstream.storage import open_store
from millstream.storage.local import LocalStore

NAMES = itertools.count()
ALL = range(128)

TOTALS = TableLayout("total", None, value_type=pa.int64())
EXPIRING = TableLayout("total", None, value_type=pa.int64(), has_ttl=True)
CARTS = TableLayout("carts", None, pa.string(), pa.int64())
LISTS = TableLayout("events", None, pa.int64(), pa.string())
TIMERS = TableLayout("timers", None, pa.int64(), has_due=True)


class Table:
    """A table in memory: epochs of changes, and views of the newest version."""

    def __init__(self, layout: TableLayout, chunk_rows: int = 4) -> None:
        self.layout = layout
        self.store = open_store(f"memory://test-table-{next(NAMES)}")
        self.refs: list[SegmentRef] = []
        self.chunk_rows = chunk_rows

    def changes(self) -> TableChanges:
        return TableChanges(self.layout)

    def commit(self, changes: TableChanges) -> None:
        name = f"segments/{len(self.refs)}.arrow"
        ref = changes.write(self.store, name, len(self.refs) + 1, ALL, chunk_rows=self.chunk_rows)
        if ref is not None:
            self.refs.append(ref)

    def view(self, now_ms: int = 0, groups: range = ALL) -> TableView:
        return TableView(OpenSegments(self.store), self.layout, self.refs, groups, now_ms)


def untyped(*keys: Any) -> KeyColumn:
    return key_column(list(keys), None)


def values(view: TableView, *keys: Any) -> list[Any]:
    """The value of every key, None where there is none."""
    found = view.get(untyped(*keys))
    assert found.values is not None
    given_values = iter(found.values.to_pylist())
    return [next(given_values) if there else None for there in found.mask]


def put(table: Table, **rows: int) -> None:
    changes = table.changes()
    changes.put(untyped(*rows), pa.array(list(rows.values())))
    table.commit(changes)


def test_the_newest_value_wins_and_a_delete_hides_older_ones() -> None:
    table = Table(TOTALS)
    put(table, a=1, b=2, c=3)
    put(table, b=20)
    changes = table.changes()
    changes.delete(untyped("c", "never there"))
    table.commit(changes)
    assert values(table.view(), "a", "b", "c", "d", "a") == [1, 20, None, None, 1]


def test_within_an_epoch_the_last_change_of_a_row_counts() -> None:
    table = Table(TOTALS)
    changes = table.changes()
    changes.put(untyped("a", "b", "a"), pa.array([1, 2, 3]))
    changes.delete(untyped("b"))
    changes.put(untyped("c"), pa.array([4]))
    changes.delete(untyped("c"))
    changes.put(untyped("c"), pa.array([5]))
    table.commit(changes)
    assert table.refs[0].rows == 3
    assert values(table.view(), "a", "b", "c") == [3, None, 5]


def test_an_expired_value_is_absent_and_does_not_uncover_an_older_one() -> None:
    table = Table(EXPIRING)
    for value, expires_ms in ((1, NEVER_MS), (2, 100)):
        changes = table.changes()
        changes.put(untyped("a"), pa.array([value]), expires_ms=np.array([expires_ms]))
        table.commit(changes)
    assert values(table.view(now_ms=99), "a") == [2]
    assert values(table.view(now_ms=100), "a") == [None]
    assert list(table.view(now_ms=100).scan()) == []


def test_keys_with_one_hash_are_told_apart() -> None:
    # None leaves a hash as it is, so all of these have the same one.
    keys = [None, (), (None,), (None, None), ((),)]
    assert len(set(key_column(keys, None).hashes.tolist())) == 1
    table = Table(TOTALS)
    changes = table.changes()
    changes.put(untyped(*keys[:3]), pa.array([0, 1, 2]))
    table.commit(changes)
    changes = table.changes()
    changes.put(untyped(*keys[2:4]), pa.array([20, 30]))
    changes.delete(untyped(()))
    table.commit(changes)
    assert values(table.view(), *keys) == [0, None, 20, 30, None]
    assert [table.view().get_value(key) for key in keys] == [0, None, 20, 30, None]


def test_changes_not_yet_written_are_seen_by_every_question() -> None:
    table = Table(CARTS)
    first = table.changes()
    first.put(untyped("a", "a"), pa.array([1, 2]), subs=pa.array(["x", "y"]))
    table.commit(first)
    second = table.changes()
    second.put(untyped("a"), pa.array([3]), subs=pa.array(["z"]))
    second.delete(untyped("a"), subs=pa.array(["x"]))
    view = table.view().with_changes(second)
    found = view.get_pairs(untyped("a", "a", "a"), pa.array(["x", "y", "z"]))
    assert found.mask.tolist() == [False, True, True] and found.values is not None
    assert found.values.to_pylist() == [2, 3]
    assert sorted(view.scan_keys(untyped("a")).column("sub").to_pylist()) == ["y", "z"]
    assert table.view().scan_keys(untyped("a")).num_rows == 2


def test_a_clear_voids_what_is_older_and_nothing_that_comes_after() -> None:
    table = Table(CARTS)
    changes = table.changes()
    changes.put(untyped("a", "a", "b"), pa.array([1, 2, 3]), subs=pa.array(["x", "y", "x"]))
    table.commit(changes)
    changes = table.changes()
    changes.put(untyped("a"), pa.array([4]), subs=pa.array(["before"]))
    changes.clear(untyped("a"))
    changes.put(untyped("a"), pa.array([5]), subs=pa.array(["y"]))
    table.commit(changes)
    rows = table.view().scan_keys(untyped("b", "a"))
    assert rows.select(["position", "sub", "value"]).to_pylist() == [
        {"position": 0, "sub": "x", "value": 3},
        {"position": 1, "sub": "y", "value": 5},
    ]


def test_a_pair_of_a_cleared_key_is_absent_unless_it_was_put_since() -> None:
    table = Table(CARTS)
    changes = table.changes()
    changes.put(untyped("a", "a", "b"), pa.array([1, 2, 3]), subs=pa.array(["x", "y", "x"]))
    table.commit(changes)
    changes = table.changes()
    changes.clear(untyped("a"))
    changes.put(untyped("a"), pa.array([5]), subs=pa.array(["y"]))
    table.commit(changes)
    found = table.view().get_pairs(untyped("a", "a", "b"), pa.array(["x", "y", "x"]))
    assert found.mask.tolist() == [False, True, True] and found.values is not None
    assert found.values.to_pylist() == [5, 3]


def test_a_clear_stands_beside_a_row_of_the_smallest_number() -> None:
    table = Table(LISTS)
    smallest = -(2**63)
    changes = table.changes()
    changes.put(untyped("a", "a"), pa.array(["old", "older"]), subs=pa.array([7, smallest]))
    table.commit(changes)
    changes = table.changes()
    changes.clear(untyped("a"))
    changes.put(untyped("a"), pa.array(["new"]), subs=pa.array([smallest]))
    table.commit(changes)
    assert table.view().scan_keys(untyped("a")).column("value").to_pylist() == ["new"]


def test_subs_with_one_hash_are_told_apart() -> None:
    pair = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    subs = pa.array([(1, None), (None, 1), (None, None), None], pair)
    table = Table(TableLayout("pairs", None, pair, pa.int64()))
    assert len(set(table.layout.sub_orders(subs).tolist())) == 2
    for numbers in ([10, 11, 12, 13], [20, 21, 22, 23]):
        changes = table.changes()
        changes.put(untyped("a", "a", "a", "a"), pa.array(numbers), subs=subs)
        table.commit(changes)
    found = table.view().get_pairs(untyped("a", "a", "a", "a"), subs)
    assert found.values is not None and found.values.to_pylist() == [20, 21, 22, 23]
    assert table.view().scan_keys(untyped("a")).num_rows == 4


def test_rows_of_a_list_come_in_the_order_of_their_numbers_for_every_key_asked() -> None:
    table = Table(LISTS)
    for epoch in range(3):
        changes = table.changes()
        numbers = [epoch * 100 + 5, epoch * 100 + 1]
        changes.put(untyped("a", "a", "b"), pa.array(["x", "y", "z"]), subs=pa.array([*numbers, numbers[0]]))
        table.commit(changes)
    rows = table.view().scan_keys(untyped("a", "absent", "b", "a"))
    assert rows.column("position").to_pylist() == [0] * 6 + [2] * 3 + [3] * 6
    assert rows.column("sub").to_pylist()[:9] == [1, 5, 101, 105, 201, 205, 5, 105, 205]


def test_due_rows_come_in_time_order_and_only_if_no_newer_change_touched_them() -> None:
    table = Table(TIMERS)
    changes = table.changes()
    dues = np.array([30, 10, 20, 40, 25])
    changes.put(untyped("a", "b", "c", "d", "e"), subs=pa.array(dues), due_ms=dues)
    table.commit(changes)
    changes = table.changes()
    changes.delete(untyped("c"), subs=pa.array([20]))
    changes.clear(untyped("e"))
    changes.put(untyped("b"), subs=pa.array([10]), due_ms=np.array([35]))
    table.commit(changes)
    rows = table.view().scan_due(35)
    assert [decode(key) for key in rows.column("key").to_pylist()] == ["a", "b"]
    assert rows.column("due_ms").to_pylist() == [30, 35]
    assert table.view().scan_due(35, after_ms=30).column("due_ms").to_pylist() == [35]
    assert (table.view().min_due(), table.view().min_due(after_ms=35)) == (30, 40)


def test_the_earliest_due_time_is_found_behind_thousands_of_fired_timers() -> None:
    table = Table(TIMERS, chunk_rows=512)
    dues = np.arange(5_000)
    keys = key_column(dues.tolist(), None)
    changes = table.changes()
    changes.put(keys, subs=pa.array(dues), due_ms=dues)
    table.commit(changes)
    changes = table.changes()
    changes.delete(key_column(dues[:4_000].tolist(), None), subs=pa.array(dues[:4_000]))
    table.commit(changes)
    assert table.view().min_due() == 4_000
    assert table.view().scan_due(4_002).column("due_ms").to_pylist() == [4_000, 4_001, 4_002]


def test_when_nothing_is_due_no_row_is_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    changes = TableChanges(TIMERS)
    changes.put(untyped("a", "b"), subs=pa.array([50, 60]), due_ms=np.array([50, 60]))
    ref = changes.write(store, "timers.arrow", 1, ALL)
    assert ref is not None and ref.due_min_ms == 50
    segment = OpenSegments(store).segment(ref, TIMERS)
    path = tmp_path / "timers.arrow"
    data = bytearray(path.read_bytes())
    data[segment.entries[0].offset + 100] ^= 1  # reading any row would fail
    path.write_bytes(bytes(data))
    view = TableView(OpenSegments(store), TIMERS, [ref], ALL, 0)
    assert view.scan_due(49).num_rows == 0


def test_a_table_that_is_nowhere_due_has_no_earliest_time() -> None:
    table = Table(TIMERS)
    assert table.view().min_due() is None
    changes = table.changes()
    changes.put(untyped("a"), subs=pa.array([1]))
    table.commit(changes)
    assert table.view().min_due() is None


def test_tasks_at_any_parallelism_see_disjoint_parts_of_the_same_files() -> None:
    table = Table(TOTALS, chunk_rows=50)
    for epoch in range(3):
        changes = table.changes()
        keys = list(range(epoch * 100, epoch * 100 + 300))
        changes.put(key_column(keys, None), pa.array([key + epoch for key in keys]))
        table.commit(changes)
    whole = sorted(row["value"] for batch in table.view().scan() for row in batch.to_pylist())
    assert len(whole) == 500
    files = table.store.list("")
    for parallelism in (2, 3, 7):
        ranges = [key_group_range(task, parallelism, 128) for task in range(parallelism)]
        parts = [
            [value for batch in table.view(groups=groups).scan() for value in batch.column("value").to_pylist()]
            for groups in ranges
        ]
        assert sorted(itertools.chain(*parts)) == whole
    assert table.store.list("") == files


def test_a_view_refuses_keys_and_groups_that_are_not_its_own() -> None:
    table = Table(TOTALS)
    put(table, a=1)
    (group,) = untyped("a").groups(128).tolist()
    others = range(group + 1, 128)
    with pytest.raises(ValueError, match="a key outside the key groups"):
        table.view(groups=others).get(untyped("a"))
    with pytest.raises(ValueError, match="not within the key groups"):
        list(table.view(groups=others).scan(range(128)))
    assert [batch.num_rows for batch in table.view().scan(range(group, group + 1))] == [1]


def test_columns_of_another_type_are_refused_with_the_state_named() -> None:
    with pytest.raises(TypeMismatchError, match=r"state 'total' has values of int64, found string"):
        TableChanges(TOTALS).put(untyped("a"), pa.array(["x"]))
    with pytest.raises(TypeMismatchError, match=r"state 'total' has keys of binary, found int64"):
        TableChanges(TOTALS).put(key_column_of_arrow(pa.array([1])), pa.array([1]))
    with pytest.raises(TypeMismatchError, match=r"state 'carts' has subs of string, found int64"):
        TableChanges(CARTS).put(untyped("a"), pa.array([1]), subs=pa.array([1]))
    with pytest.raises(TypeMismatchError, match=r"None is not a key of a map whose keys are int64"):
        TableChanges(LISTS).put(untyped("a"), pa.array(["x"]), subs=pa.array([None], pa.int64()))
    with pytest.raises(ValueError, match="use get_pairs"):
        Table(CARTS).view().get(untyped("a"))
    with pytest.raises(ValueError, match="has no due times"):
        Table(CARTS).view().scan_due(1)


LONG, TEXT = Types.LONG(), Types.STRING()
ROW = Types.ROW_NAMED(["id", "tags"], [LONG, Types.LIST(TEXT)])


@pytest.mark.parametrize(
    ("type_info", "given_values"),
    [
        (LONG, [1, None, -(2**63)]),
        (Types.DOUBLE(), [math.nan, -0.0, math.inf, None]),
        (Types.BIG_INT(), [2**200, -1, None]),
        (Types.BIG_DEC(), [decimal.Decimal("1.50"), decimal.Decimal("-1E+40"), None]),
        (Types.INSTANT(), [Instant(-5, 7), None]),
        (Types.SQL_TIMESTAMP(), [dt.datetime(2024, 1, 2, 3, 4, 5, 678), None]),
        (Types.MAP(TEXT, Types.LIST(LONG)), [{"a": [1, None], "b": None}, {}, None]),
        (ROW, [Row(id=1, tags=["x", None]), Row(id=None, tags=None), None]),
        (Types.TUPLE([ROW, Types.BOOLEAN()]), [(Row(id=1, tags=[]), True), (None, None), None]),
        (Types.PICKLED_BYTE_ARRAY(), [{"any": {1, 2}}, 3 + 4j, None]),
    ],
    ids=lambda part: str(part)[:40] if isinstance(part, TypeInformation) else "",
)
def test_values_survive_a_round_trip_through_a_segment(type_info: TypeInformation, given_values: list[Any]) -> None:
    wrapped = Types.TUPLE([type_info])
    column = to_record_batch([(value,) for value in given_values], wrapped).column(0)
    table = Table(TableLayout("any", None, value_type=column.type), chunk_rows=2)
    keys = key_column(list(range(len(given_values))), None)
    changes = table.changes()
    changes.put(keys, column)
    table.commit(changes)
    found = table.view().get(keys)
    assert found.mask.all()
    batch = pa.RecordBatch.from_arrays([found.values], schema=to_record_batch([], wrapped).schema)
    assert repr([value for (value,) in from_record_batch(batch, wrapped, unpickled)]) == repr(given_values)


KEYS_BY_TYPE: list[tuple[pa.DataType | None, Any]] = [
    (None, st.none() | st.integers() | st.text(max_size=3) | st.tuples(st.integers(0, 3), st.none()) | st.booleans()),
    (pa.int64(), st.none() | st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)),
    (pa.int32(), st.none() | st.integers(-5, 5)),
    (pa.string(), st.none() | st.text(max_size=40)),
    (pa.binary(), st.none() | st.binary(max_size=40)),
    (pa.float64(), st.none() | st.floats()),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), st.tuples(st.none() | st.integers(0, 2), st.text(max_size=1))),
]


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_a_single_read_answers_as_a_bulk_read_and_as_a_dictionary(data: st.DataObject) -> None:
    key_type, keys = data.draw(st.sampled_from(KEYS_BY_TYPE))
    layout = TableLayout("total", key_type, value_type=pa.struct([("n", pa.int64()), ("t", pa.string())]), has_ttl=True)

    def column(drawn: list[Any]) -> KeyColumn:
        return key_column(drawn, None) if key_type is None else key_column_of_arrow(pa.array(drawn, key_type))

    table, reference = Table(layout, chunk_rows=3), ReferenceTable(layout)
    drawn = []
    for _ in range(data.draw(st.integers(1, 3))):
        rows = data.draw(st.lists(st.tuples(keys, st.none() | st.integers(0, 9), st.integers(0, 9)), max_size=8))
        drawn += [row[0] for row in rows]
        structs = pa.array([None if n is None else {"n": n, "t": "x" * n} for _, n, _ in rows], layout.value_type)
        changes = table.changes()
        for made in (changes, reference):
            made.put(column([row[0] for row in rows]), structs, expires_ms=np.array([row[2] for row in rows], np.int64))
            made.delete(column([row[0] for row in rows[::4]]))
        table.commit(changes)
    asked = drawn + data.draw(st.lists(keys, max_size=3))
    view = table.view(now_ms=4)
    mask, expected = reference.get(column(asked), now_ms=4)
    found = view.get(column(asked))
    assert found.values is not None and (found.mask.tolist(), found.values.to_pylist()) == (mask, expected)
    spread = iter(expected)
    assert [view.get_value(key) for key in asked] == [next(spread) if there else None for there in mask]


@pytest.mark.parametrize("layout", [CARTS, LISTS], ids=["hashed subs", "ordered subs"])
def test_thousands_of_rows_in_many_chunks_answer_as_a_dictionary(layout: TableLayout) -> None:
    random = np.random.default_rng(7)
    table, expected = Table(layout, chunk_rows=300), {}
    for epoch in range(4):
        numbers, subs = random.integers(0, 400, 2_000), random.integers(0, 30, 2_000)
        texts = [f"{epoch}-{i}" for i in range(2_000)]
        written: Any = list(range(2_000)) if layout is CARTS else texts
        sub_values: Any = [f"s{sub}" for sub in subs] if layout is CARTS else subs.tolist()
        changes = table.changes()
        changes.put(key_column(numbers.tolist(), None), pa.array(written), subs=pa.array(sub_values))
        expected.update(zip(zip(numbers.tolist(), sub_values, strict=True), written, strict=True))
        table.commit(changes)
    view = table.view()
    pairs = [(n, s) for n in range(0, 450, 3) for s in (("s1", "s7", "none") if layout is CARTS else (1, 7, 99))]
    found = view.get_pairs(key_column([n for n, _ in pairs], None), pa.array([s for _, s in pairs]))
    assert found.mask.tolist() == [pair in expected for pair in pairs] and found.values is not None
    assert found.values.to_pylist() == [expected[pair] for pair in pairs if pair in expected]
    rows = view.scan_keys(key_column(list(range(450)), None)).to_pylist()
    assert {(row["position"], row["sub"]): row["value"] for row in rows} == expected
    assert sum(batch.num_rows for batch in view.scan(block_rows=100)) == len(expected)
