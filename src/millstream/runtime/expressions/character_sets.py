"""Sets of characters as ranges of code points, which represent Java's character classes independently of the engine.

A set is a sorted tuple of disjoint (first, last) pairs. Classes are computed here (unions, intersections, complements,
properties) and written as one plain class that RE2 and Python's `re` interpret alike.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "ALL",
    "CodePoints",
    "class_text",
    "complement",
    "intersection",
    "of_characters",
    "property_named",
    "union",
    "with_both_cases",
]

CodePoints: TypeAlias = tuple[tuple[int, int], ...]
LAST = 0x10FFFF
ALL: CodePoints = ((0, LAST),)
_SURROGATES = range(0xD800, 0xE000)


def of_ranges(ranges: Iterable[tuple[int, int]]) -> CodePoints:
    """Sorts ranges and merges adjacent and overlapping ones.

    >>> of_ranges([(5, 9), (1, 4)])
    ((1, 9),)
    """
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def of_characters(text: str) -> CodePoints:
    """The set of a string's characters.

    >>> of_characters("cab")
    ((97, 99),)
    """
    return of_ranges((ord(character), ord(character)) for character in text)


def union(*sets: CodePoints) -> CodePoints:
    """Characters in any of the sets."""
    return of_ranges(pair for each in sets for pair in each)


def complement(points: CodePoints) -> CodePoints:
    """Characters not in the set.

    >>> complement(((0, 96),)) == ((97, LAST),)
    True
    """
    gaps, start = [], 0
    for first, last in points:
        if first > start:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return tuple(gaps)


def intersection(left: CodePoints, right: CodePoints) -> CodePoints:
    """Characters in both sets."""
    return complement(union(complement(left), complement(right)))


def with_both_cases(points: CodePoints, of_all_letters: bool = False) -> CodePoints:
    """Adds the other cases of letters: of ASCII letters only, as Java does by default, or of all letters.

    >>> class_text(with_both_cases(of_characters("k"))), class_text(with_both_cases(of_characters("k"), True))
    ('[Kk]', '[Kk\\u212a]')
    """
    if not of_all_letters:
        lower = intersection(points, ((97, 122),))
        upper = intersection(points, ((65, 90),))
        moved = [(a - 32, b - 32) for a, b in lower] + [(a + 32, b + 32) for a, b in upper]
        return of_ranges((*points, *moved))
    variants = _case_variants()
    cased = intersection(points, _cased_letters())
    return union(points, of_characters("".join(variants[_fold(chr(p))] for a, b in cased for p in range(a, b + 1))))


def _fold(character: str) -> str:
    """Java's case-insensitive comparison key: the lower case of the upper case, if each is a single character."""
    upper = character.upper()
    upper = upper if len(upper) == 1 else character
    lower = upper.lower()
    return lower if len(lower) == 1 else upper


@lru_cache(maxsize=1)
def _case_variants() -> dict[str, str]:
    """Letters that are equal ignoring case, by their comparison key."""
    variants: dict[str, str] = {}
    for point in range(0x1E944):
        character = chr(point)
        if point not in _SURROGATES:
            folded = _fold(character)
            variants[folded] = variants.get(folded, "") + character
    return {folded: letters for folded, letters in variants.items() if len(letters) > 1}


@lru_cache(maxsize=1)
def _cased_letters() -> CodePoints:
    return of_characters("".join(_case_variants().values()))


def class_text(points: CodePoints) -> str:
    """The set, which must not be empty, as one class for both RE2 and Python's `re`."""
    inverse = complement(points)
    negated = len(inverse) < len(points) and bool(inverse)
    shown = "".join(
        _in_class(first) if first == last else _in_class(first) + ("-" if last > first + 1 else "") + _in_class(last)
        for first, last in (inverse if negated else points)
        for first, last in _without_surrogates(first, last)
    )
    return f"[{'^' if negated else ''}{shown}]"


def _without_surrogates(first: int, last: int) -> list[tuple[int, int]]:
    """Removes surrogates, which are not characters, from a range."""
    if first >= 0xD800 and last <= 0xDFFF:
        return []
    parts = [(first, min(last, 0xD7FF)), (max(first, 0xE000), last)]
    return [(a, b) for a, b in parts if a <= b] if last >= 0xD800 and first <= 0xDFFF else [(first, last)]


def _in_class(point: int) -> str:
    character = chr(point)
    return "\\" + character if character in r"\]^-[&~|" else character


def _assigned_points() -> Iterator[int]:
    """Code points that may be assigned. Nearly all others are unassigned and have no property used here."""
    return (p for p in (*range(0x32400), *range(0xE0000, 0xE0200)) if p not in _SURROGATES)


def _where(test: Callable[[str], bool]) -> CodePoints:
    """All characters for which the test is true."""
    return of_ranges((p, p) for p in _assigned_points() if test(chr(p)))


@lru_cache(maxsize=64)
def _category(name: str) -> CodePoints:
    """A general category or group of categories: `Lu`, `L`."""
    if name[0] == "C":  # includes unassigned code points
        return of_ranges((p, p) for p in range(LAST + 1) if unicodedata.category(chr(p)).startswith(name))
    return _where(lambda character: unicodedata.category(character).startswith(name))


@lru_cache(maxsize=32)
def _script(name: str) -> CodePoints | None:
    """A Unicode script, determined with RE2, since Python does not support scripts."""
    letters = [chr(p) for p in _assigned_points()]
    try:
        mask = pc.match_substring_regex(pa.array(letters), rf"\p{{{name}}}").to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return of_ranges((ord(letters[i]), ord(letters[i])) for i in mask.nonzero()[0])


_POSIX: dict[str, CodePoints] = {
    "Lower": ((97, 122),),
    "Upper": ((65, 90),),
    "ASCII": ((0, 127),),
    "Alpha": ((65, 90), (97, 122)),
    "Digit": ((48, 57),),
    "Alnum": ((48, 57), (65, 90), (97, 122)),
    "Punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "Graph": ((33, 126),),
    "Print": ((32, 126),),
    "Blank": ((9, 9), (32, 32)),
    "Cntrl": ((0, 31), (127, 127)),
    "XDigit": ((48, 57), (65, 70), (97, 102)),
    "Space": ((9, 13), (32, 32)),
}
_TESTS: dict[str, Callable[[str], bool]] = {
    "javaLowerCase": str.islower,
    "javaUpperCase": str.isupper,
    "javaAlphabetic": lambda c: c.isalpha() or unicodedata.category(c) == "Nl",
    "javaLetter": str.isalpha,
    "javaDigit": str.isdecimal,
    "javaLetterOrDigit": lambda c: c.isalpha() or c.isdecimal(),
    "javaTitleCase": lambda c: unicodedata.category(c) == "Lt",
    "javaWhitespace": lambda c: (
        c in "\t\n\x0b\f\r\x1c\x1d\x1e\x1f" or (unicodedata.category(c)[0] == "Z" and c not in "\xa0\u2007\u202f")
    ),
    "javaSpaceChar": lambda c: unicodedata.category(c)[0] == "Z",
    "javaISOControl": lambda c: c < " " or "\x7f" <= c <= "\x9f",
    "isalphabetic": lambda c: c.isalpha() or unicodedata.category(c) == "Nl",
    "isletter": str.isalpha,
    "islowercase": str.islower,
    "isuppercase": str.isupper,
    "istitlecase": lambda c: unicodedata.category(c) == "Lt",
    "isdigit": str.isdecimal,
    "ispunctuation": lambda c: unicodedata.category(c)[0] == "P",
    "iscontrol": lambda c: unicodedata.category(c) == "Cc",
    "iswhite_space": lambda c: c in "\t\n\x0b\f\r\x85" or unicodedata.category(c)[0] == "Z",
    "isassigned": lambda c: unicodedata.category(c) != "Cn",
}
_BLOCKS: dict[str, tuple[int, int]] = {
    "basiclatin": (0x0, 0x7F),
    "latin1supplement": (0x80, 0xFF),
    "latinextendeda": (0x100, 0x17F),
    "greek": (0x370, 0x3FF),
    "greekandcoptic": (0x370, 0x3FF),
    "cyrillic": (0x400, 0x4FF),
    "hebrew": (0x590, 0x5FF),
    "arabic": (0x600, 0x6FF),
    "devanagari": (0x900, 0x97F),
    "thai": (0xE00, 0xE7F),
    "generalpunctuation": (0x2000, 0x206F),
    "hiragana": (0x3040, 0x309F),
    "katakana": (0x30A0, 0x30FF),
    "cjkunifiedideographs": (0x4E00, 0x9FFF),
    "hangulsyllables": (0xAC00, 0xD7AF),
    "emoticons": (0x1F600, 0x1F64F),
}


@lru_cache(maxsize=128)
def property_named(name: str) -> CodePoints | None:
    """The characters of Java's `\\p{name}`; None if the property does not exist.

    >>> class_text(property_named("Alpha")), property_named("Nonsense")
    ('[A-Za-z]', None)
    """
    key, equals, value = name.partition("=")
    if equals:
        kinds = {"script": "Is", "sc": "Is", "block": "In", "blk": "In", "general_category": "", "gc": ""}
        return None if key.lower() not in kinds else property_named(kinds[key.lower()] + value)
    if name in _POSIX:
        return _POSIX[name]
    test = _TESTS.get(name) or _TESTS.get(name.lower())
    if test is not None:
        return _where(test)
    if name.startswith("In"):
        block = _BLOCKS.get(name[2:].lower().replace("_", "").replace("-", "").replace(" ", ""))
        return (block,) if block else None
    short = name.removeprefix("Is")
    if short == "LC":
        return union(*(_category(part) for part in ("Lu", "Ll", "Lt")))
    if short == "L1":
        return ((0, 255),)
    if 1 <= len(short) <= 2 and short[0] in "LMNPSZC":
        return _category(short) or None
    return _script(short[:1].upper() + short[1:].lower()) if name.startswith("Is") else None
