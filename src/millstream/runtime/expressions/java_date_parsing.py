"""Text read by Java's patterns for dates: strictly as `DateTimeFormatter` does, leniently as `SimpleDateFormat` does.

Both give what a clock shows, in nanoseconds since 1970 (`Clock`), or None where the text does not fit. The strict
reader wants all of the text and just so many digits, and takes the last day of the month for a day that it has not (30
February). The lenient one leaves what follows, takes fewer digits or more, and goes on into the next month, hour or
year; before 15 October 1582 it reads the Julian calendar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from millstream.runtime.expressions.calendar_days import civil, days_of_civil, julian_days, month_days, weekday
from millstream.runtime.expressions.java_dates import DAYS, MONTHS, Part, PatternProblem
from millstream.runtime.expressions.zones import zone_of

__all__ = ["Clock", "read_leniently", "read_strictly"]

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS


class Clock(NamedTuple):
    """What was read: nanoseconds of the clock since 1970, and the offset in seconds if the text had one."""

    nano: int
    offset: int | None = None


class _Misfit(Exception):
    """The text does not fit the pattern."""


@dataclass
class _Text:
    """The text, and how far it has been read."""

    text: str
    place: int = 0

    def digits(self, fewest: int, most: int) -> str:
        """So many digits from here on."""
        stop = self.place
        while stop < len(self.text) and stop - self.place < most and "0" <= self.text[stop] <= "9":
            stop += 1
        found = self.text[self.place : stop]
        if len(found) < fewest:
            raise _Misfit
        self.place = stop
        return found

    def expect(self, words: str) -> None:
        """Just these characters."""
        if not self.text.startswith(words, self.place):
            raise _Misfit
        self.place += len(words)

    def one_of(self, names: tuple[str, ...], exact: bool) -> int:
        """Which of some names stands here, the longest first."""
        rest = self.text[self.place :] if exact else self.text[self.place :].lower()
        fits = [i for i, name in enumerate(names) if rest.startswith(name if exact else name.lower())]
        if not fits:
            raise _Misfit
        best = max(fits, key=lambda i: len(names[i]))
        self.place += len(names[best])
        return best


# --- strictly -----------------------------------------------------------------------------------------------------

_FIXED = "MLdHhKkmsw"  # of two letters: just two digits
_NAMED = {"M": MONTHS, "L": MONTHS, "E": DAYS}


def read_strictly(parts: tuple[Part, ...], text: str) -> Clock | None:
    """The clock by a pattern of `DateTimeFormatter`; None if the text does not fit."""
    source = _Text(text)
    fields: dict[str, int] = {}
    try:
        _read_section(parts, 0, len(parts), source, fields)
        if source.place < len(text):
            return None
        return _resolved(fields)
    except _Misfit:
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
            except _Misfit:
                source.place = before
                fields.clear()
                fields.update(known)
            place = end + 1
            continue
        if part.letter == "":
            source.expect(part.text)
        elif part.letter != "]":
            _read_part(part, _reserved(parts, place), source, fields)
        place += 1


def _section_end(parts: tuple[Part, ...], start: int) -> int:
    for place in range(start + 1, len(parts)):
        if parts[place].letter == "]" and parts[place].optional == parts[start].optional - 1:
            return place
    return len(parts)


def _reserved(parts: tuple[Part, ...], place: int) -> int:
    """How many digits the parts right behind this one need: it leaves them."""
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
            raise PatternProblem(f"text is not read by {letter * width}")
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
            found = source.digits(width, max(width, 19 - reserved) if not reserved else _left(source, reserved, width))
        else:
            found = source.digits(width, 3 if letter == "D" else width)
        fields["M" if letter == "L" else letter] = int(found)
    else:
        raise PatternProblem(f"text is not read by the letter {letter} of a pattern")


def _left(source: _Text, reserved: int, fewest: int) -> int:
    """How many digits of a run may be taken so that the reserved ones are left."""
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
    found = source.digits(width, _left(source, reserved, width) if reserved else 19)
    if width >= 4 and (len(found) > width) != (sign == "+") and sign != "-":
        raise _Misfit
    return -int(found) if sign == "-" else int(found)


_OFFSETS = re.compile(r"([+-])(\d{2})(?::?(\d{2}))?(?::?(\d{2}))?")


def _read_offset(part: Part, source: _Text) -> int:
    if part.letter == "V":
        match = re.compile(r"[A-Za-z0-9/_+:-]+").match(source.text, source.place)
        if match is None or zone_of(match.group()) is None:
            raise _Misfit
        source.place = match.end()
        return 0
    if part.letter in "XZ" and source.text.startswith("Z", source.place) and part.letter == "X":
        source.place += 1
        return 0
    match = _OFFSETS.match(source.text, source.place)
    if match is None:
        raise _Misfit
    has_colon = ":" in match.group()
    wants_colon = part.width in (3, 5) if part.letter in "Xx" else part.width == 5
    if match.group(3) is not None and has_colon != wants_colon:
        raise _Misfit
    source.place = match.end()
    sign = -1 if match.group(1) == "-" else 1
    return sign * (int(match.group(2)) * 3600 + int(match.group(3) or 0) * 60 + int(match.group(4) or 0))


_RANGES = {"M": (1, 12), "d": (1, 31), "H": (0, 24), "h": (1, 12), "K": (0, 11), "k": (1, 24), "m": (0, 59)}
_RANGES |= {"s": (0, 59), "D": (1, 366), "n": (0, 999_999_999), "A": (0, 86_399_999), "N": (0, DAY_NS - 1)}


def _resolved(fields: dict[str, int]) -> Clock:
    for letter, (low, high) in _RANGES.items():
        if letter in fields and not low <= fields[letter] <= high:
            raise _Misfit
    year = fields.get("u", fields.get("y", 1970))
    if "y" in fields and "u" not in fields:
        if year < 1:
            raise _Misfit
        year = 1 - year if fields.get("G") == 0 else year
    if "D" in fields and "M" not in fields:
        day = _days(year, 1, 1) + fields["D"] - 1
        if int(civil(np.array([day]))[0][0]) != year:
            raise _Misfit
    else:
        month = fields.get("M", 1)
        last = int(month_days(np.array([year]), np.array([month]))[0])
        day = _days(year, month, min(fields.get("d", 1), last))
    if "E" in fields and int(weekday(np.array([day]))[0]) != fields["E"]:
        raise _Misfit
    if "A" in fields or "N" in fields:
        return Clock(day * DAY_NS + fields.get("N", fields.get("A", 0) * 1_000_000), fields.get("offset"))
    hour = _hour(fields)
    nano = (hour * 3600 + fields.get("m", 0) * 60 + fields.get("s", 0)) * SECOND_NS + fields.get(
        "S", fields.get("n", 0)
    )
    if hour == 24 and nano > DAY_NS:
        raise _Misfit
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
    """The clock by a pattern of `SimpleDateFormat`; two digits of a year lie within 80 years before `this_year` and 20
    after. None if the text does not fit."""
    source = _Text(text)
    fields: dict[str, int] = {}
    try:
        for place, part in enumerate(parts):
            if part.letter == "":
                source.expect(part.text)
            else:
                following = parts[place + 1] if place + 1 < len(parts) else None
                _read_leniently(part, _is_number(following), source, fields, this_year)
    except _Misfit:
        return None
    return _rolled(fields) if source.place else None


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
        raise PatternProblem(f"text is not read by the letter {letter} of a pattern")


_DIGITS_MAX = 9  # Java's int; what has more is no date of any calendar


def _read_number(width: int | None, source: _Text) -> int:
    stop = len(source.text) if width is None else source.place + width
    if stop > len(source.text):
        raise _Misfit
    match = re.compile(r"-?[0-9]+").match(source.text, source.place, stop)
    if match is None:
        raise _Misfit
    if len(match.group()) > _DIGITS_MAX:
        raise _Misfit
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
        raise _Misfit
    source.place = match.end()
    return zone.standard_offset


def _rolled(fields: dict[str, int]) -> Clock:
    """Fields beyond their range go on into the next."""
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
