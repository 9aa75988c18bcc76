"""State schema evolution: stored values are read as the declared type, or the change is rejected."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.changing_types import Change, changes, maybe, types, values

from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import StateSchemaError, StoreDamagedError
from millstream.records.columns import from_record_batch, to_record_batch
from millstream.records.unpickling import unpickled
from millstream.runtime.keyed.declared_states import task_codec
from millstream.state.schemas.evolution import Evolution, IncompatibleChange, Same, plan_projection, project
from millstream.state.schemas.evolution_reference import evolved_value
from millstream.state.schemas.saved_types import type_from, written_type
from millstream.state.schemas.state_schemas import last_schemas, stored_tables
from millstream.state.segments import compaction
from millstream.state.segments.compaction import plan_full_compaction
from millstream.state.segments.open_segments import OpenSegments, WholeFile
from millstream.state.segments.segment_footer import read_footer
from millstream.state.segments.segment_merge import compact
from millstream.state.segments.version import SegmentRef, refs_from_json
from millstream.state.stored.accounts import StoredTables
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables import state_table
from millstream.state.tables.state_table import StateTable, TableSetting
from millstream.storage.local import LocalStore
from millstream.storage.memory import MemoryStore

_STORES = itertools.count()
COMPATIBILITY = Path(__file__).resolve().parents[3] / "compatibility"


def normal(kind: TypeInformation) -> TypeInformation:
    return type_from(written_type(kind), "a test")


def column_of(held: list[Any], kind: TypeInformation) -> pa.Array:
    return to_record_batch([(value,) for value in held], Types.TUPLE([kind])).column(0)


def values_of(column: pa.Array, kind: TypeInformation) -> list[Any]:
    batch = pa.RecordBatch.from_arrays([column], names=["f0"])
    return [value for (value,) in from_record_batch(batch, Types.TUPLE([kind]), unpickled)]


# --- columns against the reference ------------------------------------------------------------------------------


@given(st.data())
@settings(deadline=None)
def test_projecting_a_column_equals_converting_each_value(data: st.DataObject) -> None:
    change: Change = data.draw(types().flatmap(changes))
    held = data.draw(st.lists(maybe(change.old), max_size=6))
    column = column_of(held, change.old)
    cut = data.draw(st.integers(0, len(held)))
    plan = plan_projection(change.old, change.new, Evolution(change.renames, change.defaults))
    projected = project(column.slice(cut), plan)
    projected.validate(full=True)
    expected = [evolved_value(value, change.old, change.new, change.renames, change.defaults) for value in held[cut:]]
    assert values_of(projected, change.new) == values_of(column_of(expected, change.new), change.new)


@given(types(3))
@settings(deadline=None)
def test_a_type_survives_a_round_trip_through_json(kind: TypeInformation) -> None:
    assert written_type(normal(kind)) == written_type(kind)
    assert isinstance(plan_projection(normal(kind), normal(kind), Evolution()), Same)


# --- tables: several changes in a row, segments of all ages, compaction or not ----------------------------------


class Table:
    """One state through several runs of a program, each of which may declare it differently."""

    def __init__(self) -> None:
        self.segments = OpenSegments(MemoryStore(f"evolution-{next(_STORES)}"))
        self.refs: tuple[SegmentRef, ...] = ()
        self.stored = StoredTables({})
        self.epoch, self.now_ms = 0, 1_000

    def declare(
        self,
        kind: TypeInformation,
        evolution: Evolution | None = None,
        ttl_ms: int | None = None,
        serializer: Any = None,
    ) -> None:
        codec = task_codec(kind, "state 'total' of 'count-words'", serializer)
        self.table = StateTable("total", Types.STRING(), 128, codec, ttl_ms=ttl_ms, evolution=evolution or Evolution())

    def run(self, puts: dict[str, Any], *, whole: bool = False, deleted: str = "") -> dict[str, Any]:
        """An epoch; returns the values of all keys before it sets some. `whole`: everything is compacted when it
        ends.
        """
        self.epoch += 1
        self.now_ms += 10
        schemas = last_schemas([self.stored])
        nonce = f"n{self.epoch}"
        setting = TableSetting("uid", self.epoch, 0, nonce, range(128), self.now_ms, self.segments, schemas=schemas)
        self.table.begin(setting, self.refs)
        keys = [chr(97 + number) for number in range(8)]
        seen = {key: value for key, value in zip(keys, self.table.read(keys), strict=True) if value is not None}
        self.table.put(list(puts), list(puts.values()))
        self.table.delete(list(deleted))
        self.refs = self.table.end()
        if whole and self.refs:
            step = plan_full_compaction(self.refs)
            assert step is not None
            name = f"segments/whole-{self.epoch}.arrow"
            layout = self.table.layout
            self.refs = compact(self.segments, layout, self.refs, step, self.now_ms, name=name, epoch=self.epoch)
        self.stored = stored_tables({"total": self.refs}, schemas, {"total": self.table.schema})
        return seen

    @property
    def entries(self) -> int:
        return len(self.stored.schemas.get("total", ()))


@pytest.mark.slow
@given(st.data())
@settings(deadline=None)
def test_values_read_are_the_result_of_each_change_with_or_without_compaction(data: st.DataObject) -> None:
    kind = data.draw(types(1))
    table, expected = Table(), {}
    steps = [Change(kind, kind)]
    for _ in range(data.draw(st.integers(1, 3))):
        steps.append(data.draw(changes(steps[-1].new)))
    for change in steps:
        table.declare(change.new, Evolution(change.renames, change.defaults))
        projection = (change.old, change.new, change.renames, change.defaults)
        expected = {key: evolved_value(value, *projection) for key, value in expected.items()}
        for _ in range(data.draw(st.integers(1, 2))):
            puts = data.draw(st.dictionaries(st.sampled_from("abcd"), values(change.new), max_size=3))
            codec = task_codec(change.new, "expected")
            assert table.run(puts, whole=data.draw(st.booleans())) == _settled(codec, expected)
            expected |= puts


def _settled(codec: StateCodec, held: dict[str, Any]) -> dict[str, Any]:
    return {key: codec.settle(value) for key, value in held.items()}


ROW = Types.ROW_NAMED
WORD = ROW(["word"], [Types.STRING()])
COUNTED = ROW(["word", "count"], [Types.STRING(), Types.LONG()])


def test_a_dropped_field_added_again_is_not_revived() -> None:
    for whole in (False, True):
        table = Table()
        table.declare(COUNTED)
        table.run({"a": ("x", 5)})
        table.declare(WORD)
        table.run({"b": ("y",)}, whole=whole)
        table.declare(COUNTED)
        seen = table.run({})
        assert [tuple(row) for row in seen.values()] == [("x", None), ("y", None)], whole


def test_a_stored_default_is_unaffected_by_removing_or_changing_the_default() -> None:
    for whole in (False, True):
        table = Table()
        table.declare(WORD)
        table.run({"a": ("x",)})
        table.declare(COUNTED, Evolution(defaults={"count": 7}))
        table.run({"b": ("y", 1)}, whole=whole)
        table.declare(COUNTED, Evolution(defaults={"count": 9}))
        assert [row["count"] for row in table.run({}).values()] == [7, 1], whole


def test_a_history_is_dropped_when_no_segment_needs_it() -> None:
    table = Table()
    table.declare(Types.INT())
    table.run({"a": 1})
    table.declare(Types.LONG())
    table.run({"b": 2})
    assert table.entries == 2
    table.run({}, whole=True)
    assert table.entries == 1
    table.declare(Types.BIG_INT())
    assert table.run({}) == {"a": 1, "b": 2}


def test_segments_are_opened_once_for_any_number_of_epochs_that_read_them_through_a_change() -> None:
    table = Table()
    table.declare(Types.INT())
    table.run({"a": 1})
    table.declare(Types.LONG())
    table.run({})
    opened = table.table.view.layers[0].segment
    for _ in range(3):
        table.run({})
        assert table.table.view.layers[0].segment is opened


# --- upgrade= ---------------------------------------------------------------------------------------------------


def test_an_upgrade_is_called_once_per_value_and_not_for_compacted_values() -> None:
    calls: list[int] = []

    def to_text(value: int) -> str:
        calls.append(value)
        return f"#{value}"

    table = Table()
    table.declare(Types.LONG())
    table.run({"a": 1, "b": 2})
    table.declare(Types.STRING(), Evolution(upgrade=to_text))
    assert table.run({"c": "new"}) == {"a": "#1", "b": "#2"}
    assert table.run({}) == {"a": "#1", "b": "#2", "c": "new"}
    assert sorted(calls) == [1, 2]
    table.run({}, whole=True)
    assert sorted(calls) == [1, 2]
    table.declare(Types.STRING())
    assert table.run({}) == {"a": "#1", "b": "#2", "c": "new"}


def test_an_upgrade_is_not_called_for_deleted_values() -> None:
    table = Table()
    table.declare(Types.LONG())
    table.run({"a": 1, "b": 2})
    table.run({"c": 3}, deleted="a")
    table.declare(Types.STRING(), Evolution(upgrade=lambda number: "abc"[number - 1]))
    assert table.run({}, whole=True) == {"b": "b", "c": "c"}
    assert table.run({}) == {"b": "b", "c": "c"}


@pytest.mark.parametrize("whole", [False, True], ids=["as they were", "compacted"])
def test_functions_for_several_old_types_are_chained(whole: bool) -> None:
    table = Table()
    table.declare(Types.LONG())
    table.run({"a": 5})
    table.declare(Types.STRING(), Evolution(upgrade=str))
    table.run({"b": "77"}, whole=whole)
    table.declare(
        Types.LIST(Types.STRING()),
        Evolution(upgrade={Types.LONG(): str, Types.STRING(): list}),
    )
    assert table.run({}) == {"a": ["5"], "b": ["7", "7"]}


def test_a_projection_after_an_upgrade_applies_to_the_upgraded_value() -> None:
    table = Table()
    table.declare(Types.LONG())
    table.run({"a": 5})
    upgrade = {Types.LONG(): lambda count: ("?", count)}
    table.declare(COUNTED, Evolution(upgrade=upgrade))
    table.run({})
    table.declare(ROW(["count", "name"], [Types.BIG_INT(), Types.STRING()]), Evolution({"word": "name"}, {}, upgrade))
    [row] = table.run({}).values()
    assert (row["count"], row["name"]) == (5, "?")


def test_an_upgrade_receives_rows_and_tuples_as_functions_do() -> None:
    received: list[Any] = []
    for kind, value in ((COUNTED, ("x", 1)), (Types.TUPLE([Types.LONG(), Types.LONG()]), (1, 2))):
        table = Table()
        table.declare(kind)
        table.run({"a": value})
        seen = table.run({})["a"]
        table.declare(Types.STRING(), Evolution(upgrade=lambda old: received.append(old) or "new"))
        table.run({})
        assert received[-1] == seen and type(received[-1]) is type(seen)


def test_an_exception_of_an_upgrade_names_the_state_and_the_value() -> None:
    table = Table()
    table.declare(Types.STRING())
    table.run({"a": "1", "b": "many"})
    table.declare(Types.LONG(), Evolution(upgrade=int))
    with pytest.raises(StateSchemaError, match=r"state 'total' of 'count-words': upgrade= raised ValueError.*'many'"):
        table.run({})


def test_a_missing_upgrade_still_needed_is_rejected_and_an_unneeded_one_may_be_dropped(monkeypatch: Any) -> None:
    def as_text(number: int) -> str:
        return f"number {number}"

    table = Table()
    table.declare(Types.LONG())
    table.run({"a": 5})
    table.declare(Types.STRING(), Evolution(upgrade=as_text))
    with monkeypatch.context() as patch:
        patch.setattr(state_table, "plan_rewriting", lambda refs, since: None)
        table.run({})
    table.declare(Types.STRING())
    with pytest.raises(
        StateSchemaError, match=r"still has values saved as int64, for which upgrade=.*as_text was given"
    ):
        table.run({})
    table.declare(Types.STRING(), Evolution(upgrade=as_text))
    table.run({})
    table.declare(Types.STRING())
    assert table.run({}) == {"a": "number 5"}


def test_an_upgrade_by_a_builtin_is_never_required_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(state_table, "plan_rewriting", lambda refs, since: None)
    table = Table()
    table.declare(Types.LONG())
    table.run({"a": 5})
    table.declare(Types.STRING(), Evolution(upgrade=str))
    table.run({})
    table.declare(Types.STRING())
    assert table.run({}) == {"a": "5"}


def test_values_upgraded_by_a_function_are_rewritten_gradually_over_epochs(monkeypatch: Any) -> None:
    calls: list[int] = []
    table = Table()
    table.declare(Types.LONG())
    for number in range(3):
        table.run({"abc"[number]: number})
    table.declare(Types.DOUBLE(), Evolution(upgrade=lambda number: calls.append(number) or -number / 2))
    upgraded_from = table.epoch + 1
    monkeypatch.setattr(compaction, "_PIECE_BYTES_MIN", 1)
    budget = sum(ref.file_bytes for ref in table.refs) // 3
    monkeypatch.setattr(
        state_table, "plan_rewriting", lambda refs, since: compaction.plan_rewriting(refs, since, budget)
    )
    epochs = 0
    while any(ref.epoch < upgraded_from for ref in table.refs):
        assert table.run({}) == {"a": 0.0, "b": -0.5, "c": -1.0}
        assert (epochs := epochs + 1) <= 8
    assert epochs > 1
    calls.clear()
    assert table.run({}) == {"a": 0.0, "b": -0.5, "c": -1.0} and not calls and table.entries == 1


def test_one_function_for_two_changes_is_rejected_with_advice_to_distinguish_them() -> None:
    table = Table()
    table.declare(Types.LONG())
    table.run({"a": 5})
    table.declare(Types.STRING(), Evolution(upgrade=str))
    table.run({})
    table.declare(Types.LIST(Types.STRING()), Evolution(upgrade=str))
    with pytest.raises(StateSchemaError, match=r"by upgrade=str, .* again: which function is for which\?"):
        table.run({})


def test_a_function_of_an_earlier_change_is_not_applied_to_a_later_one() -> None:
    table = Table()
    table.declare(Types.INT())
    table.run({"a": 5})
    table.declare(Types.LONG(), Evolution(upgrade=lambda number: -number))
    with pytest.raises(StateSchemaError, match=r"needs no function, and upgrade=.* Say the type that it is from"):
        table.run({})
    table.declare(Types.LONG(), Evolution(upgrade={Types.INT(): lambda number: -number}))
    assert table.run({}) == {"a": -5}


def test_changing_between_pickled_and_typed_state_requires_a_function() -> None:
    for old, new, value, upgraded in (
        (Types.PICKLED_BYTE_ARRAY(), Types.LONG(), {"n": 3}, 3),
        (Types.LONG(), Types.PICKLED_BYTE_ARRAY(), 3, {"n": 3}),
    ):
        table = Table()
        table.declare(old)
        table.run({"a": value})
        table.declare(new)
        with pytest.raises(StateSchemaError, match="pickles"):
            table.run({})
        table.declare(new, Evolution(upgrade=lambda old: old["n"] if isinstance(old, dict) else {"n": old}))
        assert table.run({}) == {"a": upgraded}


# --- serialisers ------------------------------------------------------------------------------------------------


class Numbered:
    """Encodes its version, to show which version wrote and which reads."""

    def __init__(self, version: int) -> None:
        self.version = version

    def serialize(self, value: Any) -> bytes:
        return f"{self.version}:{value}".encode()

    def deserialize(self, data: bytes, version: int) -> Any:
        wrote, _, value = data.decode().partition(":")
        assert int(wrote) == version <= self.version
        return value


@pytest.mark.parametrize("whole", [False, True], ids=["as they were", "compacted"])
def test_a_serializer_receives_the_version_that_wrote_the_value(whole: bool) -> None:
    table = Table()
    for version, key in ((1, "a"), (2, "b"), (4, "c")):
        table.declare(Types.PICKLED_BYTE_ARRAY(), serializer=Numbered(version))
        table.run({key: key.upper()}, whole=whole)
    assert table.run({}) == {"a": "A", "b": "B", "c": "C"}
    assert table.run({}, whole=True) == {"a": "A", "b": "B", "c": "C"}
    stored = table.table.view.layers[0].segment.chunk(0).values
    assert stored is not None
    assert sorted(table.segments.store.list("segments/"))
    table.run({})
    assert {value[:1] for value in table.table.view.layers[0].segment.chunk(0).values.to_pylist()} == {b"4"}


def test_an_older_serializer_is_rejected() -> None:
    table = Table()
    table.declare(Types.PICKLED_BYTE_ARRAY(), serializer=Numbered(3))
    table.run({"a": "A"})
    table.declare(Types.PICKLED_BYTE_ARRAY(), serializer=Numbered(2))
    with pytest.raises(StateSchemaError, match="by version 3 of its serializer, the program has version 2"):
        table.run({})


def test_replacing_a_serializer_by_a_type_requires_the_old_serializer() -> None:
    table = Table()
    table.declare(Types.PICKLED_BYTE_ARRAY(), serializer=Numbered(1))
    table.run({"a": "7"})
    table.declare(Types.LONG(), Evolution(upgrade=int))
    with pytest.raises(StateSchemaError, match=r"upgrade=\{OldSerializer\(\): function\}"):
        table.run({})
    table.declare(Types.LONG(), Evolution(upgrade={Numbered(1): int}))
    assert table.run({}) == {"a": 7}


# --- time to live -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True], ids=["as they were", "compacted"])
def test_with_a_new_ttl_existing_values_expire_from_the_change_on(whole: bool) -> None:
    table = Table()
    table.declare(Types.INT())
    table.run({"a": 1})
    table.now_ms += 1_000
    table.declare(Types.LONG(), ttl_ms=100)
    assert table.run({}, whole=whole) == {"a": 1}
    table.now_ms += 80
    assert table.run({}) == {"a": 1}
    assert table.run({}) == {}


@pytest.mark.parametrize("whole", [False, True], ids=["as they were", "compacted"])
def test_expired_values_stay_absent_after_the_ttl_is_removed(whole: bool) -> None:
    table = Table()
    table.declare(Types.LONG(), ttl_ms=100)
    table.run({"a": 1})
    table.now_ms += 85
    table.run({"b": 2}, whole=whole)
    table.now_ms += 5
    table.declare(Types.LONG())
    assert table.run({}) == {"b": 2}
    table.now_ms += 1_000
    assert table.run({}, whole=whole) == {"b": 2}
    assert table.run({}) == {"b": 2}


# --- rejected changes -------------------------------------------------------------------------------------------


VALUES: dict[str, Any] = {
    "LONG": 5,
    "INT": 5,
    "STRING": "x",
    "BIG_DEC": Decimal(5),
    "LIST<LONG>": [5],
    "MAP<LONG, LONG>": {1: 2},
    COUNTED.notation: ("x", 5),
}


@pytest.mark.parametrize(
    "old, new, message",
    [
        (Types.LONG(), Types.STRING(), r"was saved as int64, is now string\. Give it a new name, or pass upgrade=\."),
        (Types.LONG(), Types.DOUBLE(), "was saved as int64, is now double"),
        (Types.LONG(), Types.INT(), "was saved as int64, is now int32"),
        (Types.INT(), Types.FLOAT(), "was saved as int32, is now float"),
        (Types.STRING(), Types.CHAR(), "was saved as STRING, is now CHAR"),
        (Types.BIG_DEC(), Types.STRING(), "was saved as BIG_DEC, is now STRING"),
        (Types.LIST(Types.LONG()), Types.LIST(Types.STRING()), "was saved as int64, is now string"),
        (COUNTED, ROW(["count"], [Types.STRING()]), "field 'count' was saved as int64, is now string"),
        (COUNTED, ROW(["n"], [Types.LONG()]), r"the fields word, count, and has none of them now.*renames="),
        (
            Types.MAP(Types.LONG(), Types.LONG()),
            Types.MAP(Types.STRING(), Types.LONG()),
            "the keys of what it holds was saved as int64",
        ),
    ],
)
def test_an_incompatible_change_is_rejected_without_data_loss(old: Any, new: Any, message: str) -> None:
    table = Table()
    table.declare(old)
    table.run({"a": VALUES[old.notation]})
    before = table.run({})
    table.declare(new)
    with pytest.raises(StateSchemaError, match=f"state 'total' of 'count-words'.*{message}"):
        table.run({})
    table.declare(old)
    table.epoch += 1
    assert table.run({}) == before


@pytest.mark.parametrize(
    "evolution, message",
    [
        (Evolution(renames={"wrod": "name"}), r"renames= names the field 'wrod', but what was saved has count, word"),
        (Evolution(renames={"word": "nmae"}), "'word' is now 'nmae', but there is none of that name now"),
        (Evolution(renames={"word": "count"}), "'word' is now 'count', but 'count' is"),
        (Evolution(defaults={"plcae": 1}), "defaults= names the field 'plcae', but the type has"),
        (Evolution(defaults={"name": 1}), r"defaults= has 1 for the field 'name', which is STRING"),
    ],
)
def test_an_invalid_evolution_option_is_rejected(evolution: Evolution, message: str) -> None:
    with pytest.raises(IncompatibleChange, match=message):
        plan_projection(COUNTED, ROW(["name", "count"], [Types.STRING(), Types.LONG()]), evolution)


def test_an_old_rename_may_stay_in_the_program() -> None:
    old = ROW(["name", "count"], [Types.STRING(), Types.INT()])
    plan_projection(old, ROW(["name", "count"], [Types.STRING(), Types.LONG()]), Evolution({"word": "name"}))


def test_a_manifest_without_types_takes_the_state_type_from_its_files() -> None:
    table = Table()
    table.declare(ROW(["n", "big"], [Types.INT(), Types.BIG_INT()]))
    table.run({"a": (1, 2**70)})
    table.stored = StoredTables(table.stored.versions)
    table.declare(ROW(["n", "big"], [Types.LONG(), Types.BIG_INT()]))
    [row] = table.run({}).values()
    assert tuple(row) == (1, 2**70)
    assert table.entries == 2


def test_a_manifest_without_types_still_rejects_an_incompatible_change() -> None:
    refused: list[Callable[[Table], None]] = [
        lambda table: table.declare(Types.STRING()),
        lambda table: table.declare(Types.PICKLED_BYTE_ARRAY()),
    ]
    for declare in refused:
        table = Table()
        table.declare(Types.LONG())
        table.run({"a": 1})
        table.stored = StoredTables(table.stored.versions)
        declare(table)
        with pytest.raises(StateSchemaError, match="was saved as int64, is now"):
            table.run({})


# --- files ------------------------------------------------------------------------------------------------------


def test_a_footer_records_the_serializer_version() -> None:
    table = Table()
    table.declare(Types.PICKLED_BYTE_ARRAY(), serializer=Numbered(7))
    table.run({"a": "A"})
    [ref] = table.refs
    footer = read_footer(WholeFile(pa.py_buffer(table.segments.store.get(ref.file))), "the test")
    assert (footer.layout["serializer"], footer.layout["pickled"]) == (7, False)


def test_segments_of_an_older_version_are_read_as_a_wider_type() -> None:
    expected = json.loads((COMPATIBILITY / "segment-1.json").read_text())["total"]
    table = Table()
    table.segments = OpenSegments(LocalStore(COMPATIBILITY))
    table.refs, table.epoch, table.now_ms = refs_from_json(expected["refs"], "the fixture"), 2, 0
    table.declare(Types.BIG_DEC(), ttl_ms=1)
    assert table.run({}) == {key: value for key, value in expected["rows"] if key is not None}


def test_a_substituted_file_of_another_type_is_detected() -> None:
    table, other = Table(), Table()
    for one, old, value in ((table, Types.INT(), 1), (other, Types.STRING(), "1")):
        one.declare(old)
        one.run({"a": value})
    table.declare(Types.LONG())
    table.run({"b": 2})
    [ref] = other.refs
    table.segments.store.put(ref.file, other.segments.store.get(ref.file))
    table.refs, table.segments = (ref, *table.refs[1:]), OpenSegments(table.segments.store)
    with pytest.raises(StoreDamagedError, match="a segment with values of string, where the manifest has int32"):
        table.run({})
