"""What columns and rows of a plan are, as text in terms of tables: for people, and to be compared years later.

Two texts are equal only where the values are. Harmless differences leave no trace: names that a query gave columns, the
order of conditions, which side of `=` something stands on, whether a filter was pushed into a source. The text is
stored with state (`checkpoint/meanings.py`): if what this module writes changes, so must `FORM` there.

Texts are bounded: of a long one the beginning is kept, and a digest of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, UserCall
from millstream.expressions.types import LocalZonedTimestampType
from millstream.planner.expression_text import Notation, expression_text

__all__ = ["bounded", "expression_meaning", "listed", "parts_of", "typed", "with_conditions"]

_LENGTH_MAX = 240
_SYMMETRICAL = frozenset({"=", "<>", "AND", "OR", "+", "*", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"})
_MIRRORED = {"<": ">", "<=": ">="}
_FLAT = ("AND", "OR")


def bounded(text: str) -> str:
    """The text, or the beginning of one that is long, and what tells it from others with the same beginning.

    >>> bounded("SUM(price)"), len(bounded("a" * 10_000))
    ('SUM(price)', 240)
    """
    if len(text) <= _LENGTH_MAX:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: _LENGTH_MAX - 18]}…#{digest}"


def listed(texts: Iterable[str]) -> str:
    """Several texts as one."""
    return bounded(", ".join(texts))


def with_conditions(rows: str, conditions: Sequence[str]) -> str:
    """Rows of which all conditions hold, whoever checks them first.

    >>> with_conditions("orders", ["b", "a", "b"])
    'orders where a and b'
    """
    return bounded(f"{rows} where {' and '.join(sorted(set(conditions)))}") if conditions else rows


def typed(text: str, type_: DataType) -> str:
    """A column that is stored: of one with parts its type tells which parts there are, the others not to be read."""
    has_parts = isinstance(type_, RowType) or type_.arrow.num_fields > 0
    return bounded(f"{text} {type_.nullable()}") if has_parts else text


def expression_meaning(expression: RowExpression, columns: Sequence[str], zone: str) -> str:
    """An expression over columns that mean this. `zone`: of the session, told where the value may depend on it."""
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
    """What is put together by AND or OR, however it is nested."""
    if not isinstance(expression, Call) or expression.function != function:
        return [expression]
    return [part for each in expression.arguments for part in parts_of(each, function)]


def _zoned(call: Call, zone: str) -> str:
    """A moment that becomes something else, or comes of it, does so by the clocks of a zone."""
    moments = [isinstance(each, LocalZonedTimestampType) for each in (call.type, *(a.type for a in call.arguments))]
    is_compared = not moments[0] and all(moments[1:])
    return f"@{zone}" if any(moments) and not all(moments) and not (is_compared and len(moments) > 2) else ""
