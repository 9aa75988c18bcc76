"""Which columns of a relation have one value in all rows: a constant that was written as an argument, as the separator
of LISTAGG and the offset of LAG, is one wherever passes move it."""

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
"""The values of columns that are the same in all rows; NO_ROWS where there never is a row."""


class _NoRows:
    """The value of columns without rows: any constant will do."""

    def __repr__(self) -> str:
        return "NO_ROWS"


NO_ROWS = _NoRows()

_SAME_COLUMNS = (*SAME_COLUMNS, WatermarkAssign, Stamp)
"""Relations whose first columns are those of their input, in all of its rows that are left."""


def constant_columns(relation: Relation) -> Constants:
    """The columns of a relation that are constants."""
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
    found: dict[int, Any] = {}
    for at in range(len(relation.schema)):
        cells = [_constant(row[at], {}) for row in relation.rows]
        if not cells:
            found[at] = NO_ROWS
        elif cells[0][0] and all(cell == cells[0] for cell in cells):
            found[at] = cells[0][1]
    return found


def _of_branches(relation: SetOperation) -> Constants:
    """What is the same constant in every branch that has rows."""
    branches = [constant_columns(each) for each in relation.branches]
    found: dict[int, Any] = {}
    for at in range(len(relation.schema)):
        if all(at in branch for branch in branches):
            values = [branch[at] for branch in branches if branch[at] is not NO_ROWS] or [NO_ROWS]
            if all(type(value) is type(values[0]) and value == values[0] for value in values):
                found[at] = values[0]
    return found


def _of_join(join: Join) -> Constants:
    """Columns of a side that has a row in every result."""
    found: dict[int, Any] = {}
    if join.kind not in (JoinKind.RIGHT, JoinKind.FULL):
        found |= constant_columns(join.left)
    if join.kind in (JoinKind.INNER, JoinKind.RIGHT):
        width = len(join.left.schema)
        found |= {width + at: value for at, value in constant_columns(join.right).items()}
    return found
