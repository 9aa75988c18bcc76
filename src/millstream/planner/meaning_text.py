"""Describes a plan's columns and rows in terms of tables, as text for display and for comparison years later.

Equal strings imply equal values. Harmless differences do not change the text: column aliases, the order of conditions,
the sides of `=`, a filter pushed into a source. The text is stored with state (`checkpoint/meanings.py`): any change to
this module's output requires a new `FORM` there.

Strings are bounded: a long one is cut and ends with a digest of the whole.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Sequence

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, UserCall
from millstream.expressions.types import DecimalType, LocalZonedTimestampType
from millstream.planner.expression_text import Notation, expression_text

__all__ = [
    "added_columns",
    "bounded",
    "expression_meaning",
    "listed",
    "named",
    "parts_of",
    "scaled",
    "typed",
    "with_conditions",
]

_LENGTH_MAX = 240
_SYMMETRICAL = frozenset({"=", "<>", "AND", "OR", "+", "*", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"})
_MIRRORED = {"<": ">", "<=": ">="}
_FLAT = ("AND", "OR")
_BY_THE_CLOCK = frozenset(
    {"FROM_UNIXTIME", "UNIX_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME", "LOCALTIMESTAMP"}
)
_ROUNDED = frozenset({"FLOOR", "CEIL", "CEILING"})
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_WORDS = frozenset({"true", "false", "null"})


def bounded(text: str) -> str:
    """A short text unchanged; a long one cut, with a digest of the whole.

    >>> bounded("SUM(price)"), len(bounded("a" * 10_000))
    ('SUM(price)', 240)
    """
    if len(text) <= _LENGTH_MAX:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: _LENGTH_MAX - 18]}…#{digest}"


def listed(texts: Iterable[str]) -> str:
    """Joins several strings."""
    return bounded(", ".join(texts))


def with_conditions(rows: str, conditions: Sequence[str]) -> str:
    """Describes rows that meet all conditions, wherever the plan checks them.

    >>> with_conditions("orders", ["b", "a", "b"])
    'orders where a and b'
    """
    return bounded(f"{rows} where {' and '.join(sorted(set(conditions)))}") if conditions else rows


def named(column: str, metadata: str | None = None) -> str:
    """A table's column, quoted if it could be read as a literal or an expression. `metadata`: the metadata key, which
    may differ from the column's name.

    >>> named("price"), named("1"), named("at", "timestamp")
    ('price', '`1`', "at of metadata 'timestamp'")
    """
    is_plain = _PLAIN_NAME.fullmatch(column) and column not in _WORDS
    name = column if is_plain else "`" + column.replace("`", "``") + "`"
    return name if metadata in (None, column) else f"{name} of metadata '{metadata}'"


def added_columns(word: str, count: int, below: Sequence[str]) -> list[str]:
    """Columns that a relation adds after those `below`. A second relation of the same kind gets a number; the text of
    the rows shows their order.

    >>> added_columns("element", 1, ["k", "element.0"])
    ['element 2.0']
    """
    words = itertools.chain([word], (f"{word} {number}" for number in itertools.count(2)))
    free = next(each for each in words if f"{each}.0" not in below)
    return [f"{free}.{number}" for number in range(count)]


def typed(text: str, type_: DataType) -> str:
    """A stored column. A nested column includes its type, which names the fields to read."""
    has_parts = isinstance(type_, RowType) or type_.arrow.num_fields > 0
    return bounded(f"{text} {type_.nullable()}") if has_parts else text


def scaled(text: str, type_: DataType) -> str:
    """An aggregate's argument. Sums of decimals include the scale, because they are stored as integers."""
    return f"{text} with {type_.scale} decimals" if isinstance(type_, DecimalType) else text


def expression_meaning(expression: RowExpression, columns: Sequence[str], zone: str) -> str:
    """An expression over columns with these meanings. `zone`: the session's zone, included where the value depends on
    it."""
    if isinstance(expression, Column):
        return columns[expression.index]
    if isinstance(expression, Literal):
        return bounded(expression_text(expression, (), Notation.PHYSICAL))
    if isinstance(expression, Call):
        return bounded(_call(expression, columns, zone))
    if isinstance(expression, UserCall):
        inside = ", ".join(expression_meaning(each, columns, zone) for each in expression.arguments)
        return bounded(f"{getattr(expression.function, 'name', 'function')}({inside})")
    return bounded(repr(expression))


def _call(call: Call, columns: Sequence[str], zone: str) -> str:
    arguments = parts_of(call, call.function) if call.function in _FLAT else call.arguments
    parts = [expression_meaning(each, columns, zone) for each in arguments]
    name = call.function
    if name == "FIELD":
        return f"{parts[0]}.{dict(call.options)['name']}"
    if name in _MIRRORED:
        name, parts = _MIRRORED[name], parts[::-1]
    elif name in _SYMMETRICAL:
        parts.sort()
    if name in ("CAST", "TRY_CAST"):
        parts[-1] += f" AS {call.type.nullable()}"
    options = [f"{key}={value}" for key, value in call.options]
    return f"{name}({', '.join([*options, *parts])}){_zoned(call, zone)}"


def parts_of(expression: RowExpression, function: str) -> list[RowExpression]:
    """The operands of nested ANDs or ORs, flattened."""
    if not isinstance(expression, Call) or expression.function != function:
        return [expression]
    return [part for each in expression.arguments for part in parts_of(each, function)]


def _zoned(call: Call, zone: str) -> str:
    """The session's zone, for conversions between instants and local times and for functions that read the clock."""
    moments = [_has_moment(each) for each in (call.type, *(a.type for a in call.arguments))]
    is_compared = not moments[0] and all(moments[1:])
    is_mixed = any(moments) and not all(moments) and not (is_compared and len(moments) > 2)
    is_rounded = call.function in _ROUNDED and any(moments)
    by_clock = call.function in _BY_THE_CLOCK and (call.function != "UNIX_TIMESTAMP" or bool(call.arguments))
    return f"@{zone}" if is_mixed or is_rounded or by_clock else ""


def _has_moment(type_: DataType) -> bool:
    """Whether a value is or contains an instant."""
    if isinstance(type_, RowType):
        return any(map(_has_moment, type_.types))
    inner = [each for each in type_.parameters if isinstance(each, DataType)]
    return isinstance(type_, LocalZonedTimestampType) or any(map(_has_moment, inner))
