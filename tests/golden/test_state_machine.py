"""The state store compared with a dictionary: random programs of changes, epochs, crashes, compactions and rescales.

Keys have hashes that collide, partly or fully, so that rare paths are taken all the time. Chunks and blocks hold few
rows, so that every read crosses their boundaries.
"""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.state.keys.key_columns import KeyColumn, key_group_range
from millstream.state.segments.compaction import plan_compaction, plan_full_compaction
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment_merge import compact
from millstream.state.segments.version import Refs, merge_versions, refs_for, refs_from_json, refs_to_json
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.reference_table import ReferenceRow, ReferenceTable, identity
from millstream.state.tables.table import TableView
from millstream.storage.memory import MemoryStore

GROUPS = 6
STORES = itertools.count()

NUMBERS = st.integers(0, 24)
SUBS = st.integers(0, 7)
TIMES = st.integers(-3, 30)


def hash_of(number: int) -> int:
    """Collides on purpose: n and n + 15 have one hash, and many n share the part of it that rows are sorted by."""
    top, low = number % 3, number % 5
    return (top - 1) << 16 | low * 7


class StateMachine(RuleBasedStateMachine):
    """One table of segments and one dictionary, with the same operations."""

    key_type: ClassVar[pa.DataType]
    sub_type: ClassVar[pa.DataType | None] = None
    value_type: ClassVar[pa.DataType | None] = pa.int64()
    has_due: ClassVar[bool] = False
    has_ttl: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.layout = TableLayout(
            "total",
            self.key_type,
            self.sub_type,
            self.value_type,
            has_due=self.has_due,
            has_ttl=self.has_ttl,
            max_parallelism=GROUPS,
        )
        self.store = MemoryStore(f"state-machine-{next(STORES)}")
        self.segments = OpenSegments(self.store)
        self.names = itertools.count()
        self.now_ms = 0
        self.epoch = 1
        self.parallelism = 1
        self.manifest: Any = []
        self.committed = ReferenceTable(self.layout)
        self.touched: set[tuple[int, int]] = set()
        self.begin()

    def begin(self) -> None:
        """Open the last version at the current parallelism, without any change."""
        refs = refs_from_json(self.manifest, "a test")
        self.reference = self.committed.copy()
        self.ranges = [key_group_range(task, self.parallelism, GROUPS) for task in range(self.parallelism)]
        self.refs: list[Refs] = [refs_for(refs, groups) for groups in self.ranges]
        self.changes = [TableChanges(self.layout) for _ in self.ranges]

    # --- values

    def key(self, number: int) -> Any:
        return number

    def sub(self, number: int) -> Any:
        return number

    def keys(self, numbers: list[int]) -> KeyColumn:
        hashes = np.array([hash_of(number) for number in numbers], dtype=np.int64)
        return KeyColumn(hashes, pa.array([self.key(number) for number in numbers], self.key_type))

    def subs(self, numbers: list[int]) -> pa.Array | None:
        if self.sub_type is None:
            return None
        return pa.array([self.sub(number) for number in numbers], self.sub_type)

    def by_task(self, numbers: list[int]) -> list[tuple[int, list[int]]]:
        """The positions of the rows of each task."""
        tasks = self.keys(numbers).partitions(self.parallelism, GROUPS).tolist() if numbers else []
        return [(task, [at for at, owner in enumerate(tasks) if owner == task]) for task in range(self.parallelism)]

    def view(self, task: int) -> TableView:
        view = TableView(self.segments, self.layout, self.refs[task], self.ranges[task], self.now_ms)
        return view.with_changes(self.changes[task])

    # --- changes

    @rule(
        rows=st.lists(st.tuples(NUMBERS, st.integers(0, 7), st.none() | st.integers(0, 99), TIMES, TIMES), max_size=12)
    )
    def put(self, rows: list[tuple[int, int, int | None, int, int]]) -> None:
        numbers = [row[0] for row in rows]
        self.touched |= {(row[0], row[1]) for row in rows}
        for task, at in [(None, list(range(len(rows)))), *self.by_task(numbers)]:
            table: Any = self.reference if task is None else self.changes[task]
            chosen = [rows[i] for i in at]
            table.put(
                self.keys([row[0] for row in chosen]),
                None if self.value_type is None else pa.array([row[2] for row in chosen], self.value_type),
                subs=self.subs([row[1] for row in chosen]),
                due_ms=np.array([row[3] for row in chosen], dtype=np.int64) if self.has_due else None,
                expires_ms=np.array([self.now_ms + row[4] for row in chosen], np.int64) if self.has_ttl else None,
            )

    @rule(rows=st.lists(st.tuples(NUMBERS, SUBS), max_size=8))
    def delete(self, rows: list[tuple[int, int]]) -> None:
        for task, at in [(None, list(range(len(rows)))), *self.by_task([row[0] for row in rows])]:
            table: Any = self.reference if task is None else self.changes[task]
            table.delete(self.keys([rows[i][0] for i in at]), subs=self.subs([rows[i][1] for i in at]))

    @rule(numbers=st.lists(NUMBERS, max_size=6))
    def clear(self, numbers: list[int]) -> None:
        for task, at in [(None, list(range(len(numbers)))), *self.by_task(numbers)]:
            table: Any = self.reference if task is None else self.changes[task]
            table.clear(self.keys([numbers[i] for i in at]))

    # --- epochs

    def write(self) -> list[Refs]:
        versions = []
        for task, groups in enumerate(self.ranges):
            name = f"segments/{next(self.names)}.arrow"
            ref = self.changes[task].write(self.store, name, self.epoch, groups, chunk_rows=3)
            versions.append((*self.refs[task], ref) if ref is not None else self.refs[task])
        return versions

    @rule()
    def commit(self) -> None:
        self.manifest = refs_to_json(merge_versions(self.write()))
        self.committed = self.reference
        self.epoch += 1
        self.begin()

    @rule()
    def crash(self) -> None:
        """The epoch's files exist, but no manifest references them."""
        self.write()
        self.begin()

    @rule()
    def reopen(self) -> None:
        self.segments = OpenSegments(self.store)

    @rule(parallelism=st.integers(1, 4))
    def rescale(self, parallelism: int) -> None:
        self.commit()
        self.parallelism = parallelism
        self.begin()

    @rule(budget_bytes=st.sampled_from([1, 2_000, 100_000]), fan_in=st.integers(2, 4), steps=st.integers(1, 3))
    def compact(self, budget_bytes: int, fan_in: int, steps: int) -> None:
        for task, _ in itertools.product(range(self.parallelism), range(steps)):
            step = plan_compaction(self.refs[task], budget_bytes, fan_in=fan_in)
            if step is not None:
                self.refs[task] = self.compacted(task, step)

    @rule()
    def compact_all(self) -> None:
        for task, refs in enumerate(self.refs):
            step = plan_full_compaction(refs)
            if step is not None:
                self.refs[task] = self.compacted(task, step)

    def compacted(self, task: int, step: Any) -> Refs:
        name = f"segments/{next(self.names)}.arrow"
        refs = self.refs[task]
        return compact(self.segments, self.layout, refs, step, self.now_ms, name=name, epoch=self.epoch, chunk_rows=3)

    @rule(by_ms=st.integers(1, 12))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    # --- reads

    @rule(others=st.lists(st.tuples(NUMBERS, SUBS), max_size=10))
    def get(self, others: list[tuple[int, int]]) -> None:
        pairs = [*sorted(self.touched), *others]
        numbers, subs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        for task, at in self.by_task(numbers):
            keys, wanted = self.keys([numbers[i] for i in at]), self.subs([subs[i] for i in at])
            found = self.view(task).get(keys) if wanted is None else self.view(task).get_pairs(keys, wanted)
            mask, values = self.reference.get(keys, self.now_ms, wanted)
            assert found.mask.tolist() == mask
            if self.value_type is not None:
                assert found.values is not None and found.values.to_pylist() == values

    @rule(numbers=st.lists(NUMBERS, max_size=6))
    def scan_keys(self, numbers: list[int]) -> None:
        for task, at in self.by_task(numbers):
            keys = self.keys([numbers[i] for i in at])
            batch = self.view(task).scan_keys(keys)
            expected = self.reference.scan_keys(keys, self.now_ms)
            positions = batch.column("position").to_pylist()
            assert positions == sorted(positions)
            found = list(zip(positions, self.rows(batch), strict=True))
            assert sorted(found, key=repr) == sorted(((at, self.shown(row)) for at, row in expected), key=repr)
            if self.layout.has_ordered_sub:
                subs = list(zip(positions, batch.column("sub").to_pylist(), strict=True))
                assert subs == sorted(subs)

    @precondition(lambda self: self.has_due)
    @rule(through_ms=TIMES, after_ms=st.none() | TIMES)
    def scan_due(self, through_ms: int, after_ms: int | None) -> None:
        found, earliest = [], []
        for task in range(self.parallelism):
            batch = self.view(task).scan_due(through_ms, after_ms=after_ms)
            dues = batch.column("due_ms").to_pylist()
            assert dues == sorted(dues)
            found += self.rows(batch)
            earliest.append(self.view(task).min_due())
        expected = self.reference.scan_due(through_ms, self.now_ms)
        expected = [row for row in expected if after_ms is None or row.due_ms > after_ms]
        assert sorted(found, key=repr) == sorted(map(self.shown, expected), key=repr)
        assert min((due for due in earliest if due is not None), default=None) == self.reference.min_due(self.now_ms)

    @invariant()
    def the_whole_table_is_the_dictionary(self) -> None:
        found = []
        for task in range(self.parallelism):
            for batch in self.view(task).scan(block_rows=4):
                found += self.rows(batch)
        assert sorted(found, key=repr) == sorted(map(self.shown, self.reference.scan(self.now_ms)), key=repr)

    def rows(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        absent = [None] * batch.num_rows
        names = ("key", "sub", "value", "due_ms", "expires_ms")
        columns = [batch.column(name).to_pylist() if name in batch.schema.names else absent for name in names]
        return [tuple(map(identity, row)) for row in zip(*columns, strict=True)]

    def shown(self, row: ReferenceRow) -> tuple[Any, ...]:
        times = (row.due_ms if self.has_due else None, row.expires_ms if self.has_ttl else None)
        return tuple(map(identity, (row.key, row.sub, row.value, *times)))


class ValuesThatExpire(StateMachine):
    key_type = pa.int64()
    has_ttl = True


class Maps(StateMachine):
    """Text and None as keys, pairs as subkeys, many of which share a hash; every value may expire."""

    key_type = pa.string()
    sub_type = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    has_ttl = True

    def key(self, number: int) -> Any:
        return None if number == 7 else f"key {number}"

    def sub(self, number: int) -> Any:
        pairs = [(None, None), (1, None), (None, 1), None, (2, None), (None, 2), (1, 2), (2, 1)]
        return pairs[number]


class Timers(StateMachine):
    """Rows without a value, with a composite key, a number and due times."""

    key_type = pa.struct([("name", pa.string()), ("place", pa.float64())])
    sub_type = pa.int64()
    value_type = None
    has_due = True

    def key(self, number: int) -> Any:
        return {"name": None if number % 4 == 0 else str(number), "place": float("nan") if number == 9 else number / 2}

    def sub(self, number: int) -> Any:
        return -(2**63) if number == 0 else number - 4


class Windows(StateMachine):
    """Values of windows with due and expiry times, one per key and time."""

    key_type = pa.date32()
    sub_type = pa.timestamp("ms")
    has_due = True
    has_ttl = True

    def key(self, number: int) -> Any:
        return dt.date(2024, 1, 1 + number)

    def sub(self, number: int) -> Any:
        return dt.datetime(1970, 1, 1, 0, number)


def case_of(machine: type[StateMachine]) -> Any:
    case = machine.TestCase
    case.settings = settings(
        max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    return case


TestValuesThatExpire = case_of(ValuesThatExpire)
TestMaps = case_of(Maps)
TestTimers = case_of(Timers)
TestWindows = case_of(Windows)
