"""A map that is too large to be loaded reads like a dictionary, and like the same map when it is loaded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.time import Duration
from millstream.common.typeinfo import TypeInformation, Types
from millstream.datastream.state import MapStateDescriptor, StateTtlConfig
from millstream.records.pickling import pickled
from millstream.runtime.keyed import collection_states
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.tables.large_map import StoredEntries
from millstream.state.tables.state_table import TableSetting
from millstream.storage import open_store

NAMES = itertools.count()
KEYS = ["a", "b"]
# By type: the keys of a map that are used, and a function from a number to a value.
KINDS: dict[str, tuple[TypeInformation | None, list[Any], TypeInformation | None, Any]] = {
    "numbers": (Types.LONG(), [0, -1, 2**63 - 1, -(2**63), 7], Types.LONG(), int),
    "small numbers": (Types.INT(), [0, -1, 2**31 - 1, 5, 7], Types.STRING(), str),
    "texts": (Types.STRING(), ["", "a", "é", "b" * 40, "\0"], Types.DOUBLE(), float),
    "tuples": (
        Types.TUPLE([Types.STRING(), Types.LONG()]), [("a", 1), ("a", 2), ("b", 1), ("", 0), ("c", 9)],
        Types.TUPLE([Types.LONG(), Types.STRING()]), lambda number: (number, str(number)),
    ),
    "floats": (Types.DOUBLE(), [0.0, -1.5, float("inf"), 7.0, 1e-300], Types.BOOLEAN(), bool),
    "decimals": (
        Types.BIG_DEC(), [Decimal("1.0"), Decimal("1.00"), Decimal(0), Decimal("0.0"), Decimal("1E-5")],
        Types.LONG(), int,
    ),
    "parts": (
        Types.TUPLE([Types.BIG_DEC(), Types.PICKLED_BYTE_ARRAY(), Types.DOUBLE()]),
        [(Decimal("1.0"), 1, 0.0), (Decimal("1.00"), True, -0.0), (None, "a", 1.0), (Decimal(1), 1.0, 0.0),
         (Decimal(2), None, 7.5)],
        Types.LONG(), int,
    ),
    "pickled": (
        Types.PICKLED_BYTE_ARRAY(), [1, "a", (1, "b"), frozenset({1, 2}), 2.5],
        Types.PICKLED_BYTE_ARRAY(), lambda number: {"n": number},
    ),
}  # fmt: skip
ACTIONS = [
    "put", "put", "put", "put all", "remove", "clear", "get", "contains", "is empty", "items", "keys", "values",
    "length", "first", "remove all in passing", "visit", "end", "wait",
]  # fmt: skip
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.sampled_from(KEYS), st.integers(0, 4), st.integers(0, 9)), max_size=40
)


class Maps:
    """A map state over a store in memory, with a dictionary of the expected entries."""

    def __init__(self, kind: str, ttl: StateTtlConfig | None = None) -> None:
        key_type, self.map_keys, value_type, self.value = KINDS[kind]
        self._descriptor = MapStateDescriptor("map", key_type, value_type)
        if ttl is not None:
            self._descriptor.enable_time_to_live(ttl)
        self._store = open_store(f"memory://large-maps-{next(NAMES)}")
        self._epoch, self._account, self.now_ms = 0, SubtaskAccount(), 1_000
        self.dicts: dict[str, dict[Any, Any]] = {key: {} for key in KEYS}
        self.open()

    def open(self) -> None:
        self._epoch += 1
        self.backend = KeyedBackend("op", Types.STRING(), 1, 128, 0)
        self.map = self.backend.get_map_state(self._descriptor)
        segments = OpenSegments(self._store)
        setting = TableSetting("op", self._epoch, 0, f"n{self._epoch}", range(128), self.now_ms, segments)
        self.backend.begin(setting, {0: self._account})
        self.visit()

    def visit(self) -> None:
        self.backend.leave()
        self.backend.settle()
        self.backend.visit(self.backend.column(KEYS), KEYS)

    def end(self) -> None:
        self._account = self.backend.end(0)
        self.open()

    def answers(self, script: list[Any]) -> Iterator[tuple[Any, Any]]:
        """The state's results of every step, and those of a dictionary."""
        for action, key, place, number in [*script, ("end", "a", 0, 0), ("items", "a", 0, 0), ("items", "b", 0, 0)]:
            self.backend.scope.enter(KEYS.index(key))
            map_key, value = self.map_keys[place], self.value(number)
            yield self._step(self.map, self.dicts[key], action, map_key, value)

    def _step(self, state: Any, known: dict[Any, Any], action: str, map_key: Any, value: Any) -> tuple[Any, Any]:
        match action:
            case "put":
                state.put(map_key, value)
                known[map_key] = value
            case "put all":
                several = dict.fromkeys(self.map_keys[:3], value)
                state.put_all(several)
                known.update(several)
            case "remove":
                state.remove(map_key)
                known.pop(map_key, None)
            case "clear":
                state.clear()
                known.clear()
            case "get":
                return state.get(map_key), known.get(map_key)
            case "contains":
                return map_key in state, map_key in known
            case "is empty":
                return state.is_empty(), not known
            case "items":
                return dict(state.items()), dict(known)
            case "keys":
                return set(state.keys()), set(known)
            case "values":
                return sorted(map(repr, state.values())), sorted(map(repr, known.values()))
            case "length":
                return (len(state.items()), map_key in state.keys()), (len(known), map_key in known)  # noqa: SIM118
            case "first":  # iteration stops after the first entry
                return next(iter(state.items()), None) is None, not known
            case "remove all in passing":
                seen = {}
                for map_key_there, value_there in state.items():
                    seen[map_key_there] = value_there
                    state.remove(map_key_there)
                    state.put(map_key, value)  # not visible to the iterator
                before = dict(known)
                known.clear()
                known.update({map_key: value} if before else {})
                return seen, before
            case "visit":
                self.visit()
            case "end":
                self.end()
            case "wait":
                self.now_ms += 400
                self.end()
        return None, None


@contextmanager
def bounds(*, tiny: bool) -> Iterator[None]:
    """The real bounds, or bounds so small that no map is ever loaded and every row is a piece."""
    values = {"_LOADED_BYTES_MAX": 1, "_SMALL_MAP_ENTRIES_MAX": 0, "_PIECE_BYTES": 40} if tiny else {}
    with mock.patch.multiple(collection_states, **values) if values else mock.patch.dict({}):
        yield


@pytest.mark.slow
@settings(deadline=None)
@given(STEPS, st.sampled_from(list(KINDS)), st.booleans())
def test_a_map_reads_like_a_dictionary_by_every_method(script: list[Any], kind: str, tiny: bool) -> None:
    with bounds(tiny=tiny):
        maps = Maps(kind)
        for answer, expected in maps.answers(script):
            assert answer == expected


TTLS = {
    "written": StateTtlConfig.new_builder(Duration.of_millis(1_000)).update_ttl_on_create_and_write(),
    "read": StateTtlConfig.new_builder(Duration.of_millis(1_000)).update_ttl_on_read_and_write(),
}


@settings(deadline=None)
@given(STEPS, st.sampled_from(list(KINDS)), st.sampled_from(list(TTLS)))
def test_entries_of_loaded_and_unloaded_maps_expire_alike(script: list[Any], kind: str, ttl: str) -> None:
    answers = []
    for tiny in (False, True):
        with bounds(tiny=tiny):
            answers.append([answer for answer, _ in Maps(kind, TTLS[ttl].build()).answers(script)])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("is_settled_too", [True, False])
def test_differently_pickled_keys_of_older_versions_are_one_entry(is_settled_too: bool) -> None:
    """Older versions pickled map keys unconverted: 1.0 and True may be stored where 1 is meant."""
    answers = []
    for tiny in (False, True):
        with bounds(tiny=tiny):
            maps = Maps("pickled")
            forms = [1.0, 1, "a"] if is_settled_too else [True, "a"]
            subs = pa.array([pickled(form) for form in forms], pa.binary())
            maps.map.table.put(["a"] * len(forms), [f"under {form}" for form in forms], subs)
            maps.end()
            maps.backend.scope.enter(0)
            answers.append((dict(maps.map.items()), len(maps.map.items()), maps.map.get(1)))
    value = "under 1" if is_settled_too else "under True"
    assert answers == [({1: value, "a": "under a"}, 2, value)] * 2


@pytest.mark.parametrize("form", ["1.50", "1.5", "1.50000000"])
def test_a_decimal_key_written_by_older_releases_is_read_changed_and_removed(form: str) -> None:
    for tiny in (False, True):
        for action in ("put", "remove"):
            with bounds(tiny=tiny):
                maps = Maps("decimals")
                maps.map.table.put(["a", "a"], [7, 8], pa.array([form, "1E+2"]))
                maps.end()
                maps.backend.scope.enter(0)
                assert [maps.map.get(Decimal(text)) for text in ("1.500", "100", "2")] == [7, 8, None]
                if action == "put":
                    maps.map.put(Decimal("1.5"), 9)
                else:
                    maps.map.remove(Decimal("1.5"))
                maps.end()
                maps.backend.scope.enter(0)
                expected = {Decimal("1.5"): 9} if action == "put" else {}
                assert sorted(maps.map.items()) == sorted({**expected, Decimal(100): 8}.items())


def test_the_keys_view_contains_equal_keys_and_none_of_another_type() -> None:
    for tiny in (False, True):
        with bounds(tiny=tiny):
            for kind, held in (("numbers", 7), ("pickled", 1.0), ("tuples", ("a", 1)), ("decimals", Decimal("1.000"))):
                maps = Maps(kind)
                maps.backend.scope.enter(0)
                maps.map.put_all({key: maps.value(1) for key in maps.map_keys})
                maps.end()
                maps.backend.scope.enter(0)
                assert [key in maps.map.keys() for key in (held, b"?", None)] == [True, False, False]  # noqa: SIM118
                assert maps.map.get(None) is None


def test_decimals_of_any_size_are_keys_of_large_maps() -> None:
    numbers = [Decimal("1E+9000"), Decimal("-Infinity"), Decimal("1E-9000"), Decimal(10**6000), Decimal("1E+4990")]
    with bounds(tiny=True):
        maps = Maps("decimals")
        maps.backend.scope.enter(0)
        maps.map.put_all({number: place for place, number in enumerate(numbers)})
        maps.end()
        maps.backend.scope.enter(0)
        assert [maps.map.get(number) for number in [*numbers, Decimal("9E+9000"), Decimal("NaN")]] == [
            0, 1, 2, 3, 4, None, None,
        ]  # fmt: skip


@pytest.fixture
def huge(monkeypatch: pytest.MonkeyPatch) -> Maps:
    """A map of 3,000 entries, in several segments, of which 500 may be held as Python values at once."""
    maps = Maps("numbers")
    for start in (0, 1_000, 2_000):
        maps.backend.scope.enter(0)
        maps.map.put_all({number: -number for number in range(start, start + 1_000)})
        maps.end()
    monkeypatch.setattr(collection_states, "_LOADED_BYTES_MAX", 4 * 500 * maps.map.table.row_bytes)
    monkeypatch.setattr(collection_states, "_PIECE_BYTES", 100 * maps.map.table.row_bytes)
    maps.backend.scope.enter(0)
    return maps


def test_iterating_over_a_large_map_holds_one_piece_in_memory(huge: Maps, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, pieces = [], StoredEntries.pieces

    def measured(entries: StoredEntries) -> Iterator[Any]:
        for keys, values in pieces(entries):
            sizes.append(len(keys))
            yield keys, values

    monkeypatch.setattr(StoredEntries, "pieces", measured)
    huge.map.remove(1)
    assert sum(huge.map.values()) == 1 - sum(range(3_000))
    assert sum(sizes) == 3_000 and max(sizes) <= 3 * 100
    assert not huge.map._whole, "no map was loaded"
    sizes.clear()
    assert not huge.map.is_empty() and len(sizes) == 1


def test_a_large_map_is_never_loaded_for_its_entries(huge: Maps) -> None:
    for number in range(3_000):
        assert huge.map.get(number) == -number
        huge.map.put(number, number)
    assert not huge.map._whole
    huge.end()
    huge.backend.scope.enter(0)
    assert sum(huge.map.values()) == sum(range(3_000))


def test_entries_that_were_only_read_are_evicted(huge: Maps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_states, "_LOADED_BYTES_MAX", 200 * huge.map.table.row_bytes)
    for number in range(3_000):
        assert huge.map.get(number) == -number
        assert len(huge.map._entries.get("a", ())) <= 200
