"""Errors that show their position in the text, with secrets redacted."""

from __future__ import annotations

from millstream.errors import SqlError
from millstream.redaction import redact, redact_statement, secrets_of_statement
from millstream.sql.syntax import Node, Span

__all__ = ["problem"]

_LINE_MAX = 120


def problem(message: str, where: Node | Span | None) -> SqlError:
    """An error about a span of the text: the message, then the line with the span underlined.

    >>> print(problem("unknown column 'pric'. Did you mean 'price'?", Span(7, 11, "SELECT pric FROM bid")))
    unknown column 'pric'. Did you mean 'price'?
      line 1, column 8:
        SELECT pric FROM bid
               ^^^^
    """
    span = where.span if isinstance(where, Node) else where
    if span is None:
        return SqlError(message)
    message = redact(message, secrets_of_statement(span.source))
    written, column = _shown_line(span)
    width = max(1, min(span.stop - span.start, len(written) - column + 1))
    # Tabs are preserved, so that the underline is aligned with the text.
    indent = "".join("\t" if sign == "\t" else " " for sign in written[: column - 1])
    drawn = f"  line {span.line}, column {span.column}:\n    {written}\n    {indent}{'^' * width}"
    return SqlError(f"{message}\n{drawn}", line=span.line, column=span.column)


def _shown_line(span: Span) -> tuple[str, int]:
    """The line and column of a position; a very long line is cut to the surroundings of the position."""
    source = redact_statement(span.source)
    begin = source.rfind("\n", 0, span.start) + 1
    end = source.find("\n", span.start)
    line = source[begin : end if end >= 0 else len(source)].rstrip("\r")
    place = span.start - begin
    if len(line) <= _LINE_MAX:
        return line, place + 1
    first = max(0, min(place - _LINE_MAX // 3, len(line) - _LINE_MAX))
    cut = line[first : first + _LINE_MAX]
    before, after = "…" if first else "", "…" if first + _LINE_MAX < len(line) else ""
    return f"{before}{cut}{after}", place - first + len(before) + 1
