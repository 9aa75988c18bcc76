"""The Flight gateway detects the same calls and messages for any fragmentation of the byte stream."""

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
    """A message of this size, with the longest possible text."""
    content = bytes([10, size - 2]) + bytes(size - 2) if size > 1 else b""
    return b"\0" + len(content).to_bytes(4) + content


def fragments(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def ask(calls: Calls, *parts: bytes, now_s: float = 0.0) -> None:
    frames = Frames()
    for part in parts:
        for ipc_message, piece, is_last in frames.of(memoryview(part)):
            calls.note_question(ipc_message, piece, is_last, now_s)


FRAMES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.binary(max_size=9), st.integers(0, 255)))
CUTS = st.lists(st.integers(0, 10_000), max_size=9)


@given(FRAMES, CUTS)
def test_frames_do_not_depend_on_fragmentation(sent: list[tuple[int, int, bytes, int]], cuts: list[int]) -> None:
    data = b"".join(frame(*ipc_message) for ipc_message in sent)
    frames, messages_seen, content = Frames(), [], b""
    for part in fragments(data, cuts):
        for ipc_message, piece, is_last in frames.of(memoryview(part)):
            content += piece
            if is_last:
                messages_seen.append((ipc_message, content))
                content = b""
    assert messages_seen == [(Frame(kind, flags, stream), content) for kind, stream, content, flags in sent]
    assert frames.is_between


@given(st.lists(st.integers(0, 60), min_size=1, max_size=4), CUTS, CUTS)
def test_the_message_size_limit_does_not_depend_on_fragmentation(
    sizes: list[int], frame_cuts: list[int], cuts: list[int]
) -> None:
    body = b"".join(message(size) for size in sizes)
    sent = frame(HEADERS, 1) + b"".join(frame(DATA, 1, part) for part in fragments(body, frame_cuts))
    calls = Calls(LIMITS)
    if max(sizes) <= 50:
        ask(calls, *fragments(sent, cuts))
        assert len(calls) == 1
        return
    with pytest.raises(CallRefusal, match="of 50 at most"):
        ask(calls, *fragments(sent, cuts))


def test_an_oversized_message_is_rejected_by_its_length_prefix() -> None:
    with pytest.raises(CallRefusal) as caught:
        ask(Calls(LIMITS), frame(HEADERS, 7) + frame(DATA, 7, b"\0" + (10**9).to_bytes(4)))
    assert caught.value.stream == 7


def test_a_call_of_many_messages_is_bounded_for_any_content() -> None:
    calls = Calls(Limits(flight_message_bytes_max=50, flight_call_bytes_max=120))
    ask(calls, frame(HEADERS, 1) + frame(DATA, 1, message(50) * 2))
    with pytest.raises(CallRefusal, match="more than 120 bytes"):
        ask(calls, frame(DATA, 1, message(50)))


def test_a_compressed_message_that_would_expand_is_rejected() -> None:
    with pytest.raises(CallRefusal, match="compressed"):
        ask(Calls(LIMITS), frame(HEADERS, 1) + frame(DATA, 1, b"\1" + message(5)[1:]))


TEXTS = pa.array(["a" * 100] * 20)


@pytest.mark.parametrize(
    "column", [TEXTS, pa.array(range(99)), TEXTS.dictionary_encode()], ids=["texts", "numbers", "d"]
)
@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_batches_compressed_by_arrow_are_detected_by_their_header(column: pa.Array, codec: str | None) -> None:
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([column], ["key"])
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    messages_seen = []
    for ipc_message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        data = (
            proto(1, b"a descriptor")
            + proto(2, ipc_message.metadata.to_pybytes())
            + proto(1000, ipc_message.body.to_pybytes())
        )
        assert is_packed(data, len(data)) == is_packed(data, 1), "for any fragmentation"
        messages_seen.append((ipc_message.type, is_packed(data, len(data))))
    assert messages_seen == [(kind, codec is not None and kind != "schema") for kind, _ in messages_seen]
    assert messages_seen[-1][0] == "record batch"


def is_packed(data: bytes, fragment_bytes: int) -> bool | None:
    """The verdict on a message that arrives in fragments, as soon as there is one."""
    message = PackingCheck(len(data))
    for start in range(0, len(data), fragment_bytes):
        packed = message.is_packed(data[start : start + fragment_bytes])
        if packed is not None:
            return packed
    return None


def test_every_byte_of_a_message_is_inspected_at_most_once_for_any_fragmentation() -> None:
    class Counted(bytes):
        inspected_bytes = 0

        def __getitem__(self, place: Any) -> Any:
            Counted.inspected_bytes += len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1
            return super().__getitem__(place)

    data = proto(1, bytes(50_000)) + proto(2, bytes(50_000)) + proto(1000, b"a")
    message = PackingCheck(len(data))
    for start in range(0, len(data), 10):
        message.is_packed(Counted(data[start : start + 10]))
    assert Counted.inspected_bytes <= len(data)


def proto(field: int, content: bytes) -> bytes:
    return b"".join(varint(number) for number in (field << 3 | 2, len(content))) + content


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


@given(st.binary(max_size=30))
def test_any_message_is_compressed_uncompressed_or_not_a_flight_message(data: bytes) -> None:
    with suppress(ValueError):
        assert is_packed(data, 1) in (True, False, None)
        assert is_packed(data, 1) == is_packed(data, 7)


def test_calls_above_the_rate_limit_are_rejected() -> None:
    with pytest.raises(CallRefusal, match="faster than 5"):
        ask(Calls(Limits(requests_per_s=5), lambda now_s: 1.0), frame(HEADERS, 1))


def test_calls_end_by_their_response_or_by_a_reset() -> None:
    calls = Calls(LIMITS)
    ask(calls, frame(HEADERS, 1) + frame(HEADERS, 3) + frame(DATA, 1, message(3), END))
    assert len(calls) == 2
    calls.note_answer(Frame(HEADERS, END, 1), True, 0.0)
    ask(calls, frame(RESET, 3, bytes(4)))
    assert len(calls) == 0


def test_request_and_response_of_a_call_have_separate_timeouts() -> None:
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


def test_slowly_sent_requests_time_out() -> None:
    calls = Calls(LIMITS)
    ask(calls, frame(HEADERS, 1))
    for second in range(0, 100, 5):
        ask(calls, frame(DATA, 1, message(0)), now_s=second)
        calls.check_time(second)
    ask(calls, frame(DATA, 1, message(0)), now_s=101.0)
    with pytest.raises(CallRefusal):
        calls.check_time(101.0)


def test_a_rejection_is_sent_in_complete_frames_that_end_the_call() -> None:
    with pytest.raises(CallRefusal) as caught:
        ask(Calls(LIMITS), frame(HEADERS, 5) + frame(DATA, 5, b"\0" + (51).to_bytes(4)))
    frames = Frames()
    verdict = [
        (ipc_message.kind, ipc_message.stream, bytes(piece))
        for ipc_message, piece, _ in frames.of(memoryview(refusal_frames(caught.value)))
    ]
    assert [(kind, stream) for kind, stream, _ in verdict] == [(HEADERS, 5), (RESET, 5), (7, 0)]
    assert b"too-large" in verdict[0][2] and frames.is_between
