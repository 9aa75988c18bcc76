"""Finds the range of times that a filter admits for a column, from =, <, <=, >, >= between the column and constants.

As in `key_filters`, the range only restricts the read; the filter itself remains. Times are milliseconds, rounded down;
the compared values were rounded in the same way, so no row is lost.
"""

from __future__ import annotations

import pyarrow as pa

from millstream.connectors.archives.archived_files import milliseconds
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.planner.passes.rewriting import conjuncts
from millstream.planner.relations import Scan
from millstream.query.archived_rows import ANY_TIME, TimeRange

__all__ = ["time_range"]

_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def time_range(condition: RowExpression, scan: Scan, column: str) -> TimeRange:
    """The range of times of a column that the scan's filter may admit."""
    names = [each.name for each in scan.table.read]
    positions = scan.columns if scan.columns is not None else tuple(range(len(names)))
    places = {names[position]: at for at, position in enumerate(positions)}
    low_ms, high_ms = ANY_TIME.low_ms, ANY_TIME.high_ms
    for part in conjuncts(condition):
        comparison, time_ms = _compared(part, places.get(column, -1))
        if comparison in ("=", ">", ">=") and time_ms is not None:
            low_ms = time_ms if low_ms is None else max(low_ms, time_ms)
        if comparison in ("=", "<", "<=") and time_ms is not None:
            high_ms = time_ms if high_ms is None else min(high_ms, time_ms)
    return TimeRange(low_ms, high_ms)


def _compared(part: RowExpression, place: int) -> tuple[str, int | None]:
    """The operator that compares the column at this position, and the time; "" for other conditions."""
    if not isinstance(part, Call) or part.function not in _TURNED or len(part.arguments) != 2:
        return "", None
    left, right, comparison = *part.arguments, part.function
    if isinstance(left, Literal):
        left, right, comparison = right, left, _TURNED[comparison]
    if not isinstance(left, Column) or left.index != place or not isinstance(right, Literal) or right.value is None:
        return "", None
    # Another type would be converted before the comparison, by a zone for example.
    if type(left.type) is not type(right.type):
        return "", None
    try:
        return comparison, int(milliseconds(pa.array([right.value], right.type.arrow))[0])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return "", None
