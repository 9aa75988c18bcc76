"""Tokenises text: words, quoted names, strings, bytes, numbers and signs. Comments are skipped, except hints.

One pass, linear in the text. A token records its position; `value` is its content (without quotes, and with doubled
quotes made single), and `word` is an unquoted name in upper case, by which the grammar recognises keywords. The error
for an unclosed quote or comment shows where it was opened.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from millstream.sql.places import problem
from millstream.sql.syntax import Span

__all__ = ["Token", "TokenKind", "tokenised", "unclosed_at"]


class TokenKind(Enum):
    WORD = "word"
    QUOTED = "quoted name"
    NUMBER = "number"
    TEXT = "text"
    BYTES = "bytes"
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    kind: TokenKind
    value: str
    word: str  # in upper case; for a sign, the sign itself; "" for other tokens
    start: int
    stop: int


_PIECES = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|/\*(?!\+)[\s\S]*?\*/)
  | (?P<unicode>[uU]&'[^']*+(?:''[^']*+)*+')
  | (?P<bytes>[xX]'[^']*')
  | (?P<escaped>[eE]'(?:[^'\\]|\\[\s\S]|'')*')
  | (?P<charset>(?:_[A-Za-z][\w:.-]*|[nN])'[^']*+(?:''[^']*+)*+')
  | (?P<word>[^\W\d][\w$]*)
  | (?P<text>'[^']*+(?:''[^']*+)*+')
  | (?P<quoted>`[^`]*+(?:``[^`]*+)*+`)
  | (?P<number>(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<sign>/\*\+|\*/(?!\*)|<>|!=|<=|>=|\|\||=>|::|==|&&|\{-|-\}|\.\.|/(?!\*)|[-+*%=<>(),.;:\[\]{}?|^$&!])
    """,
    re.VERBOSE,
)
_C_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'"}
_C_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[\s\S])|''")


def tokenised(text: str) -> list[Token]:
    """The tokens of a string; the last is END, at the end of the text."""
    tokens: list[Token] = []
    place, length, match = 0, len(text), _PIECES.match
    while place < length:
        piece = match(text, place)
        if piece is None:
            raise _unreadable(text, place)
        kind, stop = piece.lastgroup, piece.end()
        if kind == "blank":
            pass
        elif kind == "word":
            written = piece.group()
            tokens.append(Token(TokenKind.WORD, written, written.upper(), place, stop))
        elif kind == "sign":
            tokens.append(Token(TokenKind.SIGN, piece.group(), piece.group(), place, stop))
        elif kind == "number":
            tokens.append(_number(text, place, stop))
        else:
            tokens.append(_quoted(text, str(kind), place, stop))
        place = stop
    tokens.append(Token(TokenKind.END, "", "", length, length))
    return tokens


def unclosed_at(text: str) -> int | None:
    """The position of an unclosed string, name or comment, or None."""
    place = 0
    while place < len(text):
        piece = _PIECES.match(text, place)
        if piece is None:
            return place if text[place] in "'`" or text.startswith("/*", place) else None
        place = piece.end()
    return None


def _number(text: str, start: int, stop: int) -> Token:
    if stop < len(text) and (text[stop] == "_" or text[stop].isalnum()):
        end = stop
        while end < len(text) and (text[end] == "_" or text[end].isalnum()):
            end += 1
        written = text[start:end]
        raise problem(
            f"{written!r} is neither a number nor a name. A name that begins with a digit is put in backticks: "
            f"`{written}`, a string in single quotes: '{written}'",
            Span(start, end, text),
        )
    return Token(TokenKind.NUMBER, text[start:stop], "", start, stop)


def _quoted(text: str, kind: str, start: int, stop: int) -> Token:
    written = text[start:stop]
    if kind == "text":
        return Token(TokenKind.TEXT, written[1:-1].replace("''", "'"), "", start, stop)
    if kind == "quoted":
        if stop - start == 2:
            raise problem("a name between backticks cannot be empty", Span(start, stop, text))
        return Token(TokenKind.QUOTED, written[1:-1].replace("``", "`"), "", start, stop)
    if kind == "bytes":
        return Token(TokenKind.BYTES, _hexadecimal(text, start, stop), "", start, stop)
    if kind == "escaped":
        return Token(TokenKind.TEXT, _C_ESCAPE.sub(_c_escape, written[2:-1]), "", start, stop)
    if kind == "unicode":
        # The escape character may follow (UESCAPE '!'), so `unicode_text` decodes the value later.
        return Token(TokenKind.TEXT, written[3:-1].replace("''", "'"), "U&", start, stop)
    return Token(TokenKind.TEXT, written[written.index("'") + 1 : -1].replace("''", "'"), "", start, stop)


def _hexadecimal(text: str, start: int, stop: int) -> str:
    digits = text[start + 2 : stop - 1]
    if re.fullmatch(r"(?:[0-9a-fA-F]{2})*", digits) is None:
        raise problem(
            "bytes are written as pairs of hexadecimal digits: x'CAFE'. Found "
            + ("an odd number of digits" if re.fullmatch(r"[0-9a-fA-F]*", digits) else repr(digits)),
            Span(start, stop, text),
        )
    return digits.upper()


def _c_escape(match: re.Match[str]) -> str:
    code = match.group(1)
    if code is None:
        return "'"
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _C_ESCAPES.get(code, code)


_CURLY = {"‘": "'", "’": "'", "“": "'", "”": "'", "´": "'"}


def _unreadable(text: str, place: int) -> Exception:
    """The error at a position where no token starts, most often because something was not closed."""
    sign = text[place]
    here = Span(place, place + 1, text)
    if text.startswith("/*", place):
        return problem("this comment is never closed: */ is missing", Span(place, place + 2, text))
    if sign == "'":
        return problem("this string is never closed: ' is missing. A ' inside a string is written twice: ''", here)
    if sign == "`":
        return problem("this name is never closed: ` is missing", here)
    if sign == '"':
        end = text.find('"', place + 1)
        inner = text[place + 1 : end] if end > 0 else ""
        if not inner or "\n" in inner or len(inner) > 60:
            return problem('" quotes nothing here: names are put in backticks, strings in single quotes', here)
        return problem(
            f"\" quotes nothing here. Write `{inner}` for a name, '{inner}' for a string", Span(place, end + 1, text)
        )
    if sign in _CURLY:
        return problem(f"{sign} is a typographer's quote. Strings are put in straight ones: 'text'", here)
    return problem(f"{sign!r} means nothing here. If it is part of a name, put the name in backticks", here)
