"""Hashes of keys without a declared type, many at once.

`canonical` defines which values are one key and the hash of one key; this module computes the hashes of a batch,
vectorised. Every function takes keys and their seeds and returns their hashes; a batch of a single type, or of tuples
with fields of a single type, never runs a Python loop of ours. Invariant, compared by a test on random keys:
`hash_canonical(keys)` is `canonical_hash(key)` for each key, independent of the other keys.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.types import Row
from millstream.state.keys.canonical import INT64_MAX, INT64_MIN, NamedKey, decimal_text, simplify, text_bytes
from millstream.state.keys.hashing import SEED, Int64s, xxhash64_column
from millstream.state.keys.hashing_reference import micros_of, twos_complement

__all__ = ["hash_canonical"]


def hash_canonical(keys: list[Any]) -> Int64s:
    """The hash of every key.

    >>> hash_canonical([1, "Spark", None]).tolist()
    [-7001672635703045582, -4294468057691064905, 42]
    """
    return _hash_values(keys, np.full(len(keys), SEED, dtype=np.int64))


def _hash_values(keys: list[Any], seeds: Int64s) -> Int64s:
    """Keys of mixed types, hashed with one call per type."""
    kinds = set(map(type, keys))
    if len(kinds) == 1:
        return _HASHERS_BY_TYPE.get(kinds.pop(), _hash_simplified)(keys, seeds)
    positions: dict[type, list[int]] = {kind: [] for kind in kinds}
    for position, key in enumerate(keys):
        positions[type(key)].append(position)
    hashes = seeds.copy()
    for kind, rows in positions.items():
        hash_kind = _HASHERS_BY_TYPE.get(kind, _hash_simplified)
        hashes[rows] = hash_kind([keys[row] for row in rows], seeds[rows])
    return hashes


def _hash_simplified(keys: list[Any], seeds: Int64s) -> Int64s:
    """Types that are hashed as another type."""
    return _hash_values(list(map(simplify, keys)), seeds)


def _hash_as(arrow_type: pa.DataType, keys: list[Any], seeds: Int64s) -> Int64s:
    return xxhash64_column(pa.array(keys, arrow_type), seeds)


def _hash_ints(keys: list[int], seeds: Int64s) -> Int64s:
    try:
        return _hash_as(pa.int64(), keys, seeds)
    except (OverflowError, pa.ArrowInvalid):
        wide = np.array([not INT64_MIN <= key <= INT64_MAX for key in keys])
    hashes = seeds.copy()
    hashes[~wide] = _hash_as(pa.int64(), [key for key in keys if INT64_MIN <= key <= INT64_MAX], seeds[~wide])
    rest = [twos_complement(keys[row]) for row in np.flatnonzero(wide).tolist()]
    hashes[wide] = _hash_as(pa.binary(), rest, seeds[wide])
    return hashes


def _hash_floats(keys: list[float], seeds: Int64s) -> Int64s:
    numbers = np.array(keys, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # a signalling NaN would warn
        integral = np.isfinite(numbers) & (numbers == np.floor(numbers))
    if not integral.any():
        return xxhash64_column(pa.array(numbers), seeds)
    hashes = seeds.copy()
    hashes[~integral] = xxhash64_column(pa.array(numbers[~integral]), seeds[~integral])
    narrow = integral & (np.abs(numbers) < 2.0**63)
    hashes[narrow] = xxhash64_column(pa.array(numbers[narrow].astype(np.int64)), seeds[narrow])
    wide = integral & ~narrow
    if wide.any():
        hashes[wide] = _hash_ints([int(number) for number in numbers[wide].tolist()], seeds[wide])
    return hashes


def _hash_texts(keys: list[str], seeds: Int64s) -> Int64s:
    try:
        return _hash_as(pa.string(), keys, seeds)
    except UnicodeEncodeError:
        return _hash_as(pa.binary(), list(map(text_bytes, keys)), seeds)  # raises, naming the key


def _hash_datetimes(keys: list[dt.datetime], seeds: Int64s) -> Int64s:
    naive = np.array([key.tzinfo is None for key in keys])
    hashes = seeds.copy()
    for rows, arrow_type in ((naive, pa.timestamp("us")), (~naive, pa.timestamp("us", "UTC"))):
        chosen = [keys[row] for row in np.flatnonzero(rows).tolist()]
        hashes[rows] = _hash_as(arrow_type, chosen, seeds[rows])
    return hashes


def _hash_times(keys: list[dt.time], seeds: Int64s) -> Int64s:
    return _hash_as(pa.time64("us"), list(map(simplify, keys)), seeds)  # refuses those with a time zone


def _hash_durations(keys: list[dt.timedelta], seeds: Int64s) -> Int64s:
    # The longest durations have more than 64 bits of microseconds; their low bits are hashed.
    micros = [micros_of(key) & 0xFFFFFFFFFFFFFFFF for key in keys]
    return xxhash64_column(pa.array(np.array(micros, dtype=np.uint64).view(np.int64)), seeds)


def _hash_tuples(keys: list[tuple[Any, ...]], seeds: Int64s) -> Int64s:
    """Tuples (and rows), one position after the other: the hashes of one position are the seeds of the next."""
    lengths = set(map(len, keys))
    if len(lengths) > 1:
        hashes = seeds.copy()
        for length in lengths:
            rows = [row for row, key in enumerate(keys) if len(key) == length]
            hashes[rows] = _hash_tuples([keys[row] for row in rows], seeds[rows])
        return hashes
    for column in zip(*keys, strict=True):
        seeds = _hash_values(list(column), seeds)
    return seeds.copy()


def _hash_named(keys: list[NamedKey], seeds: Int64s) -> Int64s:
    return _hash_tuples([(key.class_name, *key.values) for key in keys], seeds)


def _hash_decimals(keys: list[decimal.Decimal], seeds: Int64s) -> Int64s:
    simple = map(simplify, keys)
    return _hash_values([decimal_text(key) if type(key) is decimal.Decimal else key for key in simple], seeds)


_HASHERS_BY_TYPE: dict[type, Callable[[list[Any], Int64s], Int64s]] = {
    type(None): lambda keys, seeds: seeds.copy(),
    int: _hash_ints,
    bool: lambda keys, seeds: xxhash64_column(pa.array(np.array(keys, dtype=np.int64)), seeds),
    float: _hash_floats,
    str: _hash_texts,
    bytes: functools.partial(_hash_as, pa.binary()),
    decimal.Decimal: _hash_decimals,
    dt.date: functools.partial(_hash_as, pa.date32()),
    dt.datetime: _hash_datetimes,
    dt.time: _hash_times,
    dt.timedelta: _hash_durations,
    tuple: _hash_tuples,
    Row: _hash_tuples,
    NamedKey: _hash_named,
}
