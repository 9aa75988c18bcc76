"""Parses strings by Java's date patterns: strictly like `DateTimeFormatter`, leniently like `SimpleDateFormat`.

Both return local time in nanoseconds since 1970 (`Clock`), or None if the string does not match. The strict parser must
match the whole string with exact numbers of digits, and adjusts an invalid day (30 February) to the last day of its
month. The lenient one ignores trailing characters, accepts fewer or more digits, and carries values beyond their range
over into the next month, hour or year; before 15 October 1582 it uses the Julian calendar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from millstream.runtime.expressions.calendar_days import civil, days_of_civil, julian_days, month_days, weekday
from millstream.runtime.expressions.java_dates import DAYS, MONTHS, Part, PatternError
from millstream.runtime.expressions.zones import zone_of

__all__ = ["Clock", "read_leniently", "read_strictly"]

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS


class Clock(NamedTuple):
    """The parsed local time in nanoseconds since 1970, and the offset in seconds if the string has one."""

    nano: int
    offset: int | None = None


class _Mismatch(Exception):
    """The string does not match the pattern."""


@dataclass
class _Text:
    """The string and the position of the parser."""

    text: str
    place: int = 0

    def digits(self, fewest: int, most: int) -> str:
        """Reads a run of digits; raises if there are fewer than `fewest`."""
        stop = self.place
        while stop < len(self.text) and stop - self.place < most and "0" <= self.text[stop] <= "9":
            stop += 1
        digits = self.text[self.place : stop]
        if len(digits) < fewest:
            raise _Mismatch
        self.place = stop
        return digits

    def expect(self, words: str) -> None:
        """Skips exactly these characters."""
        if not self.text.startswith(words, self.place):
            raise _Mismatch
        self.place += len(words)

    def one_of(self, names: tuple[str, ...], exact: bool) -> int:
        """Reads the longest matching name and returns its index."""
        rest = self.text[self.place :] if exact else self.text[self.place :].lower()
        fits = [i for i, name in enumerate(names) if rest.startswith(name if exact else name.lower())]
        if not fits:
            raise _Mismatch
        best = max(fits, key=lambda i: len(names[i]))
        self.place += len(names[best])
        return best


# --- strictly -----------------------------------------------------------------------------------------------------

_FIXED = "MLdHhKkmsw"  # two letters: exactly two digits
_NAMED = {"M": MONTHS, "L": MONTHS, "E": DAYS}


def read_strictly(parts: tuple[Part, ...], text: str) -> Clock | None:
    """Parses a string by a pattern of `DateTimeFormatter`; None if it does not match."""
    source = _Text(text)
    fields: dict[str, int] = {}
    try:
        _read_section(parts, 0, len(parts), source, fields)
        if source.place < len(text):
            return None
        return _resolve(fields)
    except _Mismatch:
        return None


def _read_section(parts: tuple[Part, ...], start: int, stop: int, source: _Text, fields: dict[str, int]) -> None:
    place = start
    while place < stop:
        part = parts[place]
        if part.letter == "[":
            end = _section_end(parts, place)
            before, known = source.place, dict(fields)
            try:
                _read_section(parts, place + 1, end, source, fields)
            except _Mismatch:
                source.place = before
                fields.clear()
                fields.update(known)
            place = end + 1
            continue
        if part.letter == "":
            source.expect(part.text)
        elif part.letter != "]":
            _read_part(part, _reserved_digits(parts, place), source, fields)
        place += 1


def _section_end(parts: tuple[Part, ...], start: int) -> int:
    for place in range(start + 1, len(parts)):
        if parts[place].letter == "]" and parts[place].optional == parts[start].optional - 1:
            return place
    return len(parts)


def _reserved_digits(parts: tuple[Part, ...], place: int) -> int:
    """The number of digits that this part must leave for the directly following parts."""
    digits = 0
    for part in parts[place + 1 :]:
        is_fixed = (
            (part.letter in _FIXED and part.width == 2) or part.letter == "S" or (part.letter, part.width) == ("D", 3)
        )
        if not is_fixed:
            break
        digits += part.width
    return digits


def _read_part(part: Part, reserved: int, source: _Text, fields: dict[str, int]) -> None:
    letter, width = part.letter, part.width
    if letter in _NAMED and (width > 2 or letter == "E"):
        if width > 4:
            raise PatternError(f"parsing does not support {letter * width}")
        names = _NAMED[letter] if width == 4 else tuple(name[:3] for name in _NAMED[letter])
        fields["M" if letter == "L" else letter] = source.one_of(names, exact=True) + 1
    elif letter == "a":
        fields["a"] = source.one_of(("AM", "PM"), exact=True)
    elif letter == "G":
        fields["G"] = source.one_of(("BC", "AD") if width < 4 else ("Before Christ", "Anno Domini"), exact=True)
    elif letter in "ZXxVOz":
        fields["offset"] = _read_offset(part, source)
    elif letter == "S":
        fields["S"] = int(source.digits(width, width).ljust(9, "0"))
    elif letter in "uy":
        fields[letter] = _read_year(width, reserved, source)
    elif letter in "MLdHhKkmsDnNA":
        if width == 1 or letter in "nNA":
            digits = source.digits(width, max(width, 19 - reserved) if not reserved else _left(source, reserved, width))
        else:
            digits = source.digits(width, 3 if letter == "D" else width)
        fields["M" if letter == "L" else letter] = int(digits)
    else:
        raise PatternError(f"parsing does not support the pattern letter {letter}")


def _left(source: _Text, reserved: int, fewest: int) -> int:
    """The number of digits of a run that may be consumed, excluding the reserved ones."""
    run = re.compile(r"[0-9]*").match(source.text, source.place)
    assert run is not None
    return max(fewest, len(run.group()) - reserved)


def _read_year(width: int, reserved: int, source: _Text) -> int:
    if width == 2:
        return 2000 + int(source.digits(2, 2))
    sign = source.text[source.place : source.place + 1]
    if sign in ("-", "+") and not (sign == "+" and width < 4):
        source.place += 1
    else:
        sign = ""
    digits = source.digits(width, _left(source, reserved, width) if reserved else 19)
    if width >= 4 and (len(digits) > width) != (sign == "+") and sign != "-":
        raise _Mismatch
    return -int(digits) if sign == "-" else int(digits)


_OFFSETS = re.compile(r"([+-])(\d{2})(?::?(\d{2}))?(?::?(\d{2}))?")


def _read_offset(part: Part, source: _Text) -> int:
    if part.letter == "V":
        match = re.compile(r"[A-Za-z0-9/_+:-]+").match(source.text, source.place)
        if match is None or zone_of(match.group()) is None:
            raise _Mismatch
        source.place = match.end()
        return 0
    if part.letter in "XZ" and source.text.startswith("Z", source.place) and part.letter == "X":
        source.place += 1
        return 0
    match = _OFFSETS.match(source.text, source.place)
    if match is None:
        raise _Mismatch
    has_colon = ":" in match.group()
    wants_colon = part.width in (3, 5) if part.letter in "Xx" else part.width == 5
    if match.group(3) is not None and has_colon != wants_colon:
        raise _Mismatch
    source.place = match.end()
    sign = -1 if match.group(1) == "-" else 1
    return sign * (int(match.group(2)) * 3600 + int(match.group(3) or 0) * 60 + int(match.group(4) or 0))


_RANGES = {"M": (1, 12), "d": (1, 31), "H": (0, 24), "h": (1, 12), "K": (0, 11), "k": (1, 24), "m": (0, 59)}
_RANGES |= {"s": (0, 59), "D": (1, 366), "n": (0, 999_999_999), "A": (0, 86_399_999), "N": (0, DAY_NS - 1)}


def _resolve(fields: dict[str, int]) -> Clock:
    for letter, (low, high) in _RANGES.items():
        if letter in fields and not low <= fields[letter] <= high:
            raise _Mismatch
    year = fields.get("u", fields.get("y", 1970))
    if "y" in fields and "u" not in fields:
        if year < 1:
            raise _Mismatch
        year = 1 - year if fields.get("G") == 0 else year
    if "D" in fields and "M" not in fields:
        day = _days(year, 1, 1) + fields["D"] - 1
        if int(civil(np.array([day]))[0][0]) != year:
            raise _Mismatch
    else:
        month = fields.get("M", 1)
        last = int(month_days(np.array([year]), np.array([month]))[0])
        day = _days(year, month, min(fields.get("d", 1), last))
    if "E" in fields and int(weekday(np.array([day]))[0]) != fields["E"]:
        raise _Mismatch
    if "A" in fields or "N" in fields:
        return Clock(day * DAY_NS + fields.get("N", fields.get("A", 0) * 1_000_000), fields.get("offset"))
    hour = _hour(fields)
    nano = (hour * 3600 + fields.get("m", 0) * 60 + fields.get("s", 0)) * SECOND_NS + fields.get(
        "S", fields.get("n", 0)
    )
    if hour == 24 and nano > DAY_NS:
        raise _Mismatch
    return Clock(day * DAY_NS + nano, fields.get("offset"))


def _hour(fields: dict[str, int]) -> int:
    if "H" in fields:
        return fields["H"]
    if "k" in fields:
        return fields["k"] % 24
    if "a" in fields and ("h" in fields or "K" in fields):
        return fields["a"] * 12 + fields.get("K", fields.get("h", 0) % 12)
    return 0


def _days(year: int, month: int, day: int) -> int:
    return int(days_of_civil(np.array([year]), np.array([month]), np.array([day]))[0])


# --- leniently ----------------------------------------------------------------------------------------------------

_LENIENT_NUMBERS = "yMLdDHkKhmsSuF"


def read_leniently(parts: tuple[Part, ...], text: str, this_year: int) -> Clock | None:
    """Parses a string by a pattern of `SimpleDateFormat`; None if it does not match. Two-digit years are between 80
    years before `this_year` and 20 years after it."""
    source = _Text(text)
    fields: dict[str, int] = {}
    try:
        for place, part in enumerate(parts):
            if part.letter == "":
                source.expect(part.text)
            else:
                following = parts[place + 1] if place + 1 < len(parts) else None
                _read_leniently(part, _is_number(following), source, fields, this_year)
    except _Mismatch:
        return None
    return _carry_over(fields) if source.place else None


def _is_number(part: Part | None) -> bool:
    return part is not None and part.letter in _LENIENT_NUMBERS + "wW" and not (part.letter in "ML" and part.width > 2)


def _read_leniently(part: Part, keep: bool, source: _Text, fields: dict[str, int], this_year: int) -> None:
    letter, width = part.letter, part.width
    while source.text[source.place : source.place + 1] in (" ", "\t") and source.place < len(source.text):
        source.place += 1
    if letter in "ML" and width > 2:
        fields["M"] = source.one_of(MONTHS + tuple(name[:3] for name in MONTHS), exact=False) % 12 + 1
    elif letter == "E":
        source.one_of(DAYS + tuple(name[:3] for name in DAYS), exact=False)
    elif letter == "a":
        fields["a"] = source.one_of(("AM", "PM"), exact=False)
    elif letter == "G":
        fields["G"] = source.one_of(("BC", "AD"), exact=False)
    elif letter in "zZX":
        fields["offset"] = _read_zone(source)
    elif letter in _LENIENT_NUMBERS:
        before = source.place
        number = _read_number(width if keep else None, source)
        if letter == "y" and width <= 2 and source.place - before == 2 and source.text[before : source.place].isdigit():
            first = this_year - 80
            number += first // 100 * 100
            number += 100 if number < first else 0
        fields["M" if letter == "L" else letter] = number
    else:
        raise PatternError(f"parsing does not support the pattern letter {letter}")


_DIGITS_MAX = 9  # Java's int; longer numbers are not a date in any calendar


def _read_number(width: int | None, source: _Text) -> int:
    stop = len(source.text) if width is None else source.place + width
    if stop > len(source.text):
        raise _Mismatch
    match = re.compile(r"-?[0-9]+").match(source.text, source.place, stop)
    if match is None:
        raise _Mismatch
    if len(match.group()) > _DIGITS_MAX:
        raise _Mismatch
    source.place = match.end()
    return int(match.group())


def _read_zone(source: _Text) -> int:
    match = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?").match(source.text, source.place)
    if match is not None:
        source.place = match.end()
        return (-1 if match.group(1) == "-" else 1) * (int(match.group(2)) * 3600 + int(match.group(3) or 0) * 60)
    match = re.compile(r"[A-Za-z_/]+").match(source.text, source.place)
    zone = zone_of(match.group()) if match is not None else None
    if match is None or zone is None:
        raise _Mismatch
    source.place = match.end()
    return zone.standard_offset


def _carry_over(fields: dict[str, int]) -> Clock:
    """Carries values beyond a field's range over into the next field."""
    year = fields.get("y", 1970)
    year = 1 - year if fields.get("G") == 0 else year
    months = year * 12 + (1 if "D" in fields and "M" not in fields else fields.get("M", 1)) - 1
    day_of_month = fields["D"] if "D" in fields and "d" not in fields else fields.get("d", 1)
    first = int(julian_days(np.array([months // 12]), np.array([months % 12 + 1]), np.array([1]))[0])
    day = first + day_of_month - 1
    if "D" not in fields and 1 <= day_of_month <= 31:
        day = int(julian_days(np.array([months // 12]), np.array([months % 12 + 1]), np.array([day_of_month]))[0])
    hour = fields.get("H", fields.get("k", 0) % 24 if fields.get("k", 0) == 24 else fields.get("k", 0))
    if "H" not in fields and "k" not in fields:
        half = fields.get("h", fields.get("K", 0))
        hour = fields.get("a", 0) * 12 + (0 if "h" in fields and half == 12 else half)
    seconds = hour * 3600 + fields.get("m", 0) * 60 + fields.get("s", 0)
    return Clock(day * DAY_NS + seconds * SECOND_NS + fields.get("S", 0) * 1_000_000, fields.get("offset"))
