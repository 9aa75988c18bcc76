"""Reference implementation of xxhash64, one value at a time, with plain Python integers.

Tests compare `hashing` with it on random columns, and both with Spark's `xxhash64`. It feeds values to XXH64 as Spark
does: booleans, integers of up to 32 bits, dates and floats as four bytes, longer numbers and timestamps as eight,
strings and bytes unchanged. A null leaves the seed unchanged, and the hash of one element is the seed of the next. It
rejects nothing: only `hashing` decides which types can be keys.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

__all__ = ["hash_bytes", "hash_int", "hash_long", "hash_value", "micros_of", "twos_complement"]

PRIME_1 = 0x9E3779B185EBCA87
PRIME_2 = 0xC2B2AE3D27D4EB4F
PRIME_3 = 0x165667B19E3779F9
PRIME_4 = 0x85EBCA77C2B2AE63
PRIME_5 = 0x27D4EB2F165667C5
_MASK = 0xFFFFFFFFFFFFFFFF

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_SPARK_LONG_DIGITS_MAX = 18
_EXACT = decimal.Context(prec=100)  # Arrow's widest decimal has 76 digits: nothing is rounded.
_NAN32, _NAN64 = 0x7FC00000, 0x7FF8000000000000


def _rotate_left(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate_left((lane + word * PRIME_2) & _MASK, 31) * PRIME_1 & _MASK


def _avalanche(h: int) -> int:
    """Mix the last bits into the whole word and return it as a signed 64-bit number."""
    h = (h ^ (h >> 33)) * PRIME_2 & _MASK
    h = (h ^ (h >> 29)) * PRIME_3 & _MASK
    h ^= h >> 32
    return h - (1 << 64) if h >> 63 else h


def hash_int(value: int, seed: int) -> int:
    """The hash of a 32-bit integer.

    >>> hash_int(1, 42)
    -6698625589789238999
    """
    h = (seed + PRIME_5 + 4) & _MASK
    h ^= (value & 0xFFFFFFFF) * PRIME_1 & _MASK
    return _avalanche(_rotate_left(h, 23) * PRIME_2 + PRIME_3 & _MASK)


def hash_long(value: int, seed: int) -> int:
    """The hash of a 64-bit integer.

    >>> hash_long(1, 42)
    -7001672635703045582
    """
    h = (seed + PRIME_5 + 8) & _MASK
    h ^= _round(0, value & _MASK)
    return _avalanche(_rotate_left(h, 27) * PRIME_1 + PRIME_4 & _MASK)


def _stripes(data: bytes, seed: int) -> int:
    """The four lanes of the whole 32-byte stripes of `data`, merged into one word."""
    lanes = [(seed + PRIME_1 + PRIME_2) & _MASK, (seed + PRIME_2) & _MASK, seed & _MASK, (seed - PRIME_1) & _MASK]
    for words in struct.iter_unpack("<4Q", data[: len(data) // 32 * 32]):
        lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
    h = sum(_rotate_left(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in lanes:
        h = ((h ^ _round(0, lane)) * PRIME_1 + PRIME_4) & _MASK
    return h


def hash_bytes(data: bytes, seed: int) -> int:
    """The hash of a run of bytes, such as a string's UTF-8 form.

    >>> hash_bytes(b"Spark", 42)
    -4294468057691064905
    """
    h = _stripes(data, seed) if len(data) >= 32 else (seed + PRIME_5) & _MASK
    h = (h + len(data)) & _MASK
    at, whole_words = len(data) // 32 * 32, len(data) // 8 * 8
    for (word,) in struct.iter_unpack("<Q", data[at:whole_words]):
        h = (_rotate_left(h ^ _round(0, word), 27) * PRIME_1 + PRIME_4) & _MASK
    tail = data[whole_words:]
    if len(tail) >= 4:
        h ^= int.from_bytes(tail[:4], "little") * PRIME_1 & _MASK
        h = (_rotate_left(h, 23) * PRIME_2 + PRIME_3) & _MASK
        tail = tail[4:]
    for byte in tail:
        h = _rotate_left(h ^ (byte * PRIME_5 & _MASK), 11) * PRIME_1 & _MASK
    return _avalanche(h)


def twos_complement(value: int) -> bytes:
    """The shortest big-endian two's complement form, as Java's `BigInteger.toByteArray` writes it.

    >>> twos_complement(0), twos_complement(-1), twos_complement(128)
    (b'\\x00', b'\\xff', b'\\x00\\x80')
    """
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def micros_of(value: dt.datetime | dt.timedelta | dt.time) -> int:
    """Microseconds since 1970 (of a point in time), since midnight (of a time of day), or of a duration."""
    if isinstance(value, dt.timedelta):
        return value // _MICROSECOND
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return (value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND


def _hash_float(value: float, bits: int, seed: int) -> int:
    # Adding 0.0 turns -0.0 into 0.0 and keeps every other value.
    if bits == 32:
        pattern = _NAN32 if math.isnan(value) else struct.unpack("<I", struct.pack("<f", value + 0.0))[0]
        return hash_int(pattern, seed)
    pattern = _NAN64 if math.isnan(value) else struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
    return hash_long(pattern, seed)


def _hash_decimal(value: decimal.Decimal, arrow_type: pa.DataType, seed: int) -> int:
    unscaled = int(_EXACT.scaleb(value, arrow_type.scale))
    if arrow_type.precision <= _SPARK_LONG_DIGITS_MAX:
        return hash_long(unscaled, seed)
    return hash_bytes(twos_complement(unscaled), seed)


def _chain(values: Iterable[tuple[Any, pa.DataType]], seed: int) -> int:
    for value, arrow_type in values:
        seed = hash_value(value, arrow_type, seed)
    return seed


def hash_value(value: Any, arrow_type: pa.DataType, seed: int = 42) -> int:
    """The hash of one Python value in a column of `arrow_type`.

    >>> hash_value("Spark", pa.string())
    -4294468057691064905
    """
    t = pa.types
    if value is None:
        return seed
    if t.is_int64(arrow_type):
        return hash_long(value, seed)
    if t.is_boolean(arrow_type) or t.is_signed_integer(arrow_type):
        return hash_int(int(value), seed)
    if t.is_floating(arrow_type):
        return _hash_float(value, arrow_type.bit_width, seed)
    if t.is_decimal(arrow_type):
        return _hash_decimal(value, arrow_type, seed)
    if t.is_date32(arrow_type):
        return hash_int(value.toordinal() - _EPOCH.toordinal(), seed)
    if t.is_time64(arrow_type):
        return hash_long(micros_of(value) * 1_000, seed)
    if t.is_timestamp(arrow_type) or t.is_duration(arrow_type):
        return hash_long(micros_of(value), seed)
    if t.is_struct(arrow_type):
        return _chain(((value[field.name], field.type) for field in arrow_type), seed)
    if t.is_map(arrow_type):
        kinds = (arrow_type.key_type, arrow_type.item_type)
        return _chain(((part, kind) for entry in value for part, kind in zip(entry, kinds, strict=True)), seed)
    if t.is_list(arrow_type) or t.is_large_list(arrow_type) or t.is_fixed_size_list(arrow_type):
        return _chain(((item, arrow_type.value_type) for item in value), seed)
    return hash_bytes(value.encode() if isinstance(value, str) else bytes(value), seed)
