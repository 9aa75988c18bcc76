"""Approximate distinct counts: a HyperLogLog sketch of 4,096 registers, with an error of about 1.6 %.

A value is counted by its 64-bit hash, Spark's `xxhash64`. The top 12 bits choose a register; the register stores the
largest *rank*: the number of leading zeros of the other 52 bits plus one. A sketch is bytes: with few registers set, 4
bytes for each (register × 64 + rank, little-endian, ascending), and from 1,024 registers on one byte for each of the
4,096. So equal contents have the same form, which the length identifies.

The estimate is the improved raw estimator of Ertl (2017), which needs no tables and no thresholds. Merging takes the
larger rank of each register, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.groups import Groups
from millstream.state.keys.hashing import Int64s, xxhash64_column
from millstream.state.keys.key_columns import normalised
from millstream.state.keys.nested_columns import holds_maps

__all__ = ["Distinct", "entries_of_hashes", "estimates", "sketches"]

_REGISTER_BITS = 12
_REGISTERS = 1 << _REGISTER_BITS
_RANK_BITS = 6
_RANK_MASK = (1 << _RANK_BITS) - 1
_REST_BITS = 64 - _REGISTER_BITS
_SPARSE_MAX = _REGISTERS // 4  # this many entries of 4 bytes take as much space as all registers

Floats = NDArray[np.float64]


class Distinct(Kernel):
    """The number of distinct values; 0 without values."""

    ranges_are_cheap = False

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        values = normalised(columns[0]) if holds_maps(columns[0].type) else columns[0]
        entries = entries_of_hashes(xxhash64_column(values))
        rows = np.arange(len(at))
        if columns[0].null_count:
            rows = np.flatnonzero(np.asarray(columns[0].is_valid()))
        return [sketches(entries[rows], Groups(rows, len(at)))]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        entries, rows = _entries(parts[0])
        return [sketches(entries, Groups(groups.codes[rows], groups.count))]

    def results(self, parts: Parts) -> pa.Array:
        entries, rows = _entries(parts[0])
        width = _REST_BITS + 2
        ranks = np.bincount(rows * width + (entries & _RANK_MASK), minlength=len(parts[0]) * width)
        return pa.array(estimates(ranks.reshape(-1, width)))


def entries_of_hashes(hashes: Int64s) -> Int64s:
    """Register and rank of every hash, as one number."""
    unsigned = hashes.view(np.uint64)
    registers = (unsigned >> np.uint64(_REST_BITS)).astype(np.int64)
    rest = (unsigned & np.uint64((1 << _REST_BITS) - 1)).astype(np.float64)  # 52 bits fit a double exactly
    bit_lengths = np.frexp(rest)[1].astype(np.int64)
    return (registers << _RANK_BITS) | (_REST_BITS + 1 - bit_lengths)


def sketches(entries: Int64s, groups: Groups) -> pa.Array:
    """A sketch for every group of entries; empty for a group without entries."""
    # One sort by group, register and rank puts the largest rank of each register last.
    shift = _REGISTER_BITS + _RANK_BITS
    ordered = np.sort((groups.codes << shift) | entries)
    is_largest = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:] >> _RANK_BITS, ordered[:-1] >> _RANK_BITS, out=is_largest[:-1])
    largest = ordered[is_largest]
    codes, entries = largest >> shift, largest & ((1 << shift) - 1)
    counts = np.bincount(codes, minlength=groups.count)
    dense = counts >= _SPARSE_MAX
    lengths = np.where(dense, _REGISTERS, counts * 4)
    offsets = np.zeros(groups.count + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.zeros(int(offsets[-1]), dtype=np.uint8)
    in_dense = dense[codes]
    place = np.arange(len(codes)) - (np.cumsum(counts) - counts)[codes]
    data.view("<u4")[(offsets[:-1][codes] // 4 + place)[~in_dense]] = entries[~in_dense]
    full = codes[in_dense]
    data[offsets[:-1][full] + (entries[in_dense] >> _RANK_BITS)] = entries[in_dense] & _RANK_MASK
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), groups.count, buffers)


def _entries(column: pa.Array) -> tuple[Int64s, Int64s]:
    """All entries of all sketches, and the row of each."""
    _, offset_buffer, data_buffer = column.buffers()
    if not len(column) or data_buffer is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(offset_buffer, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    dense = lengths == _REGISTERS
    if not dense.any():
        return data.view("<u4").astype(np.int64), np.repeat(np.arange(len(column)), lengths // 4)
    in_dense = np.repeat(dense, lengths)
    sparse_rows = np.repeat(np.flatnonzero(~dense), lengths[~dense] // 4)
    sparse = np.ascontiguousarray(data[~in_dense]).view("<u4").astype(np.int64)
    ranks = data[in_dense].astype(np.int64)
    place = np.flatnonzero(ranks)
    full = ((place % _REGISTERS) << _RANK_BITS) | ranks[place]
    rows = np.flatnonzero(dense)[place // _REGISTERS]
    return np.concatenate([sparse, full]), np.concatenate([sparse_rows, rows])


def estimates(ranks: NDArray[Any]) -> Int64s:
    """The estimate for every row of `ranks`, which counts the registers of each rank (1 … 53; index 0 is ignored).

    >>> one = np.zeros((1, 54), dtype=np.int64)
    >>> one[0, 3] = 1
    >>> estimates(one).tolist(), estimates(0 * one).tolist()
    ([1], [0])
    """
    counts = ranks.astype(np.float64)
    unset = _REGISTERS - counts[:, 1:].sum(axis=1)
    total = _REGISTERS * _tau(1 - counts[:, _REST_BITS + 1] / _REGISTERS)
    for rank in range(_REST_BITS, 0, -1):
        total = 0.5 * (total + counts[:, rank])
    with np.errstate(all="ignore"):
        total = total + _REGISTERS * _sigma(unset / _REGISTERS)
        raw = _REGISTERS * _REGISTERS / (2 * np.log(2)) / total
    return np.rint(np.where(unset == _REGISTERS, 0.0, raw)).astype(np.int64)


def _sigma(x: Floats) -> Floats:
    """x + Σ x^(2^k) 2^(k-1), until it converges; infinite at 1."""
    power, result, scale = x.copy(), x.copy(), 1.0
    whole = x >= 1
    power[whole] = result[whole] = 0.0
    while True:
        power = power * power
        previous, result, scale = result, result + power * scale, scale * 2
        if (previous == result).all():
            return np.where(whole, np.inf, result)


def _tau(x: Floats) -> Floats:
    """(1 - x - Σ (1 - x^(2^-k))² 2^-k) / 3, until it converges; 0 at 0 and at 1."""
    root, result, scale = x.copy(), 1 - x, 1.0
    ends = (x <= 0) | (x >= 1)
    root[ends], result[ends] = 1.0, 0.0
    while True:
        root = np.sqrt(root)
        scale /= 2
        previous, result = result, result - (1 - root) ** 2 * scale
        if (previous == result).all():
            return result / 3
