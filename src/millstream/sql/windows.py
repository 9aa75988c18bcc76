"""Clauses after a call: FILTER, WITHIN GROUP, IGNORE NULLS, OVER with its window; also ORDER BY, which windows use."""

from __future__ import annotations

from millstream.sql.literals import LiteralReader
from millstream.sql.query_syntax import Query
from millstream.sql.syntax import (
    Aggregated,
    Call,
    Expression,
    Frame,
    FrameBound,
    OrderItem,
    Over,
    WindowSpec,
)

__all__ = ["WindowReader"]


class WindowReader(LiteralReader):
    """Parses ORDER BY and windows. Subclasses parse expressions and queries."""

    def expression(self, above: int = 0) -> Expression:
        raise NotImplementedError

    def query(self) -> Query:
        raise NotImplementedError

    def continued_query(self, first: Query) -> Query:
        raise NotImplementedError

    def at_query(self) -> bool:
        """Whether a query starts here."""
        return self.at("SELECT", "WITH", "VALUES") or (self.token.word == "TABLE" and self.ahead().word != "(")

    def at_set_operation(self) -> bool:
        """Whether a set operation follows the first part of a query."""
        return self.at("UNION", "INTERSECT", "EXCEPT", "ORDER", "LIMIT", "OFFSET", "FETCH")

    def order_by(self) -> tuple[OrderItem, ...]:
        """Parses ORDER BY items, if next."""
        if not self.accept("ORDER"):
            return ()
        self.expect("BY")
        return self.separated(self.order_item)

    def order_item(self) -> OrderItem:
        expression = self.expression()
        descending = self.accept_one("ASC", "DESC") == "DESC"
        nulls_first = None
        if self.accept("NULLS"):
            nulls_first = self.expect_one("FIRST", "LAST") == "FIRST"
        return OrderItem(expression, descending, nulls_first, span=self.since_node(expression))

    def partition_by(self) -> tuple[Expression, ...]:
        """Parses PARTITION BY expressions, if next."""
        if not self.accept("PARTITION"):
            return ()
        self.expect("BY")
        return self.separated(self.expression)

    def aggregated(self, call: Call, *, distinct: bool = False, order_by: tuple[OrderItem, ...] = ()) -> Expression:
        """Parses the clauses after a call, and returns the call with them."""
        start = call.span.start if call.span is not None else 0
        within_group: tuple[OrderItem, ...] = ()
        condition = None
        nulls = None
        if self.accept("WITHIN"):
            self.expect("GROUP")
            within_group = self.in_parentheses(self._needed_order)
        # Both orders are accepted: f(x) FILTER (…) IGNORE NULLS OVER w, and f(x) IGNORE NULLS FILTER (…).
        while True:
            if condition is None and self.token.word == "FILTER" and self.ahead().word == "(":
                self.take()
                condition = self.in_parentheses(self._filter_condition)
            elif nulls is None and self.token.word in ("IGNORE", "RESPECT") and self.ahead().word == "NULLS":
                nulls = self.take().word
                self.take()
            else:
                break
        is_plain = not (distinct or order_by or within_group or condition or nulls)
        if is_plain and self.token.word != "OVER":
            return call
        span = self.since(start)
        aggregated = Aggregated(call, distinct, condition, within_group, order_by, nulls, span=span)
        if not self.accept("OVER"):
            return aggregated
        window = self.window_spec() if self.at("(") else self.name("a window's name or (")
        return Over(aggregated, window, span=self.since(start))

    def _needed_order(self) -> tuple[OrderItem, ...]:
        if not self.at("ORDER"):
            self.fail(expected="ORDER BY")
        return self.order_by()

    def _filter_condition(self) -> Expression:
        self.expect("WHERE")
        return self.expression()

    def window_spec(self) -> WindowSpec:
        """([name] [PARTITION BY …] [ORDER BY …] [ROWS | RANGE …])."""
        start = self.opening()
        self.enter()
        base = None
        if not self.at("PARTITION", "ORDER", "ROWS", "RANGE") and self.at_name():
            self.note_bare_alias()
            base = self.name()
        partition = self.partition_by()
        order = self.order_by()
        frame = self._frame() if self.at("ROWS", "RANGE") else None
        self.leave()
        self.close()
        return WindowSpec(partition, order, frame, base, span=self.since(start.start))

    def _frame(self) -> Frame:
        start = self.take()
        if self.accept("BETWEEN"):
            first = self._bound()
            self.expect("AND")
            last = self._bound()
        else:
            first, last = self._bound(), FrameBound("CURRENT")
        return Frame(start.word, first, last, span=self.since(start.start))

    def _bound(self) -> FrameBound:
        start = self.token.start
        if self.token.word == "CURRENT":
            self.take()
            self.expect("ROW")
            return FrameBound("CURRENT", span=self.since(start))
        amount = None if self.accept("UNBOUNDED") else self.expression()
        return FrameBound(self.expect_one("PRECEDING", "FOLLOWING"), amount, span=self.since(start))
