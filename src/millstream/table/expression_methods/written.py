"""Formats syntax as one line close to SQL, for messages and `print`. It is not parsed again."""

from __future__ import annotations

from typing import Any

from millstream.sql import syntax

__all__ = ["written"]

_INFIX = frozenset(("+", "-", "*", "/", "%", "=", "<>", "<", ">", "<=", ">=", "AND", "OR", "||"))


def written(node: Any) -> str:
    """The text of a node."""
    maker = _MAKERS.get(type(node))
    return maker(node) if maker else type(node).__name__


def _call(node: syntax.Call) -> str:
    arguments = [written(argument) for argument in node.arguments]
    if node.name in _INFIX and len(arguments) == 2:
        return f"({arguments[0]} {node.name} {arguments[1]})"
    if node.name.startswith("IS ") and len(arguments) == 1:
        return f"({arguments[0]} {node.name})"
    if node.name in ("NOT", "-") and len(arguments) == 1:
        return f"({node.name} {arguments[0]})"
    words = [f"{name}={value}" for name, value in node.options if isinstance(value, str)]
    return f"{node.name}({', '.join([*arguments, *words])})"


def _literal(node: syntax.Literal) -> str:
    if node.value is None:
        return "NULL"
    return "'" + node.value.replace("'", "''") + "'" if isinstance(node.value, str) else str(node.value)


def _interval(node: syntax.Interval) -> str:
    return f"INTERVAL {'-' if node.negative else ''}'{node.value}' {node.unit}"


def _cast(node: syntax.Cast) -> str:
    return f"{'TRY_CAST' if node.is_try else 'CAST'}({written(node.operand)} AS {node.target})"


def _case(node: syntax.Case) -> str:
    whens = " ".join(f"WHEN {written(when)} THEN {written(then)}" for when, then in node.whens)
    otherwise = f" ELSE {written(node.otherwise)}" if node.otherwise is not None else ""
    return f"CASE {whens}{otherwise} END"


def _between(node: syntax.Between) -> str:
    word = "NOT BETWEEN" if node.negated else "BETWEEN"
    return f"({written(node.operand)} {word} {written(node.low)} AND {written(node.high)})"


def _in(node: syntax.In) -> str:
    values = ", ".join(map(written, node.values)) if node.query is None else "a table"
    return f"({written(node.operand)} {'NOT ' if node.negated else ''}IN ({values}))"


def _like(node: syntax.Like) -> str:
    return f"({written(node.operand)} {'SIMILAR TO' if node.similar else 'LIKE'} {written(node.pattern)})"


def _aggregated(node: syntax.Aggregated) -> str:
    arguments = ", ".join(map(written, node.call.arguments))
    return f"{node.call.name}({'DISTINCT ' if node.distinct else ''}{arguments})"


def _order(node: syntax.OrderItem) -> str:
    return f"{written(node.expression)} {'DESC' if node.descending else 'ASC'}"


_MAKERS: dict[type, Any] = {
    syntax.Name: lambda node: ".".join(node.parts),
    syntax.Star: lambda node: ".".join((*node.qualifier, "*")),
    syntax.Literal: _literal,
    syntax.Interval: _interval,
    syntax.Call: _call,
    syntax.Cast: _cast,
    syntax.Case: _case,
    syntax.Between: _between,
    syntax.In: _in,
    syntax.Like: _like,
    syntax.As: lambda node: f"{written(node.operand)} AS {', '.join(node.names)}",
    syntax.Argument: lambda node: f"{node.name} => {written(node.value)}",
    syntax.RowValue: lambda node: f"ROW({', '.join(map(written, node.values))})",
    syntax.FieldAccess: lambda node: f"{written(node.operand)}.{node.name}",
    syntax.ItemAccess: lambda node: f"{written(node.operand)}[{written(node.index)}]",
    syntax.Aggregated: _aggregated,
    syntax.OrderItem: _order,
    syntax.Over: lambda node: f"{written(node.call)} OVER {node.window}",
    syntax.Descriptor: lambda node: f"DESCRIPTOR({', '.join(node.columns)})",
}
