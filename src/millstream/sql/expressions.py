"""Parses expressions by precedence climbing: an operator's right operand contains only operators that bind tighter.

Precedence from low to high: OR, AND, NOT, IS, comparisons, BETWEEN/IN/LIKE, + −, * / % ||, signs, primaries. Long
chains of AND, OR and || become balanced trees, so that a thousand conditions have ten levels, not a thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.sql.calls import CallReader
from millstream.sql.keywords import unit_of
from millstream.sql.places import problem
from millstream.sql.query_syntax import Query, Values
from millstream.sql.reader import CHAIN_MAX
from millstream.sql.syntax import (
    Between,
    Call,
    Expression,
    In,
    Like,
    Literal,
    RowValue,
    Scalar,
    Span,
)
from millstream.sql.tokens import TokenKind

__all__ = ["ExpressionReader"]

_BALANCED_FROM = 16

_OR, _AND, _NOT, _IS, _COMPARED, _RANGED, _ADDED, _MULTIPLIED, _SIGNED = 22, 24, 26, 28, 30, 32, 40, 60, 80
_BINARY = {
    **dict.fromkeys(("=", "<>", "!=", "<", ">", "<=", ">="), _COMPARED),
    **dict.fromkeys(("+", "-"), _ADDED),
    **dict.fromkeys(("*", "/", "%"), _MULTIPLIED),
    **dict.fromkeys(("OVERLAPS", "CONTAINS", "EQUALS", "PRECEDES", "SUCCEEDS"), _RANGED),
}
_PRECEDENCES = {
    **_BINARY,
    "OR": _OR,
    "AND": _AND,
    "||": _MULTIPLIED,
    "IS": _IS,
    **dict.fromkeys(("NOT", "BETWEEN", "IN", "LIKE", "SIMILAR", "MEMBER", "SUBMULTISET", "IMMEDIATELY"), _RANGED),
    "MULTISET": _ADDED,
}
_IS_WORDS = ("NULL", "TRUE", "FALSE", "UNKNOWN", "DISTINCT", "JSON", "EMPTY", "A")


class ExpressionReader(CallReader):
    """Parses expressions of every kind."""

    def expression(self, above: int = 0) -> Expression:
        """An expression whose operators bind tighter than `above`."""
        left = self._signed()
        length = 0
        while True:
            word = self.token.word
            precedence = _PRECEDENCES.get(word)
            if precedence is None or precedence <= above:
                return left
            if word in ("OR", "AND", "||"):
                left = self._chain(left, word, precedence)
            elif word in _BINARY:
                left = self._compared(left, precedence)
            elif word == "IS":
                left = self._is(left)
            else:
                ranged = self._ranged(left)
                if ranged is None:
                    return left
                left = ranged
            length += 1
            if length > CHAIN_MAX:
                raise self.too_long("operators")

    def _signed(self) -> Expression:
        token = self.token
        if token.word == "NOT":
            self.take()
            self.enter()
            operand = self.expression(_NOT)
            self.leave()
            return Call("NOT", (operand,), span=self.since(token.start))
        if token.word in ("-", "+"):
            self.take()
            if token.word == "-" and self.token.kind is TokenKind.NUMBER:
                number = self.number()
                return self.postfixed(Literal("NUMBER", f"-{number.value}", span=self.since(token.start)))
            self.enter()
            operand = self.expression(_SIGNED)
            self.leave()
            return Call(token.word, (operand,), span=self.since(token.start))
        return self.primary()

    def _chain(self, left: Expression, word: str, precedence: int) -> Expression:
        operands = [left]
        while self.accept(word):
            operands.append(self.expression(precedence))
        if len(operands) < _BALANCED_FROM:
            for operand in operands[1:]:
                left = Call(word, (left, operand), span=_joined(left, operand))
            return left
        return _balanced(word, operands)

    def _compared(self, left: Expression, precedence: int) -> Expression:
        operator = self.take().word.replace("!=", "<>")
        if precedence == _COMPARED and self.at("ANY", "SOME", "ALL") and self.ahead().word == "(":
            return self._quantified(left, operator)
        right = self.expression(precedence)
        return Call(operator, (left, right), span=_joined(left, right))

    def _quantified(self, left: Expression, operator: str) -> Expression:
        """a > ALL (query), a = SOME (1, 2)."""
        quantifier = self.take().word.replace("ANY", "SOME")
        values, query = self._values_or_query()
        if query is None:
            query = Query(Values(tuple((value,) for value in values)))
        return Scalar(query, left, operator, quantifier, span=self.since_node(left))

    def _is(self, left: Expression) -> Expression:
        self.take()
        words = ["IS"]
        if self.accept("NOT"):
            words.append("NOT")
        if not self.at(*_IS_WORDS):
            self.fail(expected="NULL, TRUE, FALSE, UNKNOWN, DISTINCT FROM or JSON")
        kind = self.take().word
        if kind == "DISTINCT":
            self.expect("FROM")
            right = self.expression(_IS)
            return Call(" ".join([*words, "DISTINCT FROM"]), (left, right), span=_joined(left, right))
        if kind == "JSON":
            kind = f"JSON {self.accept_one('VALUE', 'OBJECT', 'ARRAY', 'SCALAR') or 'VALUE'}"
        elif kind == "A":
            self.expect("SET")
            kind = "A SET"
        return Call(" ".join([*words, kind]), (left,), span=self.since_node(left))

    def _ranged(self, left: Expression) -> Expression | None:
        """BETWEEN, IN, LIKE, SIMILAR TO and similar, with or without NOT; None if NOT starts something else."""
        negated = self.token.word == "NOT"
        word = self.ahead().word if negated else self.token.word
        if negated and word not in ("BETWEEN", "IN", "LIKE", "SIMILAR"):
            if word in ("ILIKE", "RLIKE", "REGEXP"):
                self.take()
                self.fail(expected="BETWEEN, IN, LIKE or SIMILAR TO")
            return None
        for _ in range(1 + negated):
            self.take()
        if word == "BETWEEN":
            return self._between(left, negated)
        if word == "IN":
            values, query = self._values_or_query()
            return In(left, values, query, negated, span=self.since_node(left))
        if word in ("LIKE", "SIMILAR"):
            return self._like(left, word, negated)
        if word == "IMMEDIATELY":
            name = f"IMMEDIATELY {self.expect_one('PRECEDES', 'SUCCEEDS')}"
        elif word == "MULTISET":
            name = f"MULTISET {self.expect_one('UNION', 'INTERSECT', 'EXCEPT')}"
            name += f" {self.accept_one('ALL', 'DISTINCT') or 'ALL'}"
        else:
            self.expect("OF")
            name = f"{word} OF"
        right = self.expression(_RANGED)
        return Call(name, (left, right), span=_joined(left, right))

    def _between(self, left: Expression, negated: bool) -> Expression:
        symmetric = self.accept_one("SYMMETRIC", "ASYMMETRIC") == "SYMMETRIC"
        low = self.expression(_RANGED)
        self.expect("AND")
        high = self.expression(_RANGED)
        return Between(left, low, high, negated, symmetric, span=self.since_node(left))

    def _like(self, left: Expression, word: str, negated: bool) -> Expression:
        if word == "SIMILAR":
            self.expect("TO")
        pattern = self.expression(_RANGED)
        escape = self.expression(_RANGED) if self.accept("ESCAPE") else None
        return Like(left, pattern, escape, negated, word == "SIMILAR", span=self.since_node(left))

    def _values_or_query(self) -> tuple[tuple[Expression, ...], Query | None]:
        """(1, 2, 3) or (SELECT …)."""
        self.opening()
        self.enter()
        if self.at_query():
            query = self.query()
            self.leave()
            self.close()
            return (), query
        if self.at(")"):
            raise problem("IN takes at least one value", self.span_of(self.token))
        values = self.separated(self.expression)
        if len(values) == 1 and isinstance(values[0], Scalar) and values[0].quantifier is None:
            inner = self.continued_query(values[0].query)
            self.leave()
            self.close()
            return (), inner
        self.leave()
        self.close()
        return values, None

    # --- primaries ----------------------------------------------------------------------------------------------------

    def primary(self) -> Expression:
        """An expression without operators: a constant, a name, a call or a parenthesised expression, with its
        postfixes."""
        token = self.token
        kind = token.kind
        if kind is TokenKind.NUMBER:
            return self.number()
        if kind is TokenKind.TEXT:
            return self.text_literal()
        if kind is TokenKind.BYTES:
            return self.bytes_literal()
        if token.word == "(":
            return self.postfixed(self._parenthesised())
        if kind is TokenKind.WORD:
            special = self.special(token.word)
            if special is not None:
                return self.postfixed(special)
        if kind in (TokenKind.WORD, TokenKind.QUOTED):
            return self.postfixed(self.name_or_call())
        self.fail(expected="a value")

    def _parenthesised(self) -> Expression:
        """(a), (a, b), (SELECT …), or the interval between two times: (a - b) DAY."""
        start = self.opening()
        self.enter()
        read: Expression
        if self.at_query():
            query = self.query()
            self.leave()
            self.close()
            return Scalar(query, span=self.since(start.start))
        values = self.separated(self.expression)
        self.leave()
        if len(values) > 1:
            self.close()
            return RowValue(values, span=self.since(start.start))
        (read,) = values
        if isinstance(read, Scalar) and read.quantifier is None and self.at_set_operation():
            read = Scalar(self.continued_query(read.query))
        self.close()
        if isinstance(read, Call) and (read.name, len(read.arguments)) == ("-", 2) and unit_of(self.token.word):
            read = Call("MINUS_DATE", read.arguments, (("unit", self.interval_units()),))
        return replace(read, span=self.since(start.start))


def _joined(left: Expression, right: Expression) -> Span | None:
    """The span from the beginning of one node to the end of another."""
    if left.span is None or right.span is None:
        return None
    return Span(left.span.start, right.span.stop, left.span.source)


def _balanced(word: str, operands: list[Expression]) -> Expression:
    """A balanced tree: AND, OR and || are associative."""
    level = operands
    join: Callable[[Expression, Expression], Expression] = lambda a, b: Call(word, (a, b), span=_joined(a, b))  # noqa: E731
    while len(level) > 1:
        pairs = [join(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]
