"""Formats columns of times by a pattern; each distinct string is formatted once.

A pattern depends on local time only down to some unit: `yyyy-MM-dd` on days, `HH:mm` on minutes. Times are counted in
that unit, each distinct count is formatted once, and the strings are distributed to the rows. If all strings have the
same length (patterns of digits), they are written as a matrix of bytes without a Python call per string.
`format_moment` in `java_dates` is the reference.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.runtime.expressions.calendar_days import civil
from millstream.runtime.expressions.java_dates import Moment, Part, Reader, format_moment
from millstream.runtime.expressions.zones import Zone

__all__ = ["format_column"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
_DAY_S = 86_400
_UNIT_SECONDS = {**dict.fromkeys("HhKkaB", 3600), "m": 60, "s": 1}
_DIGITS = {("y", 4), ("u", 4), ("M", 2), ("L", 2), ("d", 2), ("H", 2), ("m", 2), ("s", 2)}


def format_column(
    parts: tuple[Part, ...],
    local: Int64s,
    rate: int,
    reader: Reader,
    valid: Bools | None = None,
    zone: Zone | None = None,
) -> pa.Array:
    """Formats local times, in ticks (`rate` per second), by a pattern. With `zone`, `local` holds instants."""
    rows = len(local)
    if zone is not None:
        offsets = zone.simple_offsets(local // rate)
        # Strings may contain the offset, so equal local times may have different strings.
        texts = [
            _text(parts, clock + offset * rate, rate, reader, zone, offset)
            for clock, offset in zip(local.tolist(), offsets.tolist(), strict=True)
        ]
        return pa.array(texts, pa.string(), mask=None if valid is None else ~valid)
    step = _step(parts, rate)
    keys = local // step if step > 1 else local
    write = _fixed_writer(parts, reader)
    if not rows:
        return pa.array([], pa.string())
    low, high = int(keys.min()), int(keys.max())
    if high - low < 2 * rows + 1024:
        present = np.zeros(high - low + 1, np.bool_)
        present[keys - low] = True
        distinct = np.flatnonzero(present) + low
        places = np.cumsum(present) - 1
        codes = places[keys - low]
    elif write is not None and _are_common(keys, step, rate):
        return _array_of(write(keys * step, rate), valid)
    else:
        encoded = pa.array(keys).dictionary_encode()
        distinct, codes = encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
    if write is not None and _are_common(distinct, step, rate):
        matrix = write(distinct * step, rate)
        if matrix.shape[1]:
            lines = matrix.view(f"V{matrix.shape[1]}").ravel()
            return _array_of(lines[codes].view(np.uint8).reshape(rows, -1), valid)
    texts = pa.array([_text(parts, key * step, rate, reader) for key in distinct.tolist()], pa.string())
    return texts.take(pa.array(codes, mask=None if valid is None else ~valid))


def _text(
    parts: tuple[Part, ...], clock: int, rate: int, reader: Reader, zone: Zone | None = None, offset: int = 0
) -> str:
    day, rest = divmod(clock, _DAY_S * rate)
    moment = Moment(day, rest * (1_000_000_000 // rate), zone, offset, reader is Reader.SIMPLE)
    return format_moment(parts, moment, reader)


def _step(parts: tuple[Part, ...], rate: int) -> int:
    """The number of ticks within which the string cannot change."""
    step = _DAY_S * rate
    for part in parts:
        if part.letter in _UNIT_SECONDS:
            step = min(step, _UNIT_SECONDS[part.letter] * rate)
        elif part.letter and part.letter in "SnNA":
            return 1
    return step


def _are_common(keys: Int64s, step: int, rate: int) -> bool:
    """Whether all times are in the years 1600 to 9999, which have four digits in every calendar."""
    low, high = int(keys.min()) * step, int(keys.max()) * step
    return low >= -11_644_473_600 * rate and high < 253_402_300_800 * rate


def _fixed_writer(parts: tuple[Part, ...], reader: Reader) -> Callable[[Int64s, int], Bytes] | None:
    """Returns a function that writes times as a matrix of bytes; None if the strings differ in length."""
    for part in parts:
        is_fraction = part.letter == "S" and (reader is Reader.FORMATTER or part.width == 3)
        if part.letter and part.letter not in "[]" and (part.letter, part.width) not in _DIGITS and not is_fraction:
            return None
        if reader is Reader.SIMPLE and part.letter == "u":
            return None
    pieces = [part for part in parts if part.letter not in ("[", "]")]

    def write(clocks: Int64s, rate: int) -> Bytes:
        day = clocks // (_DAY_S * rate)
        year, month, day_of_month = civil(day)
        seconds = clocks // rate - day * _DAY_S
        numbers = {
            "y": year, "u": year, "M": month, "L": month, "d": day_of_month, "H": seconds // 3600,
            "m": seconds // 60 % 60, "s": seconds % 60,
        }  # fmt: skip
        columns: list[Bytes | bytes] = []
        for part in pieces:
            if part.letter == "":
                columns += [bytes([byte]) for byte in part.text.encode()]
                continue
            if part.letter == "S":
                fraction = (clocks % rate) * (1_000_000_000 // rate)
                number, width = fraction // 10 ** (9 - part.width), part.width
            else:
                number, width = numbers[part.letter], part.width
            columns += [(number // 10**place % 10 + 48).astype(np.uint8) for place in range(width - 1, -1, -1)]
        matrix = np.empty((len(clocks), len(columns)), np.uint8)
        for place, column in enumerate(columns):
            matrix[:, place] = column[0] if isinstance(column, bytes) else column
        return matrix

    return write


def _array_of(matrix: Bytes, valid: Bools | None) -> pa.Array:
    """The rows of a byte matrix as strings."""
    rows, width = matrix.shape
    if rows * width > 2**31 - 1:
        halves = rows // 2
        parts = [_array_of(matrix[:halves], None if valid is None else valid[:halves])]
        parts.append(_array_of(matrix[halves:], None if valid is None else valid[halves:]))
        return pa.concat_arrays(parts)
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32) if width else np.zeros(rows + 1, np.int32)
    bits = None if valid is None else pa.array(valid).buffers()[1]
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), data, bits)
