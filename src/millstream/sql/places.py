"""Errors that draw the place in the text they are about."""

from __future__ import annotations

from millstream.errors import SqlError
from millstream.sql.syntax import Node, Span

__all__ = ["problem"]


def problem(message: str, where: Node | Span | None) -> SqlError:
    """An error about a piece of the text: the message, then the line with the piece underlined.

    >>> print(problem("unknown column 'pric'. Did you mean 'price'?", Span(7, 11, "SELECT pric FROM bid")))
    unknown column 'pric'. Did you mean 'price'?
      line 1, column 8:
        SELECT pric FROM bid
               ^^^^
    """
    span = where.span if isinstance(where, Node) else where
    if span is None:
        return SqlError(message)
    written = span.source.splitlines()[span.line - 1] if span.source.splitlines() else ""
    width = max(1, min(span.stop - span.start, len(written) - span.column + 1))
    drawn = f"  line {span.line}, column {span.column}:\n    {written}\n    {' ' * (span.column - 1)}{'^' * width}"
    return SqlError(f"{message}\n{drawn}", line=span.line, column=span.column)
