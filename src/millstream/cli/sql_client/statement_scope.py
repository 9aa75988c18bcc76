"""The scope of an unfinished statement at the cursor: the tables of FROM, by their names or aliases.

It uses tokens and parentheses only, so it works in statements that are unfinished or invalid. Constructs that it cannot
follow (a function that returns rows) have no columns; nothing here is an error.

A statement is a tree: a list of tokens, with a list for each pair of parentheses, and the cursor at its position. A
query is one SELECT of it, between set operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.sql.keywords import RESERVED
from millstream.sql.tokens import Token, TokenKind

__all__ = ["Origin", "StatementScope", "scope_at"]

_CURSOR = Token(TokenKind.SIGN, "", "<cursor>", 0, 0)
_SETS = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS"})
_AFTER_FROM = frozenset({"WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH", "ON"})
_WINDOWS = frozenset({"TUMBLE", "HOP", "CUMULATE", "SESSION"})
_WINDOW_COLUMNS = ("window_start", "window_end", "window_time")
_ORIGIN_ITEMS_MAX = 64  # how far an alias is searched; a hint may precede it
_DEPTH_MAX = 40  # unrealistically deep parentheses do not get separate lists

Tree = list[Any]  # of tokens and trees


@dataclass(frozen=True)
class Origin:
    """An item of FROM: its name there, its table (empty for a query), and its columns."""

    name: str
    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class StatementScope:
    """The scope of the cursor: origins, innermost query first; the statement's WITH queries; and whether the
    cursor is where FROM continues, so that a table is expected after a comma."""

    origins: tuple[Origin, ...] = ()
    queries: tuple[str, ...] = ()
    is_in_from: bool = False

    def origin(self, name: str) -> Origin | None:
        """The origin with this name."""
        return next((each for each in self.origins if each.name == name), None)


def scope_at(before: Sequence[Token], after: Sequence[Token], tables: Mapping[str, Sequence[str]]) -> StatementScope:
    """The scope between two pieces of a statement."""
    tree = _tree([*before, _CURSOR, *after])
    known = dict(tables)
    queries = _named_queries(tree, known)
    own = [_query_at_cursor(level) for level in reversed(_levels(tree))]
    is_in_from = next((_is_in_from(query) for query in own if _has(query, "SELECT")), False)
    origins = [origin for query in own for origin in _origins(query, known)]
    return StatementScope(tuple(origins), tuple(queries), is_in_from)


# --- the tree ---------------------------------------------------------------------------------------------------------


def _tree(tokens: Sequence[Token]) -> Tree:
    stack: list[Tree] = [[]]
    for token in tokens:
        if token.word == "(" and len(stack) < _DEPTH_MAX:
            stack.append([])
            stack[-2].append(stack[-1])
        elif token.word == ")":
            if len(stack) > 1:
                stack.pop()
        else:
            stack[-1].append(token)
    return stack[0]


def _levels(tree: Tree) -> list[Tree]:
    """The lists that the cursor is in, the whole statement first."""
    inner = next((levels for item in tree if isinstance(item, list) and (levels := _levels(item))), None)
    if inner is not None:
        return [tree, *inner]
    return [tree] if any(item is _CURSOR for item in tree) else []


def _is(item: Any, *words: str) -> bool:
    return isinstance(item, Token) and item.word in words


def _has(tree: Tree, word: str) -> bool:
    return any(_is(item, word) for item in tree)


def _name(item: Any) -> str | None:
    """The name in a token; None for a sign or a reserved word."""
    if not isinstance(item, Token) or item is _CURSOR:
        return None
    is_name = item.kind is TokenKind.QUOTED or (item.kind is TokenKind.WORD and item.word not in RESERVED)
    return item.value if is_name else None


def _queries(tree: Tree) -> list[Tree]:
    """The SELECTs of a level, between set operations."""
    parts: list[Tree] = [[]]
    for item in tree:
        if _is(item, *_SETS):
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def _query_at_cursor(tree: Tree) -> Tree:
    return next((query for query in _queries(tree) if _levels(query)), tree)


def _is_in_from(query: Tree) -> bool:
    clause = ""
    for item in query:
        if item is _CURSOR or (isinstance(item, list) and _levels(item)):
            break
        if _is(item, "SELECT", "FROM", "JOIN", *_AFTER_FROM):
            clause = item.word
    return clause in ("FROM", "JOIN")


# --- the items of FROM ------------------------------------------------------------------------------------------------


def _named_queries(tree: Tree, known: dict[str, Sequence[str]]) -> list[str]:
    """The queries that WITH names, added to the `known` tables with their columns."""
    names = []
    for at, item in enumerate(tree):
        name = _name(item)
        if name is None or not at or not _is(tree[at - 1], "WITH", "RECURSIVE", ","):
            continue
        rest = tree[at + 1 : at + 4]
        columns = _column_names(rest.pop(0)) if rest and isinstance(rest[0], list) else ()
        if len(rest) > 1 and _is(rest[0], "AS") and isinstance(rest[1], list):
            known[name] = columns or _columns_of(rest[1], known)
            names.append(name)
    return names


def _origins(query: Tree, known: Mapping[str, Sequence[str]]) -> Iterator[Origin]:
    """The origins in the FROM of a query."""
    in_from = False
    for at, item in enumerate(query):
        if _is(item, "FROM", "JOIN"):
            in_from = True
        elif _is(item, *_AFTER_FROM):
            in_from = in_from and item.word == "ON"  # other joins may follow a condition
            continue
        elif not in_from or not _is(item, ","):
            continue
        origin = _origin(query[at + 1 : at + 1 + _ORIGIN_ITEMS_MAX], known)
        if origin is not None:
            yield origin


def _origin(items: Tree, known: Mapping[str, Sequence[str]]) -> Origin | None:
    """The first origin."""
    items = [item for item in items if not _is(item, "LATERAL")]
    if not items or items[0] is _CURSOR:
        return None
    first, rest, table = items[0], items[1:], ""
    if isinstance(first, list):
        columns = _columns_of(first, known)
    elif _is(first, "TABLE", "UNNEST") and rest and isinstance(rest[0], list):
        table, columns = _of_function(rest.pop(0), known)
    else:
        name = _name(first)
        if name is None:
            return None
        while len(rest) > 1 and _is(rest[0], ".") and (part := _name(rest[1])) is not None:
            name, rest = part, rest[2:]
        table, columns = name, tuple(known.get(name, ()))
    alias, named = _alias(rest)
    return Origin(alias or table, table, named or columns)


def _of_function(arguments: Tree, known: Mapping[str, Sequence[str]]) -> tuple[str, tuple[str, ...]]:
    """The table and the columns of a window function in TABLE(…)."""
    words = list(_flat(arguments))
    if not any(token.word in _WINDOWS for token in words):
        return "", ()
    table = next((token.value for token in words if token.value in known), "")
    return table, (*known.get(table, ()), *_WINDOW_COLUMNS)


def _flat(tree: Tree) -> Iterator[Token]:
    for item in tree:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield item


def _alias(items: Tree) -> tuple[str | None, tuple[str, ...]]:
    """The alias that follows, and its column names. Hints and FOR SYSTEM_TIME AS OF precede it."""
    at = 0
    if at < len(items) and _is(items[at], "/*+"):
        at = next((place + 1 for place, item in enumerate(items) if _is(item, "*/")), len(items))
    if at < len(items) and _is(items[at], "FOR"):
        at = next((place + 1 for place, item in enumerate(items) if _is(item, "OF")), len(items))
        while at < len(items) and (_name(items[at]) or _is(items[at], ".")):
            at += 1  # the time: names, with dots between them
    if at < len(items) and _is(items[at], "AS"):
        at += 1
    alias = _name(items[at]) if at < len(items) else None
    has_names = alias is not None and at + 1 < len(items) and isinstance(items[at + 1], list)
    return alias, _column_names(items[at + 1]) if has_names else ()


def _column_names(tree: Tree) -> tuple[str, ...]:
    return tuple(name for item in tree if (name := _name(item)) is not None)


def _columns_of(tree: Tree, known: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The columns of a query in parentheses, if their names can be derived."""
    query = _queries(tree)[0]
    start = next((at for at, item in enumerate(query) if _is(item, "SELECT")), None)
    if start is None:
        return _columns_of(query[0], known) if query and isinstance(query[0], list) else ()
    stop = next((at for at, item in enumerate(query) if _is(item, "FROM")), len(query))
    origins = list(_origins(query, known))
    chosen: list[Tree] = [[]]
    for item in query[start + 1 : stop]:
        if _is(item, ","):
            chosen.append([])
        else:
            chosen[-1].append(item)
    columns: list[str] = []
    for parts in chosen:
        name = _name(parts[-1]) if parts else None
        if name is not None:
            columns.append(name)
        elif parts and _is(parts[-1], "*"):
            whose = _name(parts[0]) if len(parts) > 1 else None
            columns += [each for origin in origins if whose in (None, origin.name) for each in origin.columns]
    return tuple(dict.fromkeys(columns))
