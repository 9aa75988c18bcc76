"""Random numbers as a pure function of an index: row i has the same values in every replay.

A number is the index, mixed with the salt of its column until no bit reveals the index (a finaliser like
splitmix64's). Without state or order, any range can be generated anywhere, repeatedly, and in pieces.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["Int64s", "below", "mixed", "salt_of", "unit"]

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def salt_of(*names: str) -> int:
    """A number for a column, from its names.

    >>> salt_of("orders", "price") == salt_of("orders", "price") != salt_of("orders", "id")
    True
    """
    text = "\x00".join(names).encode()
    return zlib.crc32(text) << 32 | zlib.crc32(text[::-1])


def mixed(indexes: Int64s, salt: int) -> UInt64s:
    """64 random bits for each index."""
    with np.errstate(over="ignore"):
        bits = (indexes.view(np.uint64) + np.uint64(salt & 0xFFFFFFFFFFFFFFFF)) * _GOLDEN + _GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
        bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


def unit(indexes: Int64s, salt: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each index.

    >>> values = unit(np.arange(1000), 7)
    >>> bool(0 <= values.min() and values.max() < 1 and 0.45 < values.mean() < 0.55)
    True
    """
    return (mixed(indexes, salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(indexes: Int64s, salt: int, bound: int | Int64s) -> Int64s:
    """A whole number in [0, `bound`) for each index; each index may have its own bound.

    >>> sorted(set(below(np.arange(100), 3, 4).tolist()))
    [0, 1, 2, 3]
    """
    top = mixed(indexes, salt) >> np.uint64(1)
    return (top % np.asarray(bound).astype(np.uint64)).astype(np.int64)
