"""Parses string columns by a pattern of digits, without a Python call per string.

Handles only the plain case: strings of exactly the pattern's length, digits at the positions of digits, every number in
its range, years from 1600. For these strings, Java's strict and lenient parsers and the SQL format agree. Strings not
marked as `parsed` are left to the value-by-value implementation (`java_date_parsing`, `standard_dates`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.runtime.expressions.calendar_days import days_of_civil, month_days
from millstream.runtime.expressions.java_dates import Part, Reader, pattern_parts

__all__ = ["fixed_clocks", "standard_clocks"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
_WIDTHS = {("y", 4), ("M", 2), ("d", 2), ("H", 2), ("m", 2), ("s", 2)}
_DATE, _SECONDS = "yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss"
_SECOND_NS = 1_000_000_000


def standard_clocks(texts: pa.Array) -> tuple[Int64s, Bools]:
    """Parses strings like '2020-02-29 12:34:56.789' or '2020-02-29' to nanoseconds of local time; marks parsed
    strings."""
    lengths = _lengths(texts)
    clocks, parsed = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    for length in np.unique(lengths).tolist():
        digits = length - len(_SECONDS) - 1
        if length not in (len(_DATE), len(_SECONDS)) and not 1 <= digits <= 9:
            continue
        pattern = _DATE if length == len(_DATE) else _SECONDS + (f".{'S' * digits}" if digits > 0 else "")
        piece, piece_parsed = fixed_clocks(pattern_parts(pattern, Reader.FORMATTER), texts)
        clocks, parsed = np.where(piece_parsed, piece, clocks), parsed | piece_parsed
    return clocks, parsed


def fixed_clocks(parts: tuple[Part, ...], texts: pa.Array) -> tuple[Int64s, Bools]:
    """Parses strings by a pattern to nanoseconds of local time; marks parsed strings."""
    rows = len(texts)
    none_parsed = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    width = _width(parts)
    if not rows or width is None:
        return none_parsed
    fits = _lengths(texts) == width
    if texts.null_count:
        fits &= np.asarray(texts.is_valid())
    places = np.flatnonzero(fits)
    if not len(places):
        return none_parsed
    numbers, is_good = _numbers(parts, _lines(texts, places, width))
    clocks, in_range = _clocks(numbers)
    is_good &= in_range
    result, parsed = none_parsed
    result[places] = np.where(is_good, clocks, 0)
    parsed[places] = is_good
    return result, parsed


def _width(parts: tuple[Part, ...]) -> int | None:
    """The length in bytes of all strings; None unless the pattern consists of digits and includes a year."""
    width, letters = 0, [part.letter for part in parts if part.letter]
    for part in parts:
        if part.letter == "":
            width += len(part.text.encode())
        elif (part.letter, part.width) in _WIDTHS or part.letter == "S":
            width += part.width
        else:
            return None
    return width if "y" in letters and len(set(letters)) == len(letters) else None


def _offsets(texts: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]


def _lengths(texts: pa.Array) -> npt.NDArray[np.int32]:
    return np.diff(_offsets(texts))


def _lines(texts: pa.Array, places: npt.NDArray[np.intp], width: int) -> Bytes:
    """The bytes of the strings at these rows, as a matrix."""
    offsets = _offsets(texts)
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    if len(places) == len(texts):
        return data[int(offsets[0]) : int(offsets[-1])].reshape(len(texts), width)
    return np.asarray(data[offsets[:-1][places][:, None] + np.arange(width)], np.uint8)


def _numbers(parts: tuple[Part, ...], lines: Bytes) -> tuple[dict[str, Int64s], Bools]:
    is_good = np.ones(len(lines), np.bool_)
    numbers: dict[str, Int64s] = {}
    start = 0
    for part in parts:
        if part.letter == "":
            for byte in part.text.encode():
                is_good &= lines[:, start] == byte
                start += 1
            continue
        number = np.zeros(len(lines), np.int64)
        for _ in range(part.width):
            digit = lines[:, start] - 48  # characters below '0' wrap around
            is_good &= digit < 10
            number = number * 10 + digit
            start += 1
        numbers[part.letter] = number * 10 ** (9 - part.width) if part.letter == "S" else number
    return numbers, is_good


def _clocks(numbers: dict[str, Int64s]) -> tuple[Int64s, Bools]:
    year = numbers["y"]
    one, zero = np.ones_like(year), np.zeros_like(year)
    month, day = numbers.get("M", one), numbers.get("d", one)
    hour, minute, second = (numbers.get(letter, zero) for letter in "Hms")
    in_range = (year >= 1600) & (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 60)
    month = np.clip(month, 1, 12)
    in_range &= (day >= 1) & (day <= month_days(year, month))
    # 64-bit nanoseconds overflow in 2262; the value-by-value implementation handles later years with Python's integers.
    in_range &= (year >= 1678) & (year < 2262)
    days = days_of_civil(year, month, day)
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second
    return np.where(in_range, seconds, 0) * _SECOND_NS + numbers.get("S", zero), in_range
