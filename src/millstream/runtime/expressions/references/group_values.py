"""References of functions on the collected values of a group: its only element, and percentiles.

The planner implements SINGLE_VALUE, scalar subqueries and ON CONFLICT DO ERROR as ELEMENT of all values of a group;
the option `of` names the construct for the error.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.references.null_rules import null_of_null

__all__: list[str] = []

_TOO_MANY = {
    None: "ELEMENT takes an array of one element, this one has {}",
    "group": "SINGLE_VALUE takes groups of one row, this group has {}",
    "query": "a scalar subquery returns at most one row, this one has {}. Write an aggregate, LIMIT 1, or a condition "
    "on its key",
    "conflict": "ON CONFLICT DO ERROR: {} rows have one primary key. Group the query by the key, or write ON CONFLICT "
    "DO NOTHING or DEDUPLICATE",
}


@reference("ELEMENT")
@null_of_null
def element(context: CallContext, values: Sequence[Any]) -> Any:
    if len(values) > 1:
        raise EvaluationError(_TOO_MANY[dict(context.call.options).get("of")].format(len(values)))
    return values[0] if values else None


@reference("$PERCENTILE")
@null_of_null
def percentile(context: CallContext, values: Sequence[Any], percentages: Any) -> Any:
    """Percentiles with linear interpolation between neighbouring values."""
    pairs = [value if isinstance(value, tuple | list) else (value, 1) for value in values]
    counted = sorted(
        ((value, times) for value, times in pairs if value is not None and times is not None and times > 0),
        key=lambda pair: (pair[0] != pair[0], pair[0]),
    )
    if not counted:
        return None
    ends = list(accumulate(times for _, times in counted))

    def value_at(place: int) -> float:
        return float(counted[bisect_right(ends, place)][0])

    def of(percentage: float) -> float:
        if not 0 <= percentage <= 1:
            raise EvaluationError(f"PERCENTILE takes percentages from 0 to 1, this is {percentage}")
        # Interpolated as in Flink: positions are 1, 2, 3, …
        position: float = percentage * (ends[-1] - 1) + 1
        place = math.floor(position)
        if place == position:
            return value_at(place - 1)
        return (place + 1 - position) * value_at(place - 1) + (position - place) * value_at(place)

    if isinstance(percentages, list | tuple):
        return [None if each is None else of(each) for each in percentages]
    return of(percentages)
