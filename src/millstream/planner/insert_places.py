"""Locates the parts of an INSERT in its text: the table, a named column, the query's value for a column.

Syntax trees do not store the positions of names, which only errors need: they are located in the text again. A part
that is not found gets the statement's position; Table API statements have no position.
"""

from __future__ import annotations

from millstream.sql.query_syntax import Query, Select, Values
from millstream.sql.statements import Insert, Statement
from millstream.sql.syntax import Span, Star
from millstream.sql.tokens import Token, TokenKind, tokenised

__all__ = ["InsertPlaces"]


class InsertPlaces:
    """The positions of one statement's parts."""

    def __init__(self, statement: Statement | None = None) -> None:
        self._insert = statement if isinstance(statement, Insert) else None
        self.whole: Span | None = None if statement is None else statement.span

    def table(self) -> Span | None:
        """The position of the table's name."""
        names = self._names()
        width = 0 if self._insert is None else len(self._insert.table)
        return self._span(names[0], names[width - 1]) if width and len(names) >= width else self.whole

    def column(self, name: str, number: int = 1) -> Span | None:
        """The position of a column's `number`th occurrence in the list after the table or in PARTITION."""
        width = 0 if self._insert is None else len(self._insert.table)
        places = [token for token in self._names()[width:] if token.value == name]
        return self._span(places[number - 1], places[number - 1]) if len(places) >= number else self.whole

    def value(self, position: int) -> Span | None:
        """The location of the query's value for the column at this position; of all values if `*` is among them."""
        return self._values(position, position)

    def values_from(self, position: int) -> Span | None:
        """The location of the query's values from this position on; of all values if none remain."""
        return self._values(position, None)

    def _values(self, first: int, last: int | None) -> Span | None:
        spans = [] if self._insert is None else _value_spans(self._insert.query)
        if not spans:
            return self.whole
        if first >= len(spans) or _has_star(self._insert.query if self._insert else None):
            first, last = 0, None
        begin, end = spans[first], spans[-1 if last is None else last]
        return Span(begin.start, end.stop, begin.source)

    def _names(self) -> list[Token]:
        """The names between INTO and the query."""
        if self._insert is None or self.whole is None:
            return []
        query = self._insert.query.span
        stop = self.whole.stop if query is None else query.start
        head = Span(self.whole.start, stop, self.whole.source).text
        tokens = tokenised(head)
        begins = next((at for at, each in enumerate(tokens) if each.word in ("INTO", "OVERWRITE")), 0)
        kinds = (TokenKind.WORD, TokenKind.QUOTED)
        return [each for each in tokens[begins + 1 :] if each.kind in kinds and each.word not in ("INTO", "PARTITION")]

    def _span(self, first: Token, last: Token) -> Span:
        assert self.whole is not None
        return Span(self.whole.start + first.start, self.whole.start + last.stop, self.whole.source)


def _value_spans(query: Query) -> list[Span]:
    """The spans of the query's values: the items of SELECT, or the cells of its single VALUES row."""
    body = query.body
    if isinstance(body, Select):
        nodes = [item.span or item.expression.span for item in body.items]
    elif isinstance(body, Values) and len(body.rows) == 1:
        nodes = [value.span for value in body.rows[0]]
    else:
        return []
    return [span for span in nodes if span is not None] if all(nodes) else []


def _has_star(query: Query | None) -> bool:
    body = None if query is None else query.body
    return isinstance(body, Select) and any(isinstance(item.expression, Star) for item in body.items)
