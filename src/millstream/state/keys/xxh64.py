"""XXH64 over whole numpy arrays: the arithmetic, without any knowledge of Arrow or of keys.

Each function takes an array of values and an array of seeds, one per row, and returns one hash per row, all
as uint64. No function loops over rows: runs of bytes are taken in steps (32-byte stripes, 8-byte words, the
rest), and each step works on all the rows that still have bytes left. The exception is bounded: a few rows
much longer than the rest of their block are left to the scalar form, because a step for one row costs as
much as a step for a thousand.

Arithmetic wraps at 64 bits, which numpy does silently for arrays and complains about for scalars: keep
every operand an array or a typed constant.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from millstream.state.keys.hashing_reference import PRIME_1, PRIME_2, PRIME_3, PRIME_4, PRIME_5, hash_bytes

__all__ = ["Int64s", "UInt64s", "hash_byte_runs", "hash_ints", "hash_longs"]

Int64s: TypeAlias = NDArray[np.int64]
UInt64s: TypeAlias = NDArray[np.uint64]

_P1, _P2, _P3, _P4, _P5 = (np.uint64(prime) for prime in (PRIME_1, PRIME_2, PRIME_3, PRIME_4, PRIME_5))
_P1_PLUS_P2 = np.uint64((PRIME_1 + PRIME_2) & 0xFFFFFFFFFFFFFFFF)
_P5_PLUS_4, _P5_PLUS_8 = np.uint64(PRIME_5 + 4), np.uint64(PRIME_5 + 8)
_LOW_32, _LOW_8 = np.uint64(0xFFFFFFFF), np.uint64(0xFF)
_1, _29, _32, _33, _63 = (np.uint64(n) for n in (1, 29, 32, 33, 63))

LONG_RUN_BYTES = 1024
"""Runs longer than this may be left to the scalar form, if they are few."""
LONG_RUNS_MAX = 32
"""At most this many runs of one call are left to the scalar form; for fewer it is the faster one."""


def _rotate_left(x: UInt64s, bits: int) -> UInt64s:
    """Rotate in place; `x` must be the caller's own."""
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

    A word is put together from the two aligned words it lies across: numpy gathers aligned values several
    times faster than unaligned ones. Reading up to eight bytes past the end gives zeros.
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
        # In two steps, because a shift by 64 is undefined and that is what an aligned word would need.
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
