"""Translates JDBC statements with `?` parameters for Python clients, which use `%s`.

A `?` within a string literal, a quoted name or a comment is not a parameter. A `?` that is an operator (PostgreSQL's
JSON has some) is doubled, as in JDBC.
"""

from __future__ import annotations

import re

from millstream.errors import ProgramError

__all__ = ["inserted_columns", "with_percent_parameters"]

_TOKEN = re.compile(
    r"""
      '(?:[^']|'')*'                      # a string
    | "(?:[^"]|"")*"                      # a quoted name
    | `(?:[^`]|``)*`                      # a quoted name of MySQL
    | --[^\n]*                            # a comment to the end of the line
    | /\*.*?\*/                           # a comment
    | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$  # a string of PostgreSQL
    | \?\?                                # an operator
    | \?                                  # a parameter
    | %
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME = r'(?:[A-Za-z_][A-Za-z_0-9$]*|"(?:[^"]|"")+")'
_INSERT = re.compile(
    rf"\s*insert\s+into\s+(?P<table>{_NAME}(?:\s*\.\s*{_NAME})?)\s*\((?P<columns>\s*{_NAME}(?:\s*,\s*{_NAME})*\s*)\)"
    r"\s*values\s*\(\s*\?(?:\s*,\s*\?)*\s*\)\s*;?\s*",
    re.IGNORECASE,
)


def with_percent_parameters(sql: str) -> tuple[str, int]:
    """The statement with `%s` for every `?`, and the number of parameters.

    >>> with_percent_parameters("UPDATE t SET a = ?, b = 'why? 100%' WHERE c ?? 'd'")
    ("UPDATE t SET a = %s, b = 'why? 100%%' WHERE c ? 'd'", 1)
    """
    if not isinstance(sql, str) or not sql.strip():
        raise ProgramError(f"The statement is {sql!r}, expected SQL such as INSERT INTO t (a, b) VALUES (?, ?)")
    count = 0

    def translated(match: re.Match[str]) -> str:
        nonlocal count
        token = match.group()
        if token == "?":
            count += 1
            return "%s"
        return "?" if token == "??" else token.replace("%", "%%")

    return _TOKEN.sub(translated, sql), count


def inserted_columns(sql: str) -> tuple[str, str] | None:
    """Table and columns, as written, of a statement that only inserts its parameters; else None.

    >>> inserted_columns("INSERT INTO t (a, b) VALUES (?, ?)"), inserted_columns("DELETE FROM t WHERE a = ?")
    (('t', 'a, b'), None)
    """
    match = _INSERT.fullmatch(sql)
    if match is None or sql.count("?") != len(match["columns"].split(",")):
        return None
    return match["table"], match["columns"].strip()
