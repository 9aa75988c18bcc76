"""List and map state: which rows are read, and when. Results are compared with dictionaries."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.typeinfo import Types
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor
from millstream.runtime.keyed import collection_states
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.tables.large_map import StoredEntries
from millstream.state.tables.state_table import TableSetting
from millstream.storage import open_store

NAMES = itertools.count()
KEYS = ["a", "b", "c"]


class States:
    """A list and a map of one operator over a store in memory; every visit is to all keys."""

    def __init__(self) -> None:
        self._store = open_store(f"memory://collections-{next(NAMES)}")
        self._epoch, self._account = 0, SubtaskAccount()
        self.open()

    def open(self) -> None:
        """As after a restart: only the state written by the last epoch is known."""
        self._epoch += 1
        self.backend = KeyedBackend("op", Types.STRING(), 1, 128, 0)
        self.list = self.backend.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = self.backend.get_map_state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))
        setting = TableSetting("op", self._epoch, 0, f"n{self._epoch}", range(128), 0, OpenSegments(self._store))
        self.backend.begin(setting, {0: self._account})
        self.visit()

    def visit(self) -> None:
        self.backend.leave()
        self.backend.settle()
        self.backend.visit(self.backend.column(KEYS), KEYS)

    def end(self) -> None:
        self._account = self.backend.end(0)
        self.open()

    def at(self, key: str) -> None:
        self.backend.scope.enter(KEYS.index(key))

    def count_reads(self, method: str) -> list[Any]:
        """Counts every call of a reading method of the map's or list's table from now on."""
        calls: list[Any] = []
        for handle in (self.list, self.map):
            read = getattr(handle.table, method)

            def counted(*arguments: Any, read: Any = read) -> Any:
                calls.append(arguments)
                return read(*arguments)

            setattr(handle.table, method, counted)
        return calls


ACTIONS = ["add", "replace", "clear list", "get list", "put", "remove", "clear map", "get", "items", "visit", "end"]
steps = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.sampled_from(KEYS), st.integers(0, 3), st.integers(0, 9)), max_size=40
)


@settings(deadline=None)
@given(steps, st.sampled_from([1, 1 << 20]))
def test_lists_and_maps_read_as_python_ones_whenever_visits_and_epochs_end(script: list[Any], loaded_max: int) -> None:
    with mock.patch.object(collection_states, "_LOADED_BYTES_MAX", loaded_max):
        check_against_python(script)


def check_against_python(script: list[Any]) -> None:
    states = States()
    lists: dict[str, list[int]] = {key: [] for key in KEYS}
    maps: dict[str, dict[int, int]] = {key: {} for key in KEYS}
    for action, key, map_key, number in script:
        states.at(key)
        if action == "add":
            states.list.add(number)
            lists[key].append(number)
        elif action == "replace":
            states.list.update([number, map_key])
            lists[key] = [number, map_key]
        elif action == "clear list":
            states.list.clear()
            lists[key] = []
        elif action == "get list":
            assert list(states.list.get()) == lists[key]
        elif action == "put":
            states.map.put(map_key, number)
            maps[key][map_key] = number
        elif action == "remove":
            states.map.remove(map_key)
            maps[key].pop(map_key, None)
        elif action == "clear map":
            states.map.clear()
            maps[key] = {}
        elif action == "get":
            assert states.map.get(map_key) == maps[key].get(map_key)
        elif action == "items":
            assert dict(states.map.items()) == maps[key]
        elif action == "visit":
            states.visit()
        else:
            states.end()
    states.end()
    for key in KEYS:
        states.at(key)
        assert list(states.list.get()) == lists[key]
        assert dict(states.map.items()) == maps[key]


@pytest.fixture
def large() -> States:
    """A map of 2,000 entries and a list of as many elements, in the store."""
    states = States()
    states.at("a")
    states.map.put_all({number: -number for number in range(2_000)})
    states.list.add_all(range(2_000))
    states.end()
    states.at("a")
    return states


def test_appending_to_a_long_list_does_not_read_it(large: States) -> None:
    rows = large.count_reads("read_rows")
    large.list.add(1)
    large.visit()
    assert rows == []
    large.at("a")
    assert len(list(large.list.get())) == 2_001


def test_accessing_one_entry_of_a_large_map_reads_one_entry(large: States, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = large.count_reads("read_rows")
    entries = count_entries_read(monkeypatch)
    assert large.map.get(7) == -7 and large.map.get(7) == -7
    assert entries == [7] and rows == []
    large.at("b")
    assert large.map.get(7) is None
    assert [list(keys) for (keys,) in rows] == [["b", "c"]]  # the small maps of the other keys, in one read


def test_many_lookups_of_single_entries_load_a_large_map_whole(large: States, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, entries = large.count_reads("read_rows"), count_entries_read(monkeypatch)
    assert [large.map.get(number) for number in range(2_000)] == [-number for number in range(2_000)]
    assert len(entries) <= 2_000 / 8 and len(rows) == 1


def count_entries_read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Records the keys of entries that are read singly from now on."""
    map_keys: list[Any] = []
    read = StoredEntries.get

    def counted(entries: StoredEntries, map_key: Any, absent: Any) -> Any:
        map_keys.append(map_key)
        return read(entries, map_key, absent)

    monkeypatch.setattr(StoredEntries, "get", counted)
    return map_keys


class LargeStates:
    """200 keys, each with a list and a map of 20 texts of 1 KiB, visited in order; values in memory are counted."""

    def __init__(self) -> None:
        self.keys = [f"k{number}" for number in range(200)]
        self.texts = [f"{number:04d}" * 256 for number in range(20)]
        segments = OpenSegments(open_store(f"memory://collections-{next(NAMES)}"))
        account = SubtaskAccount()
        for epoch in (1, 2):
            self.backend = KeyedBackend("op", Types.STRING(), 1, 128, 0)
            self.list = self.backend.get_list_state(ListStateDescriptor("list", Types.STRING()))
            self.map = self.backend.get_map_state(MapStateDescriptor("map", Types.LONG(), Types.STRING()))
            setting = TableSetting("op", epoch, 0, f"n{epoch}", range(128), 0, segments)
            self.backend.begin(setting, {0: account})
            self.backend.visit(self.backend.column(self.keys), self.keys)
            if epoch == 1:
                for number in range(len(self.keys)):
                    self.backend.scope.enter(number)
                    self.list.add_all(self.texts)
                    self.map.put_all(dict(enumerate(self.texts)))
                account = self.backend.end(0)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["by key", "to and fro"])
def test_a_visit_holds_no_more_of_stored_lists_and_maps_than_its_bound(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 400 << 10  # of the 4 MiB that each state has in total
    monkeypatch.setattr(collection_states, "_LOADED_BYTES_MAX", bound)
    states = LargeStates()
    loads = {id(handle): 0 for handle in (states.list, states.map)}
    for handle in (states.list, states.map):

        def counted(keys: Any, handle: Any = handle, load: Any = handle.load) -> None:
            loads[id(handle)] += 1
            load(keys)

        monkeypatch.setattr(handle, "load", counted)
    numbers = list(range(200)) if order == "by key" else [n for i in range(100) for n in (i, 199 - i)]
    for number in numbers:
        states.backend.scope.enter(number)
        assert states.list.get() == states.texts and states.map.get(3) == states.texts[3]
        held = sum(len(text) for texts in states.list._whole.values() for text in texts)
        held_in_maps = sum(len(text) for entries in states.map._entries.values() for text in entries.values())
        assert max(held, held_in_maps) <= 2 * bound
    if order == "by key":
        assert max(loads.values()) <= 30, "lists are read in bulk, not one by one"
