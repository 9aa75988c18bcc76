"""Colours a statement while it is typed: keywords, names, strings, numbers, comments.

The pieces of a string are styled one by one and always add up to the text, whether it can be parsed or not.
"""

from __future__ import annotations

import re

from millstream.sql.keywords import RESERVED

__all__ = ["STYLES", "styled"]

STYLES = {
    "keyword": "bold ansiblue",
    "text": "ansigreen",
    "number": "ansicyan",
    "comment": "italic ansibrightblack",
    "hint": "ansimagenta",
    "quoted": "",
    "": "",
}
"""The style of each kind of piece, in prompt_toolkit's notation."""

_PIECES = re.compile(
    r"(?P<hint>/\*\+[\s\S]*?(?:\*/|$))|(?P<comment>--[^\n]*|/\*[\s\S]*?(?:\*/|$))|(?P<text>'(?:[^']|'')*'?)"
    r"|(?P<quoted>`(?:[^`]|``)*`?)|(?P<word>[^\W\d][\w$]*)|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
)


def styled(text: str) -> list[tuple[str, str]]:
    """(kind, piece) pairs; the pieces concatenated are the text.

    >>> styled("SELECT x -- why")
    [('keyword', 'SELECT'), ('', ' x '), ('comment', '-- why')]
    """
    pieces: list[tuple[str, str]] = []
    place = 0
    for match in _PIECES.finditer(text):
        kind = match.lastgroup or ""
        if kind == "word":
            kind = "keyword" if match.group().upper() in RESERVED else ""
        _append(pieces, "", text[place : match.start()])
        _append(pieces, kind, match.group())
        place = match.end()
    _append(pieces, "", text[place:])
    return pieces


def _append(pieces: list[tuple[str, str]], kind: str, text: str) -> None:
    if not text:
        return
    if pieces and pieces[-1][0] == kind:
        pieces[-1] = (kind, pieces[-1][1] + text)
    else:
        pieces.append((kind, text))
