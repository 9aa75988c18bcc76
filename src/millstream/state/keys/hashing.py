"""Key hashes: `xxhash64` of an Arrow column, bit for bit equal to Spark SQL's `xxhash64(column)`.

The JVM, a Python task and a remote query client must route a key to the same subtask, so the hash is Spark's and cannot
be changed. Invariant: for every type accepted here, `xxhash64_column(array)` equals Spark's `xxhash64` over the same
column (a test compares with Spark), and equals `hashing_reference` value by value.

    bool, int8, int16, int32, date32    four bytes (true is 1, a date its days since 1970)
    int64                               eight bytes
    timestamp, duration                 eight bytes: microseconds, finer parts dropped as Spark does
    time                                eight bytes: nanoseconds since midnight
    float32, float64                    their four or eight bytes; -0.0 is 0.0, every NaN is the same NaN
    decimal128                          up to 18 digits eight bytes, more: the shortest big-endian bytes
    string, binary                      their bytes
    struct, list                        element after element, each hash the seed of the next
    map                                 entry after entry, as a list of structs (Spark refuses maps)
    null, anywhere                      leaves the seed as it is

Types that Spark lacks are rejected (unsigned integers, wider decimals, views). A map is hashed in its stored order;
`key_columns.normalised` defines one.

The first part is the arithmetic: XXH64 over whole numpy arrays, which maps values and seeds, one per row, to hashes,
all as uint64. No function loops over rows: runs of bytes are processed in steps (32-byte stripes, 8-byte words, the
rest), and each step processes all rows that have bytes left. There is one bounded exception: a few rows much longer
than the rest of their block use the scalar form, because a step for one row costs as much as a step for a thousand.
Arithmetic wraps at 64 bits, silently for numpy arrays and with a warning for scalars: every operand must be an array or
a typed constant.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.errors import ProgramError
from millstream.state.keys.hashing_reference import PRIME_1, PRIME_2, PRIME_3, PRIME_4, PRIME_5, hash_bytes

__all__ = ["SEED", "Int64s", "UInt64s", "hash_byte_runs", "hash_ints", "hash_longs", "xxhash64_column"]

Int64s: TypeAlias = NDArray[np.int64]
UInt64s: TypeAlias = NDArray[np.uint64]

_P1, _P2, _P3, _P4, _P5 = (np.uint64(prime) for prime in (PRIME_1, PRIME_2, PRIME_3, PRIME_4, PRIME_5))
_P1_PLUS_P2 = np.uint64((PRIME_1 + PRIME_2) & 0xFFFFFFFFFFFFFFFF)
_P5_PLUS_4, _P5_PLUS_8 = np.uint64(PRIME_5 + 4), np.uint64(PRIME_5 + 8)
_LOW_32, _LOW_8 = np.uint64(0xFFFFFFFF), np.uint64(0xFF)
_1, _29, _32, _33, _63 = (np.uint64(n) for n in (1, 29, 32, 33, 63))

LONG_RUN_BYTES = 1024
"""Runs longer than this use the scalar form if they are few."""
LONG_RUNS_MAX = 32
"""The maximum number of runs per call that use the scalar form, which is faster for few runs."""


def _rotate_left(x: UInt64s, bits: int) -> UInt64s:
    """Rotate in place; the caller must own `x`."""
    high = x >> np.uint64(64 - bits)
    x <<= np.uint64(bits)
    x |= high
    return x


def _round(lane: UInt64s | None, word: UInt64s) -> UInt64s:
    mixed = word * _P2
    if lane is not None:
        mixed += lane
    mixed = _rotate_left(mixed, 31)
    mixed *= _P1
    return mixed


def _avalanche(h: UInt64s) -> UInt64s:
    h ^= h >> _33
    h *= _P2
    h ^= h >> _29
    h *= _P3
    h ^= h >> _32
    return h


def _mix_word(h: UInt64s, word: UInt64s) -> UInt64s:
    h ^= _round(None, word)
    h = _rotate_left(h, 27)
    h *= _P1
    h += _P4
    return h


def _mix_half_word(h: UInt64s, half: UInt64s) -> UInt64s:
    h ^= half * _P1
    h = _rotate_left(h, 23)
    h *= _P2
    h += _P3
    return h


def _mix_byte(h: UInt64s, byte: UInt64s) -> UInt64s:
    h ^= byte * _P5
    h = _rotate_left(h, 11)
    h *= _P1
    return h


def hash_ints(values: UInt64s, seeds: UInt64s) -> UInt64s:
    """Hashes of 32-bit integers; only the low four bytes of each value count."""
    return _avalanche(_mix_half_word(seeds + _P5_PLUS_4, values & _LOW_32))


def hash_longs(values: UInt64s, seeds: UInt64s) -> UInt64s:
    """Hashes of 64-bit integers."""
    return _avalanche(_mix_word(seeds + _P5_PLUS_8, values))


class _Words:
    """Bytes from which the 8-byte little-endian word at any position can be read, for many positions at once.

    A word is assembled from the two aligned words it spans: numpy gathers aligned values several times faster than
    unaligned ones. Reading up to eight bytes past the end returns zeros.
    """

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._words = np.zeros(data.size // 8 + 3, dtype="<u8")
        self._words.view(np.uint8)[: data.size] = data

    def at(self, positions: Int64s) -> UInt64s:
        index = positions >> 3
        shift = ((positions & 7) << 3).view(np.uint64)
        low: UInt64s = self._words[index]
        low >>= shift
        index += 1
        high = self._words[index]
        # In two steps, because an aligned word would need a shift by 64, which is undefined.
        high <<= _1
        high <<= shift ^ _63
        low |= high
        return low


def _hash_stripes(words: _Words, starts: Int64s, lengths: Int64s, seeds: UInt64s) -> UInt64s:
    """The merged lanes of every row's whole 32-byte stripes; every row has at least one."""
    stripes = lengths >> 5
    lanes = [seeds + _P1_PLUS_P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for stripe in range(int(stripes.max())):
        rows = np.flatnonzero(stripes > stripe)
        at = starts[rows] + 32 * stripe
        for number, lane in enumerate(lanes):
            lane[rows] = _round(lane[rows], words.at(at + 8 * number))
    h = np.zeros_like(seeds)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        h += _rotate_left(lane.copy(), bits)
    for lane in lanes:
        h ^= _round(None, lane)
        h *= _P1
        h += _P4
    return h


def _hash_steps(words: _Words, starts: Int64s, lengths: Int64s, seeds: UInt64s) -> UInt64s:
    """XXH64 of every row's bytes: stripes, then words, then four bytes, then single bytes."""
    h = seeds + _P5
    striped = np.flatnonzero(lengths >= 32)
    if striped.size:
        h[striped] = _hash_stripes(words, starts[striped], lengths[striped], seeds[striped])
    h += lengths.view(np.uint64)
    at = starts + (lengths & -32)
    whole_words = (lengths & 31) >> 3
    for step in range(int(whole_words.max())):
        rows = np.flatnonzero(whole_words > step)
        if rows.size == h.size:
            h = _mix_word(h, words.at(at + 8 * step))
        else:
            h[rows] = _mix_word(h[rows], words.at(at[rows] + 8 * step))
    rest = lengths & 7
    if rest.any():
        h = _hash_rest(h, words.at(at + 8 * whole_words), rest)
    return _avalanche(h)


def _hash_rest(h: UInt64s, word: UInt64s, rest: Int64s) -> UInt64s:
    """Mix in the last `rest` (0 to 7) bytes of every row, which are the low bytes of `word`."""
    rows = np.flatnonzero(rest >= 4)
    if rows.size:
        h[rows] = _mix_half_word(h[rows], word[rows] & _LOW_32)
        word[rows] >>= _32
    single_bytes = rest & 3
    for step in range(3):
        rows = np.flatnonzero(single_bytes > step)
        if rows.size:
            h[rows] = _mix_byte(h[rows], (word[rows] >> np.uint64(8 * step)) & _LOW_8)
    return h


def hash_byte_runs(data: NDArray[np.uint8], starts: Int64s, lengths: Int64s, seeds: UInt64s) -> UInt64s:
    """Hashes of the runs `data[start : start + length]`, one per row."""
    if not lengths.size:
        return np.empty(0, dtype=np.uint64)
    first = int(starts.min())
    data, starts = data[first : int((starts + lengths).max())], starts - first
    longest = int(lengths.max())
    if longest <= LONG_RUN_BYTES:
        return _hash_steps(_Words(data), starts, lengths, seeds)
    others_max = int(np.partition(lengths, -LONG_RUNS_MAX)[-LONG_RUNS_MAX]) if lengths.size >= LONG_RUNS_MAX else 0
    long_rows = np.flatnonzero(lengths > max(LONG_RUN_BYTES, others_max))
    in_steps = lengths.copy()
    in_steps[long_rows] = 0
    h = _hash_steps(_Words(data), starts, in_steps, seeds)
    for row in long_rows.tolist():
        run = data[starts[row] : starts[row] + lengths[row]].tobytes()
        h[row] = np.uint64(hash_bytes(run, int(seeds[row])) & 0xFFFFFFFFFFFFFFFF)
    return h


SEED = 42
"""The seed Spark's `xxhash64` starts from."""

_BLOCK_ROWS = 16_384
"""Rows hashed at once: few enough that the temporary arrays stay in the CPU cache."""

_SPARK_LONG_DIGITS_MAX = 18
_MICROSECONDS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOSECONDS_PER = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def xxhash64_column(array: pa.Array, seed: int | Int64s = SEED) -> Int64s:
    """Spark's `xxhash64` of every value of `array`.

    `seed` is one number for all rows or an array with one per row: passing the hashes of one column as the
    seeds of the next returns the hash of the two together.

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
    """The hashes of an array as if no row were null (the caller overwrites the hashes of null rows)."""
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
    """Hashes types that are runs of bytes, or composed of other columns."""
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
    if t.is_map(kind):
        offsets = array.offsets.to_numpy().astype(np.int64)
        entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
        return _hash_lists(pa.ListArray.from_arrays(offsets - offsets[0], entries), offsets - offsets[0], seeds)
    if t.is_list(kind) or t.is_large_list(kind):
        return _hash_lists(array, array.offsets.to_numpy().astype(np.int64), seeds)
    if t.is_dictionary(kind):
        return _hash(array.dictionary_decode(), seeds)
    if isinstance(kind, pa.BaseExtensionType):
        return _hash(array.storage, seeds)
    raise ProgramError(
        f"a key of Arrow type {kind} cannot be hashed: Spark's xxhash64 does not support it, so the JVM and Python "
        "would disagree about where it belongs. Use a key of a number, text, bytes, date, time or boolean type, "
        "or a row, tuple or list of these."
    )


def _numbers(array: pa.Array, dtype: type[np.generic]) -> NDArray[Any]:
    """The values buffer of a column of numbers; undefined under nulls."""
    return np.frombuffer(array.buffers()[1], dtype=dtype, count=array.offset + len(array))[array.offset :]


def _signed(values: NDArray[Any]) -> UInt64s:
    return values.astype(np.int64).view(np.uint64)


def _float_bits(values: NDArray[Any]) -> NDArray[Any]:
    # Adding 0.0 turns -0.0 into 0.0 and keeps every other value. A signalling NaN would warn.
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
    """Hashes decimals by their unscaled value: as a long if the type allows, else as Java's
    `BigInteger.toByteArray`."""
    halves = np.frombuffer(array.buffers()[1], dtype="<i8", count=2 * (array.offset + len(array)))
    low, high = halves[2 * array.offset :: 2], halves[2 * array.offset + 1 :: 2]
    if array.type.precision <= _SPARK_LONG_DIGITS_MAX:
        return hash_longs(np.ascontiguousarray(low).view(np.uint64), seeds)
    sign = high >> 63
    magnitude_low, magnitude_high = (low ^ sign).view(np.uint64), (high ^ sign).view(np.uint64)
    lengths = np.ones(len(array), dtype=np.int64)
    for byte in range(8):
        # Another byte is needed when the magnitude reaches the bit that would be read as the sign.
        limit = np.uint64(1 << (8 * byte + 7))
        lengths += (magnitude_low >= limit) | (magnitude_high != 0)
        lengths += magnitude_high >= limit
    big_endian = np.stack([high, low], axis=1).astype(">i8").view(np.uint8).reshape(-1)
    starts = np.arange(16, 16 * len(array) + 1, 16, dtype=np.int64) - lengths
    return hash_byte_runs(big_endian, starts, lengths, seeds)


def _hash_lists(array: pa.Array, offsets: Int64s, seeds: UInt64s) -> UInt64s:
    """Hashes lists position by position, over all rows that have an element at the position."""
    lengths = np.diff(offsets)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    hashes = seeds.copy()
    for position in range(int(lengths.max())):
        rows = np.flatnonzero(lengths > position)
        elements = array.values.take(pa.array(offsets[rows] + position))
        hashes[rows] = _hash(elements, hashes[rows])
    return hashes
