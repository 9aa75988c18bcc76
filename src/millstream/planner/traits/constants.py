"""Columns with one value in all rows. A constant argument, such as LISTAGG's separator or LAG's offset, remains
recognisable wherever passes move it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.planner.relations import (
    Aggregate,
    Join,
    JoinKind,
    Project,
    Relation,
    SetOperation,
    Values,
    WatermarkAssign,
    WindowAggregate,
)
from millstream.planner.time_joins import Stamp
from millstream.planner.traits.same_columns import SAME_COLUMNS

__all__ = ["NO_ROWS", "Constants", "constant_columns"]

Constants = Mapping[int, Any]
"""Columns with the same value in all rows, and that value; NO_ROWS if the relation is always empty."""


class _NoRows:
    """The value of columns of an empty relation, compatible with any constant."""

    def __repr__(self) -> str:
        return "NO_ROWS"


NO_ROWS = _NoRows()

_SAME_COLUMNS = (*SAME_COLUMNS, WatermarkAssign, Stamp)
"""Relations whose first columns are those of their input, in every row they emit."""


def constant_columns(relation: Relation) -> Constants:
    """The constant columns of a relation."""
    if isinstance(relation, Values):
        return _of_values(relation)
    if isinstance(relation, SetOperation):
        return _of_branches(relation) if (relation.kind, relation.all) == ("UNION", True) else {}
    if isinstance(relation, Join):
        return _of_join(relation)
    if isinstance(relation, Project):
        below = constant_columns(relation.input)
        return {
            at: value
            for at, expression in enumerate(relation.expressions)
            for is_constant, value in [_constant(expression, below)]
            if is_constant
        }
    if isinstance(relation, Aggregate | WindowAggregate):
        below = constant_columns(relation.input)
        return {at: below[group] for at, group in enumerate(relation.groups) if group in below}
    return constant_columns(relation.inputs[0]) if isinstance(relation, _SAME_COLUMNS) else {}


def _constant(expression: RowExpression, below: Constants) -> tuple[bool, Any]:
    while isinstance(expression, Call) and expression.function == "CAST":
        expression = expression.arguments[0]
    if isinstance(expression, Literal):
        return True, expression.value
    if isinstance(expression, Column) and expression.index in below:
        return True, below[expression.index]
    return False, None


def _of_values(relation: Values) -> Constants:
    constants: dict[int, Any] = {}
    for at in range(len(relation.schema)):
        cells = [_constant(row[at], {}) for row in relation.rows]
        if not cells:
            constants[at] = NO_ROWS
        elif cells[0][0] and all(cell == cells[0] for cell in cells):
            constants[at] = cells[0][1]
    return constants


def _of_branches(relation: SetOperation) -> Constants:
    """Columns with the same constant in every non-empty branch."""
    branches = [constant_columns(each) for each in relation.branches]
    constants: dict[int, Any] = {}
    for at in range(len(relation.schema)):
        if all(at in branch for branch in branches):
            values = [branch[at] for branch in branches if branch[at] is not NO_ROWS] or [NO_ROWS]
            if all(type(value) is type(values[0]) and value == values[0] for value in values):
                constants[at] = values[0]
    return constants


def _of_join(join: Join) -> Constants:
    """Constant columns of the sides that contribute a row to every result."""
    constants: dict[int, Any] = {}
    if join.kind not in (JoinKind.RIGHT, JoinKind.FULL):
        constants |= constant_columns(join.left)
    if join.kind in (JoinKind.INNER, JoinKind.RIGHT):
        width = len(join.left.schema)
        constants |= {width + at: value for at, value in constant_columns(join.right).items()}
    return constants
