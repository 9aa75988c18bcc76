"""Names, calls, and expressions that start with a keyword: CASE, CAST, INTERVAL, ARRAY, EXISTS, …"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millstream.sql.keywords import COLUMN_WORDS, PARENTHESISLESS, RESERVED, is_function_word
from millstream.sql.places import problem
from millstream.sql.query_syntax import AliasedRelation, Derived, NamedRelation, Relation
from millstream.sql.reader import CHAIN_MAX
from millstream.sql.special_calls import SPECIAL_CALLS, SpecialCallReader
from millstream.sql.syntax import (
    Argument,
    Call,
    Case,
    Cast,
    Descriptor,
    Exists,
    Expression,
    FieldAccess,
    ItemAccess,
    Literal,
    Name,
    OrderItem,
    RowValue,
    Scalar,
    Star,
    TableArgument,
)
from millstream.sql.tokens import TokenKind

__all__ = ["CallReader"]

_CONSTANTS = {
    "NULL": ("NULL", None),
    "TRUE": ("BOOLEAN", True),
    "FALSE": ("BOOLEAN", False),
    "UNKNOWN": ("BOOLEAN", None),
}

_BEGINNERS = frozenset(
    {
        *_CONSTANTS,
        *PARENTHESISLESS,
        *SPECIAL_CALLS,
        "CASE",
        "INTERVAL",
        "CAST",
        "TRY_CAST",
        "EXISTS",
        "ROW",
        "ARRAY",
        "MAP",
    }
    | {"MULTISET", "DESCRIPTOR", "DATE", "TIME", "TIMESTAMP", "TABLE", "MODEL", "DEFAULT"}
)


class CallReader(SpecialCallReader):
    """Parses names, calls and expressions that start with a keyword."""

    def special(self, word: str) -> Expression | None:
        """The expression that starts with this keyword; None if the keyword starts a name or a plain call."""
        if word not in _BEGINNERS:
            return None
        token = self.token
        if word in _CONSTANTS:
            self.take()
            kind, value = _CONSTANTS[word]
            return Literal(kind, value, span=self.span_of(token))
        reader = self._keyword_readers().get(word)
        following = self.ahead().word
        if reader is not None and (word in ("CASE", "INTERVAL") or following in ("(", "[")):
            return reader()
        if self.at_dated_literal():
            return self.dated_literal()
        if self.is_special_call(word):
            return self.special_call(word)
        if word in PARENTHESISLESS:
            return self._parenthesisless()
        if word == "TABLE" and following != ".":
            return self._table_argument()
        if word == "MODEL" and self.ahead().kind in (TokenKind.WORD, TokenKind.QUOTED) and following not in RESERVED:
            self.take()
            name = Name(self.path("a model's name"), span=self.since(token.start))
            return Call("MODEL", (name,), span=self.since(token.start))
        if word == "DEFAULT":
            self.take()
            return Call("DEFAULT", span=self.span_of(token))
        return None

    def _keyword_readers(self) -> dict[str, Callable[[], Expression]]:
        return {
            "CASE": self._case,
            "INTERVAL": self.interval,
            "CAST": self._cast,
            "TRY_CAST": self._cast,
            "EXISTS": self._exists,
            "ROW": self._row_value,
            "ARRAY": self._collection_value,
            "MAP": self._collection_value,
            "MULTISET": self._collection_value,
            "DESCRIPTOR": self._descriptor,
        }

    def _case(self) -> Expression:
        start = self.take()
        self.opened(start, "END")
        self.enter()
        operand = None if self.at("WHEN", "ELSE", "END") else self.expression()
        whens: list[tuple[Expression, Expression]] = []
        while self.accept("WHEN"):
            values = [self.expression()]
            while operand is not None and self.accept(","):  # CASE x WHEN 1, 2 THEN …
                values.append(self.expression())
            self.expect("THEN")
            result = self.expression()
            whens.extend((value, result) for value in values)
        if not whens:
            self.fail(expected="WHEN")
        otherwise = self.expression() if self.accept("ELSE") else None
        self.leave()
        self.close()
        return Case(tuple(whens), otherwise, operand, span=self.since(start.start))

    def _cast(self) -> Expression:
        start = self.take()
        self.opening()
        self.enter()
        operand = self.expression()
        self.expect("AS")
        target = self.type_name()
        self.leave()
        self.close()
        return Cast(operand, target, start.word == "TRY_CAST", span=self.since(start.start))

    def _exists(self) -> Expression:
        start = self.take()
        self.opening()
        self.enter()
        query = self.query()
        self.leave()
        self.close()
        return Exists(query, span=self.since(start.start))

    def _row_value(self) -> Expression:
        start = self.take()
        self.enter()
        values = self.listed(self.expression, may_be_empty=True)
        self.leave()
        return RowValue(values, span=self.since(start.start))

    def _collection_value(self) -> Expression:
        """ARRAY[1, 2], MAP['a', 1], MULTISET[1]; ARRAY(SELECT …)."""
        start = self.take()
        self.enter()
        if self.at("("):
            self.opening()
            if self.at_query():
                inner = Scalar(self.query(), span=self.since(start.start))
                call = Call(f"{start.word} QUERY", (inner,))
            else:
                arguments = () if self.at(")") else self.separated(self.expression)
                call = Call(start.word, arguments)
        else:
            self.opening("[", "]")
            call = Call(start.word, () if self.at("]") else self.separated(self.expression))
        self.leave()
        self.close()
        if start.word == "MAP" and len(call.arguments) % 2 and call.name == "MAP":
            raise problem("MAP takes pairs of key and value: MAP['a', 1, 'b', 2]", self.since(start.start))
        return Call(call.name, call.arguments, span=self.since(start.start))

    def _descriptor(self) -> Expression:
        start = self.take()
        columns = self.names("a column's name")
        return Descriptor(columns, span=self.since(start.start))

    def _parenthesisless(self) -> Expression:
        """CURRENT_DATE, LOCALTIMESTAMP(3)."""
        token = self.take()
        arguments = self.listed(self.expression, may_be_empty=True) if self.at("(") else ()
        return Call(token.word, arguments, span=self.since(token.start))

    # --- names and plain calls ----------------------------------------------------------------------------------------

    def name_or_call(self) -> Expression:
        """`a`, `t.a`, `t.*`, `f(…)`, `catalog.database.f(…)`."""
        start = self.token
        if start.kind is TokenKind.WORD and start.word in RESERVED and start.word not in COLUMN_WORDS:
            if self.ahead().word != "(" or not is_function_word(start.word):
                self._refuse_reserved()
            parts = [self.take().value]
        else:
            parts = [self.name(is_column=True)]
        while self.token.word == ".":
            self.take()
            if self.accept("*"):
                return Star(tuple(parts), span=self.since(start.start))
            if self.token.kind is TokenKind.WORD and self.token.word in RESERVED and self.ahead().word == "(":
                parts.append(self.take().value)
            else:
                parts.append(self.name("a name after the dot"))
        if self.token.word == "(":
            return self._call(parts, start.start)
        return Name(tuple(parts), span=self.since(start.start))

    def _refuse_reserved(self) -> None:
        """Rejects a reserved word where a value is expected: a name without backticks, or a misplaced clause."""
        following = self.ahead()
        ends_value = following.word in (",", ")", ";", "=", "<", ">", "<=", ">=", "<>", "+", "-", "*", "/", ".")
        if ends_value or following.word in ("AS", "FROM", "IS", "AND", "OR") or following.kind is TokenKind.END:
            self.name("a column")
        self.fail(expected="a value")

    def _call(self, parts: list[str], start: int) -> Expression:
        self.opening()
        self.enter()
        distinct = self.accept_one("DISTINCT", "ALL") == "DISTINCT"
        arguments: tuple[Expression, ...] = ()
        if self.token.word == "*":
            star = self.take()
            arguments = (Star(span=self.span_of(star)),)
        elif not self.at(")"):
            arguments = self.separated(partial(self.argument, of_table_function=False))
        order = self.order_by()
        self.leave()
        self.close()
        call = Call(parts[-1], arguments, path=tuple(parts[:-1]), span=self.since(start))
        return self.aggregated(call, distinct=distinct, order_by=order)

    def argument(self, *, of_table_function: bool = True) -> Expression:
        """An argument: an expression, optionally named, or a table.

        `f((SELECT …) ORDER BY x)` has a sorted table as argument if f is a table function, otherwise f is an aggregate
        of a scalar subquery in the order of x.
        """
        token = self.token
        if token.kind in (TokenKind.WORD, TokenKind.QUOTED) and self.ahead().word == "=>":
            self.take()
            self.take()
            argument = self.argument(of_table_function=of_table_function)
            return Argument(token.value, argument, span=self.since(token.start))
        value = self.expression()
        is_ordered_table = self.at("PARTITION") or (of_table_function and self.at("ORDER"))
        if isinstance(value, Scalar) and value.quantifier is None and is_ordered_table:
            return self._table_order(Derived(value.query, span=value.span), token.start)
        return value

    def _table_argument(self) -> Expression:
        """TABLE t, TABLE (SELECT …), each with PARTITION BY and ORDER BY."""
        start = self.take()
        relation: Relation
        if self.at("("):
            self.enter()
            query = self.in_parentheses(self.query)
            self.leave()
            relation = Derived(query, span=self.since(start.start))
        else:
            place = self.token.start
            relation = NamedRelation(self.path("a table's name"), span=self.since(place))
        if self.accept("AS"):
            relation = AliasedRelation(relation, self.name("an alias"), span=self.since(start.start))
        return self._table_order(relation, start.start)

    def _table_order(self, relation: Relation, start: int) -> Expression:
        partition: tuple[Expression, ...] = ()
        order: tuple[OrderItem, ...] = ()
        if self.accept("PARTITION"):
            self.expect("BY")
            partition = self.listed(self.expression) if self.at("(") else (self.expression(),)
        if self.accept("ORDER"):
            self.expect("BY")
            order = self.listed(self.order_item) if self.at("(") else (self.order_item(),)
        return TableArgument(relation, partition, order, span=self.since(start))

    def postfixed(self, operand: Expression) -> Expression:
        """An operand followed by `[item]` and `.field`."""
        length = 0
        while True:
            word = self.token.word
            length += 1
            if length > CHAIN_MAX:
                raise self.too_long("items and fields")
            if word == "[":
                self.opening("[", "]")
                self.enter()
                index = self.expression()
                self.leave()
                self.close()
                operand = ItemAccess(operand, index, span=self.since_node(operand))
            elif word == "." and not isinstance(operand, Star):
                self.take()
                field = "*" if self.accept("*") else self.name("a field's name")
                operand = FieldAccess(operand, field, span=self.since_node(operand))
            else:
                return operand
