"""The doorkeeper of Flight finds the same calls and messages in whatever pieces they come."""

from __future__ import annotations

import io
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.query.server.flight_frames import CallRefusal, Calls, Frame, Frames, PackingCheck, refusal_frames
from millstream.query.server.settings import Limits

LIMITS = Limits(flight_message_bytes_max=50, request_timeout_s=10.0, unread_timeout_s=30.0)
DATA, HEADERS, RESET = 0, 1, 3
END = 1


def frame(kind: int, stream: int, content: bytes = b"", flags: int = 0) -> bytes:
    return len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content


def message(size: int) -> bytes:
    """A message of this size, as full as a text can make it."""
    content = bytes([10, size - 2]) + bytes(size - 2) if size > 1 else b""
    return b"\0" + len(content).to_bytes(4) + content


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def ask(calls: Calls, *parts: bytes, now_s: float = 0.0) -> None:
    frames = Frames()
    for part in parts:
        for one, piece, is_last in frames.of(memoryview(part)):
            calls.note_question(one, piece, is_last, now_s)


FRAMES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.binary(max_size=9), st.integers(0, 255)))
CUTS = st.lists(st.integers(0, 10_000), max_size=9)


@given(FRAMES, CUTS)
def test_frames_are_the_same_in_whatever_pieces_they_come(
    sent: list[tuple[int, int, bytes, int]], cuts: list[int]
) -> None:
    data = b"".join(frame(*one) for one in sent)
    frames, found, content = Frames(), [], b""
    for part in pieces(data, cuts):
        for one, piece, is_last in frames.of(memoryview(part)):
            content += piece
            if is_last:
                found.append((one, content))
                content = b""
    assert found == [(Frame(kind, flags, stream), content) for kind, stream, content, flags in sent]
    assert frames.is_between


@given(st.lists(st.integers(0, 60), min_size=1, max_size=4), CUTS, CUTS)
def test_a_message_is_too_large_in_whatever_pieces_it_comes(
    sizes: list[int], frame_cuts: list[int], cuts: list[int]
) -> None:
    body = b"".join(message(size) for size in sizes)
    sent = frame(HEADERS, 1) + b"".join(frame(DATA, 1, part) for part in pieces(body, frame_cuts))
    calls = Calls(LIMITS)
    if max(sizes) <= 50:
        ask(calls, *pieces(sent, cuts))
        assert len(calls) == 1
        return
    with pytest.raises(CallRefusal, match="of 50 at most"):
        ask(calls, *pieces(sent, cuts))


def test_a_message_is_refused_by_its_length_before_any_of_it_has_come() -> None:
    with pytest.raises(CallRefusal) as caught:
        ask(Calls(LIMITS), frame(HEADERS, 7) + frame(DATA, 7, b"\0" + (10**9).to_bytes(4)))
    assert caught.value.stream == 7


def test_a_call_of_many_messages_is_bounded_whatever_is_in_them() -> None:
    calls = Calls(Limits(flight_message_bytes_max=50, flight_call_bytes_max=120))
    ask(calls, frame(HEADERS, 1) + frame(DATA, 1, message(50) * 2))
    with pytest.raises(CallRefusal, match="more than 120 bytes"):
        ask(calls, frame(DATA, 1, message(50)))


def test_a_message_that_would_grow_when_it_is_unpacked_is_refused() -> None:
    with pytest.raises(CallRefusal, match="compressed"):
        ask(Calls(LIMITS), frame(HEADERS, 1) + frame(DATA, 1, b"\1" + message(5)[1:]))


TEXTS = pa.array(["a" * 100] * 20)


@pytest.mark.parametrize(
    "column", [TEXTS, pa.array(range(99)), TEXTS.dictionary_encode()], ids=["texts", "numbers", "d"]
)
@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_batches_that_arrow_has_compressed_are_known_by_their_beginning(column: pa.Array, codec: str | None) -> None:
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([column], ["key"])
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    found = []
    for one in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        data = proto(1, b"a descriptor") + proto(2, one.metadata.to_pybytes()) + proto(1000, one.body.to_pybytes())
        assert is_packed(data, len(data)) == is_packed(data, 1), "in whatever pieces it comes"
        found.append((one.type, is_packed(data, len(data))))
    assert found == [(kind, codec is not None and kind != "schema") for kind, _ in found]
    assert found[-1][0] == "record batch"


def is_packed(data: bytes, piece_bytes: int) -> bool | None:
    """What is said of a message that comes in such pieces, as soon as something is."""
    message = PackingCheck(len(data))
    for start in range(0, len(data), piece_bytes):
        packed = message.is_packed(data[start : start + piece_bytes])
        if packed is not None:
            return packed
    return None


def test_every_byte_of_a_message_is_looked_at_once_in_however_many_pieces_it_comes() -> None:
    class Counted(bytes):
        looked = 0

        def __getitem__(self, place: Any) -> Any:
            Counted.looked += len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1
            return super().__getitem__(place)

    data = proto(1, bytes(50_000)) + proto(2, bytes(50_000)) + proto(1000, b"a")
    message = PackingCheck(len(data))
    for start in range(0, len(data), 10):
        message.is_packed(Counted(data[start : start + 10]))
    assert Counted.looked <= len(data)


def proto(field: int, content: bytes) -> bytes:
    return b"".join(varint(number) for number in (field << 3 | 2, len(content))) + content


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


@given(st.binary(max_size=30))
def test_whatever_a_message_is_it_is_packed_or_not_or_none_of_flight(data: bytes) -> None:
    with suppress(ValueError):
        assert is_packed(data, 1) in (True, False, None)
        assert is_packed(data, 1) == is_packed(data, 7)


def test_calls_that_come_too_fast_are_refused() -> None:
    with pytest.raises(CallRefusal, match="faster than 5"):
        ask(Calls(Limits(requests_per_s=5), lambda now_s: 1.0), frame(HEADERS, 1))


def test_calls_end_by_their_answer_or_by_a_reset() -> None:
    calls = Calls(LIMITS)
    ask(calls, frame(HEADERS, 1) + frame(HEADERS, 3) + frame(DATA, 1, message(3), END))
    assert len(calls) == 2
    calls.note_answer(Frame(HEADERS, END, 1), True, 0.0)
    ask(calls, frame(RESET, 3, bytes(4)))
    assert len(calls) == 0


def test_a_call_has_its_time_to_be_asked_and_another_to_be_answered() -> None:
    calls = Calls(LIMITS)
    ask(calls, frame(HEADERS, 1) + frame(DATA, 1, message(3)))
    calls.check_time(9.0)
    with pytest.raises(CallRefusal, match="within 10 s"):
        calls.check_time(11.0)
    ask(calls, frame(DATA, 1, b"", END), now_s=11.0)
    calls.check_time(40.0)
    calls.note_answer(Frame(DATA, 0, 1), False, 40.0)
    calls.check_time(60.0)
    with pytest.raises(CallRefusal, match="not read"):
        calls.check_time(71.0)


def test_questions_that_drip_for_ever_are_given_up() -> None:
    calls = Calls(LIMITS)
    ask(calls, frame(HEADERS, 1))
    for second in range(0, 100, 5):
        ask(calls, frame(DATA, 1, message(0)), now_s=second)
        calls.check_time(second)
    ask(calls, frame(DATA, 1, message(0)), now_s=101.0)
    with pytest.raises(CallRefusal):
        calls.check_time(101.0)


def test_a_refusal_is_said_in_whole_frames_that_end_the_call() -> None:
    with pytest.raises(CallRefusal) as caught:
        ask(Calls(LIMITS), frame(HEADERS, 5) + frame(DATA, 5, b"\0" + (51).to_bytes(4)))
    frames = Frames()
    said = [
        (one.kind, one.stream, bytes(piece)) for one, piece, _ in frames.of(memoryview(refusal_frames(caught.value)))
    ]
    assert [(kind, stream) for kind, stream, _ in said] == [(HEADERS, 5), (RESET, 5), (7, 0)]
    assert b"too-large" in said[0][2] and frames.is_between
