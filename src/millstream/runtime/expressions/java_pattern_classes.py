r"""Parses characters and character classes of Java's patterns (`\x41`, `\d`, `\p{Lu}`, `[a-z&&[^aeiou]]`) to sets.

`Cursor` is a position in a pattern; all parsers advance it and report errors at its position.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import NoReturn

from millstream.runtime.expressions.character_sets import (
    ALL,
    CodePoints,
    complement,
    intersection,
    of_characters,
    property_named,
    union,
    with_both_cases,
)

__all__ = [
    "LINE_ENDS",
    "Cursor",
    "Flags",
    "PatternError",
    "UnsupportedPattern",
    "class_of",
    "escaped_character",
    "escaped_set",
]

LINE_ENDS = "\n\r\x85\u2028\u2029"
_BLANKS = "\t \xa0\u1680\u180e\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_SETS: dict[str, CodePoints] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
    "h": of_characters(_BLANKS),
    "v": of_characters("\n\x0b\f\r\x85\u2028\u2029"),
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\x07", "e": "\x1b"}
_OF_UNICODE = {"Lower": "IsLowercase", "Upper": "IsUppercase", "Alpha": "IsAlphabetic", "Digit": "IsDigit"}
_OF_UNICODE |= {"Punct": "IsPunctuation", "Space": "IsWhite_Space", "Cntrl": "IsControl"}


class PatternError(ValueError):
    """A pattern that Java rejects too."""

    def __init__(self, pattern: str, place: int | None, reason: str) -> None:
        at = "" if place is None else f", at character {place + 1}"
        super().__init__(f"the pattern {pattern!r} does not compile: {reason}{at}")
        self.pattern = pattern
        self.reason = reason


class UnsupportedPattern(ValueError):
    """A pattern that Java accepts but neither engine supports."""


@dataclass(frozen=True)
class Flags:
    """Java's flags, named by their letters."""

    i: bool = False  # case-insensitive, ASCII only
    u: bool = False  # case-insensitive for all letters
    m: bool = False  # ^ and $ match at every line
    s: bool = False  # . matches line terminators
    x: bool = False  # blanks and comments are ignored
    d: bool = False  # only \n terminates a line
    U: bool = False  # \w and similar classes cover all of Unicode


class Cursor:
    """A position in a pattern."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0

    def fail(self, reason: str, place: int | None = None) -> NoReturn:
        """Raises a `PatternError` at the position."""
        raise PatternError(self.source, self.at if place is None else place, reason)

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.source[self.at : self.at + 1]

    def next(self) -> str:
        """Consumes the next character."""
        if self.at >= len(self.source):
            self.fail("it ends too early")
        self.at += 1
        return self.source[self.at - 1]

    def accept(self, text: str) -> bool:
        """Consumes the text if it follows; returns whether it did."""
        matches = self.source.startswith(text, self.at)
        self.at += len(text) if matches else 0
        return matches

    def until(self, end: str) -> str:
        """Consumes up to and including `end`; returns the text before it."""
        stop = self.source.find(end, self.at)
        if stop < 0:
            self.fail(f"{end} is missing")
        text, self.at = self.source[self.at : stop], stop + len(end)
        return text

    def skip_blanks(self) -> None:
        """Skips blanks and comments, as in (?x)."""
        while self.at < len(self.source):
            if self.peek() in " \t\n\x0b\f\r":
                self.at += 1
            elif self.peek() == "#":
                while self.at < len(self.source) and self.peek() not in LINE_ENDS:
                    self.at += 1
            else:
                return


def fold_case(points: CodePoints, flags: Flags) -> CodePoints:
    """Adds the other cases if the flags are case-insensitive."""
    return with_both_cases(points, flags.u or flags.U) if flags.i else points


def escaped_character(cursor: Cursor, letter: str) -> str | None:
    """Parses an escape for a character, after its letter; None if it is another kind of escape."""
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter == "x":
        braces = cursor.accept("{")
        digits = cursor.until("}") if braces else _digits(cursor, 2)
        return _character(cursor, digits)
    if letter == "u":
        first = _character(cursor, _digits(cursor, 4))
        if "\ud800" <= first < "\udc00" and cursor.accept("\\u"):
            second = _character(cursor, _digits(cursor, 4))
            return (first + second).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return first
    if letter == "0":
        start = cursor.at
        while cursor.peek() in tuple("01234567") and cursor.at - start < 3:
            cursor.at += 1
        digits = cursor.source[start : cursor.at]
        if not digits:
            cursor.fail("an octal number is expected after \\0")
        if len(digits) == 3 and digits[0] > "3":
            cursor.at, digits = cursor.at - 1, digits[:2]
        return chr(int(digits, 8))
    if letter == "c":
        return chr(ord(cursor.next()) ^ 64)
    if letter == "N" and cursor.accept("{"):
        name = cursor.until("}")
        try:
            return unicodedata.lookup(name)
        except KeyError:
            cursor.fail(f"there is no character named {name!r}")
    return None if letter.isascii() and letter.isalnum() else letter


def _digits(cursor: Cursor, count: int) -> str:
    digits = cursor.source[cursor.at : cursor.at + count]
    cursor.at += count
    return digits if len(digits) == count else "?"


def _character(cursor: Cursor, digits: str) -> str:
    try:
        return chr(int(digits, 16))
    except (ValueError, OverflowError):
        cursor.fail("a hexadecimal code point is expected")


def escaped_set(cursor: Cursor, letter: str, flags: Flags) -> CodePoints | None:
    """Parses an escape for a set, after its letter; None if it is another kind of escape."""
    if letter in "pP":
        start = cursor.at
        name = cursor.until("}") if cursor.accept("{") else cursor.next()
        if flags.U:
            name = _OF_UNICODE.get(name, name)
        points = property_named(name)
        if points is None:
            cursor.fail(f"there is no character property {name!r}", start)
        return points if letter == "p" else complement(points)
    points = _SETS.get(letter.lower())
    if points is None:
        return None
    if flags.U and letter in "dDwWsS":
        points = {"d": _unicode("IsDigit"), "s": _unicode("IsWhite_Space"), "w": _words()}[letter.lower()]
    return points if letter.islower() else complement(points)


def _unicode(name: str) -> CodePoints:
    return property_named(name) or ()


def _words() -> CodePoints:
    return union(*(_unicode(name) for name in ("IsAlphabetic", "M", "Nd", "Pc")), of_characters("\u200c\u200d"))


def class_of(cursor: Cursor, flags: Flags) -> CodePoints:
    """Parses a bracketed class, after its opening bracket."""
    negated = cursor.accept("^")
    start = cursor.at - 1
    result: CodePoints = ALL
    points: CodePoints | None = None
    while True:
        if flags.x:
            cursor.skip_blanks()
        if not cursor.peek():
            cursor.fail("a character class is not closed", start)
        if cursor.peek() == "]" and points is not None:
            cursor.at += 1
            break
        if cursor.accept("&&"):
            result = intersection(result, points) if points is not None else result
            points = () if cursor.peek() == "]" else None
            continue
        part = class_of(cursor, flags) if cursor.accept("[") else _member(cursor, flags)
        points = union(points or (), part)
    result = intersection(result, points)
    return complement(result) if negated else result


def _member(cursor: Cursor, flags: Flags) -> CodePoints:
    """Parses one character, range or escape inside a class."""
    first = _one(cursor, flags)
    if not isinstance(first, str):
        return first
    following = cursor.source[cursor.at + 1 : cursor.at + 2]
    if cursor.peek() != "-" or following in ("]", "[", ""):
        return fold_case(of_characters(first), flags)
    start = cursor.at
    cursor.at += 1
    last = _one(cursor, flags)
    if not isinstance(last, str):
        return union(fold_case(of_characters(first + "-"), flags), last)
    if last < first:
        cursor.fail(f"the range {first}-{last} goes backwards", start)
    return fold_case(((ord(first), ord(last)),), flags)


def _one(cursor: Cursor, flags: Flags) -> str | CodePoints:
    character = cursor.next()
    if character != "\\":
        return character
    letter = cursor.next()
    points = escaped_set(cursor, letter, flags)
    if points is not None:
        return points
    escaped = escaped_character(cursor, letter)
    if escaped is None:
        cursor.fail(f"\\{letter} has no meaning in a class", cursor.at - 1)
    return escaped
