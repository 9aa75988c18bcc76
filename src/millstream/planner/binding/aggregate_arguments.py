"""Rewrites the arguments of aggregates that are computed from something other than their operands.

Covers JSON strings, rows without NULLs, and composed aggregates: SINGLE_VALUE and PERCENTILE are functions of the array
that ARRAY_AGG collects from a group, and support retraction as it does.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.expressions.coercion import as_type
from millstream.expressions.functions.registry import FunctionDefinition
from millstream.expressions.row_expressions import Call, Literal, RowExpression, columns_of
from millstream.expressions.types import BigIntType, BooleanType, DoubleType
from millstream.planner.binding.calls import bound_arguments, system_call, written_text
from millstream.sql import syntax
from millstream.sql.places import problem

__all__ = ["COMPOSED", "as_json", "composed", "counted_arguments", "is_true"]

Listed = Callable[[RowExpression], RowExpression]
"""Returns the array of all values of an expression in a group."""


COMPOSED = ("PERCENTILE", "SINGLE_VALUE")


def composed(
    function: FunctionDefinition, operands: list[RowExpression], node: syntax.Call, listed: Listed
) -> RowExpression:
    """An aggregate of `COMPOSED`, as a function of the array of the group's values."""
    arguments, result = bound_arguments(function, operands, node, node.options)
    if function.name == "SINGLE_VALUE":
        return Call(result.nullable(), "ELEMENT", (listed(arguments[0]),), (("of", "group"),), written_text(node))
    value, percentage, *frequency = arguments
    if columns_of(percentage):
        raise problem("PERCENTILE takes a percentage that is a constant: a number from 0 to 1, or an ARRAY", node)
    if isinstance(percentage, Literal) and percentage.value is not None and not 0 <= percentage.value <= 1:
        raise problem(f"PERCENTILE takes a percentage from 0 to 1, found {percentage.value}", node)
    counted = as_type(value, DoubleType())
    if frequency:
        counted = system_call("ROW", [counted, as_type(frequency[0], BigIntType())], node)
    percentages = as_type(percentage, result)
    return Call(result.nullable(), "$PERCENTILE", (listed(counted), percentages), (), written_text(node))


def as_json(name: str, arguments: tuple[RowExpression, ...], node: syntax.Call) -> RowExpression:
    """The arguments as a JSON array, which the aggregate collects as one value."""
    default = "NULL" if name == "JSON_OBJECTAGG" else "ABSENT"
    options = (("on_null", dict(node.options).get("on_null", default)),)
    return system_call("JSON_ARRAY", arguments, node, options)


def counted_arguments(
    arguments: tuple[RowExpression, ...], condition: RowExpression | None
) -> tuple[tuple[RowExpression, ...], RowExpression | None]:
    """COUNT of a NOT NULL argument is COUNT(*); COUNT of several arguments counts the rows in which none is NULL."""
    nullable = tuple(each for each in arguments if each.type.is_nullable)
    if len(nullable) < 2:
        return nullable, condition
    for each in nullable:
        there = Call(BooleanType(False), "IS NOT NULL", (each,))
        condition = there if condition is None else Call(BooleanType(False), "AND", (is_true(condition), there))
    return (), condition


def is_true(condition: RowExpression) -> RowExpression:
    """A condition that is never NULL, as an aggregate's filter requires."""
    if not condition.type.is_nullable:
        return condition
    return Call(BooleanType(False), "IS TRUE", (condition,))
