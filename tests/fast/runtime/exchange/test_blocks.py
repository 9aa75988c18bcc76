"""Blocks and envelopes: decoded without a copy and with aligned numbers, whatever shares their column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.plain import PROGRAMS

from millstream.common import Types
from millstream.common.typeinfo import TypeInformation
from millstream.records.batch import Batch
from millstream.runtime.exchange.blocks import ALIGNED, STORED, decode_block, encode_block
from millstream.runtime.exchange.messages import (
    ACKNOWLEDGEMENT,
    BARRIER,
    DATA,
    Acknowledgement,
    Barrier,
    ChannelEnd,
    Envelope,
    open_envelopes,
    seal,
)
from millstream.runtime.task.local import LocalRunner
from millstream.testing import Collect, run


def columns(count: int) -> Batch:
    numbers = pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], names=["value"])
    return Batch.of_columns(numbers, Types.LONG())


def untyped(count: int) -> Batch:
    return Batch(None, count, ["x" * n for n in range(count)], None, None)


def neighbours(data: pa.Buffer) -> list[Envelope]:
    """The block among all other values that a column of payloads may hold."""
    barrier = Barrier(3, 1, "a-nonce-of-some-length", (ChannelEnd(0, 1, 2, 3, 4),)).encode()
    own = Acknowledgement(0, 1, "nonce", output=[["stdout", "ä line"]]).encode()
    pickled = encode_block([untyped(5)], ALIGNED)
    kinds: list[tuple[int, pa.Buffer]] = [(DATA, pickled), (BARRIER, barrier), (ACKNOWLEDGEMENT, own)]
    return [Envelope(0, kind, payload) for kind, payload in (*kinds, (DATA, data), *kinds, (DATA, data))]


def test_payloads_are_decoded_in_place_with_aligned_numbers() -> None:
    rows = seal(neighbours(encode_block([columns(100)], ALIGNED)))
    column = rows.column(rows.num_columns - 1).buffers()[2]
    opened = list(open_envelopes(rows))
    for envelope in opened:
        assert column.address <= envelope.payload.address
        assert envelope.payload.address + envelope.payload.size <= column.address + column.size
    for envelope in (opened[3], opened[7]):
        [batch] = decode_block(envelope.payload, Types.LONG())
        numbers = batch.columns().column(0)
        assert numbers.to_pylist() == list(range(100))
        assert numbers.buffers()[1].address % 8 == 0 and numbers.to_numpy().flags.aligned


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_rows_are_decoded_in_every_form_that_spark_sends(kind: pa.DataType) -> None:
    rows = seal(neighbours(encode_block([columns(3)], ALIGNED)))
    whole = [envelope.payload.to_pybytes() for envelope in open_envelopes(rows)]
    last = rows.num_columns - 1
    sent = rows.set_column(last, "payload", rows.column(last).cast(kind))
    assert [envelope.payload.to_pybytes() for envelope in open_envelopes(sent.slice(2, 4))] == whole[2:6]
    assert list(open_envelopes(sent.slice(0, 0))) == []


def test_envelopes_without_a_payload_are_decoded() -> None:
    empty = Envelope(1, DATA, pa.py_buffer(b""))
    assert [e.payload.size for batch in (seal([empty]), seal([empty, empty])) for e in open_envelopes(batch)] == [0] * 3


def test_the_length_of_every_payload_is_a_multiple_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Envelope] = []

    class Recorder(LocalRunner):
        def _task(self, *args: Any) -> Iterator[Envelope]:
            for envelope in super()._task(*args):
                sent.append(envelope)
                yield envelope

    monkeypatch.setattr("millstream.testing.in_memory.LocalRunner", Recorder)
    run(lambda env: PROGRAMS["untyped and typed"].add(env, Collect()), parallelism=3)
    assert {envelope.kind for envelope in sent} == {DATA, BARRIER, ACKNOWLEDGEMENT}
    assert {envelope.payload.size % 8 for envelope in sent} == {0}
    leads = {envelope.payload[0:8].to_pybytes() for envelope in sent if envelope.kind == DATA}
    assert leads == {ALIGNED + b"A", ALIGNED + b"P"}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.booleans(), st.sampled_from([STORED, ALIGNED]))
def test_a_stored_or_sent_block_is_decoded_to_its_records(counts: list[int], typed: bool, lead: bytes) -> None:
    make: Any = columns if typed else untyped
    batches = [make(count) for count in counts]
    type_info: TypeInformation | None = Types.LONG() if typed else None
    block = encode_block(batches, lead)
    assert bytes(block[0:1].to_pybytes()) == (b"\0" if lead else b"A" if typed else b"P")
    assert not lead or block.size % 8 == 0
    decoded = [value for batch in decode_block(block, type_info) for value in batch.values()]
    assert decoded == [value for batch in batches for value in batch.values()]


def test_small_parts_of_a_batch_partitioned_twice_are_sent_as_one_batch() -> None:
    whole = columns(5_000)
    crumbs = [whole.slice(start, 50) for start in range(0, 5_000, 50)]
    [joined] = decode_block(encode_block(crumbs, ALIGNED), Types.LONG())
    assert joined.values() == whole.values()
    large = [columns(5_000), columns(5_000)]
    assert [len(batch) for batch in decode_block(encode_block(large, ALIGNED), Types.LONG())] == [5_000, 5_000]
