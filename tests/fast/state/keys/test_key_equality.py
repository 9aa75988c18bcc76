"""Key equality through the public API, in cases that once lost updates or killed jobs. The rule:
`keys.key_columns`.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from inputs.nested_keys import Account, Point, nan_of
from programs.keyed import PROGRAMS, TYPED_ONLY, Counts, counted, expected

from millstream import state_reader
from millstream.common import Row, RowKind, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import BroadcastProcessFunction, KeyedProcessFunction
from millstream.datastream.state import MapStateDescriptor
from millstream.errors import ProgramError
from millstream.query.wire.json_values import json_of_key, key_of_json, key_of_text
from millstream.query.wire.refusals import KeyMisfitError
from millstream.runtime.exchange.key_classes import decode_key
from millstream.state.keys.canonical import canonical_bytes, canonical_hash
from millstream.state.keys.canonical_decoding import ClassKey, decode
from millstream.state.keys.key_columns import key_column
from millstream.state.tables import map_keys
from millstream.testing import CRASH, EPOCH, Collect, Script, run

STORES = count()
NAN, OTHER_NAN = nan_of(0x7FF8 << 48), nan_of((0xFFF8 << 48) + 7)
PICKLED = Types.PICKLED_BYTE_ARRAY()

MIXED: dict[str, list[Any]] = {
    "an int, then a float": [1, 1.0, 2, 1.0],
    "an int, then a bool": [1, True, 1],
    "all kinds of numbers": [Decimal("1.0"), np.float32(1), 1, True, 1.0, np.int8(1), Decimal(1)],
    "zeros": [0, -0.0, 0.0, False],
    "lists, also inside": [[1, "a"], (1, "a"), Row(1.0, "a"), [True, "a"], (1, "a")],
    "NaN": [NAN, OTHER_NAN, 1, NAN, Decimal("NaN")],
    "inside of tuples": [(1, "a"), (1.0, "a"), Row(True, "a"), Point(1, "a"), (NAN, None), (OTHER_NAN, None)],
    "inside of classes": [Account(1), Account(True), Account(NAN), Account((OTHER_NAN,)), Account(OTHER_NAN)],
}


def script(keys: list[Any]) -> list[Any]:
    """The keys twice, in epochs, with a crash."""
    items = [(key,) for key in keys]
    return [*items, EPOCH, *items[:1], CRASH, *items[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("keys", MIXED.values(), ids=MIXED)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_equal_keys_of_mixed_types_are_one_key(keys: list[Any], parallelism: int) -> None:
    assert counted("process", script(keys), None, parallelism)[1] == expected(script(keys))


def test_a_list_equals_a_tuple_of_its_values_as_a_key_at_any_depth() -> None:
    lists = [[1, "a"], ["x", [2, [3.0]]], []]
    tuples: list[Any] = [(1, "a"), ("x", (2, (3,))), ()]
    assert key_column(lists, None).hashes.tolist() == [canonical_hash(key) for key in tuples]
    assert [canonical_bytes(key) for key in lists] == [canonical_bytes(key) for key in tuples]
    with pytest.raises(ProgramError, match="a dict, which can change"):
        canonical_bytes([{}])


def test_equal_local_times_of_different_instants_are_different_keys() -> None:
    """Half past two in the night in which summer time ends, twice."""
    autumn = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    keys = [autumn, autumn.replace(fold=1), (autumn,), (autumn.replace(fold=1),), autumn.astimezone(dt.UTC)]
    assert keys[0] == keys[1]
    items = [(key,) for key in keys]
    outputs, _ = counted("process", [*items, EPOCH, *items], None, 1)
    instants = [dt.datetime(2024, 10, 27, hour, 30, tzinfo=dt.UTC) for hour in (0, 1)]
    assert sorted(outputs, key=repr) == [
        *(((instant,), 2) for instant in instants),
        *zip(instants, (4, 2), strict=True),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_all_nan_bit_patterns_are_one_key_and_both_zeros_are_one_key(name: str) -> None:
    items = script([NAN, OTHER_NAN, math.nan, 0.0, -0.0])
    assert counted(name, items, Types.DOUBLE(), 2, other_parallelism=3)[1] == expected(items)
    if name not in TYPED_ONLY:
        assert counted(name, items, None, 2)[1] == expected(items)


def test_the_row_kind_is_not_part_of_a_key() -> None:
    keys = [Row("a", 1), Row.of_kind(RowKind.DELETE, "a", 1), EPOCH, Row.of_kind(RowKind.UPDATE_AFTER, "a", 1)]
    key_type = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        keyed = env.add_source(Script(keys)).key_by(lambda row: row, key_type)
        keyed.process(Counts(key_type)).sink_to(out)

    assert run(build)[out] == [(Row(word="a", n=1), 3)]


class Deletes(KeyedProcessFunction):
    """Sets a timer for the first record of a key and deletes it for the second."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        timers = ctx.timer_service()
        act = timers.register_event_time_timer if value[1] else timers.delete_event_time_timer
        act(10**9)
        yield repr(ctx.get_current_key())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield f"timer of {ctx.get_current_key()!r}"


@pytest.mark.parametrize(
    ("key_type", "first", "second", "seen"),
    [
        (None, 1.0, True, "1"),
        (None, (NAN, 2.0), (OTHER_NAN, 2), "(nan, 2)"),
        (Types.BIG_DEC(), Decimal("1.50"), Decimal("1.5"), "Decimal('1.5')"),
        (Types.ROW_NAMED(["a"], [Types.BIG_DEC()]), Row(Decimal("2.0")), Row(Decimal(2)), "Row(a=Decimal('2'))"),
        (Types.TUPLE([Types.DOUBLE()]), (-0.0,), (0.0,), "(0.0,)"),
    ],
    ids=repr,
)
def test_a_timer_is_deleted_in_a_later_epoch_by_an_equal_key_in_canonical_form(
    key_type: Any, first: Any, second: Any, seen: str
) -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        keyed = env.add_source(Script([(first, True), EPOCH, (second, False)])).key_by(lambda r: r[0], key_type)
        keyed.process(Deletes()).sink_to(out)

    assert run(build)[out] == [seen, seen]


# --- map keys -----------------------------------------------------------------------------------------------------


class Steps(KeyedProcessFunction):
    """Applies each record to a map and emits the content of the map. With `filled`, the map is a large one."""

    def __init__(self, key_type: Any, filled: int = 0) -> None:
        self._key_type, self._filled = key_type, filled

    def open(self, runtime_context: Any) -> None:
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", self._key_type, Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        act, map_key, number = value
        if act == "fill":
            self.map.put_all({f"filler {n}": n for n in range(self._filled)})
        elif act == "put":
            self.map.put(map_key, number)
        elif act == "remove":
            self.map.remove(map_key)
        elif act == "get":
            yield map_key in self.map, self.map.get(map_key)
        else:
            yield sorted((repr(k), v) for k, v in self.map.items() if "filler" not in repr(k))


def stepped(steps: list[Any], key_type: Any, filled: int = 0, store: str | None = None, **options: Any) -> list[Any]:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script(steps)).key_by(lambda _: 0).process(Steps(key_type, filled)).sink_to(out)

    return run(build, store=store, **options)[out]


HOME, DAY, PAIR = "".join(["ho", "me"]), dt.date(2024, 2, 29), ("b", 1)
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
EQUAL_MAP_KEYS = [
    (PICKLED, 1.0, True, "1"),
    (PICKLED, NAN, OTHER_NAN, "nan"),
    (PICKLED, (0.5, "ab", "".join(["a", "b"])), (Decimal("0.50"), "ab", "ab"), "(0.5, 'ab', 'ab')"),
    (PICKLED, Point("home", "home"), Point("home", HOME), "Point(x='home', y='home')"),
    (PICKLED, (Account("home"), "home"), (Account("home"), HOME), "(Account(number='home'), 'home')"),
    (PICKLED, Account("number"), Account("".join(["num", "ber"])), "Account(number='number')"),
    (PICKLED, Row(home="home"), Row(home=HOME), "Row(home='home')"),
    (PICKLED, Row(DAY, DAY), Row(DAY, dt.date(2024, 2, 29)), repr(Row(DAY, DAY))),
    (PICKLED, Account((PAIR, PAIR)), Account((PAIR, ("b", 1.0))), "Account(number=(('b', 1), ('b', 1)))"),
    (PICKLED, frozenset((0, 8)), frozenset((8.0, 0)), repr(frozenset((0, 8)))),
    (PICKLED, Account(frozenset((1,))), Account(frozenset((True,))), "Account(number=frozenset({1}))"),
    (PICKLED, NOON, NOON.astimezone(dt.timezone(dt.timedelta(hours=3))), repr(NOON)),
    (PICKLED, np.str_("a"), "a", "'a'"),
    (Types.DOUBLE(), NAN, OTHER_NAN, "nan"),
    (Types.DOUBLE(), -0.0, 0, "0.0"),
    (Types.TUPLE([Types.FLOAT(), Types.STRING()]), (NAN, "a"), (OTHER_NAN, "a"), "(nan, 'a')"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("key_type", "first", "second", "form"), EQUAL_MAP_KEYS, ids=repr)
@pytest.mark.parametrize("cuts", [(), (EPOCH,)], ids=["one epoch", "an epoch each"])
def test_equal_keys_of_a_map_are_one_entry(key_type: Any, first: Any, second: Any, form: str, cuts: Any) -> None:
    steps = [
        ("put", first, 1),
        ("get", second, 0),
        ("put", second, 2),
        ("all", 0, 0),
        ("remove", first, 0),
        ("all", 0, 0),
    ]
    script = [item for step in steps for item in (step, *cuts)]
    assert stepped(script, key_type) == [(True, 1), [(form, 2)], []]


@pytest.mark.parametrize("filled", [0, 600], ids=["a small map", "a large map"])
def test_map_keys_pickled_verbatim_by_older_releases_are_read_updated_and_removed(
    monkeypatch: pytest.MonkeyPatch, filled: int
) -> None:
    store = f"older-map-keys-{next(STORES)}"
    old = [("fill", 0, 0), ("put", 7.0, 1), ("put", True, 2), EPOCH]
    new = [
        ("get", 7, 0),
        ("get", 1.0, 0),
        ("put", 7, 5),
        EPOCH,
        ("all", 0, 0),
        EPOCH,
        ("remove", 1, 0),
        ("remove", 7.0, 0),
    ]
    everything = [*old, *new, EPOCH, ("get", 7, 0), ("get", True, 0), ("all", 0, 0)]
    with monkeypatch.context() as patch:
        patch.setattr(map_keys, "settled_map_key", lambda key: key)
        stepped(everything, PICKLED, filled, store, epochs=1)
    answers = stepped(everything, PICKLED, filled, store)
    assert answers == [(True, 1), (True, 2), [("1", 2), ("7", 5)], (False, None), (False, None), []]


def test_equal_keys_of_a_broadcast_state_are_one_entry() -> None:
    rules = MapStateDescriptor("rules", PICKLED, Types.LONG())
    out = Collect()

    class Lookup(BroadcastProcessFunction):
        def process_broadcast_element(self, value: Any, ctx: Any) -> None:
            ctx.get_broadcast_state(rules).put(*value)

        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            state = ctx.get_broadcast_state(rules)
            yield state.get(value), len(list(state.keys()))

    def build(env: StreamExecutionEnvironment) -> None:
        entries = [(1.0, 1), (NAN, 2), EPOCH, (True, 3), (OTHER_NAN, 4), EPOCH]
        broadcast_stream = env.add_source(Script(entries)).broadcast(rules)
        env.add_source(Script([EPOCH, EPOCH, EPOCH, 1, nan_of(0x7FF8 << 48)])).connect(broadcast_stream).process(
            Lookup()
        ).sink_to(out)

    assert run(build)[out] == [(3, 2), (4, 2)]


# --- query keys ---------------------------------------------------------------------------------------------------


def test_a_json_number_queries_the_key_that_it_equals() -> None:
    assert key_of_json(7.0, "LONG") == 7 and type(key_of_json(7.0, "LONG")) is int
    assert math.isnan(key_of_text("NaN", "PICKLED", "json")) and key_of_text("NaN", "PICKLED") == "NaN"
    with pytest.raises(KeyMisfitError, match=r"7\.5"):
        key_of_json(7.5, "LONG")


def test_a_client_encodes_rows_as_lists_and_preserves_non_finite_floats() -> None:
    row = Row(user="a", score=np.float64("nan"))
    assert str(json_of_key((row, True, -math.inf))) == "[['a', nan], True, -inf]"


@dataclass(frozen=True)
class Measurement:
    """Compares field by field, as dataclasses of newer Pythons do: an instance that contains NaN is not equal to
    itself.
    """

    number: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measurement) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


@pytest.mark.parametrize("kind", [Account, Measurement])
def test_a_key_unequal_to_itself_is_returned_as_one_object(kind: Any) -> None:
    first, second = decode_key(canonical_bytes(kind(NAN))), decode_key(canonical_bytes(kind(OTHER_NAN)))
    assert type(first) is kind and {first: 1}[second] == 1
    # A reader, which does not import the class, does not share a task's object for the same bytes, nor vice versa.
    shown = decode(canonical_bytes(kind(NAN)))
    assert isinstance(shown, ClassKey) and shown == decode(canonical_bytes(kind(OTHER_NAN)))


@pytest.mark.parametrize("key", [Row(None, 0), Row(1.5, 2), Row(x=1.5, at=2)])
def test_state_keyed_by_a_row_is_queried_by_the_row(key: Row) -> None:
    key_type, store = Types.ROW_NAMED(["x", "at"], [Types.DOUBLE(), Types.LONG()]), f"rows-{next(STORES)}"
    counted("process", [(key,), (key,)], key_type, 1, store=store)
    with state_reader.open(f"memory://{store}").at() as snapshot:
        assert [row["value"] for row in snapshot.read("counts", "count", key=key).to_pylist()] == [2]


def test_an_exception_in_a_key_class_is_not_reported_as_a_damaged_store() -> None:
    def of_class(name: str, values: tuple[Any, ...]) -> Any:
        raise ProgramError(f"{name} has other fields now")

    with pytest.raises(ProgramError, match="has other fields now"):
        decode(canonical_bytes((1, Account(2))), of_class)
