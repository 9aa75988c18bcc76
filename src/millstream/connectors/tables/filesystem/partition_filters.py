"""Conditions on partition columns, which decide for a whole file whether it is read.

Supports simple conditions only: a partition column against a constant of its own type (=, <>, <, <=, >, >=, IN), and IS
NULL, IS NOT NULL. A supported condition is applied exactly: no row for which it is not true is emitted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.expressions import types
from millstream.expressions.nested_types import RowField
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression

__all__ = ["PartitionFilter", "partition_filter"]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Types whose values Python compares as SQL does. CHAR is missing: SQL compares it with its padding.
_PLAIN = (types.IntegralType, types.VarCharType, types.DateType, types.BooleanType)


@dataclass(frozen=True)
class PartitionFilter:
    """A condition on one partition column.

    >>> PartitionFilter("day", ">=", "2026-11-16").matches("2026-11-17"), PartitionFilter("day", "=", "x").matches(None)
    (True, False)
    """

    column: str
    comparison: str
    constant: Any = None

    def matches(self, value: Any) -> bool:
        """Whether the condition is true for a partition with this value."""
        if self.comparison in ("IS NULL", "IS NOT NULL"):
            return (value is None) == (self.comparison == "IS NULL")
        if self.comparison == "IN":
            return value is not None and value in self.constant
        return value is not None and _COMPARISONS[self.comparison](value, self.constant)


def partition_filter(
    condition: RowExpression, fields: Sequence[RowField], partition_keys: Sequence[str]
) -> PartitionFilter | None:
    """The expression as a condition on a partition column; None if it has another form."""
    if not isinstance(condition, Call):
        return None
    arguments, name = condition.arguments, condition.function
    if name in ("IS NULL", "IS NOT NULL") and len(arguments) == 1:
        column = _partition(arguments[0], fields, partition_keys)
        return None if column is None else PartitionFilter(column, name)
    if name == "IN" and len(arguments) > 1:
        return _in_list_filter(arguments[0], arguments[1:], fields, partition_keys)
    if name not in _COMPARISONS or len(arguments) != 2:
        return None
    left, right = arguments
    if isinstance(left, Literal):
        left, right, name = right, left, _TURNED[name]
    column = _partition(left, fields, partition_keys)
    if column is None or not isinstance(right, Literal) or right.value is None:
        return None
    if not isinstance(left.type, _PLAIN) or not _are_comparable(left.type, right.type):
        return None
    return PartitionFilter(column, name, right.value)


def _in_list_filter(
    value: RowExpression, others: Sequence[RowExpression], fields: Sequence[RowField], partition_keys: Sequence[str]
) -> PartitionFilter | None:
    column = _partition(value, fields, partition_keys)
    if column is None or not isinstance(value.type, _PLAIN):
        return None
    constants = []
    for other in others:
        if not isinstance(other, Literal) or not _are_comparable(value.type, other.type):
            return None
        if other.value is not None:  # NULL matches nothing
            constants.append(other.value)
    return PartitionFilter(column, "IN", tuple(constants))


def _are_comparable(left: Any, right: Any) -> bool:
    if isinstance(left, types.IntegralType):
        return isinstance(right, types.IntegralType)
    if isinstance(left, types.VarCharType):
        # A literal is CHAR of its own length: without trailing blanks it equals the same VARCHAR text.
        return isinstance(right, (types.VarCharType, types.CharType))
    return type(left) is type(right)


def _partition(expression: RowExpression, fields: Sequence[RowField], partition_keys: Sequence[str]) -> str | None:
    if not isinstance(expression, Column) or expression.index >= len(fields):
        return None
    name = fields[expression.index].name
    return name if name in partition_keys else None
