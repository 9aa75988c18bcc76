"""References of the string functions, verified against Flink 2.3."""

from __future__ import annotations

import re
import string
from typing import Any

from millstream.runtime.expressions.java_text import JAVA_NUMBER, of_units, units_of
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.references.null_rules import null_of_null
from millstream.runtime.expressions.text_lengths import check_length

__all__ = ["initcap", "locate", "overlay", "pad_text", "part", "translate"]

_WORD = re.compile(r"[A-Za-z0-9]+")
_FIRST_LETTER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_OTHER_LETTERS = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_LONG_MAX = 2**63 - 1


@reference("||", "CONCAT")
@null_of_null
def concat(context: CallContext, *texts: str) -> str:
    return "".join(texts)


@reference("CONCAT_WS")
def concat_ws(context: CallContext, separator: str | None, *texts: str | None) -> str | None:
    return None if separator is None else separator.join(text for text in texts if text is not None)


@reference("CHAR_LENGTH", "CHARACTER_LENGTH")
@null_of_null
def char_length(context: CallContext, text: str) -> int:
    return len(text)


@reference("UPPER")
@null_of_null
def upper(context: CallContext, text: str) -> str:
    return text.upper()


@reference("LOWER")
@null_of_null
def lower(context: CallContext, text: str) -> str:
    return text.lower()


@reference("INITCAP")
@null_of_null
def initcap(context: CallContext, text: str) -> str:
    """Capitalises words of ASCII letters and digits; other characters do not change."""
    return _WORD.sub(lambda m: m[0][0].translate(_FIRST_LETTER) + m[0][1:].translate(_OTHER_LETTERS), text)


@reference("REVERSE")
@null_of_null
def reverse(context: CallContext, text: str) -> str:
    return text[::-1]


@reference("TRIM")
@null_of_null
def trim(context: CallContext, text: str, characters: str = " ") -> str:
    """Strips characters; `side` is an option of the call."""
    side = context.option("side", "BOTH")
    text = text.lstrip(characters) if characters and side != "TRAILING" else text
    return text.rstrip(characters) if characters and side != "LEADING" else text


@reference("BTRIM")
@null_of_null
def btrim(context: CallContext, text: str, characters: str = " ") -> str:
    return text.strip(characters) if characters else text


@reference("LTRIM")
@null_of_null
def ltrim(context: CallContext, text: str, characters: str = " ") -> str:
    return text.lstrip(characters) if characters else text


@reference("RTRIM")
@null_of_null
def rtrim(context: CallContext, text: str, characters: str = " ") -> str:
    return text.rstrip(characters) if characters else text


@reference("REPEAT")
@null_of_null
def repeat(context: CallContext, text: str, times: int) -> str:
    check_length("REPEAT", len(text) * times)
    return text * times


@reference("SUBSTRING", "SUBSTR")
@null_of_null
def part(context: CallContext, text: str, start: int, length: int | None = None) -> str | None:
    """The substring from a position counted from 1, or from the end if negative; 0 means 1. A negative length yields
    NULL."""
    if length is not None and length < 0:
        return None
    if start < -len(text):
        return ""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[first:] if length is None else text[first : first + length]


@reference("LEFT")
@null_of_null
def left(context: CallContext, text: str, count: int) -> str:
    return text[: max(count, 0)]


@reference("RIGHT")
@null_of_null
def right(context: CallContext, text: str, count: int) -> str:
    return text[max(len(text) - count, 0) :] if count > 0 else ""


@reference("POSITION")
@null_of_null
def position(context: CallContext, needle: str, text: str, start: int = 1) -> int:
    return locate(context, needle, text, start)


@reference("LOCATE")
@null_of_null
def locate(context: CallContext, needle: str, text: str, start: int = 1) -> int:
    """The position from 1; 0 if absent. The empty string is at 1, wherever the search starts."""
    return text.find(needle, max(start - 1, 0)) + 1 if needle else 1


@reference("INSTR")
@null_of_null
def instr(context: CallContext, text: str, needle: str, start: int = 1, occurrence: int = 1) -> int:
    """The position of an occurrence; a negative start counts from the end and searches backwards."""
    if occurrence < 1 or start == 0:
        raise EvaluationError(
            f"INSTR starts at 1 or more, or at -1 or less, not at {start}, for occurrence {occurrence}"
        )
    if not needle:
        return 1
    at = -1
    if start > 0:
        at = start - 2
        for _ in range(occurrence):
            at = text.find(needle, at + 1)
            if at < 0:
                return 0
        return at + 1
    end = len(text) + start + len(needle)
    for _ in range(occurrence):
        at = text.rfind(needle, 0, max(end, 0))
        if at < 0:
            return 0
        end = at + len(needle) - 1
    return at + 1


@reference("STARTSWITH")
@null_of_null
def startswith(context: CallContext, text: str | bytes, start: Any) -> bool:
    return text.startswith(start)


@reference("ENDSWITH")
@null_of_null
def endswith(context: CallContext, text: str | bytes, end: Any) -> bool:
    return text.endswith(end)


@reference("REPLACE")
@null_of_null
def replace(context: CallContext, text: str, search: str, replacement: str) -> str:
    """Replaces all occurrences; the empty string occurs between any two UTF-16 units."""
    return text.replace(search, replacement) if search else of_units(units_of(text).replace("", replacement))


@reference("TRANSLATE")
def translate(context: CallContext, text: str | None, old: str | None, new: str | None) -> str | None:
    """Replaces characters; characters without a counterpart are deleted; the first of duplicate characters counts."""
    if text is None or not old:
        return text
    replacements = new or ""
    table: dict[int, str | None] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), replacements[place] if place < len(replacements) else None)
    return text.translate(table)


@reference("OVERLAY")
@null_of_null
def overlay(context: CallContext, text: str, new: str, start: int, length: int | None = None) -> str:
    """Positions count UTF-16 units. A position outside the string changes nothing; a length of 0 or less replaces the
    rest."""
    units = units_of(text)
    if not 1 <= start <= len(units):
        return text
    replaced = len(units_of(new)) if length is None else length
    rest = units[start - 1 + replaced :] if replaced > 0 else ""
    return of_units(units[: start - 1] + units_of(new) + rest)


def pad_text(text: str, length: int, pad: str, on_left: bool) -> str | None:
    """Pads a string to a length in UTF-16 units; NULL if the padding is empty or the length is negative."""
    if length < 0 or not pad:
        return None
    check_length("LPAD" if on_left else "RPAD", length)
    units, filling = units_of(text), units_of(pad)
    missing = max(length - len(units), 0)
    filler = (filling * (missing // len(filling) + 1))[:missing]
    return of_units(filler + units[:length] if on_left else units[:length] + filler)


@reference("LPAD")
@null_of_null
def lpad(context: CallContext, text: str, length: int, pad: str) -> str | None:
    return pad_text(text, length, pad, on_left=True)


@reference("RPAD")
@null_of_null
def rpad(context: CallContext, text: str, length: int, pad: str) -> str | None:
    return pad_text(text, length, pad, on_left=False)


@reference("ASCII")
@null_of_null
def ascii_(context: CallContext, text: str) -> int:
    """The first byte as Java's signed byte."""
    if not text:
        return 0
    byte = text[0].encode("utf-8", "replace")[0]
    return byte - 256 if byte > 127 else byte


@reference("CHR")
@null_of_null
def chr_(context: CallContext, number: int) -> str:
    return "" if number < 0 else chr(number & 255)


@reference("SPLIT")
@null_of_null
def split(context: CallContext, text: str, delimiter: str) -> list[str]:
    if not text:
        return []
    return text.split(delimiter) if delimiter else [of_units(unit) for unit in units_of(text)]


@reference("SPLIT_INDEX")
@null_of_null
def split_index(context: CallContext, text: str, delimiter: str | int, index: int) -> str | None:
    """The part at an index from 0. The delimiter may be a character code up to 255."""
    if isinstance(delimiter, int):
        if not 0 <= delimiter <= 255:
            return None
        delimiter = chr(delimiter)
    if index < 0 or not text:
        return None
    parts = text.split(delimiter) if delimiter else [text]
    return parts[index] if index < len(parts) else None


@reference("ELT")
def elt(context: CallContext, index: int | None, *values: Any) -> Any:
    return values[index - 1] if index is not None and 1 <= index <= len(values) else None


@reference("IS_ALPHA")
def is_alpha(context: CallContext, text: str | None) -> bool:
    """Java examines UTF-16 units, so characters beyond U+FFFF are not letters."""
    return bool(text) and all(c.isalpha() and c <= "\uffff" for c in text or "")


@reference("IS_DIGIT")
def is_digit(context: CallContext, text: str | None) -> bool:
    return bool(text) and all(c.isdecimal() and c <= "\uffff" for c in text or "")


@reference("IS_DECIMAL")
def is_decimal(context: CallContext, text: str | None) -> bool:
    """Whether Java parses it as an integer, in the digits of any script, or as a double."""
    if text is None or JAVA_NUMBER.fullmatch(text):
        return text is not None
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isdecimal() and int(digits) <= _LONG_MAX
