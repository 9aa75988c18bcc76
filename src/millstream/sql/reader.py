"""A reader of tokens: looks ahead, consumes the tokens that the grammar expects, and reports precise errors.

Every check of the next token (`at`, `accept`) is recorded until a token is consumed. An error can therefore name the
possible tokens, and the keyword most similar to the actual one: `FORM` where FROM was possible. Opening tokens
(parentheses, CASE, BEGIN) are recorded in a list, so the error for incomplete text names the unclosed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from millstream.errors import SqlError, nearest
from millstream.sql.keywords import COLUMN_WORDS, RESERVED
from millstream.sql.places import problem
from millstream.sql.syntax import Node, Span
from millstream.sql.tokens import Token, TokenKind, tokenised

__all__ = ["CHAIN_MAX", "DEPTH_MAX", "TokenReader"]

# More than any hand-written text needs, and within Python's recursion limit, here and in the planner.
DEPTH_MAX = 100
# Left-deep chains are trees of depth equal to their length: a + b + c, a JOIN b JOIN c.
CHAIN_MAX = 200

T = TypeVar("T")

# Syntax of other systems, and its equivalent here.
_FOREIGN = {
    "::": "A cast is written CAST(value AS type)",
    "==": "Equality is written =",
    "&&": "Write AND",
    "!": "Write NOT",
    "?": "Parameters are not filled in here: write the value",
    "ILIKE": "Write LOWER(a) LIKE LOWER(b)",
    "RLIKE": "Write REGEXP(text, pattern)",
    "REGEXP": "Write REGEXP(text, pattern)",
    "ISNULL": "Write IS NULL",
    "NOTNULL": "Write IS NOT NULL",
    "DIV": "Write a / b: whole numbers are divided without the rest",
    "TABLESAMPLE": "A sample cannot be taken of a stream",
    "AUTO_INCREMENT": "Tables here number no rows",
    "MINUS": "Write EXCEPT",
    "AT": "The zone of a session is set with SET 'table.local-time-zone'; CONVERT_TZ changes zones",
    "DISTINCT": "DISTINCT follows SELECT or is used in a call; a comparison is written IS DISTINCT FROM",
    "TOP": "Write LIMIT n at the end of the query",
}


_OF_COLUMNS = ("a column's name", "a name after the dot")
# Words that start a clause: never intended as names.
_CLAUSES = frozenset(("SELECT", "FROM", "WHERE", "JOIN", "ON", "AND", "OR", "UNION", "HAVING", "AS", "INTO", "VALUES"))
_OPERATORS = ("AND", "BETWEEN", "LIKE", "SIMILAR", "NOT")
_VALUES = (TokenKind.WORD, TokenKind.QUOTED, TokenKind.NUMBER, TokenKind.TEXT)
_LIST_MAX = 60


class TokenReader:
    """The tokens of a string and the current position in them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenised(text)
        self.place = 0
        self.token = self.tokens[0]
        self._possibilities: list[str] = []
        self._openings: list[tuple[Token, str]] = []
        self._depth = 0
        # The last alias without AS, and the keywords possible there, one of which may have been misspelt.
        self._bare_alias: tuple[int, Token, tuple[str, ...]] | None = None

    # --- lookahead ----------------------------------------------------------------------------------------------------

    def at(self, *words: str) -> bool:
        """Whether the next token is one of these keywords or signs."""
        if self.token.word in words:
            return True
        self._possibilities.extend(words)
        return False

    def at_words(self, *words: str) -> bool:
        """Whether the next tokens are these, in this order."""
        tokens, place = self.tokens, self.place
        for offset, word in enumerate(words):
            if place + offset >= len(tokens) or tokens[place + offset].word != word:
                if offset == 0:
                    self._possibilities.append(" ".join(words))
                return False
        return True

    def ahead(self, offset: int = 1) -> Token:
        """The token `offset` positions ahead; END beyond the end."""
        return self.tokens[min(self.place + offset, len(self.tokens) - 1)]

    def at_name(self) -> bool:
        """Whether a name is next: quoted, or a word that is not reserved."""
        token = self.token
        return token.kind is TokenKind.QUOTED or (token.kind is TokenKind.WORD and token.word not in RESERVED)

    def at_end(self) -> bool:
        return self.token.kind is TokenKind.END

    # --- consuming ----------------------------------------------------------------------------------------------------

    def take(self) -> Token:
        """Consumes and returns the next token."""
        token = self.token
        if token.kind is not TokenKind.END:
            self.place += 1
            self.token = self.tokens[self.place]
            if self._possibilities:
                self._possibilities = []
        return token

    def accept(self, *words: str) -> bool:
        """Consumes these tokens if all of them are next."""
        if len(words) == 1:
            if self.token.word == words[0]:
                self.take()
                return True
            self._possibilities.append(words[0])
            return False
        if not self.at_words(*words):
            return False
        for _ in words:
            self.take()
        return True

    def accept_one(self, *words: str) -> str | None:
        """Consumes and returns one of these words, if next."""
        return self.take().word if self.at(*words) else None

    def expect(self, *words: str) -> Token:
        """Consumes these tokens and returns the last. Raises an error if they are not next."""
        token = self.token
        for word in words:
            if self.token.word != word:
                self.fail(expected=word)
            token = self.take()
        return token

    def expect_one(self, *words: str) -> str:
        """Consumes one of these words; raises an error otherwise."""
        if not self.at(*words):
            self.fail(expected=any_of(words))
        return self.take().word

    def name(self, what: str = "a name", *, is_column: bool = False) -> str:
        """A name without its quotes. A column name may be one of `COLUMN_WORDS`."""
        token = self.token
        of_column = is_column or what in _OF_COLUMNS
        if self.at_name() or (of_column and token.kind is TokenKind.WORD and token.word in COLUMN_WORDS):
            return self.take().value
        if token.word in _CLAUSES or self.ahead().word == "BY":
            self.fail(expected=what)
        if token.kind is TokenKind.WORD:
            raise problem(
                f"{token.value!r} is a reserved word where {what} is expected. As a name it is put in backticks: "
                f"`{token.value}`",
                self.span_of(token),
            )
        if token.kind is TokenKind.TEXT:
            raise problem(
                f"{what} is expected, not a string. Names are put in backticks: `{token.value}`", self.span_of(token)
            )
        self.fail(expected=what)

    def path(self, what: str = "a name") -> tuple[str, ...]:
        """A name, optionally qualified: `catalog.database.table`."""
        parts = [self.name(what)]
        while self.accept("."):
            parts.append(self.name("a name after the dot"))
        return tuple(parts)

    def names(self, what: str = "a name") -> tuple[str, ...]:
        """Names in parentheses."""
        return self.listed(lambda: self.name(what))

    def whole_number(self, what: str) -> int:
        """A number without a fraction."""
        if self.token.kind is not TokenKind.NUMBER or not self.token.value.isdigit():
            self.fail(expected=what)
        return int(self.take().value)

    def plain_text(self, what: str = "a string in single quotes") -> str:
        """A string in single quotes."""
        if self.token.kind is not TokenKind.TEXT:
            token = self.token
            if token.kind in (TokenKind.WORD, TokenKind.QUOTED):
                raise problem(f"{what} is expected: '{token.value}'", self.span_of(token))
            self.fail(expected=what)
        return self.take().value

    # --- nesting ------------------------------------------------------------------------------------------------------

    def opening(self, sign: str = "(", closed_by: str = ")") -> Token:
        """Consumes an opening sign and records it."""
        token = self.expect(sign)
        self._openings.append((token, closed_by))
        return token

    def opened(self, token: Token, closed_by: str) -> None:
        """Records an opening word that was consumed: CASE, BEGIN."""
        self._openings.append((token, closed_by))

    def close(self) -> Token:
        """Consumes the sign or word that closes the last opened one."""
        opening, closing = self._openings[-1]
        if self.token.word != closing:
            self.fail(expected=f", or {closing}" if "," in self._possibilities else closing, unclosed=opening)
        self._openings.pop()
        return self.take()

    def in_parentheses(self, read: Callable[[], T]) -> T:
        """An element in parentheses."""
        self.opening()
        inner = read()
        self.close()
        return inner

    def listed(self, read: Callable[[], T], *, may_be_empty: bool = False) -> tuple[T, ...]:
        """(a, b, c)."""
        self.opening()
        if may_be_empty and self.at(")"):
            self.close()
            return ()
        items = self.separated(read)
        self.close()
        return items

    def separated(self, read: Callable[[], T]) -> tuple[T, ...]:
        """a, b, c."""
        items = [read()]
        while self.accept(","):
            if self.at(")", "]", ";", "FROM", "WHERE") or self.at_end():
                raise problem("nothing follows this comma", self.span_of(self.tokens[self.place - 1]))
            items.append(read())
        return tuple(items)

    def enter(self) -> None:
        """Enters a construct that may contain itself; rejects excessive nesting.

        An error ends parsing, so levels need not be left in a `finally`, which saves stack frames.
        """
        if self._depth >= DEPTH_MAX:
            raise self.too_deep()
        self._depth += 1

    def leave(self) -> None:
        """Leaves one level."""
        self._depth -= 1

    def too_deep(self) -> SqlError:
        """The error for text nested too deeply, at the current position."""
        return problem(
            "this is nested too deeply. Name parts of it: WITH part AS (SELECT …), or a view",
            self.span_of(self.token),
        )

    def too_long(self, what: str) -> SqlError:
        """The error for a chain that is too long."""
        return problem(
            f"this is a chain of more than {CHAIN_MAX} {what}. Put parts of it in parentheses, or in a view",
            self.span_of(self.tokens[self.place - 1]),
        )

    # --- places -------------------------------------------------------------------------------------------------------

    def span_of(self, token: Token) -> Span:
        return Span(token.start, token.stop, self.text)

    def since(self, start: int) -> Span:
        """The span from an offset to the end of the last consumed token."""
        return Span(start, self.tokens[self.place - 1].stop if self.place else start, self.text)

    def since_node(self, node: Node) -> Span:
        """The span from the beginning of a node to the end of the last consumed token."""
        return self.since(node.span.start if node.span is not None else 0)

    # --- errors -------------------------------------------------------------------------------------------------------

    def note_bare_alias(self) -> None:
        """Records that the next token becomes an alias although no AS precedes it."""
        self._bare_alias = (self.place, self.token, tuple(self._possibilities))

    def fail(self, *, expected: str | None = None, unclosed: Token | None = None) -> NoReturn:
        """Raises the error for the current token."""
        token = self.token
        if self._bare_alias is not None and self._bare_alias[0] == self.place - 1:
            _, alias, words = self._bare_alias
            keyword = _near(alias, words)
            if keyword is not None:
                raise problem(f"{alias.value!r} is read as a name here. Did you mean {keyword}?", self.span_of(alias))
        if token.kind is TokenKind.END:
            raise self._unfinished(expected)
        possible = [*self._possibilities, *([expected] if expected else [])]
        keyword = _near(token, [*possible, *_OPERATORS] if self._after_value() else possible)
        wanted = expected or self._possible()
        if keyword is not None and len(wanted) > _LIST_MAX:
            wanted = ""  # the keyword is clearer than a long list
        message = (
            f"{_shown(wanted)} is expected, found {_described(token)}"
            if wanted
            else (f"{_described(token)} is not expected here")
        )
        if token.word == "/" and self.tokens[self.place - 1].word == "/":
            message += ". Comments begin with --, or are enclosed in /* and */"
        elif token.word in _FOREIGN:
            message += f". {_FOREIGN[token.word]}"
        elif keyword is not None:
            message += f". Did you mean {keyword}?"
        elif self._after_value() and self._begins_value() and (expected is None or expected.startswith(", or")):
            message += ". Is a comma or an operator missing before it?"
        if unclosed is not None:
            message += f"\n  {_opening(unclosed)} at {self._where(unclosed)} is still open"
        raise problem(message, self.span_of(token))

    def _unfinished(self, expected: str | None) -> SqlError:
        """The error for text that ends too early, with the unclosed tokens and their positions."""
        here = self.span_of(self.token)
        if self._openings:
            opening, closing = self._openings[-1]
            more = "" if expected is None or closing in expected else f"{_shown(str(expected))} is expected. "
            return problem(
                f"the text ends too early. {more}{_opening(opening)} at {self._where(opening)} is not closed: "
                f"{closing} is missing",
                self.span_of(opening),
            )
        last = self.tokens[self.place - 1] if self.place else None
        wanted = expected or self._possible()
        message = "the text ends too early" if last is not None else "the text is empty"
        return problem(f"{message}: {_shown(wanted)} is expected" if wanted else message, here)

    def _possible(self) -> str:
        """The tokens that were possible here, if few enough to be useful."""
        words = list(dict.fromkeys(self._possibilities))
        return any_of(words) if 0 < len(words) <= 6 else ""

    def _after_value(self) -> bool:
        """Whether the preceding token may end a value, so that an operator may follow."""
        before = self.tokens[self.place - 1]
        return before.kind in _VALUES or before.word in (")", "]")

    def _begins_value(self) -> bool:
        return self.token.kind in _VALUES and (self.at_name() or self.token.kind is not TokenKind.WORD)

    def _where(self, token: Token) -> str:
        span = self.span_of(token)
        return f"line {span.line}, column {span.column}"


def any_of(words: Iterable[str]) -> str:
    """`A, B or C`."""
    *first, last = list(words)
    return f"{', '.join(first)} or {last}" if first else last


def _shown(expected: str) -> str:
    return expected


def _opening(token: Token) -> str:
    return token.value.upper() if token.kind is TokenKind.WORD else token.value


def _described(token: Token) -> str:
    if token.kind is TokenKind.TEXT:
        return f"the text '{token.value if len(token.value) <= 30 else token.value[:30] + '…'}'"
    if token.kind is TokenKind.NUMBER:
        return f"the number {token.value}"
    if token.kind is TokenKind.BYTES:
        return "bytes"
    return token.value if token.kind is TokenKind.SIGN else repr(token.value)


def _near(token: Token, words: Iterable[str]) -> str | None:
    """The keyword that a word may be a misspelling of."""
    if token.kind is not TokenKind.WORD or len(token.word) < 3:
        return None
    known = {word.split(" ")[0] for word in words if word[:1].isalpha() and word.isupper()} - {token.word}
    # A keyword is seldom a misspelling of another: VALUE for VALUES, TABLE for TABLES.
    likeness = 0.85 if token.word in RESERVED else 0.65
    return nearest(token.word, sorted(word for word in known if len(word) > 2), likeness)
