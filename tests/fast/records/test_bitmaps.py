"""Bitmaps are sets of numbers in the bytes of Roaring bitmaps: one set, one text of bytes."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.records.bitmaps import (
    EMPTY,
    bitmaps_of,
    cardinality,
    combined,
    normalised,
    numbers_of,
    single_bitmaps,
    united_singles,
)


def written(numbers: set[int]) -> bytes:
    """The slow and obvious way: container by container, each as a list, as runs or as bits, whichever is shortest."""
    parts: dict[int, list[int]] = {}
    for number in sorted(numbers):
        parts.setdefault(number >> 16, []).append(number & 0xFFFF)
    bodies, runs = [], []
    for halves in parts.values():
        starts = [half for half in halves if half - 1 not in set(halves)]
        plain = 2 * len(halves) if len(halves) <= 4096 else 8192
        is_run = plain > 2 + 4 * len(starts)
        if is_run:
            ends = [half for half in halves if half + 1 not in set(halves)]
            pairs = [struct.pack("<HH", start, end - start) for start, end in zip(starts, ends, strict=True)]
            bodies.append(struct.pack("<H", len(starts)) + b"".join(pairs))
        elif len(halves) <= 4096:
            bodies.append(struct.pack(f"<{len(halves)}H", *halves))
        else:
            bodies.append(sum(1 << half for half in halves).to_bytes(8192, "little"))
        runs.append(is_run)
    head = struct.pack("<II", 12346, len(parts))
    if any(runs):
        bits = sum(1 << place for place, is_run in enumerate(runs) if is_run)
        head = struct.pack("<I", 12347 | len(parts) - 1 << 16) + bits.to_bytes((len(parts) + 7) // 8, "little")
    head += b"".join(struct.pack("<HH", key, len(halves) - 1) for key, halves in parts.items())
    if not any(runs) or len(parts) >= 4:
        start = len(head) + 4 * len(parts)
        head += b"".join(struct.pack("<I", start + sum(map(len, bodies[:at]))) for at in range(len(parts)))
    return head + b"".join(bodies)


def bitmap(numbers: set[int]) -> bytes:
    values = np.array(sorted(numbers), np.uint32)
    made: bytes = bitmaps_of(np.zeros(len(values), np.int64), values, 1)[0].as_py()
    return made


RUNS = st.tuples(
    st.sampled_from([0, 65_530, 131_072, 1 << 31, (1 << 32) - 70_000]), st.integers(1, 9_000), st.integers(1, 3)
).map(lambda run: set(range(run[0], min(run[0] + run[1] * run[2], 1 << 32), run[2])))
SETS = st.one_of(
    st.sets(st.integers(0, (1 << 32) - 1), max_size=20),
    st.lists(RUNS, max_size=5).map(lambda runs: set[int]().union(*runs)),
)


@pytest.mark.slow
@given(SETS)
def test_a_set_is_written_and_read_as_the_obvious_way_has_it(numbers: set[int]) -> None:
    data = bitmap(numbers)
    assert data == written(numbers)
    assert numbers_of(data).tolist() == sorted(numbers)
    assert cardinality(data) == len(numbers)
    assert normalised(data + b"behind it") == data


@given(SETS, SETS)
def test_sets_are_combined_as_pythons_sets_are(left: set[int], right: set[int]) -> None:
    first, second = bitmap(left), bitmap(right)
    assert combined("or", first, second) == bitmap(left | right)
    assert combined("and", first, second) == bitmap(left & right)
    assert combined("xor", first, second) == bitmap(left ^ right)
    assert combined("andnot", first, second) == bitmap(left - right)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, (1 << 32) - 1)), max_size=20))
def test_single_numbers_are_united_by_group(rows: list[tuple[int, int]]) -> None:
    codes = np.array([code for code, _ in rows], np.int64)
    made, groups = united_singles(single_bitmaps(np.array([number for _, number in rows], np.uint32)), codes)
    results = {code: set(numbers_of(data.as_py()).tolist()) for code, data in zip(groups.tolist(), made, strict=True)}
    assert results == {code: {number for each, number in rows if each == code} for code, _ in rows}


def test_a_full_bitmap_is_counted_and_cut_without_its_four_billion_numbers() -> None:
    keys = range(1 << 16)
    head = struct.pack("<I", 12347 | 0xFFFF << 16) + b"\xff" * 8192
    heads = b"".join(struct.pack("<HH", key, 0xFFFF) for key in keys)
    data = head + heads + bytes(4 << 16) + struct.pack("<HHH", 1, 0, 0xFFFF) * (1 << 16)
    assert cardinality(data) == 1 << 32


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "end too early"),
        (b"\xff\xff\xff\xff\x00\x00\x00\x00", "do not begin as a bitmap does"),
        (bytes.fromhex("3a3000000100000000000300"), "end too early"),
        (bytes.fromhex("3a300000010000000000010010000000050003"), "end too early"),
        (bytes.fromhex("3a30000001000000000001001000000005000300"), "not in order"),
        (bytes.fromhex("3a300000020000000100000000000000180000001a00000005000300"), "not in order"),
        (bytes.fromhex("3b300000010000ffff01000100ffff"), "not in order"),
        (struct.pack("<II", 12346, 1 << 30), "end too early"),
    ],
)
def test_invalid_bitmap_bytes_are_rejected_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        normalised(data)


def test_nothing_is_the_empty_bitmap() -> None:
    assert bitmap(set()) == EMPTY == written(set())
