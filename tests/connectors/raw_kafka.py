"""Kafka messages as raw protocol bytes, for messages that no client writes: header names that are not UTF-8."""

from __future__ import annotations

import socket
import struct
import time

__all__ = ["produce_with_headers"]

_PRODUCE, _VERSION = 0, 3
_TIMEOUT_MS = 30_000


def produce_with_headers(bootstrap: str, topic: str, value: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Append one message to partition 0 of a topic, and wait for the broker's response."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    batch = _batch(value, headers)
    partition = struct.pack(">iii", 1, 0, len(batch)) + batch
    body = struct.pack(">hhii", -1, 1, _TIMEOUT_MS, 1) + name + partition
    request = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1) + body
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    # The correlation id, one topic with its name, one partition with its number, and its error.
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + len(name) + 4 + 4)
    assert error == 0, f"Kafka refused the message: error {error}"


def _batch(value: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    parts = [b"\0", _varint(0), _varint(0), _varint(-1), _sized(value), _varint(len(headers))]
    parts += [_sized(name) + _sized(content) for name, content in headers]
    record = _sized(b"".join(parts))
    now_ms = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    rest = struct.pack(">ibI", -1, 2, _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    rest, written = (number << 1) ^ (number >> 31), bytearray()
    while rest > 127:
        written.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*written, rest])


def _crc32c(data: bytes) -> int:
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF
