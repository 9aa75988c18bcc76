"""Values of states and keys of batches: fast paths equal the plain ones."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Row, RowKind
from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import ProgramError, TypeMismatchError
from millstream.graph.field_key import FieldKey
from millstream.records.batch import Batch
from millstream.records.columns import as_declared, to_record_batch
from millstream.runtime.exchange.routing import Keying
from millstream.runtime.keyed.states import Scope, ValueHandle
from millstream.runtime.operators.user_code import UserCall
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.state_table import StateTable, TableSetting
from millstream.storage import open_store

NAMES = itertools.count()
PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])
NAMED = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])

longs = st.integers(-(2**63), 2**63 - 1)
typed_values = st.one_of(
    st.tuples(st.just(Types.LONG()), st.lists(st.none() | longs)),
    st.tuples(st.just(Types.STRING()), st.lists(st.none() | st.text())),
    st.tuples(st.just(Types.DOUBLE()), st.lists(st.none() | st.integers(-9, 9) | st.floats(allow_nan=False))),
    st.tuples(st.just(PAIR), st.lists(st.none() | st.tuples(st.none() | longs, st.none() | st.text()))),
    st.tuples(st.just(NAMED), st.lists(st.none() | st.builds(lambda a, b: Row(a=a, b=b), longs, st.text()))),
    st.tuples(st.just(Types.LIST(Types.LONG())), st.lists(st.none() | st.lists(longs))),
)


@settings(deadline=None)
@given(typed_values)
def test_encoding_a_state_column_equals_encoding_wrapped_values(
    typed_column: tuple[TypeInformation, list[Any]],
) -> None:
    type_info, values = typed_column
    codec, wrapped = StateCodec(type_info, "state 's'"), Types.TUPLE([type_info])
    column = codec.encode(values)
    assert column.equals(to_record_batch([(value,) for value in values], wrapped).column(0))
    assert column.type == codec.arrow_type
    assert codec.decode(column) == [value for (value,) in as_declared([(value,) for value in values], wrapped)]


@settings(deadline=None)
@given(typed_values)
def test_buffered_values_are_encoded_like_any_others(typed_column: tuple[TypeInformation, list[Any]]) -> None:
    type_info, values = typed_column
    codec = StateCodec(type_info, "state 's'")
    settled = [codec.settle(value) for value in values if value is not None]
    assert codec.encode_settled(settled).equals(codec.encode(settled))


def test_a_number_out_of_range_for_its_type_is_rejected_by_name_in_bulk_too() -> None:
    for type_info, value in ((Types.INT(), 2**40), (Types.TUPLE([Types.INT(), Types.LONG()]), (2**40, 1))):
        codec = StateCodec(type_info, "state 's'")
        with pytest.raises(TypeMismatchError, match="state 's'"):
            codec.encode_settled([codec.settle(value)])


@settings(deadline=None)
@given(st.none() | longs | st.text() | st.tuples(longs, st.text()) | st.tuples(longs) | st.tuples(longs, longs))
def test_a_buffered_value_equals_the_value_decoded_from_its_column(value: Any) -> None:
    codec = StateCodec(PAIR, "state 's'")
    try:
        stored = codec.decode(codec.encode([value]))
    except TypeMismatchError:
        with pytest.raises(TypeMismatchError, match="state 's'"):
            codec.settle(value)
    else:
        assert [codec.settle(value)] == stored


def test_a_row_with_a_row_kind_is_rejected_as_state() -> None:
    row = Row(a=1, b="x")
    row.set_row_kind(RowKind.DELETE)
    with pytest.raises(TypeMismatchError, match="kind INSERT"):
        StateCodec(NAMED, "state 's'").encode([row])


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | longs, st.text()) | st.none()), st.sampled_from([0, 1]))
def test_keys_extracted_as_a_column_equal_those_of_the_selector(records: list[Any], field: int) -> None:
    present = [record for record in records if record is not None]
    key_type = PAIR.get_field_types()[field]
    call = UserCall("count", "count", "job.py:1")
    by_column, by_call = Keying(FieldKey(field, field), key_type, call), Keying(lambda r: r[field], key_type, call)
    batch = Batch.of_columns(to_record_batch(present, PAIR), PAIR)
    table = StateTable("keys", key_type, 128, None)
    gathered, keys = by_column.gathered_keys(batch), by_call.values(batch)
    extracted = table.keys_of(gathered.column.array)
    assert extracted == keys
    assert list(map(type, extracted)) == list(map(type, keys))


class Values:
    """A `ValueState` over a store in memory, visit by visit and epoch by epoch; keys are 0 … 4."""

    def __init__(self) -> None:
        codec = StateCodec(Types.LONG(), "state 'total'")
        self.scope = Scope()
        self.table = StateTable("total", Types.LONG(), 128, codec)
        self.state = ValueHandle(self.table, self.scope, False, codec)
        self._segments = OpenSegments(open_store(f"memory://state-values-{next(NAMES)}"))
        self._epoch, self._refs = 0, ()
        self.begin()

    def begin(self) -> None:
        self._epoch += 1
        place = TableSetting("count", self._epoch, 0, f"n{self._epoch}", range(128), 0, self._segments)
        self.table.begin(place, self._refs)
        self.state.begin()

    def visit(self, keys: list[int]) -> None:
        self.table.settle()
        self.state.visit(self.table.column(keys))

    def leave(self) -> None:
        self.scope.leave()
        self.state.leave()

    def end(self) -> None:
        self.leave()
        self._refs = self.table.end()
        self.begin()


steps = st.lists(
    st.tuples(st.sampled_from(["read", "set", "clear", "visit", "end"]), st.integers(0, 4), longs), max_size=40
)


@settings(deadline=None)
@given(steps)
def test_a_value_state_equals_a_dictionary_for_any_visits_and_epochs(script: list[tuple[str, int, int]]) -> None:
    values, expected = Values(), dict[int, int]()
    values.visit(list(range(5)))
    for step, key, number in script:
        values.scope.enter(key)
        if step == "read":
            assert values.state.value() == expected.get(key)
        elif step == "set":
            values.state.update(number)
            expected[key] = number
        elif step == "clear":
            values.state.clear()
            expected.pop(key, None)
        else:
            if step == "end":
                values.end()
            else:
                values.leave()
            values.visit(list(range(5)))
    values.end()
    assert values.table.read(list(range(5))) == [expected.get(key) for key in range(5)]


def test_an_absent_key_that_is_cleared_leaves_no_tombstone() -> None:
    values = Values()
    values.visit([1, 2])
    values.scope.enter(0)
    values.state.update(7)
    values.end()
    values.visit([1, 2])
    values.scope.enter(1)
    assert values.state.value() is None
    values.state.clear()
    values.leave()
    assert not values.table.changes


def test_a_state_unused_by_a_visit_is_not_read() -> None:
    values = Values()
    values.visit([1])
    values.scope.enter(0)
    values.state.update(7)
    values.end()
    values.table.read_values = None  # type: ignore[assignment,method-assign]
    values.visit([1])
    values.end()
    assert not values.table.changes


@pytest.mark.parametrize("use", [lambda s: s.value(), lambda s: s.update(1), lambda s: s.clear()])
@pytest.mark.parametrize("visited", [False, True], ids=["before any visit", "between two keys"])
def test_state_outside_a_keyed_call_is_rejected(use: Any, visited: bool) -> None:
    values = Values()
    if visited:
        values.visit([1])
        values.scope.enter(0)
        values.state.update(7)
        values.scope.leave()
    with pytest.raises(ProgramError, match="outside a keyed call"):
        use(values.state)
