"""Whether a message of Arrow Flight is packed, told by its first bytes, before anybody unpacks it.

A batch may be compressed inside, and then a few megabytes become many gigabytes while Arrow reads them. A message is a
protobuf, `FlightData`: a descriptor (1), the head of an Arrow message (2), metadata (3), and the body (1000), which
comes last. The head is a flatbuffer that says whether the buffers in the body are compressed. Messages of other kinds
have no body of that number and are none of our business.
"""

from __future__ import annotations

import struct

__all__ = ["is_packed"]

_HEAD, _BODY = 2, 1000
_NUMBER, _BYTES = 0, 2
_DICTIONARY, _BATCH = 2, 3


def is_packed(beginning: bytes, size: int) -> bool | None:
    """Whether a message of `size` bytes that begins so is packed; None if more of it must be seen.

    ValueError for what is no message of Flight.

    >>> is_packed(bytes([10, 2]) + b"ab", 4), is_packed(bytes([10, 9]) + b"ab", 11)
    (False, None)
    """
    at, packed = 0, False
    try:
        while at < size:
            tag, at = _number(beginning, at)
            field, kind = tag >> 3, tag & 7
            value, at = _number(beginning, at)
            if kind == _NUMBER:
                continue
            if kind != _BYTES or at + value > size:
                raise ValueError("no message of Flight")
            if field == _BODY:
                if at + value != size:
                    raise ValueError("something comes behind the body")
                return packed
            if at + value > len(beginning):
                return None
            if field == _HEAD:
                packed = packed or _is_compressed(beginning[at : at + value])
            at += value
    except IndexError:
        return None
    return False


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A protobuf number, seven bits to a byte, and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("a number without an end")


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
