"""Queries: WITH, SELECT with its clauses, VALUES, set operations, ORDER BY and LIMIT."""

from __future__ import annotations

from millstream.sql.patterns import PatternReader
from millstream.sql.places import problem
from millstream.sql.query_syntax import (
    Derived,
    GroupingSets,
    Limit,
    NamedRelation,
    NamedWindow,
    Query,
    QueryBody,
    Select,
    SelectItem,
    SetQuery,
    Values,
    With,
)
from millstream.sql.reader import CHAIN_MAX
from millstream.sql.syntax import Expression, RowValue, Span, Star
from millstream.sql.tokens import TokenKind

__all__ = ["QueryReader"]


class QueryReader(PatternReader):
    """Parses queries."""

    def query(self) -> Query:
        """[WITH …] body [ORDER BY …] [LIMIT …]."""
        start = self.token.start
        self.enter()
        ctes = self._ctes() if self.at("WITH") else ()
        query = self._ordered(self._united(self._intersected(self._term())), ctes, start)
        self.leave()
        return query

    def continued_query(self, first: Query) -> Query:
        """The query that continues an already parsed first part in parentheses."""
        start = first.span.start if first.span is not None else self.token.start
        return self._ordered(self._united(self._intersected(first)), (), start)

    def _ctes(self) -> tuple[With, ...]:
        self.expect("WITH")
        if self.at("RECURSIVE"):
            raise problem("WITH RECURSIVE is not available: a query cannot refer to itself", self.span_of(self.token))
        return self.separated(self._cte)

    def _cte(self) -> With:
        start = self.token.start
        name = self.name("the name of a query")
        columns = self.names("a column's name") if self.at("(") else ()
        self.expect("AS")
        query = self.in_parentheses(self.query)
        return With(name, query, columns, span=self.since(start))

    # --- set operations: INTERSECT binds tighter than UNION and EXCEPT ------------------------------------------------

    def _united(self, left: Query) -> Query:
        parts: list[tuple[str, bool, Query]] = []
        while self.at("UNION", "EXCEPT"):
            kind = self.take().word
            is_all = self.accept_one("ALL", "DISTINCT") == "ALL"
            parts.append((kind, is_all, self._intersected(self._term())))
        if len(parts) > CHAIN_MAX and all(kind == "UNION" and is_all for kind, is_all, _ in parts):
            return _balanced_union([left, *(query for _, _, query in parts)])
        if len(parts) > CHAIN_MAX:
            raise self.too_long("set operations")
        for kind, is_all, right in parts:
            left = _combined(kind, is_all, left, right)
        return left

    def _intersected(self, left: Query) -> Query:
        length = 0
        while self.accept("INTERSECT"):
            is_all = self.accept_one("ALL", "DISTINCT") == "ALL"
            left = _combined("INTERSECT", is_all, left, self._term())
            length += 1
            if length > CHAIN_MAX:
                raise self.too_long("set operations")
        return left

    def _term(self) -> Query:
        """SELECT …, VALUES …, TABLE t, or a query in parentheses."""
        start = self.token.start
        body: QueryBody
        if self.at("("):
            return self.in_parentheses(self.query)
        if self.at("SELECT"):
            body = self._select()
        elif self.accept("VALUES"):
            body = Values(self.separated(self._values_row), span=self.since(start))
        elif self.accept("TABLE"):
            relation = NamedRelation(self.path("a table's name"), span=self.since(start))
            body = Select((SelectItem(Star()),), relation, span=self.since(start))
        else:
            self.fail(expected="a query (SELECT, VALUES or WITH)")
        return Query(body, span=self.since(start))

    def _values_row(self) -> tuple[Expression, ...]:
        """(1, 'a') or ROW(1, 'a'); without parentheses, one value."""
        if self.at("(") and self.ahead().word not in ("SELECT", "WITH", "VALUES"):
            self.enter()
            values = self.listed(self.expression)
            self.leave()
            return values
        row = self.expression()
        return row.values if isinstance(row, RowValue) else (row,)

    def _ordered(self, query: Query, ctes: tuple[With, ...], start: int) -> Query:
        """A body with its WITH, ORDER BY and LIMIT. An operand with its own ORDER BY remains a separate query."""
        order = self.order_by()
        limit = self._limit()
        if not (ctes or order or limit):
            return query
        body = query.body
        if query.ctes or query.order_by or query.limit:
            body = Select((SelectItem(Star()),), Derived(query, span=query.span), span=query.span)
        return Query(body, ctes, order, limit, span=self.since(start))

    def _limit(self) -> Limit | None:
        """LIMIT n [OFFSET m], OFFSET m ROWS FETCH NEXT n ROWS ONLY."""
        start = self.token.start
        count: Expression | None = None
        offset: Expression | None = None
        if not self.at("LIMIT", "OFFSET", "FETCH"):
            return None
        if self.accept("LIMIT"):
            count = None if self.accept("ALL") else self._row_count("LIMIT")
            if self.at(","):
                raise problem("LIMIT takes one number. Write LIMIT count OFFSET start", self.span_of(self.token))
        if self.accept("OFFSET"):
            offset = self._row_count("OFFSET")
            self.accept_one("ROW", "ROWS")
            if count is None and self.accept("LIMIT"):
                count = self._row_count("LIMIT")
        if self.accept("FETCH"):
            self.expect_one("FIRST", "NEXT")
            count = self._row_count("FETCH")
            self.expect_one("ROW", "ROWS")
            self.expect("ONLY")
        return Limit(count, offset, span=self.since(start))

    def _row_count(self, what: str) -> Expression:
        if self.token.kind is not TokenKind.NUMBER or not self.token.value.isdigit():
            self.fail(expected=f"a whole number after {what}")
        return self.number()

    # --- SELECT -------------------------------------------------------------------------------------------------------

    def _select(self) -> Select:
        start = self.take().start
        hints = self.hints()
        self.accept("STREAM")
        if self.token.word == "TOP" and self.ahead().kind is TokenKind.NUMBER:
            self.fail(expected="a column")
        distinct = self.accept_one("DISTINCT", "ALL") == "DISTINCT"
        if self.at("FROM"):
            self.fail(expected="a column or * before FROM")
        items = self.separated(self._item)
        source = self.relations() if self.accept("FROM") else None
        where = self.expression() if self.accept("WHERE") else None
        group = self._group_by() if self.accept("GROUP") else None
        having = self.expression() if self.accept("HAVING") else None
        windows = self.separated(self._named_window) if self.accept("WINDOW") else ()
        qualify = self.expression() if self.accept("QUALIFY") else None
        if self.at("WHERE", "GROUP", "HAVING", "WINDOW", "FROM"):
            raise self.out_of_order()
        return Select(items, source, where, group, having, qualify, windows, distinct, hints, span=self.since(start))

    def out_of_order(self) -> Exception:
        """The error for a clause that is out of order."""
        word = self.token.word
        return problem(
            f"{word} is misplaced. The order is SELECT, FROM, WHERE, GROUP BY, HAVING, WINDOW, QUALIFY, ORDER BY, "
            "LIMIT, each once",
            self.span_of(self.token),
        )

    def _item(self) -> SelectItem:
        start = self.token
        if start.word == "*":
            self.take()
            return SelectItem(Star(span=self.span_of(start)), span=self.span_of(start))
        expression = self.expression()
        alias = None
        if self.accept("AS"):
            alias = self.name("an alias", is_column=True)
        elif self.at_name():
            self.at("FROM", "AS", "WHERE", "UNION", "ORDER", "LIMIT", "OVER", "FILTER", "AND", "OR", "LIKE", "BETWEEN")
            self.note_bare_alias()
            alias = self.name()
        return SelectItem(expression, alias, span=self.since(start.start))

    def _group_by(self) -> tuple[Expression, ...]:
        self.expect("BY")
        if self.at_words("(", ")"):
            self.take()
            self.take()
            return ()
        return self.separated(self._grouping)

    def _grouping(self) -> Expression:
        start = self.token
        if start.word in ("ROLLUP", "CUBE"):
            self.take()
            self.enter()
            sets = self.listed(self._grouping_set)
            self.leave()
            return GroupingSets(start.word, sets, span=self.since(start.start))
        if start.word == "GROUPING" and self.ahead().word == "SETS":
            self.take()
            self.take()
            self.enter()
            sets = self.listed(self._grouping_set)
            self.leave()
            return GroupingSets("GROUPING SETS", sets, span=self.since(start.start))
        return self.expression()

    def _grouping_set(self) -> tuple[Expression, ...]:
        """a, (a, b), (), or sets inside sets."""
        if self.at_words("(", ")"):
            self.take()
            self.take()
            return ()
        item = self._grouping()
        return item.values if isinstance(item, RowValue) else (item,)

    def _named_window(self) -> NamedWindow:
        start = self.token.start
        name = self.name("a window's name")
        self.expect("AS")
        return NamedWindow(name, self.window_spec(), span=self.since(start))


def _combined(kind: str, is_all: bool, left: Query, right: Query) -> Query:
    span = None
    if left.span is not None and right.span is not None:
        span = Span(left.span.start, right.span.stop, left.span.source)
    return Query(SetQuery(kind, left, right, is_all, span=span), span=span)


def _balanced_union(queries: list[Query]) -> Query:
    """Combines thousands of queries with UNION ALL, as a balanced tree."""
    while len(queries) > 1:
        pairs = [_combined("UNION", True, queries[at], queries[at + 1]) for at in range(0, len(queries) - 1, 2)]
        queries = pairs + queries[len(pairs) * 2 :]
    return queries[0]
