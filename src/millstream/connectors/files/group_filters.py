"""Selects the row groups of a Parquet file that may hold matching rows, by the file's statistics.

A condition compares one column with a constant. An excluded row group has no matching row. An included one may have
none either, so the caller still checks every row. Statistics that are missing, or of another type than the constant,
exclude nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["GroupFilter", "may_hold"]

_COMPARED = (bool, int, str, dt.date)


@dataclass(frozen=True)
class GroupFilter:
    """`comparison` is =, <>, <, <=, >, >=, IN (`constant` is a tuple), IS NULL or IS NOT NULL."""

    column: str
    comparison: str
    constant: Any = None

    def may_match(self, low: Any, high: Any) -> bool:
        """Whether a value in the range from `low` to `high` may match.

        >>> GroupFilter("n", ">", 5).may_match(1, 5), GroupFilter("n", "IN", (3, 9)).may_match(4, 9)
        (False, True)
        """
        constant = self.constant
        if self.comparison == "IN":
            return any(GroupFilter(self.column, "=", each).may_match(low, high) for each in constant)
        kinds = {_kind(low), _kind(high), _kind(constant)}
        if len(kinds) > 1 or None in kinds:
            return True
        if self.comparison == "<>":
            return not low == high == constant
        answers: dict[str, bool] = {
            "=": low <= constant <= high,
            "<": low < constant,
            "<=": low <= constant,
            ">": high > constant,
            ">=": high >= constant,
        }
        return answers.get(self.comparison, True)

    def may_match_group(self, group: Any) -> bool:
        """Whether a row group may have a row for which the condition is true."""
        chunks = [group.column(number) for number in range(group.num_columns)]
        column_chunks = [chunk for chunk in chunks if chunk.path_in_schema == self.column]
        # A name with a dot may be a field of a row.
        if len(column_chunks) != 1 or "." in self.column or column_chunks[0].statistics is None:
            return True
        statistics = column_chunks[0].statistics
        nulls = statistics.null_count if statistics.has_null_count else None
        if self.comparison == "IS NULL":
            return nulls != 0
        if nulls is not None and nulls == column_chunks[0].num_values:  # NULL is never equal, less or greater
            return False
        if self.comparison == "IS NOT NULL" or not statistics.has_min_max:
            return True
        return self.may_match(statistics.min, statistics.max)


def _kind(value: Any) -> type | None:
    """The type under which values are compared; None for types not compared here (a datetime is not a date)."""
    return type(value) if type(value) in _COMPARED else None


def may_hold(filters: Sequence[GroupFilter], group: Any) -> bool:
    """Whether a row group may have a row for which all conditions are true."""
    return all(each.may_match_group(group) for each in filters)
