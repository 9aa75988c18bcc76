"""Properties of Java's strings that are visible in Flink's results: UTF-16 units, names of charsets, numbers in
strings.

Most of Flink's functions count characters. A few (LPAD, OVERLAY, SPLIT by the empty string) operate on Java's String,
which counts an emoji as two units; an unpaired surrogate is written as `?` when Java encodes the string.
"""

from __future__ import annotations

import codecs
import re

__all__ = ["JAVA_NUMBER", "java_charset", "of_units", "units_of"]

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_DIGITS = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_HEX = r"0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
JAVA_NUMBER = re.compile(rf"[\0- ]*[+-]?(?:NaN|Infinity|(?:{_HEX}|{_DIGITS})[fFdD]?)[\0- ]*")
"""The strings that Double.parseDouble accepts."""
_CHARSETS = {
    "us-ascii": "ascii",
    "utf-16": "utf-16-be",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-8": "utf-8",
    "iso-8859-1": "latin-1",
}


def units_of(text: str) -> str:
    """The UTF-16 units of a string, one character each.

    >>> len(units_of("a😀"))
    3
    """
    if not text or max(text) <= "\uffff":
        return text
    return "".join(chr(unit) for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"))


def of_units(units: str) -> str:
    """The string of these UTF-16 units; unpaired surrogates become question marks.

    >>> of_units(units_of("a😀")), of_units(units_of("a😀")[:2])
    ('a😀', 'a?')
    """
    if units.isascii() or not _HALF.search(units):
        return units
    whole = _PAIR.sub(lambda match: match[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), units)
    return _HALF.sub("?", whole)


def java_charset(name: str) -> str | None:
    """Python's name of a charset with a Java name; None if unknown.

    >>> java_charset("UTF-16"), java_charset("nope")
    ('utf-16-be', None)
    """
    known = _CHARSETS.get(name.lower())
    if known:
        return known
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    return codec.name if getattr(codec, "_is_text_encoding", True) else None
