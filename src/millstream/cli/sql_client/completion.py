"""Completes statements: tables where a table is expected, columns after a name, functions and keywords.

A pure function of the text around the cursor and the known names. It uses tokens only, so it works in unfinished
statements, which is when it is called. Columns of the tables in scope are listed first. Before FROM is typed, the
columns of all tables are listed, first those of tables that the statement names elsewhere (INSERT INTO).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.cli.sql_client.statement_scope import Origin, StatementScope, scope_at
from millstream.errors import SqlError
from millstream.sql.keywords import RESERVED
from millstream.sql.tokens import Token, TokenKind, tokenised, unclosed_at

__all__ = ["KnownNames", "Suggestion", "suggestions"]

_BEFORE_TABLES = frozenset({"FROM", "JOIN", "INTO", "TABLE", "VIEW", "DESCRIBE", "DESC", "OVERWRITE", "UPDATE"})
_BEFORE_VALUES = re.compile(
    r"SELECT|DISTINCT|ALL|WHERE|ON|AND|OR|NOT|BY|HAVING|QUALIFY|CASE|WHEN|THEN|ELSE|BETWEEN|IN|SET|[-,(=<>+*/%]|[<>!]=|<>|\|\|"
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_WORD_BEHIND = re.compile(r"^[\w$]*")
_QUOTED_BEHIND = re.compile(r"^[^`]*`?")
_TABLES_SHOWN = 2


@dataclass(frozen=True)
class Suggestion:
    """A string that replaces the last `replaced` letters; `kind` is its kind, `about` a short description."""

    text: str
    kind: str
    replaced: int
    about: str = ""


@dataclass(frozen=True)
class KnownNames:
    """The names of a session: columns by table (views too), call syntax by function, and keywords."""

    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    keywords: Sequence[str] = ()


def suggestions(text: str, names: KnownNames, rest: str = "") -> list[Suggestion]:
    """The possible continuations of `text`; `rest` is the text after the cursor.

    >>> calls, words = {"PRINTF": "PRINTF(format, …)"}, ["SELECT", "FROM", "PRIMARY"]
    >>> names = KnownNames({"bid": ["auction", "price"]}, calls, words)
    >>> [each.text for each in suggestions("SELECT pri", names)], [each.text for each in suggestions("sel", names)]
    (['price', 'PRINTF(', 'primary'], ['select'])
    >>> [each.about for each in suggestions("SELECT pri", names)]
    ['column of bid', 'PRINTF(format, …)', 'keyword']
    >>> [each.text for each in suggestions("SELECT b.pr", names, " FROM bid AS b")]
    ['price']
    >>> [(each.text, each.kind) for each in suggestions("SELECT * FROM ", names)]
    [('bid', 'table')]
    """
    opened_at = unclosed_at(text)
    if opened_at is not None and text[opened_at] != "`":
        return []  # inside a string or a comment
    written = text[opened_at:] if opened_at is not None else _word_before(text)
    before = _statement(_tokens(text[: len(text) - len(written)]), from_end=True)
    word_behind = _WORD_BEHIND if opened_at is None else _QUOTED_BEHIND
    behind = _statement(_tokens(word_behind.sub("", rest)), from_end=False)
    scope = scope_at(before, behind, names.tables)
    if not before:
        return list(_keywords(names.keywords, written)) if written else []
    last = before[-1].word
    if last == ".":
        return list(_named(_columns_behind(before, scope, names), "column", written))
    if last in _BEFORE_TABLES or (last == "," and scope.is_in_from):
        return list(_named(_tables(names, scope), "table", written))
    columns = _columns(_in_view(before, behind, scope, names), "`" if written.startswith("`") else "", written)
    if not written:
        return list(columns) if _BEFORE_VALUES.fullmatch(last) else []
    aliases = [
        (each.name, f"alias of {each.table}") for each in scope.origins if each.name != each.table and each.table
    ]
    return [
        *columns,
        *_named(dict(aliases).items(), "alias", written),
        *_functions(names.functions, written),
        *_named(_tables(names, scope), "table", written),
        *_keywords(names.keywords, written),
    ]


def _word_before(text: str) -> str:
    """The letters at the end of a string. Searched backwards: a pattern would try every position of a long string."""
    start = len(text)
    while start and (text[start - 1].isalnum() or text[start - 1] in "_$"):
        start -= 1
    return text[start:]


def _tokens(text: str) -> list[Token]:
    try:
        return [token for token in tokenised(text) if token.kind is not TokenKind.END]
    except SqlError:
        return []


def _statement(tokens: list[Token], from_end: bool) -> list[Token]:
    """The tokens of the statement at the cursor: up to a semicolon before it, or after it."""
    ends = [at for at, token in enumerate(tokens) if token.word == ";"]
    if not ends:
        return tokens
    return tokens[ends[-1] + 1 :] if from_end else tokens[: ends[0]]


# --- candidates -------------------------------------------------------------------------------------------------------


def _tables(names: KnownNames, scope: StatementScope) -> list[tuple[str, str]]:
    queries = [(name, "query of WITH") for name in scope.queries]
    return [*queries, *((name, "table") for name in sorted(names.tables) if name not in scope.queries)]


def _columns_behind(before: Sequence[Token], scope: StatementScope, names: KnownNames) -> list[tuple[str, str]]:
    """The columns of the table, or of the table with the alias, before the dot."""
    if len(before) < 2:
        return []
    name = before[-2].value
    origin = scope.origin(name)
    columns = names.tables.get(name, ()) if origin is None else origin.columns
    return [(column, f"column of {name}") for column in columns]


def _in_view(
    before: Sequence[Token], behind: Sequence[Token], scope: StatementScope, names: KnownNames
) -> Sequence[Origin]:
    """The origins of columns here: the tables of FROM; without any yet, those the statement names, then all."""
    if any(origin.columns for origin in scope.origins):
        return scope.origins
    words = {token.value for token in (*before, *behind)}
    order = sorted(names.tables, key=lambda name: (name not in words, name))
    return [Origin("", name, tuple(names.tables[name])) for name in order]


def _columns(origins: Sequence[Origin], quote: str, written: str) -> Iterator[Suggestion]:
    """Columns that begin with `written`. A column that occurs in several tables of FROM is qualified with its table's
    name."""
    owners: dict[str, list[Origin]] = {}
    for origin in dict.fromkeys(origins):
        for column in origin.columns:
            owners.setdefault(column, []).append(origin)
    ambiguous = Counter(column for column, of in owners.items() for each in of if each.name)
    for column, of in owners.items():
        if not _begins(column, written):
            continue
        if ambiguous[column] > 1:
            for each in of:
                whole = f"{_quoted(each.name)}.{_quoted(column, quote)}"
                yield Suggestion(whole, "column", len(written), f"column of {each.name}")
        elif column != written:
            shown = [each.name or each.table for each in of][:_TABLES_SHOWN]
            more = ", …" if len(of) > _TABLES_SHOWN else ""
            about = f"column of {', '.join(shown)}{more}" if any(shown) else "column"
            yield Suggestion(_quoted(column, quote), "column", len(written), about)


# --- notation ---------------------------------------------------------------------------------------------------------


def _begins(name: str, written: str) -> bool:
    return name.lower().startswith(written.lstrip("`").lower())


def _quoted(name: str, quote: str = "") -> str:
    """A name in SQL notation: in backticks if necessary, or if they are open already."""
    is_plain = _PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED and not quote
    return name if is_plain else f"`{name.replace('`', '``')}`"


def _named(candidates: Iterable[tuple[str, str]], kind: str, written: str) -> Iterator[Suggestion]:
    for name, about in candidates:
        if _begins(name, written) and name != written:
            yield Suggestion(_quoted(name, "`" if written.startswith("`") else ""), kind, len(written), about)


def _functions(functions: Mapping[str, str], written: str) -> Iterator[Suggestion]:
    """Functions, with their opening bracket. One with another syntax (IS NULL) is not a name to complete."""
    for name, call in functions.items():
        opening = call[len(name) : len(name) + 1]
        is_called = call.upper().startswith(name.upper()) and opening in ("", "(", "[")
        if is_called and name.lower().startswith(written.lower()):
            yield Suggestion(name + opening, "function", len(written), call)


def _keywords(keywords: Iterable[str], written: str) -> Iterator[Suggestion]:
    """Keywords, in the case of the typed word."""
    for word in keywords:
        if word.lower().startswith(written.lower()) and word != written:
            yield Suggestion(word.lower() if written == written.lower() else word, "keyword", len(written), "keyword")
