"""Splits a script into statements without parsing them, for a prompt that must detect the end of a statement.

Semicolons inside strings, names, comments and statement sets do not end a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from millstream.errors import SqlError
from millstream.sql.syntax import Span
from millstream.sql.tokens import Token, TokenKind, tokenised, unclosed_at

__all__ = ["in_place", "is_complete", "statement_spans"]


def statement_spans(text: str) -> tuple[Span, ...]:
    """The span of each statement, without its semicolon, which the last may lack."""
    return tuple(
        Span(tokens[0].start, tokens[-1].stop, text) for tokens, _ in _statements(tokenised(text)) if len(tokens) > 0
    )


def in_place(span: Span) -> str:
    """A statement with all preceding text replaced by blanks, so that positions in its errors are those of the original
    text.

    >>> in_place(statement_spans("SHOW TABLES;\\nSELECT 1;")[1])
    '            \\nSELECT 1'
    """
    return re.sub(r"[^\n\t]", " ", span.source[: span.start]) + span.text


def is_complete(text: str) -> bool:
    """Whether a prompt can run the text, that is, every statement in it has ended. Text that cannot be tokenised counts
    as complete, because no further line would correct it."""
    if unclosed_at(text) is not None:
        return False
    try:
        tokens = tokenised(text)
    except SqlError:
        return True
    return all(is_ended for _, is_ended in _statements(tokens))


def _statements(tokens: list[Token]) -> Iterator[tuple[list[Token], bool]]:
    """(tokens of a statement, whether a semicolon ended it)."""
    statement: list[Token] = []
    in_set = False
    at_start = True
    for token in tokens:
        if token.kind is TokenKind.END:
            break
        if token.word == ";" and not in_set:
            if statement:
                yield statement, True
            statement, at_start = [], True
            continue
        words = [each.word for each in statement[-2:]]
        if token.word == "BEGIN" and (not statement or words == ["STATEMENT", "SET"]):
            in_set = True
        elif in_set and at_start and token.word == "END":
            in_set = False
        statement.append(token)
        at_start = token.word in (";", "BEGIN")
    if statement:
        yield statement, False
