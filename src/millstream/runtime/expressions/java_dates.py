"""Parses Java's date patterns into parts, and formats an instant by them.

Java has two classes for patterns, and Flink uses both: `DateTimeFormatter` for timestamps (DATE_FORMAT, TO_TIMESTAMP),
`SimpleDateFormat` for seconds and strings (FROM_UNIXTIME, UNIX_TIMESTAMP, CONVERT_TZ, TO_DATE with a format). Some
letters differ in meaning: u is the year in the first class and the day of the week in the second. Patterns that Java
rejects raise `PatternError`. Names are English, and weeks follow United States rules, as in Flink with the US locale.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

import numpy as np

from millstream.runtime.expressions.calendar_days import civil, days_of_civil, julian_civil, weekday
from millstream.runtime.expressions.zones import Zone

__all__ = ["DAYS", "MONTHS", "Moment", "Part", "PatternError", "Reader", "format_moment", "pattern_parts"]

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_QUARTERS = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
_DAY_NS = 86_400_000_000_000


class PatternError(ValueError):
    """The pattern is malformed, or needs a part that the value lacks."""


class Reader(Enum):
    """The Java class that defines the pattern's syntax."""

    FORMATTER = "DateTimeFormatter"
    SIMPLE = "SimpleDateFormat"


_MANY = 10**6
_LETTERS = {
    Reader.FORMATTER: {
        **dict.fromkeys("GEQqMLec", 5), **dict.fromkeys("uyYnNAg", 19), **dict.fromkeys("dHhKkmsw", 2), "D": 3,
        "F": 1, "W": 1, "S": 9, "a": 1, "V": 2, "v": 4, "z": 4, "O": 4, "X": 5, "x": 5, "Z": 5, "B": 5,
    },
    Reader.SIMPLE: {**dict.fromkeys("GyYMLwWDdFEuaHkKhmsSzZ", _MANY), "X": 3},
}  # fmt: skip
_ZONED = "VvzOXxZ"


@dataclass(frozen=True)
class Part:
    """A repeated pattern letter, or literal text without a letter. `optional` is the depth of enclosing brackets."""

    letter: str
    width: int = 0
    text: str = ""
    optional: int = 0


@lru_cache(maxsize=512)
def pattern_parts(pattern: str, reader: Reader) -> tuple[Part, ...]:
    """Parses a pattern; raises `PatternError` if it is malformed."""
    parts: list[Part] = []
    depth = 0
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        if letter == "'":
            text, place = _read_quoted(pattern, place)
            parts.append(Part("", text=text, optional=depth))
            continue
        if letter.isascii() and letter.isalpha():
            stop = place
            while stop < len(pattern) and pattern[stop] == letter:
                stop += 1
            parts.append(_letter_part(letter, stop - place, reader, depth))
            place = stop
            continue
        if reader is Reader.FORMATTER and letter in "[]{}#":
            if letter in "{}#":
                raise PatternError(f"the pattern contains {letter!r}, which is reserved: {pattern!r}")
            depth += 1 if letter == "[" else -1
            if depth < 0:
                raise PatternError(f"the pattern has ] without a preceding [: {pattern!r}")
            parts.append(Part(letter, optional=depth))
        else:
            parts.append(Part("", text=letter, optional=depth))
        place += 1
    return tuple(parts)


def _read_quoted(pattern: str, place: int) -> tuple[str, int]:
    """The text between quotes, or a quote for two adjacent quotes; and the end position."""
    if pattern[place : place + 2] == "''":
        return "'", place + 2
    text = ""
    place += 1
    while place < len(pattern):
        if pattern[place] == "'":
            if pattern[place : place + 2] != "''":
                return text, place + 1
            place += 1
        text += pattern[place]
        place += 1
    raise PatternError(f"the pattern has an unterminated quote: {pattern!r}")


def _letter_part(letter: str, width: int, reader: Reader, depth: int) -> Part:
    most = _LETTERS[reader].get(letter)
    if most is None:
        raise PatternError(f"date patterns have no letter {letter!r}")
    if width > most or (reader is Reader.FORMATTER and (letter, width) in (("c", 2), ("V", 1), ("O", 2), ("O", 3))):
        raise PatternError(f"date patterns do not allow {letter * width!r}")
    return Part(letter, width, optional=depth)


# --- one instant ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A local time: day since 1970 and nanosecond of the day; with the zone if it is known."""

    day: int
    nano: int
    zone: Zone | None = None
    offset: int = 0
    is_julian: bool = False

    @cached_property
    def date(self) -> tuple[int, int, int]:
        """The year, month and day."""
        parts = (julian_civil if self.is_julian else civil)(np.array([self.day], np.int64))
        return int(parts[0][0]), int(parts[1][0]), int(parts[2][0])

    @property
    def year_of_era(self) -> int:
        """The year of its era: 1 BC precedes AD 1."""
        year = self.date[0]
        return year if year > 0 else 1 - year

    @property
    def day_of_year(self) -> int:
        """Day of the year, from 1."""
        year = np.array([self.date[0]])
        if self.is_julian:
            from millstream.runtime.expressions.calendar_days import julian_days

            return self.day - int(julian_days(year, np.array([1]), np.array([1]))[0]) + 1
        return self.day - int(days_of_civil(year, np.array([1]), np.array([1]))[0]) + 1

    @property
    def weekday(self) -> int:
        """Day of the week, 1 for Monday."""
        return int(weekday(np.array([self.day]))[0])

    @property
    def week(self) -> tuple[int, int]:
        """The week's year and number; weeks start on Sunday, the first contains 1 January."""
        year = self.date[0]
        next_new_year = int(days_of_civil(np.array([year + 1]), np.array([1]), np.array([1]))[0])
        saturday = self.day + 6 - self.weekday % 7
        if saturday >= next_new_year:
            return year + 1, 1
        new_year = self.day - self.day_of_year + 1
        first_sunday = new_year - int(weekday(np.array([new_year]))[0]) % 7
        return year, (self.day - first_sunday) // 7 + 1

    @property
    def second_of_day(self) -> int:
        """Second of the day, from 0."""
        return self.nano // 1_000_000_000


def format_moment(parts: tuple[Part, ...], moment: Moment, reader: Reader) -> str:
    """Formats an instant by a pattern."""
    write = _formatter_text if reader is Reader.FORMATTER else _simple_text
    return "".join(write(part, moment) if part.letter not in ("", "[", "]") else part.text for part in parts)


def _numbers(letter: str, moment: Moment) -> int | None:
    """The number for a letter with the same meaning in both classes."""
    seconds = moment.second_of_day
    hour = seconds // 3600
    plain = {
        "d": lambda: moment.date[2], "D": lambda: moment.day_of_year, "H": lambda: hour, "k": lambda: hour or 24,
        "K": lambda: hour % 12, "h": lambda: hour % 12 or 12, "m": lambda: seconds // 60 % 60,
        "s": lambda: seconds % 60, "w": lambda: moment.week[1], "M": lambda: moment.date[1],
        "L": lambda: moment.date[1], "W": lambda: _week_of_month(moment),
    }  # fmt: skip
    return plain[letter]() if letter in plain else None


def _week_of_month(moment: Moment) -> int:
    first = moment.day - moment.date[2] + 1
    return (moment.day - (first - int(weekday(np.array([first]))[0]) % 7)) // 7 + 1


def _name_text(names: tuple[str, ...], index: int, width: int) -> str:
    return names[index] if width == 4 else names[index][: 1 if width == 5 else 3]


def _formatter_text(part: Part, moment: Moment) -> str:
    letter, width = part.letter, part.width
    if letter in _ZONED:
        return _zone_text(part, moment)
    if letter in "uyY":
        year = {"u": moment.date[0], "y": moment.year_of_era, "Y": moment.week[0]}[letter]
        return _year_text(year, width)
    if letter in "ML" and width > 2:
        return _name_text(MONTHS, moment.date[1] - 1, width)
    if letter == "E" or (letter in "ec" and width > 2):
        return _name_text(DAYS, moment.weekday - 1, width)
    if letter in "ec":
        return f"{moment.weekday % 7 + 1:0{width}d}"
    if letter in "Qq":
        quarter = (moment.date[1] + 2) // 3
        return {3: f"Q{quarter}", 4: _QUARTERS[quarter - 1], 5: str(quarter)}.get(width, f"{quarter:0{width}d}")
    if letter == "G":
        is_old = moment.date[0] <= 0
        names = ("BC", "Before Christ", "B") if is_old else ("AD", "Anno Domini", "A")
        return names[{4: 1, 5: 2}.get(width, 0)]
    if letter == "a":
        return "AM" if moment.second_of_day < 43_200 else "PM"
    if letter == "S":
        return f"{moment.nano % 1_000_000_000:09d}"[:width]
    if letter in "nNAFg":
        number = {
            "n": moment.nano % 1_000_000_000, "N": moment.nano, "A": moment.nano // 1_000_000,
            "F": (moment.date[2] - 1) % 7 + 1, "g": moment.day + 40_587,
        }[letter]  # fmt: skip
        return f"{number:0{width}d}"
    if letter == "B":
        raise PatternError("the letter B of patterns (in the morning, at noon) is not supported")
    return f"{_numbers(letter, moment):0{width}d}"


def _year_text(year: int, width: int) -> str:
    if width == 2:
        return f"{year % 100:02d}"
    if width < 4:
        return f"{'-' if year < 0 else ''}{abs(year):0{width}d}"
    sign = "-" if year < 0 else "+" if year >= 10**width else ""
    return f"{sign}{abs(year):0{width}d}"


def _simple_text(part: Part, moment: Moment) -> str:
    letter, width = part.letter, part.width
    if letter in "zZX":
        return _zone_text(part, moment)
    if letter in "yY":
        year = moment.year_of_era if letter == "y" else moment.week[0]
        return f"{year % 100:02d}" if width == 2 else f"{year:0{width}d}"
    if letter in "ML" and width > 2:
        return MONTHS[moment.date[1] - 1][: None if width > 3 else 3]
    if letter == "E":
        return DAYS[moment.weekday - 1][: None if width > 3 else 3]
    if letter == "G":
        return "AD" if moment.date[0] > 0 else "BC"
    if letter == "a":
        return "AM" if moment.second_of_day < 43_200 else "PM"
    if letter in "SuF":
        number = {
            "S": moment.nano // 1_000_000 % 1000, "u": moment.weekday, "F": (moment.date[2] - 1) // 7 + 1,
        }[letter]  # fmt: skip
        return f"{number:0{width}d}"
    return f"{_numbers(letter, moment):0{width}d}"


def _zone_text(part: Part, moment: Moment) -> str:
    letter, width = part.letter, part.width
    if moment.zone is None:
        raise PatternError(f"a timestamp without a zone has no value for the pattern letter {letter}")
    sign = "-" if moment.offset < 0 else "+"
    minutes = abs(moment.offset) // 60
    hours, minutes = divmod(minutes, 60)
    if letter == "V":
        return moment.zone.name
    if letter == "Z" and width < 4:
        return f"{sign}{hours:02d}{minutes:02d}"
    if letter in "Xx":
        if letter == "X" and not moment.offset:
            return "Z"
        if width == 1:
            return f"{sign}{hours:02d}"
        return f"{sign}{hours:02d}{':' if width in (3, 5) else ''}{minutes:02d}"
    if letter == "z" and width < 4:
        return moment.zone.abbreviation(moment.day * 86_400 + moment.second_of_day - moment.offset)
    raise PatternError(f"the pattern {letter * width} (names of zones) is not supported")
