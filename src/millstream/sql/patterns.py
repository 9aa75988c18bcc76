"""MATCH_RECOGNIZE: sequences of ordered rows that match a pattern.

A pattern is a tree of tuples:

| written | tree |
|---|---|
| A | ("variable", "A") |
| A B C | ("sequence", (…)) |
| A, B or C between bars | ("alternation", (…)) |
| A*, A+, A?, A{2,5}, A{2,}; with a ? suffix: as few as possible | ("repeat", inner, least, most or None, is_greedy) |
| {- A -} | ("exclude", inner) |
| PERMUTE(A, B) | ("permute", (…)) |
| ^ and $ | ("start",), ("end",) |
| () | ("empty",) |
"""

from __future__ import annotations

from typing import Any

from millstream.sql.places import problem
from millstream.sql.query_syntax import Match, Relation, SelectItem
from millstream.sql.relations import RelationReader
from millstream.sql.syntax import Call, Expression, Interval
from millstream.sql.tokens import TokenKind

__all__ = ["PatternReader"]

Pattern = tuple[Any, ...]


class PatternReader(RelationReader):
    """Parses MATCH_RECOGNIZE."""

    def match_recognize(self, relation: Relation) -> Relation:
        """The clauses in their order; PATTERN and DEFINE are required."""
        self.expect("MATCH_RECOGNIZE")
        self.opening()
        self.enter()
        partition = self.partition_by()
        order = self.order_by()
        measures = self.separated(self._measure) if self.accept("MEASURES") else ()
        rows = self._rows_per_match()
        after = self._after_match()
        self.expect("PATTERN")
        pattern = self.in_parentheses(self._alternation)
        within = self._within()
        subsets = self.separated(self._subset) if self.accept("SUBSET") else ()
        self.expect("DEFINE")
        defines = self.separated(self._define)
        self.leave()
        self.close()
        span = self.since_node(relation)
        return Match(relation, partition, order, measures, pattern, defines, rows, after, within, subsets, span=span)

    def special(self, word: str) -> Expression | None:
        """FINAL and RUNNING before a function of a match, and all other keywords."""
        if word in ("FINAL", "RUNNING") and self.ahead().kind is TokenKind.WORD and self.ahead(2).word == "(":
            start = self.take()
            return Call(word, (self.primary(),), span=self.since(start.start))
        return super().special(word)

    def _measure(self) -> SelectItem:
        start = self.token.start
        expression = self.expression()
        self.expect("AS")
        return SelectItem(expression, self.name("the measure's name"), span=self.since(start))

    def _rows_per_match(self) -> str:
        if self.accept("ONE"):
            self.expect("ROW", "PER", "MATCH")
            return "ONE"
        if not self.accept("ALL"):
            return "ONE"
        self.expect("ROWS", "PER", "MATCH")
        if self.accept("SHOW"):
            self.expect("EMPTY", "MATCHES")
            return "ALL SHOW EMPTY MATCHES"
        if self.accept("OMIT"):
            self.expect("EMPTY", "MATCHES")
            return "ALL OMIT EMPTY MATCHES"
        if self.accept("WITH"):
            self.expect("UNMATCHED", "ROWS")
            return "ALL WITH UNMATCHED ROWS"
        return "ALL"

    def _after_match(self) -> tuple[str, str | None]:
        if not self.accept("AFTER"):
            return "PAST LAST ROW", None
        self.expect("MATCH", "SKIP")
        if self.accept("PAST"):
            self.expect("LAST", "ROW")
            return "PAST LAST ROW", None
        self.expect("TO")
        if self.accept("NEXT"):
            self.expect("ROW")
            return "TO NEXT ROW", None
        if self.token.word in ("FIRST", "LAST") and self.ahead().kind in (TokenKind.WORD, TokenKind.QUOTED):
            return f"TO {self.take().word}", self.name("a pattern variable")
        return "TO LAST", self.name("a pattern variable")

    def _within(self) -> Interval | None:
        if not self.accept("WITHIN"):
            return None
        if not self.at("INTERVAL"):
            self.fail(expected="INTERVAL")
        return self.interval()

    def _subset(self) -> tuple[str, tuple[str, ...]]:
        name = self.name("a pattern variable")
        self.expect("=")
        return name, self.names("a pattern variable")

    def _define(self) -> tuple[str, Expression]:
        name = self.name("a pattern variable")
        self.expect("AS")
        return name, self.expression()

    # --- the pattern --------------------------------------------------------------------------------------------------

    def _alternation(self) -> Pattern:
        choices = [self._sequence()]
        while self.accept("|"):
            choices.append(self._sequence())
        return choices[0] if len(choices) == 1 else ("alternation", tuple(choices))

    def _sequence(self) -> Pattern:
        steps = [self._repeated()]
        while not self.at("|", ")", "-}", ",") and not self.at_end():
            steps.append(self._repeated())
        return steps[0] if len(steps) == 1 else ("sequence", tuple(steps))

    def _repeated(self) -> Pattern:
        inner = self._step()
        sign = self.token.word
        if sign in ("*", "+", "?"):
            self.take()
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        elif sign == "{":
            least, most = self._times()
        else:
            return inner
        return ("repeat", inner, least, most, not self.accept("?"))

    def _times(self) -> tuple[int, int | None]:
        """{3}, {2,}, {2,5}, {,5}."""
        start = self.opening("{", "}")
        least = 0 if self.at(",") else self.whole_number("a whole number")
        most: int | None = least
        if self.accept(","):
            most = None if self.at("}") else self.whole_number("a whole number or }")
        self.close()
        if most is not None and most < least:
            raise problem(f"a pattern cannot repeat at least {least} and at most {most} times", self.since(start.start))
        return least, most

    def _step(self) -> Pattern:
        self.enter()
        step = self._plain_step()
        self.leave()
        return step

    def _plain_step(self) -> Pattern:
        if self.accept("^"):
            return ("start",)
        if self.accept("$"):
            return ("end",)
        if self.at("{-"):
            self.opening("{-", "-}")
            inner = self._alternation()
            self.close()
            return ("exclude", inner)
        if self.accept("PERMUTE"):
            return ("permute", self.listed(self._alternation))
        if self.at_words("(", ")"):
            self.take()
            self.take()
            return ("empty",)
        if self.at("("):
            return self.in_parentheses(self._alternation)
        return ("variable", self.name("a pattern variable"))
