"""Bitmaps: sets of 32-bit integers in the portable Roaring format, which Flink also uses.

The numbers of one upper half form a **container**, whose lower halves have the shortest of three encodings: a list,
runs of consecutive numbers, or 65,536 bits. Invariant: the encoding of a set is unique, so that bitmap columns are
compared, grouped and stored like any bytes. `normalised` converts external bytes to that form.

Sets are combined container by container, so that a full bitmap of 600 kB is never expanded to four billion numbers in
memory. Numbers are unsigned here; SQL's INT is the same 32 bits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = [
    "EMPTY",
    "bitmaps_of",
    "cardinality",
    "combined",
    "normalised",
    "numbers_of",
    "single_bitmaps",
    "united_singles",
]

Halves = NDArray[np.uint16]
Numbers = NDArray[np.uint32]
Container = tuple[int, Halves]
"""The upper half of some numbers, and their lower halves, ascending."""

_COOKIE = 12346
_COOKIE_WITH_RUNS = 12347
_WITHOUT_OFFSETS_MAX = 3  # number of containers, if some are runs
_LISTED_MAX = 4096
_BITS_BYTES = 8192
EMPTY = _COOKIE.to_bytes(4, "little") + bytes(4)
_SINGLE_BYTES = 18
_HEAD_OF_SINGLE = _COOKIE.to_bytes(4, "little") + (1).to_bytes(4, "little")


# --- from bytes ---------------------------------------------------------------------------------------------------


def containers(data: bytes) -> Iterator[Container]:
    """The containers of a bitmap, by their upper halves; ValueError if the bytes are invalid."""
    previous = -1
    try:
        for key, kind, size, start in _placed(data):
            if key <= previous:
                raise ValueError("its parts are not in order")
            previous = key
            yield key, _halves(data, kind, size, start)
    except IndexError:
        raise ValueError("they end too early") from None


def _placed(data: bytes) -> Iterator[tuple[int, str, int, int]]:
    """For each container: its upper half, its kind, its number of values or runs, and its start."""
    cookie = _number(data, 0, 4)
    if cookie == _COOKIE:
        count, at, runs = _number(data, 4, 4), 8, b""
    elif cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        at = 4 + (count + 7) // 8
        runs = data[4:at]
    else:
        raise ValueError("they do not begin as a bitmap does")
    heads = at
    _number(data, heads, 4 * count)
    at += 4 * count
    if not runs or count > _WITHOUT_OFFSETS_MAX:
        at += 4 * count
    for place in range(count):
        key, size = _number(data, heads + 4 * place, 2), _number(data, heads + 4 * place + 2, 2) + 1
        if runs and runs[place // 8] >> place % 8 & 1:
            size = _number(data, at, 2)
            yield key, "runs", size, at + 2
            at += 2 + 4 * size
        elif size <= _LISTED_MAX:
            yield key, "list", size, at
            at += 2 * size
        else:
            yield key, "bits", size, at
            at += _BITS_BYTES


def _number(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + size], "little")


def _words(data: bytes, start: int, count: int) -> Halves:
    if start + 2 * count > len(data):
        raise IndexError
    return np.frombuffer(data, "<u2", count, start)


def _halves(data: bytes, kind: str, size: int, start: int) -> Halves:
    if kind == "bits":
        bits = np.unpackbits(_words(data, start, _BITS_BYTES // 2).view(np.uint8), bitorder="little")
        halves = np.flatnonzero(bits).astype(np.uint16)
        if len(halves) != size:
            raise ValueError("a part has not as many numbers as it says")
        return halves
    if kind == "list":
        halves = _words(data, start, size)
        if np.any(halves[1:] <= halves[:-1]):
            raise ValueError("its numbers are not in order")
        return halves
    first, more = (_words(data, start, 2 * size).reshape(-1, 2).astype(np.int64)).T
    if np.any(first[1:] <= (first + more)[:-1]) or np.any(first + more > 0xFFFF):
        raise ValueError("its runs are not in order")
    lengths = more + 1
    starts = np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
    return (starts + np.arange(len(starts))).astype(np.uint16)


def numbers_of(data: bytes) -> Numbers:
    """The numbers of a bitmap, ascending.

    >>> numbers_of(bitmaps_of(np.array([0, 0]), np.array([7, 3], np.uint32), 1)[0].as_py()).tolist()
    [3, 7]
    """
    parts = [np.uint32(key << 16) | halves for key, halves in containers(data)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32)


def cardinality(data: bytes) -> int:
    """The cardinality of a bitmap, from its headers. The bytes must be valid."""
    total = 0
    for _, kind, size, start in _placed(data):
        total += size if kind != "runs" else size + int(_words(data, start, 2 * size)[1::2].sum(dtype=np.int64))
    return total


# --- to bytes -----------------------------------------------------------------------------------------------------


def _written(parts: Iterable[Container]) -> bytes:
    """The bytes of ordered containers, without empty ones."""
    heads: list[bytes] = []
    bodies: list[bytes] = []
    runs: list[bool] = []
    for key, halves in parts:
        if not len(halves):
            continue
        heads.append(key.to_bytes(2, "little") + (len(halves) - 1).to_bytes(2, "little"))
        body, is_run = _body(halves)
        bodies.append(body)
        runs.append(is_run)
    if not heads:
        return EMPTY
    if any(runs):
        bits = np.packbits(np.array(runs), bitorder="little").tobytes()
        start = (_COOKIE_WITH_RUNS | len(heads) - 1 << 16).to_bytes(4, "little") + bits
    else:
        start = _COOKIE.to_bytes(4, "little") + len(heads).to_bytes(4, "little")
    offsets = b""
    if not any(runs) or len(heads) > _WITHOUT_OFFSETS_MAX:
        first = len(start) + 8 * len(heads)
        sizes = np.array([0, *map(len, bodies[:-1])])
        offsets = (first + np.cumsum(sizes)).astype("<u4").tobytes()
    return b"".join((start, *heads, offsets, *bodies))


def _body(halves: Halves) -> tuple[bytes, bool]:
    """The shortest encoding of lower halves, and whether it consists of runs."""
    is_first = np.ones(len(halves), dtype=np.bool_)
    is_first[1:] = np.diff(halves.astype(np.int32)) != 1
    firsts = np.flatnonzero(is_first)
    plain_bytes = 2 * len(halves) if len(halves) <= _LISTED_MAX else _BITS_BYTES
    if plain_bytes > 2 + 4 * len(firsts):
        lengths = np.diff(firsts, append=len(halves))
        pairs = np.stack([halves[firsts], lengths - 1], axis=1).astype("<u2")
        return len(firsts).to_bytes(2, "little") + pairs.tobytes(), True
    if len(halves) <= _LISTED_MAX:
        return halves.astype("<u2").tobytes(), False
    bits = np.zeros(65536, dtype=np.bool_)
    bits[halves] = True
    return np.packbits(bits, bitorder="little").tobytes(), False


def normalised(data: bytes) -> bytes:
    """The unique form of an external bitmap; ValueError if the bytes are invalid."""
    return _written(containers(data))


# --- columns ------------------------------------------------------------------------------------------------------


def bitmaps_of(codes: NDArray[np.int64], numbers: Numbers, count: int) -> pa.Array:
    """A bitmap for each of `count` groups, of the numbers with its code; empty for a group without numbers."""
    pairs = np.unique(codes.astype(np.uint64) << np.uint64(32) | numbers)
    uppers = pairs >> np.uint64(16)
    is_first = np.ones(len(pairs), dtype=np.bool_)
    is_first[1:] = uppers[1:] != uppers[:-1]
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(pairs))[: len(starts)]
    halves = pairs.astype(np.uint16)
    written = [EMPTY] * count
    cuts = zip((uppers[starts]).tolist(), starts.tolist(), ends.tolist(), strict=True)
    for code, parts in groupby(cuts, key=lambda cut: cut[0] >> 16):
        written[code] = _written((upper & 0xFFFF, halves[start:end]) for upper, start, end in parts)
    return pa.array(written, pa.binary())


def single_bitmaps(numbers: Numbers) -> pa.Array:
    """A single-element bitmap for each number, vectorised: all have the same length."""
    data = np.zeros((len(numbers), _SINGLE_BYTES), dtype=np.uint8)
    data[:, :8] = np.frombuffer(_HEAD_OF_SINGLE, np.uint8)
    data[:, 8:10] = (numbers >> 16).astype("<u2")[:, None].view(np.uint8)
    data[:, 12] = 16
    data[:, 16:] = numbers.astype("<u2")[:, None].view(np.uint8)
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * _SINGLE_BYTES
    return pa.Array.from_buffers(
        pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(data.reshape(-1))]
    )


def united_singles(bitmaps: pa.Array, codes: NDArray[np.int64]) -> tuple[pa.Array, NDArray[np.int64]]:
    """Unites the single-number bitmaps of each group; NULLs are not allowed."""
    offsets = np.frombuffer(bitmaps.buffers()[1], np.int32, len(bitmaps) + 1, 4 * bitmaps.offset)
    data = np.frombuffer(bitmaps.buffers()[2] or b"", np.uint8)
    is_single = np.diff(offsets) == _SINGLE_BYTES
    places = np.flatnonzero(is_single)
    rows = data[offsets[:-1][places][:, None] + np.arange(_SINGLE_BYTES)] if len(places) else data[:0].reshape(0, 18)
    is_head = (rows[:, :8] == np.frombuffer(_HEAD_OF_SINGLE, np.uint8)).all(axis=1)
    places, rows = places[is_head], rows[is_head].astype(np.uint32)
    if len(places) < 2:
        return bitmaps, codes
    numbers = rows[:, 8] << 16 | rows[:, 9] << 24 | rows[:, 16] | rows[:, 17] << 8
    groups, inner = np.unique(codes[places], return_inverse=True)
    others = np.ones(len(bitmaps), dtype=np.bool_)
    others[places] = False
    united = bitmaps_of(inner, numbers, len(groups))
    return pa.concat_arrays([united, bitmaps.filter(pa.array(others))]), np.append(groups, codes[others])


# --- sets ---------------------------------------------------------------------------------------------------------

_OPERATIONS: dict[str, Callable[[Halves, Halves], Halves]] = {
    "or": np.union1d,
    "and": lambda left, right: np.intersect1d(left, right, assume_unique=True),
    "xor": lambda left, right: np.setxor1d(left, right, assume_unique=True),
    "andnot": lambda left, right: np.setdiff1d(left, right, assume_unique=True),
}
_NONE = np.zeros(0, np.uint16)


def combined(operation: str, left: bytes, right: bytes) -> bytes:
    """Combines two bitmaps: `or`, `and`, `xor`, or `andnot` (left without right)."""
    if left == right:
        return left if operation in ("or", "and") else EMPTY
    operate = _OPERATIONS[operation]
    merged = heapq.merge(
        ((key, 0, halves) for key, halves in containers(left)),
        ((key, 1, halves) for key, halves in containers(right)),
        key=lambda part: part[:2],
    )

    def parts() -> Iterator[Container]:
        for key, both in groupby(merged, key=lambda part: part[0]):
            by_side = {side: halves for _, side, halves in both}
            yield key, operate(by_side.get(0, _NONE), by_side.get(1, _NONE))

    return _written(parts())
