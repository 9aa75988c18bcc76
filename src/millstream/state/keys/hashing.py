"""Key hashes: `xxhash64` of an Arrow column, bit for bit what Spark SQL's `xxhash64(column)` gives.

The JVM, a Python task and a remote query client must send one key to one place, so the hash is Spark's and
not ours to improve. The invariant: for every type accepted here, `xxhash64_column(array)` equals Spark's
`xxhash64` over the same column (a test asks Spark), and equals `hashing_reference` value by value.

    bool, int8, int16, int32, date32    four bytes (true is 1, a date its days since 1970)
    int64                               eight bytes
    timestamp, duration                 eight bytes: microseconds, finer parts dropped as Spark does
    time                                eight bytes: nanoseconds since midnight
    float32, float64                    their four or eight bytes; -0.0 is 0.0, every NaN is the same NaN
    decimal128                          up to 18 digits eight bytes, more: the shortest big-endian bytes
    string, binary                      their bytes
    struct, list                        element after element, each hash the seed of the next
    null, anywhere                      leaves the seed as it is

It refuses what Spark cannot hash (maps) and what Spark does not have (unsigned integers, wider decimals, views).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.errors import ProgramError
from millstream.state.keys.xxh64 import Int64s, UInt64s, hash_byte_runs, hash_ints, hash_longs

__all__ = ["SEED", "xxhash64_column"]

SEED = 42
"""The seed Spark's `xxhash64` starts from."""

_BLOCK_ROWS = 16_384
"""Rows hashed at once: few enough that the temporary arrays stay in the processor's cache."""

_SPARK_LONG_DIGITS_MAX = 18
_MICROSECONDS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOSECONDS_PER = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def xxhash64_column(array: pa.Array, seed: int | Int64s = SEED) -> Int64s:
    """Spark's `xxhash64` of every value of `array`.

    `seed` is one number for all rows or an array with one per row: passing the hashes of one column as the
    seeds of the next gives the hash of the two together.

    >>> xxhash64_column(pa.array(["Spark", None]))
    array([-4294468057691064905,                   42])
    >>> columns = (pa.array(["Spark"]), pa.array([[123]], pa.list_(pa.int32())), pa.array([2], pa.int32()))
    >>> hashes = SEED
    >>> for column in columns:  # SELECT xxhash64('Spark', array(123), 2)
    ...     hashes = xxhash64_column(column, hashes)
    >>> hashes
    array([5602566077635097486])
    """
    rows = len(array)
    seeds = (
        np.full(rows, seed, dtype=np.int64) if isinstance(seed, int) else np.ascontiguousarray(seed, dtype=np.int64)
    ).view(np.uint64)
    hashes = np.empty(rows, dtype=np.uint64)
    for start in range(0, rows, _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        hashes[block] = _hash(array.slice(start, _BLOCK_ROWS), seeds[block])
    return hashes.view(np.int64)


def _hash(array: pa.Array, seeds: UInt64s) -> UInt64s:
    """The hashes of an array of at least one row; nulls keep their seed."""
    if not len(array) or array.null_count == len(array):
        return seeds.copy()
    hashes = _hash_valid(array, seeds)
    if array.null_count:
        np.copyto(hashes, seeds, where=array.is_null().to_numpy(zero_copy_only=False))
    return hashes


def _hash_valid(array: pa.Array, seeds: UInt64s) -> UInt64s:
    """The hashes of an array as if no row were null (what a null row gets is overwritten by the caller)."""
    t, kind = pa.types, array.type
    if t.is_int64(kind):
        return hash_longs(_numbers(array, np.int64).view(np.uint64), seeds)
    if t.is_int32(kind) or t.is_date32(kind):
        return hash_ints(_signed(_numbers(array, np.int32)), seeds)
    if t.is_boolean(kind) or t.is_int8(kind) or t.is_int16(kind):
        return hash_ints(_signed(_numbers(array.cast(pa.int32()), np.int32)), seeds)
    if t.is_float32(kind):
        return hash_ints(_float_bits(_numbers(array, np.float32)).view(np.uint32).astype(np.uint64), seeds)
    if t.is_float64(kind):
        return hash_longs(_float_bits(_numbers(array, np.float64)).view(np.uint64), seeds)
    if t.is_timestamp(kind) or t.is_duration(kind):
        ticks = _numbers(array, np.int64)
        micros = ticks // 1_000 if kind.unit == "ns" else ticks * _MICROSECONDS_PER[kind.unit]
        return hash_longs(micros.view(np.uint64), seeds)
    if t.is_time(kind):
        ticks = _numbers(array, np.int32 if t.is_time32(kind) else np.int64).astype(np.int64)
        return hash_longs((ticks * _NANOSECONDS_PER[kind.unit]).view(np.uint64), seeds)
    if t.is_decimal128(kind):
        return _hash_decimals(array, seeds)
    return _hash_composed(array, seeds)


def _hash_composed(array: pa.Array, seeds: UInt64s) -> UInt64s:
    """The kinds that are runs of bytes, or made of other columns."""
    t, kind = pa.types, array.type
    if t.is_string(kind) or t.is_binary(kind):
        return _hash_runs(array, np.int32, seeds)
    if t.is_large_string(kind) or t.is_large_binary(kind):
        return _hash_runs(array, np.int64, seeds)
    if t.is_fixed_size_binary(kind):
        return _hash_runs(array.cast(pa.binary()), np.int32, seeds)
    if t.is_struct(kind):
        for number in range(kind.num_fields):
            seeds = _hash(array.field(number), seeds)
        return seeds.copy()
    if t.is_fixed_size_list(kind):
        first = np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64)
        return _hash_lists(array, first * kind.list_size, seeds)
    if t.is_list(kind) or t.is_large_list(kind):
        return _hash_lists(array, array.offsets.to_numpy().astype(np.int64), seeds)
    if t.is_dictionary(kind):
        return _hash(array.dictionary_decode(), seeds)
    if isinstance(kind, pa.BaseExtensionType):
        return _hash(array.storage, seeds)
    raise ProgramError(
        f"a key of Arrow type {kind} cannot be hashed: Spark's xxhash64 does not know it, so the JVM and Python "
        "would disagree about where it belongs. Use a key of a number, text, bytes, date, time or boolean type, "
        "or a row, tuple or list of these."
    )


def _numbers(array: pa.Array, dtype: type[np.generic]) -> NDArray[Any]:
    """The values buffer of a column of numbers; what stands in null rows is arbitrary."""
    return np.frombuffer(array.buffers()[1], dtype=dtype, count=array.offset + len(array))[array.offset :]


def _signed(values: NDArray[Any]) -> UInt64s:
    return values.astype(np.int64).view(np.uint64)


def _float_bits(values: NDArray[Any]) -> NDArray[Any]:
    # Adding 0.0 turns -0.0 into 0.0 and leaves every other value alone. A signalling NaN would warn.
    with np.errstate(invalid="ignore"):
        values = values + values.dtype.type(0.0)
    values[np.isnan(values)] = np.nan
    return values


def _hash_runs(array: pa.Array, offset_dtype: type[np.generic], seeds: UInt64s) -> UInt64s:
    _, offsets_buffer, data_buffer = array.buffers()
    rows = len(array)
    offsets = np.frombuffer(offsets_buffer, dtype=offset_dtype, count=array.offset + rows + 1)[array.offset :]
    ends = offsets.astype(np.int64)
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", dtype=np.uint8)
    return hash_byte_runs(data, ends[:-1], np.diff(ends), seeds)


def _hash_decimals(array: pa.Array, seeds: UInt64s) -> UInt64s:
    """Decimals by their unscaled value: as a long if the type allows, else as Java's `BigInteger.toByteArray`."""
    halves = np.frombuffer(array.buffers()[1], dtype="<i8", count=2 * (array.offset + len(array)))
    low, high = halves[2 * array.offset :: 2], halves[2 * array.offset + 1 :: 2]
    if array.type.precision <= _SPARK_LONG_DIGITS_MAX:
        return hash_longs(np.ascontiguousarray(low).view(np.uint64), seeds)
    sign = high >> 63
    magnitude_low, magnitude_high = (low ^ sign).view(np.uint64), (high ^ sign).view(np.uint64)
    lengths = np.ones(len(array), dtype=np.int64)
    for byte in range(8):
        # One byte more is needed each time the magnitude reaches the bit that would be read as the sign.
        limit = np.uint64(1 << (8 * byte + 7))
        lengths += (magnitude_low >= limit) | (magnitude_high != 0)
        lengths += magnitude_high >= limit
    big_endian = np.stack([high, low], axis=1).astype(">i8").view(np.uint8).reshape(-1)
    starts = np.arange(16, 16 * len(array) + 1, 16, dtype=np.int64) - lengths
    return hash_byte_runs(big_endian, starts, lengths, seeds)


def _hash_lists(array: pa.Array, offsets: Int64s, seeds: UInt64s) -> UInt64s:
    """Lists, one position after the other for all rows that are long enough."""
    lengths = np.diff(offsets)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    hashes = seeds.copy()
    for position in range(int(lengths.max())):
        rows = np.flatnonzero(lengths > position)
        elements = array.values.take(pa.array(offsets[rows] + position))
        hashes[rows] = _hash(elements, hashes[rows])
    return hashes
