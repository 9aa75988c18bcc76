"""Expands column lists before binding: `with_columns`, `without_columns`, ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from millstream.errors import did_you_mean
from millstream.graph.site import refuse
from millstream.sql.syntax import Call, Literal, Name, Node, Star
from millstream.table.expression import Expression

__all__ = ["items_of"]

_NAME = re.compile(r"[^\W\d]\w*")


def items_of(method: str, fields: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The syntax of a method's fields, with column lists expanded."""
    if not fields and method != "group_by":
        raise refuse(f"{method}: found no expressions, expected one at the least, such as col(...)")
    return [node for field in fields for node in _expanded(method, _node(method, field), names)]


def _node(method: str, field: Any) -> Node:
    if isinstance(field, Expression):
        node: Node = field._node
        return node
    if isinstance(field, list | tuple):
        raise refuse(f"{method}: found a {type(field).__name__}, expected expressions. Write {method}(*columns)")
    if isinstance(field, str):
        parts = [part.strip() for part in field.split(",")]
        is_names = all(_NAME.fullmatch(part) for part in parts)
        advice = ", ".join(f'col("{part}")' for part in parts) if is_names else f'call_sql("{field}")'
        raise refuse(f"{method}: found the text {field!r}, expected expressions. Write {method}({advice})")
    raise refuse(
        f"{method}: found {field!r} ({type(field).__name__}), expected an expression such as col(...) or lit(...)"
    )


def _expanded(method: str, node: Any, names: Sequence[str]) -> list[Any]:
    if not isinstance(node, Call) or node.path or node.name not in ("WITH_COLUMNS", "WITHOUT_COLUMNS", "RANGE_TO"):
        return [node]
    if node.name == "RANGE_TO":
        return [Name((name,)) for name in _range(method, node, names)]
    chosen = [name for argument in node.arguments for name in _columns(method, argument, names)]
    if node.name == "WITHOUT_COLUMNS":
        chosen = [name for name in names if name not in chosen]
    return [Name((name,)) for name in chosen]


def _columns(method: str, node: Any, names: Sequence[str]) -> list[str]:
    """The columns of one part of a list."""
    if isinstance(node, Star):
        return list(names)
    if isinstance(node, Call) and node.name == "RANGE_TO":
        return _range(method, node, names)
    return [names[_place(method, node, names)]]


def _range(method: str, node: Call, names: Sequence[str]) -> list[str]:
    first, last = (_place(method, end, names) for end in node.arguments)
    if first > last:
        raise refuse(f"{method}: the range from {names[first]!r} to {names[last]!r} is the wrong way round")
    return list(names[first : last + 1])


def _place(method: str, node: Any, names: Sequence[str]) -> int:
    """The position of a column, counted from 0."""
    if isinstance(node, Name) and len(node.parts) == 1:
        if node.parts[0] in names:
            return list(names).index(node.parts[0])
        hint = did_you_mean(node.parts[0], names)
        raise refuse(f"{method}: there is no column {node.parts[0]!r}.{hint} There are {', '.join(names)}")
    if isinstance(node, Literal) and isinstance(node.value, int) and not isinstance(node.value, bool):
        if 1 <= node.value <= len(names):
            return node.value - 1
        raise refuse(f"{method}: found column {node.value}, expected 1 to {len(names)}: columns are counted from 1")
    raise refuse(f"{method}: a list of columns takes col('name'), positions counted from 1, and range_(first, last)")
