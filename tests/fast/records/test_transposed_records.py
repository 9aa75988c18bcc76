"""Records become columns some thousands at a time; where the cuts are can never be seen."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.typeinfo import Types
from millstream.errors import TypeMismatchError
from millstream.records import row_codec
from millstream.records.columns import encode_record_batch, from_record_batch, to_record_batch
from millstream.records.conformance import conform

PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])
ROW = Types.ROW_NAMED(["number", "text"], [Types.LONG(), Types.STRING()])
NESTED = Types.TUPLE([PAIR, Types.LIST(PAIR)])

pairs = st.none() | st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text(max_size=2))


@given(records=st.lists(pairs, max_size=12), piece=st.integers(1, 5))
def test_records_come_back_the_same_wherever_they_are_cut(records: list[Any], piece: int) -> None:
    with patch.object(row_codec, "_TRANSPOSED_MAX", piece):
        for type_info in (PAIR, ROW):
            expected = [conform(record, type_info) for record in records]
            assert from_record_batch(to_record_batch(records, type_info), type_info) == expected
        nested = [(record, [record, record]) for record in records]
        batch, kept = encode_record_batch(nested, NESTED)
        assert from_record_batch(batch, NESTED) == nested
        assert kept


@given(
    before=st.lists(st.just((1, "a")), max_size=6),
    odd=st.sampled_from([(1,), (), (1, "a", 2)]),
    piece=st.integers(1, 4),
)
def test_a_record_of_another_width_is_named_at_any_position(before: list[Any], odd: Any, piece: int) -> None:
    with patch.object(row_codec, "_TRANSPOSED_MAX", piece), pytest.raises(TypeMismatchError) as refusal:
        to_record_batch([*before, odd, (2, "b")], PAIR)
    assert refusal.value.value == odd


def test_records_that_all_have_another_width_are_refused() -> None:
    with pytest.raises(TypeMismatchError):
        to_record_batch([(1,), (2,)], PAIR)
