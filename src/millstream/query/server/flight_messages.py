"""Whether a message of Arrow Flight is packed, told by its first bytes, before anybody unpacks it.

A batch may be compressed inside, and then a few megabytes become many gigabytes while Arrow reads them. A message is a
protobuf, `FlightData`: a descriptor (1), the head of an Arrow message (2), metadata (3), and the body (1000), which
comes last. The head is a flatbuffer that says whether the buffers in the body are compressed. Messages of other kinds
have no body of that number and are none of our business.

A message comes in pieces of any size, and every byte of it is looked at once: only the head is kept until it is whole.
"""

from __future__ import annotations

import struct

__all__ = ["Unpacked"]

_HEAD, _BODY = 2, 1000
_NUMBER, _BYTES = 0, 2
_DICTIONARY, _BATCH = 2, 3
_NUMBER_BITS_MAX = 70


class Unpacked:
    """One message of `size` bytes, as it comes.

    >>> message = Unpacked(4)
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
        """Whether it is packed, now that this piece has come; None if more of it must be seen.

        ValueError for what is no message of Flight.
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
        """A field has said its number, or how long it is."""
        assert self._tag is not None
        field, kind = self._tag >> 3, self._tag & 7
        self._tag = None
        if kind == _NUMBER:
            return False
        if kind != _BYTES or value > self._left:
            raise ValueError("no message of Flight")
        if field == _BODY:
            if value != self._left:
                raise ValueError("something comes behind the body")
            return True
        self._content_left = value
        self._head = bytearray() if field == _HEAD else None
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
    """Whether the head of an Arrow message says so. What is no such head has nothing to say, and Arrow refuses it."""
    try:
        message = struct.unpack_from("<I", head)[0]
        kind = _field(head, message, 1)
        kind_number = head[kind] if kind else 0
        content = _table(head, _field(head, message, 2))
        if kind_number == _DICTIONARY:
            content = _table(head, _field(head, content, 1))
        elif kind_number != _BATCH:
            return False
        return _field(head, content, 3) != 0
    except (struct.error, IndexError):
        return False


def _table(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a table is; 0 if it has none."""
    start = table - int(struct.unpack_from("<i", data, table)[0])
    size = int(struct.unpack_from("<H", data, start)[0])
    if 4 + 2 * number >= size:
        return 0
    offset = int(struct.unpack_from("<H", data, start + 4 + 2 * number)[0])
    return table + offset if offset else 0
