"""Expressions and types as text. `written` is extensible: modules for queries and statements register their own
nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import singledispatch
from typing import Any

from millstream.sql.keywords import RESERVED
from millstream.sql.syntax import (
    As,
    Between,
    Call,
    Case,
    Cast,
    Exists,
    Expression,
    FieldAccess,
    In,
    Interval,
    ItemAccess,
    Like,
    Literal,
    Name,
    Node,
    RowValue,
    Scalar,
    Star,
    TypeName,
)

__all__ = [
    "BINARY",
    "CHAINED",
    "PLAIN",
    "RANGED",
    "SIGNED",
    "commas",
    "name_text",
    "operand",
    "path_text",
    "text_literal",
    "written",
]

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Not reserved, but ambiguous in some positions.
_SOFT = frozenset(
    {
        "MAP",
        "DESCRIPTOR",
        "MODEL",
        "FINAL",
        "KEY",
        "ABSENT",
        "IGNORE",
        "RESPECT",
        "NULLS",
        "ASC",
        "DESC",
        "FIRST",
        "LAST",
    }
    | {"AFTER", "UNBOUNDED", "TOP", "FORMAT", "RETURNING", "PLACING", "TIMESTAMPADD", "TIMESTAMPDIFF", "JSON"}
    | {"CATALOG", "DATABASE", "JOB", "IF", "TEMPORARY", "PLAN", "METADATA", "VIRTUAL", "INPUT", "OUTPUT"}
    | {"SETS", "STATEMENT", "PYTHON", "JAVA"}
)
SIGNED, RANGED, _PRIMARY = 80, 32, 100
BINARY = {
    "OR": 22,
    "AND": 24,
    **dict.fromkeys(("+", "-"), 40),
    **dict.fromkeys(("*", "/", "%", "||"), 60),
    **dict.fromkeys(("=", "<>", "<", ">", "<=", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"), 30),
    **dict.fromkeys(("OVERLAPS", "CONTAINS", "EQUALS", "PRECEDES", "SUCCEEDS", "MEMBER OF", "SUBMULTISET OF"), RANGED),
    **dict.fromkeys(("IMMEDIATELY PRECEDES", "IMMEDIATELY SUCCEEDS"), RANGED),
    **{f"MULTISET {kind} {how}": 40 for kind in ("UNION", "INTERSECT", "EXCEPT") for how in ("ALL", "DISTINCT")},
}
BINARY["IS DISTINCT FROM"] = BINARY["IS NOT DISTINCT FROM"] = 28
CHAINED = ("OR", "AND", "+", "-", "*", "/", "%", "||")


def commas(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def name_text(name: str) -> str:
    """A name, in backticks if necessary."""
    if PLAIN.fullmatch(name) and name.upper() not in RESERVED and name.upper() not in _SOFT:
        return name
    return "`" + name.replace("`", "``") + "`"


def path_text(parts: Iterable[str]) -> str:
    return ".".join(name_text(part) for part in parts)


def text_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _level(node: Node) -> int:
    """The precedence of an expression's outermost operator."""
    if isinstance(node, Call):
        if len(node.arguments) == 2 and node.name in BINARY:
            return BINARY[node.name]
        if len(node.arguments) == 1 and node.name in ("-", "+"):
            return SIGNED
        if node.name == "NOT":
            return 26
        return 28 if node.name.startswith("IS ") else _PRIMARY
    if isinstance(node, Between | In | Like):
        return RANGED
    if isinstance(node, Scalar) and node.quantifier is not None:
        return 30
    if isinstance(node, Literal) and str(node.value).startswith("-") and node.kind in ("NUMBER", "VALUE"):
        return SIGNED
    return _PRIMARY


def operand(node: Node, above: int) -> str:
    """An operand of an operator with precedence `above`: in parentheses unless it binds tighter."""
    text = written(node)
    return text if _level(node) > above else f"({text})"


@singledispatch
def written(node: Any) -> str:
    """The text of a node."""
    raise TypeError(f"{type(node).__name__} cannot be written as SQL")


@written.register
def _type(node: TypeName) -> str:
    if node.name in ("ARRAY", "MULTISET", "MAP"):
        text = f"{node.name}<{commas(written(each) for each in node.elements)}>"
    elif node.name == "ROW":
        comments = node.comments or (None,) * len(node.fields)
        fields = [
            f"{name_text(name)} {written(each)}" + ("" if comment is None else f" {text_literal(comment)}")
            for name, each, comment in zip(node.fields, node.elements, comments, strict=True)
        ]
        text = f"ROW<{commas(fields)}>"
    elif node.name == "STRUCTURED":
        fields = [f"{name_text(name)} {written(each)}" for name, each in zip(node.fields, node.elements, strict=True)]
        text = f"STRUCTURED<{commas([text_literal(node.comments[0] or ''), *fields])}>"
    elif node.name == "RAW" and node.comments:
        text = f"RAW({commas(text_literal(each or '') for each in node.comments)})"
    elif node.name.startswith("INTERVAL") and len(node.arguments) == 2:
        first, _, last = node.name.partition(" TO ")
        text = f"{first}({node.arguments[0]}) TO {last}({node.arguments[1]})"
    elif node.name.startswith("INTERVAL") and node.arguments:
        first, to, last = node.name.partition(" TO ")
        text = f"{first}({node.arguments[0]}){to}{last}"
    else:
        text = node.name + (f"({commas(map(str, node.arguments))})" if node.arguments else "")
    return text if node.nullable else f"{text} NOT NULL"


@written.register
def _literal(node: Literal) -> str:
    value = node.value
    if node.kind == "VALUE":
        node = _literal_of(value)
        value = node.value
    if node.kind == "NULL":
        return "NULL"
    if node.kind == "BOOLEAN":
        return "UNKNOWN" if value is None else str(value).upper()
    if node.kind == "NUMBER":
        return str(value)
    if node.kind == "TEXT":
        return text_literal(str(value))
    if node.kind == "BYTES":
        return f"x'{value.hex().upper()}'"
    kind = "TIMESTAMP WITH LOCAL TIME ZONE" if node.kind == "TIMESTAMP_LTZ" else node.kind
    return f"{kind} {text_literal(str(value))}"


def _literal_of(value: Any) -> Literal:
    """The constant for a Python value of the Table API."""
    if value is None:
        return Literal("NULL")
    if isinstance(value, bool):
        return Literal("BOOLEAN", value)
    if isinstance(value, bytes):
        return Literal("BYTES", value)
    if isinstance(value, int | float) or type(value).__name__ == "Decimal":
        return Literal("NUMBER", str(value))
    kind = {"date": "DATE", "time": "TIME", "datetime": "TIMESTAMP"}.get(type(value).__name__, "TEXT")
    return Literal(kind, str(value))


@written.register
def _interval(node: Interval) -> str:
    inner = [str(node.precision)] if node.precision is not None else []
    if node.unit_to is None and node.fraction is not None:
        inner.append(str(node.fraction))
    text = f"INTERVAL {'-' if node.negative else ''}{text_literal(node.value)} {node.unit}"
    text += f"({commas(inner)})" if inner else ""
    if node.unit_to is not None:
        text += f" TO {node.unit_to}" + (f"({node.fraction})" if node.fraction is not None else "")
    return text


@written.register
def _name(node: Name) -> str:
    return path_text(node.parts)


@written.register
def _star(node: Star) -> str:
    return f"{path_text(node.qualifier)}.*" if node.qualifier else "*"


# --- everything else --------------------------------------------------------------------------------------------------


@written.register
def _cast(node: Cast) -> str:
    target = written(node.target) if isinstance(node.target, TypeName) else str(node.target)
    return f"{'TRY_CAST' if node.is_try else 'CAST'}({written(node.operand)} AS {target})"


@written.register
def _case(node: Case) -> str:
    words = ["CASE", *([written(node.operand)] if node.operand is not None else [])]
    for condition, result in node.whens:
        words.append(f"WHEN {written(condition)} THEN {written(result)}")
    if node.otherwise is not None:
        words.append(f"ELSE {written(node.otherwise)}")
    return " ".join([*words, "END"])


@written.register
def _between(node: Between) -> str:
    words = f"{'NOT ' if node.negated else ''}BETWEEN{' SYMMETRIC' if node.symmetric else ''}"
    bounds = f"{operand(node.low, RANGED)} AND {operand(node.high, RANGED)}"
    return f"{operand(node.operand, RANGED)} {words} {bounds}"


@written.register
def _in(node: In) -> str:
    inner = written(node.query) if node.query is not None else commas(written(each) for each in node.values)
    return f"{operand(node.operand, RANGED)} {'NOT ' if node.negated else ''}IN ({inner})"


@written.register
def _like(node: Like) -> str:
    words = f"{'NOT ' if node.negated else ''}{'SIMILAR TO' if node.similar else 'LIKE'}"
    escape = "" if node.escape is None else f" ESCAPE {operand(node.escape, RANGED)}"
    return f"{operand(node.operand, RANGED)} {words} {operand(node.pattern, RANGED)}{escape}"


@written.register
def _exists(node: Exists) -> str:
    return f"EXISTS ({written(node.query)})"


@written.register
def _scalar(node: Scalar) -> str:
    if node.quantifier is None or node.operand is None:
        return f"({written(node.query)})"
    return f"{operand(node.operand, 30)} {node.operator} {node.quantifier} ({written(node.query)})"


@written.register
def _row(node: RowValue) -> str:
    return f"ROW({commas(written(each) for each in node.values)})"


@written.register
def _field(node: FieldAccess) -> str:
    name = "*" if node.name == "*" else name_text(node.name)
    return f"{_accessed(node.operand)}.{name}"


@written.register
def _item(node: ItemAccess) -> str:
    text = written(node.operand) if isinstance(node.operand, Name) else _accessed(node.operand)
    return f"{text}[{written(node.index)}]"


def _accessed(node: Expression) -> str:
    """The expression before a field or item access, in parentheses unless it is a primary: `(a).b`, because `a.b` would
    be a name."""
    is_primary = isinstance(node, FieldAccess | ItemAccess | Case | Cast | RowValue | Exists) or (
        isinstance(node, Call) and _level(node) == _PRIMARY
    )
    return written(node) if is_primary else f"({written(node)})"


@written.register
def _as(node: As) -> str:
    return f"{operand(node.operand, RANGED)} AS {commas(name_text(each) for each in node.names)}"
