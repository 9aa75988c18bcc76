"""OVER, a row at a time: the slow reference implementation for `over_calls` and the operators.

The partition of every row is sorted and scanned, without state between rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from millstream.aggregation.sql_reference import measured
from millstream.graph.over_nodes import Frame, OverColumn
from millstream.graph.table_nodes import OrderKey

__all__ = ["over_values"]

Row = Sequence[Any]


def over_values(
    column: OverColumn, order: Sequence[OrderKey], rows: Sequence[Row], partitions: Sequence[Any]
) -> list[Any]:
    """The value of a call for each row. `rows` are in arrival order, None is NULL."""

    def compared(left: int, right: int) -> int:
        return _compared(rows[left], rows[right], order)

    values = []
    for at in range(len(rows)):
        own = [number for number, partition in enumerate(partitions) if partition == partitions[at]]
        own.sort(key=functools.cmp_to_key(compared))  # stable: arrival order
        values.append(_value(column, order, [rows[number] for number in own], own.index(at)))
    return values


def _value(column: OverColumn, order: Sequence[OrderKey], rows: Sequence[Row], at: int) -> Any:
    """The value of the row at this position of its sorted partition."""
    if column.measure is not None:
        frame = [rows[number] for number in range(len(rows)) if _is_in(column.frame, order, rows, at, number)]
        measure = column.measure
        if not measure.arguments:
            return len(frame)
        argument = measure.arguments[0]
        seen = [row for row in frame if argument.mask is None or row[argument.mask] is True]
        return measured(measure, [row[int(argument.field or 0)] for row in seen])
    before = sum(_compared(row, rows[at], order) < 0 for row in rows)
    if column.function == "ROW_NUMBER":
        return at + 1
    if column.function == "RANK":
        return before + 1
    if column.function == "DENSE_RANK":
        steps = [number for number in range(1, at + 1) if _compared(rows[number - 1], rows[number], order) != 0]
        return len(steps) + 1
    if column.function == "PERCENT_RANK":
        return before / (len(rows) - 1) if len(rows) > 1 else 0.0
    if column.function == "CUME_DIST":
        return sum(_compared(row, rows[at], order) <= 0 for row in rows) / len(rows)
    if column.function == "NTILE":
        return _tile(len(rows), rows[at][column.arguments[0]], at)
    return _neighbour(column, rows, at)


def _neighbour(column: OverColumn, rows: Sequence[Row], at: int) -> Any:
    """LAG and LEAD."""
    value, *others = column.arguments
    by = rows[at][others[0]] if others else 1
    place = at - by if column.function == "LAG" else at + by
    if 0 <= place < len(rows):
        return rows[place][value]
    return rows[at][others[1]] if len(others) > 1 else None


def _tile(count: int, tiles: int, at: int) -> int:
    """The row's tile; the first tiles may have one more row."""
    sizes = [count // tiles + (1 if number < count % tiles else 0) for number in range(tiles)]
    for number, size in enumerate(sizes):
        if at < size:
            return number + 1
        at -= size
    raise AssertionError("every row is in a part")


def _is_in(frame: Frame, order: Sequence[OrderKey], rows: Sequence[Row], at: int, number: int) -> bool:
    """Whether a row is in the frame of the row at this position."""
    if frame.unit == "ROWS":
        low = -math.inf if frame.preceding is None else at - frame.preceding
        high = math.inf if frame.following is None else at + frame.following
        return low <= number <= high
    return _is_after(frame.preceding, order, rows, at, number) and _is_before(frame.following, order, rows, at, number)


def _is_after(preceding: float | None, order: Sequence[OrderKey], rows: Sequence[Row], at: int, number: int) -> bool:
    """Whether a row is at or after the start of a range."""
    if preceding is None:
        return True
    if preceding == 0 or rows[at][order[0].column] is None or rows[number][order[0].column] is None:
        return _compared(rows[number], rows[at], order) >= 0
    distance = rows[number][order[0].column] - rows[at][order[0].column]
    return bool((-distance if order[0].descending else distance) >= -preceding)


def _is_before(following: float | None, order: Sequence[OrderKey], rows: Sequence[Row], at: int, number: int) -> bool:
    """Whether a row is not after the end of a range."""
    if following is None:
        return True
    if following == 0 or rows[at][order[0].column] is None or rows[number][order[0].column] is None:
        return _compared(rows[number], rows[at], order) <= 0
    distance = rows[number][order[0].column] - rows[at][order[0].column]
    return bool((-distance if order[0].descending else distance) <= following)


def _compared(left: Row, right: Row, order: Sequence[OrderKey]) -> int:
    """Negative if the left row sorts first, zero if the rows are equal."""
    for key in order:
        a, b = left[key.column], right[key.column]
        if a is None or b is None:
            if (a is None) != (b is None):
                return -1 if (a is None) == key.nulls_first else 1
        elif a != b:
            return -1 if (a < b) != key.descending else 1
    return 0
