r"""Translates the patterns of LIKE and SIMILAR TO to Java's, as Flink does.

`%` matches any characters including line terminators; `_` matches one character except a line terminator. There is no
default escape. SIMILAR TO preserves the syntax common to SQL and Java and treats `$` and `\` literally; `.` has Java's
meaning.
"""

from __future__ import annotations

import re
from functools import lru_cache

from millstream.runtime.expressions.java_patterns import JavaPattern, PatternError, java_pattern

__all__ = ["like_parts", "like_pattern", "like_source", "similar_pattern", "similar_source"]

_CLASSES = {"ALPHA": "Alpha", "UPPER": "Upper", "LOWER": "Lower", "DIGIT": "Digit", "SPACE": "Space"}
_CLASSES |= {"WHITESPACE": "Space", "ALNUM": "Alnum"}
_NAMED = re.compile(r"\[:([A-Za-z]+):\]")


def _checked_escape(pattern: str, escape: str) -> str:
    if len(escape) > 1:
        raise PatternError(pattern, 0, f"the escape is one character, not {escape!r}")
    return escape


@lru_cache(maxsize=1024)
def like_parts(pattern: str, escape: str = "") -> tuple[str, ...]:
    r"""Splits a LIKE pattern into wildcards (`%`, `_`) and literal strings, which are prefixed with `=`.

    >>> like_parts("a%b!%", "!")
    ('=a', '%', '=b%')
    """
    _checked_escape(pattern, escape)
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        is_wild = character in "%_"
        if escape and character == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise PatternError(pattern, at - 1, f"the escape {escape!r} must be followed by %, _ or itself")
            character, is_wild = pattern[at], False
        if is_wild:
            parts += [] if parts and character == "%" == parts[-1] else [character]
        elif parts and parts[-1][0] == "=":
            parts[-1] += character
        else:
            parts.append("=" + character)
        at += 1
    return tuple(parts)


@lru_cache(maxsize=1024)
def like_source(pattern: str, escape: str = "") -> str:
    r"""The Java pattern that matches whole strings LIKE the pattern.

    >>> like_source("a.%")
    '\\A(?:a\\.(?s:.*))\\z'
    """
    wild = {"%": "(?s:.*)", "_": "."}
    parts = (wild[part] if part in wild else _quote(part[1:]) for part in like_parts(pattern, escape))
    return rf"\A(?:{''.join(parts)})\z"


def like_pattern(pattern: str, escape: str = "") -> JavaPattern:
    """The compiled pattern."""
    return java_pattern(like_source(pattern, escape))


def _quote(text: str) -> str:
    return "".join("\\" + c if c.isascii() and not c.isalnum() else c for c in text)


@lru_cache(maxsize=1024)
def similar_source(pattern: str, escape: str = "") -> str:
    r"""The Java pattern that matches whole strings SIMILAR TO the pattern.

    >>> similar_source("(a|b)_%$")
    '\\A(?:(a|b).(?s:.*)\\$)\\z'
    """
    _checked_escape(pattern, escape)
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if escape and character == escape:
            if at == len(pattern):
                raise PatternError(pattern, at - 1, "nothing follows the escape")
            parts.append(_quote(pattern[at]))
            at += 1
        elif character == "[":
            end = _class_end(pattern, at)
            parts.append(_class(pattern, at, end))
            at = end + 1
        else:
            parts.append({"%": "(?s:.*)", "_": ".", "$": r"\$", "\\": r"\\"}.get(character, character))
    return rf"\A(?:{''.join(parts)})\z"


def similar_pattern(pattern: str, escape: str = "") -> JavaPattern:
    """The compiled pattern. Errors refer to the original pattern, not to the translated one."""
    try:
        return java_pattern(similar_source(pattern, escape))
    except PatternError as problem:
        if problem.pattern == pattern:
            raise
        raise PatternError(pattern, None, problem.reason) from None


def _class_end(pattern: str, start: int) -> int:
    """The ] that closes a character class, after any named classes inside."""
    at = start
    while at < len(pattern):
        named = _NAMED.match(pattern, at)
        if named:
            at = named.end()
        elif pattern[at] == "]":
            return at
        else:
            at += 1
    raise PatternError(pattern, start - 1, "a character class is not closed")


def _class(pattern: str, start: int, end: int) -> str:
    def named(match: re.Match[str]) -> str:
        name = _CLASSES.get(match[1].upper())
        if name is None:
            known = ", ".join(sorted(_CLASSES))
            raise PatternError(pattern, start, f"there is no class [:{match[1]}:], only {known}")
        return rf"\p{{{name}}}"

    inside = pattern[start:end].replace("\\", "\\\\")
    return f"[{_NAMED.sub(named, inside)}]"
