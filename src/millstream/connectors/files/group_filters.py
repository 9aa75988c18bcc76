"""Which row groups of a Parquet file may hold rows that a query wants, as the file's own statistics tell.

A condition is one column against a constant. What it says `no` to has no row for which the condition is true; what it
says `yes` to may have none either: who asks still looks at every row. Statistics that are missing, or of another kind
than the constant, rule nothing out.
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

    def may_take(self, low: Any, high: Any) -> bool:
        """Whether a value from `low` to `high` may be taken.

        >>> GroupFilter("n", ">", 5).may_take(1, 5), GroupFilter("n", "IN", (3, 9)).may_take(4, 9)
        (False, True)
        """
        constant = self.constant
        if self.comparison == "IN":
            return any(GroupFilter(self.column, "=", each).may_take(low, high) for each in constant)
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

    def may_be_in(self, group: Any) -> bool:
        """Whether a row group may have a row for which the condition is true."""
        chunks = [group.column(number) for number in range(group.num_columns)]
        found = [chunk for chunk in chunks if chunk.path_in_schema == self.column]
        # A name with a dot may be a field of a row.
        if len(found) != 1 or "." in self.column or found[0].statistics is None:
            return True
        statistics = found[0].statistics
        nulls = statistics.null_count if statistics.has_null_count else None
        if self.comparison == "IS NULL":
            return nulls != 0
        if nulls is not None and nulls == found[0].num_values:  # NULL is never equal, less or greater
            return False
        if self.comparison == "IS NOT NULL" or not statistics.has_min_max:
            return True
        return self.may_take(statistics.min, statistics.max)


def _kind(value: Any) -> type | None:
    """What values are compared as; None of what is not compared here (a datetime is no date)."""
    return type(value) if type(value) in _COMPARED else None


def may_hold(filters: Sequence[GroupFilter], group: Any) -> bool:
    """Whether a row group may have a row for which all conditions are true."""
    return all(each.may_be_in(group) for each in filters)
