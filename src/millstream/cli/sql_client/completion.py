"""What may follow in a statement: tables where a table is expected, columns behind a name, functions and keywords.

A pure function of the text before the cursor and the names there are. It looks at words only, so that it works in
statements that are not finished, which is when it is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.errors import SqlError
from millstream.sql.keywords import RESERVED
from millstream.sql.tokens import Token, TokenKind, tokenised, unclosed_at

__all__ = ["KnownNames", "Suggestion", "suggestions"]

_BEFORE_TABLES = frozenset({"FROM", "JOIN", "INTO", "TABLE", "VIEW", "DESCRIBE", "DESC", "OVERWRITE", "UPDATE"})
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_WORD_BEFORE = re.compile(r"[\w$]*$")


@dataclass(frozen=True)
class Suggestion:
    """A text to write, in the place of the last `replaced` letters; `kind` says what it is."""

    text: str
    kind: str
    replaced: int


@dataclass(frozen=True)
class KnownNames:
    """The names of a session: columns by table (views too), functions, and words of the language."""

    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    functions: Sequence[str] = ()
    keywords: Sequence[str] = ()


def suggestions(text: str, names: KnownNames, rest: str = "") -> list[Suggestion]:
    """What may stand next, behind `text`; `rest` is what stands behind the cursor already.

    >>> names = KnownNames({"bid": ["auction", "price"]}, ["PRINTF"], ["SELECT", "FROM", "PRIMARY"])
    >>> [each.text for each in suggestions("SELECT pri", names)], [each.text for each in suggestions("sel", names)]
    (['PRINTF(', 'primary'], ['select'])
    >>> [each.text for each in suggestions("SELECT b.pr", names, " FROM bid AS b")]
    ['price']
    >>> [(each.text, each.kind) for each in suggestions("SELECT * FROM ", names)]
    [('bid', 'table')]
    """
    opened_at = unclosed_at(text)
    if opened_at is not None and text[opened_at] != "`":
        return []  # inside a text or a comment
    match = _WORD_BEFORE.search(text)
    written = text[opened_at:] if opened_at is not None else match.group() if match else ""
    tokens = _tokens(text[: len(text) - len(written)])
    if tokens and tokens[-1].word == ".":
        return _listed(_columns_behind(tokens, _tokens(rest), names), "column", written)
    if tokens and tokens[-1].word in _BEFORE_TABLES:
        return _listed(sorted(names.tables), "table", written)
    if not written:
        return []
    columns = _columns_in_view([*tokens, *_tokens(rest)], names)
    return [
        *_listed(columns, "column", written),
        *_listed(names.functions, "function", written, "("),
        *_listed(sorted(names.tables), "table", written),
        *_listed(names.keywords, "keyword", written),
    ]


def _tokens(text: str) -> list[Token]:
    try:
        return [token for token in tokenised(text) if token.kind is not TokenKind.END]
    except SqlError:
        return []


def _columns_behind(tokens: Sequence[Token], rest: Sequence[Token], names: KnownNames) -> Sequence[str]:
    """The columns of the table, or of the table with the alias, that stands before the dot."""
    if len(tokens) < 2:
        return ()
    before = tokens[-2].value
    table = _aliases([*tokens, *rest], names).get(before, before)
    return names.tables.get(table, ())


def _columns_in_view(tokens: Sequence[Token], names: KnownNames) -> list[str]:
    """The columns of all tables that the statement names so far."""
    mentioned = [token.value for token in tokens if token.value in names.tables]
    return sorted({column for table in mentioned for column in names.tables[table]})


def _aliases(tokens: Sequence[Token], names: KnownNames) -> dict[str, str]:
    aliases = {}
    for at, token in enumerate(tokens):
        if token.value not in names.tables:
            continue
        following = [each for each in tokens[at + 1 : at + 3] if each.word != "AS"]
        if following and following[0].kind in (TokenKind.WORD, TokenKind.QUOTED):
            aliases[following[0].value] = token.value
    return aliases


def _listed(candidates: Iterable[str], kind: str, written: str, behind: str = "") -> list[Suggestion]:
    """Those that begin as `written` does, whatever the case; words of the language in the case it is written in."""
    bare = written.lstrip("`")
    found = []
    for name in candidates:
        if not name.lower().startswith(bare.lower()) or name == written:
            continue
        if kind in ("keyword", "function"):
            if written.startswith("`"):
                continue
            text = name.lower() if bare and bare == bare.lower() and kind == "keyword" else name
        else:
            is_plain = _PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED and not written.startswith("`")
            text = name if is_plain else f"`{name}`"
        found.append(Suggestion(text + behind, kind, len(written)))
    return found
