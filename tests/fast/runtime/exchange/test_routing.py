"""Records reach their receivers in order, whether receivers are few or many."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.typeinfo import Types
from millstream.graph.field_key import FieldKey
from millstream.records.batch import Batch
from millstream.runtime.exchange import routing
from millstream.runtime.exchange.routing import Keying, _scatter, first_turn
from millstream.runtime.operators.user_code import UserCall


def batch_of(numbers: list[int], *, is_typed: bool) -> Batch:
    return Batch.of_values(numbers, Types.LONG() if is_typed else None, np.array(numbers, dtype=np.int64) * 10)


@given(st.lists(st.integers(0, 2), min_size=1), st.booleans(), st.sampled_from([3, 300, 70_000]))
def test_few_and_many_receivers_get_their_records_in_order(targets: list[int], is_typed: bool, receivers: int) -> None:
    batch = batch_of(list(range(len(targets))), is_typed=is_typed)
    for few in (0, 4):
        with patch.object(routing, "_RECEIVERS_FEW", few):
            pieces = list(_scatter(batch, np.array(targets, dtype=np.int32), receivers))
        assert [target for target, _ in pieces] == sorted(set(targets))
        for target, piece in pieces:
            expected_rows = [number for number, wanted in enumerate(targets) if wanted == target]
            assert piece.values() == expected_rows and piece.timestamps is not None
            assert piece.timestamps.tolist() == [10 * number for number in expected_rows]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string()])
def test_keys_to_group_are_those_of_the_store(kind: pa.DataType) -> None:
    types = {pa.int64(): Types.LONG(), pa.float64(): Types.DOUBLE(), pa.string(): Types.STRING()}
    row_type = Types.ROW_NAMED(["key"], [types[kind]])
    column = pa.array([1, 0, -1, None, 1], pa.int64()).cast(kind)
    if pa.types.is_floating(kind):
        column = pa.array([1.5, -0.0, float("nan"), None, 0.0])
    batch = Batch.of_columns(pa.record_batch([column], names=["key"]), row_type)
    keying = Keying(FieldKey("key", 0), types[kind], UserCall("op", "op", ""))
    later, now = keying.column_to_group(batch), keying.column(batch)
    rows = np.array([3, 1, 1, 0, 2])
    assert later.take(rows).hashes.tolist() == now.hashes[rows].tolist()
    assert later.hashes.tolist() == now.hashes.tolist() and str(later.array) == str(now.array)


@pytest.mark.parametrize("receivers", [1, 2, 3, 8, 31])
def test_every_receiver_begins_an_epoch_within_a_bounded_number_of_epochs(receivers: int) -> None:
    for start in range(1, 40 * receivers, 7):
        epochs = range(start, start + 2 * receivers - 1)
        assert {first_turn(1, epoch, receivers) for epoch in epochs} == set(range(receivers))


@pytest.mark.parametrize("stride", [2, 3, 4, 7, 8, 16])
@pytest.mark.parametrize("receivers", [2, 3, 8])
def test_receivers_take_turns_when_only_every_few_epochs_have_records(receivers: int, stride: int) -> None:
    epochs = range(1, stride * 16 * receivers, stride)
    assert {first_turn(0, epoch, receivers) for epoch in epochs} == set(range(receivers))


@given(st.lists(st.integers(1, 20), min_size=1), st.integers(1, 9), st.integers(0, 3), st.integers(1, 50))
def test_round_robin_is_even_and_sends_each_batch_in_receiver_order(
    lengths: list[int], receivers: int, sender: int, epoch: int
) -> None:
    route = routing._deal(range(receivers), sender, epoch)
    counts = [0] * receivers
    for length in lengths:
        pieces = list(route(batch_of(list(range(length)), is_typed=True)))
        assert [target for target, _ in pieces] == sorted({target for target, _ in pieces})
        assert [value for _, piece in pieces for value in piece.values()] == list(range(length))
        for target, piece in pieces:
            counts[target] += len(piece)
    assert max(counts) - min(counts) <= 1
