"""Parses an Arrow Flight connection as far as the gate needs: its calls and their sizes.

Flight is gRPC, and gRPC is HTTP/2: frames that belong to streams, one stream per call, and the data of a stream
consists of messages with a length prefix. So the first five bytes of a message reveal its size. Pure: takes bytes and
the time, and returns or raises refusals, with the frames that report them to the client.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

from millstream.query.server.settings import Limits
from millstream.query.wire.refusals import MalformedError, SlowRequestError, TooLargeError, TooManyError, answer_to

__all__ = ["PREFACE", "CallRefusal", "Calls", "Frame", "Frames", "PackingCheck", "refusal_frames"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES = 9
_PREFIX_BYTES = 5
_DATA, _HEADERS, _RESET, _GOAWAY = 0, 1, 3, 7
_END_STREAM, _END_HEADERS, _PADDED = 0x1, 0x4, 0x8
_MESSAGE_HEAD, _MESSAGE_BODY = 2, 1000
_NUMBER, _BYTES = 0, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_NUMBER_BITS_MAX = 70
_CALLS_MAX = 100
_LONGEST_FACTOR = 10
_BEGINNING_BYTES_MAX = 2 << 20
_PACKED = "compressed messages and batches are not accepted: their size is unknown. Send them uncompressed."


@dataclass(frozen=True)
class Frame:
    """The head of a frame."""

    kind: int
    flags: int
    stream: int


class Frames:
    """Splits one direction of a connection, received in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._frame = Frame(0, 0, 0)
        self._left = 0

    @property
    def is_between(self) -> bool:
        """Whether the last frame is complete and no further one has begun."""
        return not self._head and not self._left

    def of(self, data: memoryview) -> Iterator[tuple[Frame, memoryview, bool]]:
        """Frame, piece of its content, and whether that was its last piece.

        >>> ping = bytes([0, 0, 2, 6, 0, 0, 0, 0, 0]) + b"ab"
        >>> frames = Frames()
        >>> [(frame.kind, bytes(piece), last) for part in (ping[:10], ping[10:]) for frame, piece, last in \
        frames.of(memoryview(part))]
        [(6, b'a', False), (6, b'b', True)]
        """
        at = 0
        while at < len(data):
            if not self._left:
                part = data[at : at + _HEAD_BYTES - len(self._head)]
                self._head += part
                at += len(part)
                if len(self._head) < _HEAD_BYTES:
                    return
                self._left = int.from_bytes(self._head[:3])
                stream = int.from_bytes(self._head[5:]) & 0x7FFFFFFF
                self._frame = Frame(self._head[3], self._head[4], stream)
                self._head.clear()
                if not self._left:
                    yield self._frame, data[:0], True
                continue
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            yield self._frame, piece, not self._left


class PackingCheck:
    """Detects from the first bytes whether a message of `size` bytes is compressed, before it is decompressed.

    The buffers of a batch may be compressed, and a few megabytes may expand to many gigabytes while Arrow reads them. A
    message is a protobuf, `FlightData`: a descriptor (1), the head of an Arrow message (2), metadata (3), and the body
    (1000), which is last. The head is a flatbuffer that records whether the buffers in the body are compressed.
    Messages of other kinds have no body with that number, and are ignored. A message arrives in pieces of any size, and
    every byte of it is examined once: only the head is buffered until it is complete.

    >>> message = PackingCheck(4)
    >>> message.is_packed(bytes([10, 2])), message.is_packed(b"ab")
    (None, False)
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._number, self._shift = 0, 0
        self._tag: int | None = None
        self._content_left = 0
        self._head: bytearray | None = None
        self._packed = False
        self.seen_bytes = 0

    def is_packed(self, piece: bytes | memoryview) -> bool | None:
        """Whether the message is compressed, given this piece; None if more is needed.

        Raises ValueError for data that is not a Flight message.
        """
        at = 0
        self.seen_bytes += len(piece)
        while at < len(piece):
            if self._content_left:
                at += self._take(piece[at : at + self._content_left])
                continue
            byte = piece[at]
            at, self._left = at + 1, self._left - 1
            self._number |= (byte & 127) << self._shift
            self._shift += 7
            if byte >= 128:
                if self._shift >= _NUMBER_BITS_MAX:
                    raise ValueError("a number without an end")
                continue
            number, self._number, self._shift = self._number, 0, 0
            if self._tag is None:
                self._tag = number
            elif self._begins_body(number):
                return self._packed
        return None if self._left > 0 else self._packed

    def _begins_body(self, value: int) -> bool:
        """Handles a complete field number or length; returns whether the body begins."""
        assert self._tag is not None
        field, kind = self._tag >> 3, self._tag & 7
        self._tag = None
        if kind == _NUMBER:
            return False
        if kind != _BYTES or value > self._left:
            raise ValueError("not a Flight message")
        if field == _MESSAGE_BODY:
            if value != self._left:
                raise ValueError("there is data after the body")
            return True
        self._content_left = value
        self._head = bytearray() if field == _MESSAGE_HEAD else None
        return False

    def _take(self, content: bytes | memoryview) -> int:
        size = len(content)
        self._left -= size
        self._content_left -= size
        if self._head is not None:
            self._head += content
            if not self._content_left:
                self._packed = self._packed or _is_compressed(bytes(self._head))
                self._head = None
        return size


def _is_compressed(head: bytes) -> bool:
    """Whether the head of an Arrow message is compressed. Arrow itself rejects any other data."""
    try:
        message = struct.unpack_from("<I", head)[0]
        kind = _flatbuffer_field(head, message, 1)
        kind_number = head[kind] if kind else 0
        content = _flatbuffer_table(head, _flatbuffer_field(head, message, 2))
        if kind_number == _DICTIONARY_BATCH:
            content = _flatbuffer_table(head, _flatbuffer_field(head, content, 1))
        elif kind_number != _RECORD_BATCH:
            return False
        return _flatbuffer_field(head, content, 3) != 0
    except (struct.error, IndexError):
        return False


def _flatbuffer_table(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


def _flatbuffer_field(data: bytes, table: int, number: int) -> int:
    """The offset of a table's field; 0 if it has none."""
    start = table - int(struct.unpack_from("<i", data, table)[0])
    size = int(struct.unpack_from("<H", data, start)[0])
    if 4 + 2 * number >= size:
        return 0
    offset = int(struct.unpack_from("<H", data, start + 4 + 2 * number)[0])
    return table + offset if offset else 0


class CallRefusal(Exception):
    """The call on `stream`, or the whole connection, is refused."""

    def __init__(self, error: Exception, stream: int = 0, is_answered: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.stream, self.is_answered = error, stream, is_answered


@dataclass
class _Call:
    stream: int
    begun_s: float
    touched_s: float
    is_complete: bool = False  # the client has sent everything
    is_answered: bool = False  # the server has begun to answer
    prefix: bytearray = field(default_factory=bytearray)
    message: PackingCheck | None = None  # not known yet to be uncompressed
    left: int = 0
    question_bytes: int = 0


class Calls:
    """The open calls of one connection. `wait_s` returns how long its client must wait before the next."""

    def __init__(self, limits: Limits, wait_s: Callable[[float], float] = lambda now_s: 0.0) -> None:
        self._limits, self._wait_s = limits, wait_s
        self._open: dict[int, _Call] = {}

    def __len__(self) -> int:
        return len(self._open)

    def note_question(self, frame: Frame, piece: memoryview, is_last: bool, now_s: float) -> None:
        """Processes a frame of the client, or a piece of one; raises CallRefusal if a limit is exceeded."""
        call = self._open.get(frame.stream)
        if frame.kind == _HEADERS and call is None:
            call = self._open[frame.stream] = _Call(frame.stream, now_s, now_s)
            if len(self._open) > _CALLS_MAX:
                raise _refused(call, TooManyError(f"{_CALLS_MAX} calls are open on one connection. End some of them."))
            if self._wait_s(now_s):
                per_s = self._limits.requests_per_s
                raise _refused(
                    call, TooManyError(f"calls come faster than {per_s:g} a second. Request more in one call.")
                )
        if call is None:
            return
        if frame.kind == _DATA:
            if frame.flags & _PADDED:
                raise _refused(call, MalformedError("padded frames are not accepted. Use a Flight client."))
            call.touched_s = now_s
            self._count(call, piece)
        if frame.kind == _RESET and is_last:
            del self._open[frame.stream]
        elif frame.kind in (_DATA, _HEADERS) and is_last and frame.flags & _END_STREAM:
            call.is_complete = True

    def note_answer(self, frame: Frame, is_last: bool, now_s: float) -> None:
        """Processes a frame of the server, or a piece of one."""
        call = self._open.get(frame.stream)
        if call is None:
            return
        call.touched_s = now_s
        call.is_answered = call.is_answered or frame.kind == _HEADERS
        if is_last and (frame.kind == _RESET or (frame.kind in (_DATA, _HEADERS) and frame.flags & _END_STREAM)):
            del self._open[frame.stream]

    def check_time(self, now_s: float) -> None:
        """Raises CallRefusal for a call whose questions do not arrive, or whose answers are not read."""
        patience_s = self._limits.request_timeout_s
        for call in self._open.values():
            silent_s = now_s - call.touched_s
            if not call.is_complete and (silent_s > patience_s or now_s - call.begun_s > _LONGEST_FACTOR * patience_s):
                raise _refused(
                    call, SlowRequestError(f"the question of the call was not complete within {patience_s:g} s.")
                )
            if silent_s > self._limits.unread_timeout_s:
                raise _refused(call, SlowRequestError("the answer of the call was not read."))

    def _count(self, call: _Call, piece: memoryview) -> None:
        at, most = 0, self._limits.flight_message_bytes_max
        while at < len(piece):
            if call.left:
                part = piece[at : at + call.left]
                call.left -= len(part)
                at += len(part)
                _inspect(call, part)
                continue
            part = piece[at : at + _PREFIX_BYTES - len(call.prefix)]
            call.prefix += part
            at += len(part)
            if len(call.prefix) < _PREFIX_BYTES:
                return
            if call.prefix[0]:
                # Compressed, a few bytes can expand to gigabytes.
                raise _refused(call, MalformedError(_PACKED))
            call.left = int.from_bytes(call.prefix[1:])
            call.message = PackingCheck(call.left)
            call.question_bytes += call.left
            call.prefix.clear()
            if call.left > most:
                message = f"a message has {call.left} bytes, of {most} at most. Send the keys in several batches."
                raise _refused(call, TooLargeError(message))
            if call.question_bytes > self._limits.flight_call_bytes_max:
                message = f"a call has more than {self._limits.flight_call_bytes_max} bytes. Use several."
                raise _refused(call, TooLargeError(message))


def _inspect(call: _Call, part: memoryview) -> None:
    if call.message is None:
        return
    try:
        packed = call.message.is_packed(part)
    except ValueError as error:
        raise _refused(call, MalformedError(f"a message is none of Flight: {error}. Use a Flight client.")) from error
    if packed:
        raise _refused(call, MalformedError(_PACKED))
    if packed is not None:
        call.message = None
    elif call.message.seen_bytes > _BEGINNING_BYTES_MAX:
        message = f"a question has more than {_BEGINNING_BYTES_MAX} bytes. Send many keys in batches, by do_exchange."
        raise _refused(call, TooLargeError(message))


def _refused(call: _Call, error: Exception) -> CallRefusal:
    return CallRefusal(error, call.stream, call.is_answered)


_STATUS = {400: 3, 408: 4, 413: 8, 429: 14}


def refusal_frames(refusal: CallRefusal) -> bytes:
    """The frames that end the call, in gRPC's terms, and then the connection."""
    answer = answer_to(refusal.error)
    sentence = f"{answer.message} [{answer.code}]"
    fields = [
        ("grpc-status", str(_STATUS.get(answer.status, 2))),
        ("grpc-message", quote(sentence, safe=" !\"#$&'()*+,/:;")),
    ]
    if not refusal.is_answered:
        fields.insert(0, ("content-type", "application/grpc"))
    block = b"" if refusal.is_answered else b"\x88"  # :status 200, by its number in HTTP/2's table
    block += b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields)
    frames = b""
    if refusal.stream:
        # The answer is complete, and further client data is not read: in HTTP/2 that is a reset without an error.
        frames = _frame(_HEADERS, _END_STREAM | _END_HEADERS, refusal.stream, block)
        frames += _frame(_RESET, 0, refusal.stream, bytes(4))
    return frames + _frame(_GOAWAY, 0, 0, refusal.stream.to_bytes(4) + bytes(4))


def _text(text: str) -> bytes:
    """A header string, with its length prefix of at least seven bits."""
    data = text.encode("ascii")
    length, more = len(data), bytearray()
    if length < 127:
        return bytes([length]) + data
    length -= 127
    while length >= 128:
        more.append(length & 127 | 128)
        length >>= 7
    return bytes([127, *more, length]) + data


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content
