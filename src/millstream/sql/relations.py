"""The FROM clause: tables with hints and FOR SYSTEM_TIME, joins, functions, UNNEST, queries, MATCH_RECOGNIZE."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.expressions import ExpressionReader
from millstream.sql.places import problem
from millstream.sql.query_syntax import (
    AliasedRelation,
    Derived,
    Hint,
    Join,
    LateralTable,
    NamedRelation,
    Query,
    Relation,
    SystemTime,
    TableFunctionCall,
    Unnest,
)
from millstream.sql.reader import CHAIN_MAX
from millstream.sql.syntax import Argument, Call, Expression, Scalar, TableArgument
from millstream.sql.tokens import TokenKind

__all__ = ["RelationReader"]

_WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_PIVOTS = {
    "PIVOT": "Write an aggregate for each value: SUM(x) FILTER (WHERE y = 1) AS y1, … GROUP BY the rest",
    "UNPIVOT": "Write a SELECT for each column: SELECT k, 'a' AS name, a AS v FROM t UNION ALL SELECT k, 'b', b …",
}
_JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")


class RelationReader(ExpressionReader):
    """Parses the FROM clause."""

    def match_recognize(self, relation: Relation) -> Relation:
        raise NotImplementedError

    def relations(self) -> Relation:
        """a, b JOIN c ON …: a comma is a CROSS join. As in Flink, it is left-associative like any join, so a join after
        a comma applies to everything before it."""
        return self.joined(commas=True)

    def joined(self, first: Relation | None = None, *, commas: bool = False) -> Relation:
        """A table and the joins that follow it."""
        relation = first or self.relation()
        length = 0
        while True:
            if commas and self.accept(","):
                relation = Join(relation, self.relation(), "CROSS", span=self.since_node(relation))
            elif self.at(*_JOIN_WORDS):
                relation = self._join(relation)
            else:
                return relation
            length += 1
            if length > CHAIN_MAX:
                raise self.too_long("tables" if commas else "joins")

    def _join(self, left: Relation) -> Relation:
        natural = self.accept("NATURAL")
        kind = self.accept_one("INNER", "LEFT", "RIGHT", "FULL", "CROSS") or "INNER"
        if kind in ("LEFT", "RIGHT", "FULL"):
            self.accept("OUTER")
        self.expect("JOIN")
        join = self.tokens[self.place - 1]
        right = self.relation()
        condition: Expression | None = None
        using: tuple[str, ...] = ()
        if self.accept("ON"):
            condition = self.expression()
        elif self.accept("USING"):
            using = self.names("a column's name")
        is_bound = condition is not None or bool(using)
        if is_bound and (natural or kind == "CROSS"):
            raise problem(f"{'NATURAL' if natural else 'CROSS'} JOIN takes no condition", self.span_of(join))
        if not (is_bound or natural or kind == "CROSS"):
            if self.token.kind is TokenKind.WORD and not self.at_end():
                self.fail(expected="ON or USING after JOIN")
            raise problem(
                "this JOIN has no condition. Add ON … or USING (…), or write CROSS JOIN for every pair of rows",
                self.span_of(join),
            )
        return Join(left, right, kind, condition, using, natural, span=self.since_node(left))

    def relation(self) -> Relation:
        """One table, function or query, with its alias."""
        relation = self._bare_relation()
        if self.at("MATCH_RECOGNIZE"):
            relation = self.match_recognize(relation)
        return self._aliased(relation)

    def _bare_relation(self) -> Relation:
        start = self.token
        if start.word == "(":
            inner = self._parenthesised_relation()
            return Derived(inner, span=self.since(start.start)) if isinstance(inner, Query) else inner
        if self.accept("LATERAL"):
            if self.at("("):
                self.enter()
                query = self.in_parentheses(self.query)
                self.leave()
                return Derived(query, lateral=True, span=self.since(start.start))
            if self.at("TABLE"):
                self.take()
                return LateralTable(self.in_parentheses(self._function), span=self.since(start.start))
            return LateralTable(self._function(), span=self.since(start.start))
        if start.word == "TABLE" and self.ahead().word == "(":
            self.take()
            return TableFunctionCall(self.in_parentheses(self._function), span=self.since(start.start))
        if start.word == "UNNEST":
            return self._unnest()
        if start.word in ("SELECT", "WITH", "VALUES"):
            raise problem(f"a query in FROM is put in parentheses: ({start.word} …)", self.span_of(start))
        if start.word == "TABLE":
            self.take()
        return self._named_or_function()

    def _named_or_function(self) -> Relation:
        start = self.token.start
        if self.ahead().word == "(" and self.at_name():
            return TableFunctionCall(self._function(), span=self.since(start))
        parts = self.path("a table's name")
        if self.token.word == "(":
            return self._qualified_function(parts, start)
        hints = self.hints()
        moment = None
        place = self.token.start
        if self.accept("FOR"):
            self.expect("SYSTEM_TIME", "AS", "OF")
            moment = SystemTime(self.expression(), span=self.since(place))
        return NamedRelation(parts, hints, moment, span=self.since(start))

    def _qualified_function(self, parts: tuple[str, ...], start: int) -> Relation:
        self.enter()
        arguments = self.listed(self.argument, may_be_empty=True)
        self.leave()
        call = Call(parts[-1], arguments, path=parts[:-1], span=self.since(start))
        return TableFunctionCall(call, span=self.since(start))

    def _function(self) -> Call:
        """f(…) as a table; a query as the argument of a window function is a table."""
        start = self.token
        parts = self.path("a function's name")
        self.enter()
        arguments = self.listed(self.argument, may_be_empty=True)
        self.leave()
        if len(parts) == 1 and parts[0].upper() in _WINDOW_FUNCTIONS:
            arguments = tuple(_as_table(argument) for argument in arguments)
        return Call(parts[-1], arguments, path=parts[:-1], span=self.since(start.start))

    def _unnest(self) -> Relation:
        start = self.take()
        self.enter()
        (operand,) = self.listed(self.expression)
        self.leave()
        ordinality = self.accept("WITH", "ORDINALITY")
        return Unnest(operand, ordinality, span=self.since(start.start))

    def _parenthesised_relation(self) -> Query | Relation:
        """(query), (relation JOIN …), or either in more parentheses, as decided by the token after the parentheses."""
        self.opening()
        self.enter()
        inner: Query | Relation
        if self.at_query():
            inner = self.query()
        elif self.at("("):
            place = self.token.start
            inner = self._parenthesised_relation()
            if isinstance(inner, Query) and self.at_set_operation():
                inner = self.continued_query(inner)
            elif not self.at(")"):
                relation = Derived(inner, span=self.since(place)) if isinstance(inner, Query) else inner
                inner = self.joined(self._aliased(relation))
        else:
            inner = self.relations()
        self.leave()
        self.close()
        return inner

    # --- aliases and hints --------------------------------------------------------------------------------------------

    def _aliased(self, relation: Relation) -> Relation:
        self._refuse_pivot()
        if self.accept("AS"):
            alias = self.name("an alias")
        elif self.at_name():
            self.at(*_JOIN_WORDS, "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "UNION", "ON", "USING", "WINDOW")
            self.at("FOR", "MATCH_RECOGNIZE", "QUALIFY", "EXCEPT", "INTERSECT", "FETCH", "OFFSET")
            self.note_bare_alias()
            alias = self.name()
        else:
            return relation
        columns = self.names("a column's name") if self.at("(") else ()
        if self.token.word == "FOR" and self.ahead().word == "SYSTEM_TIME":
            raise problem(
                "FOR SYSTEM_TIME AS OF … precedes the alias: table FOR SYSTEM_TIME AS OF moment AS alias",
                self.span_of(self.token),
            )
        self._refuse_pivot()
        return AliasedRelation(relation, alias, columns, span=self.since_node(relation))

    def _refuse_pivot(self) -> None:
        """Rejects PIVOT and UNPIVOT where an alias is possible."""
        instead = _PIVOTS.get(self.token.word)
        if instead is not None and self.ahead().word == "(":
            where = self.span_of(self.token)
            sentence = f"{self.token.word} is not available. {instead}"
            raise problem(sentence, where)

    def hints(self) -> tuple[Hint, ...]:
        """Parses /*+ OPTIONS('a' = 'b'), BROADCAST(t) */, if it is next."""
        if self.token.word != "/*+":
            return ()
        self.opening("/*+", "*/")
        hints = [self._hint()]
        while not self.at("*/") and not self.at_end():
            self.accept(",")
            hints.append(self._hint())
        self.close()
        return tuple(hints)

    def _hint(self) -> Hint:
        start = self.token
        if start.kind is not TokenKind.WORD:
            self.fail(expected="a hint's name")
        self.take()
        arguments = self.listed(self._hint_argument, may_be_empty=True) if self.at("(") else ()
        return Hint(start.word, arguments, span=self.since(start.start))

    def _hint_argument(self) -> tuple[str | None, str]:
        first = self._hint_word()
        if self.accept("="):
            return first, self._hint_word()
        return None, first

    def _hint_word(self) -> str:
        if self.token.kind in (TokenKind.TEXT, TokenKind.NUMBER):
            return self.take().value
        parts = [self.name("a string or a name")]
        while self.accept("."):
            parts.append(self.name())
        return ".".join(parts)


def _as_table(argument: Expression) -> Expression:
    if isinstance(argument, Argument):
        return replace(argument, value=_as_table(argument.value))
    if isinstance(argument, Scalar) and argument.quantifier is None:
        return TableArgument(Derived(argument.query, span=argument.span), span=argument.span)
    return argument
