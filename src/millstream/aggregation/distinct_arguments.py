"""DISTINCT aggregates that share an argument, and their partials: each value once, with a mark for each aggregate.

COUNT(DISTINCT a), COUNT(DISTINCT a) FILTER (…) and SUM(DISTINCT a) have one **argument**. Over an append-only table
they share its values: upstream of the exchange, each group and value is one row, with **marks**: bits for the
aggregates that counted the value (`marked_kernels`). Values of large groups are stored in the same way
(`runtime.tables.group_marks`).

An aggregate added to a query is placed after the others. So the first aggregate of an argument and the marks do not
change: both are part of stored state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millstream.aggregation.row_arguments import Passes
from millstream.common.typeinfo import Types
from millstream.records.columns import arrow_type
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate, signed_numbers

__all__ = ["MARKS_MAX", "distinct_arguments", "distinct_kind", "partial_measures", "value_kind"]

MARKS_MAX = 63
"""The maximum number of aggregates that share rows: marks are bits of a LONG without its sign. Further aggregates form
another argument."""


def value_kind(measure: BoundAggregate) -> pa.DataType | None:
    """The Arrow type of a measure's argument; None if it is nested or has no byte representation."""
    type_info = measure.arguments[0].type_info if measure.arguments else None
    kind = None if type_info is None else arrow_type(type_info)
    t = pa.types
    tests = (t.is_integer, t.is_floating, t.is_boolean, t.is_temporal, t.is_decimal, t.is_string, t.is_binary)
    return kind if kind is not None and any(is_kind(kind) for is_kind in tests) else None


def distinct_kind(measure: BoundAggregate) -> str | None:
    """The stored kind of a count or sum of distinct values; None for others."""
    is_distinct = measure.kind == "distinct" or (measure.kind == "signed_values" and measure.detail == "distinct")
    if not is_distinct or measure.inner is None or value_kind(measure) is None:
        return None
    if measure.inner.kind == "count":
        return "counted_values"
    return None if signed_numbers(measure.inner) is None else "summed_values"


def distinct_arguments(measures: Sequence[BoundAggregate], ttl_ms: int | None) -> tuple[tuple[int, ...], ...]:
    """The numbers of the aggregates of each argument, in order: counts and sums of distinct values of append-only rows.
    Groups that expire (`ttl_ms`) store all their values separately for each aggregate."""
    by_argument: dict[Any, list[list[int]]] = {}
    for number, measure in enumerate(() if ttl_ms else measures):
        if measure.kind == "distinct" and distinct_kind(measure) is not None:
            argument = measure.arguments[0]
            chunks = by_argument.setdefault((argument.field, argument.expression), [[]])
            if len(chunks[-1]) == MARKS_MAX:
                chunks.append([])
            chunks[-1].append(number)
    return tuple(sorted(tuple(numbers) for chunks in by_argument.values() for numbers in chunks))


def partial_measures(measures: Sequence[BoundAggregate], ttl_ms: int | None) -> tuple[BoundAggregate, ...]:
    """The measures of partials: measures that share an argument send its values in the first measure's column."""
    partials: list[BoundAggregate | None] = list(measures)
    for numbers in distinct_arguments(measures, ttl_ms):
        if len(numbers) > 1:
            for number in numbers:
                partials[number] = None
            partials[numbers[0]] = _marked([measures[number] for number in numbers])
    return tuple(measure for measure in partials if measure is not None)


def _marked(sharing: Sequence[BoundAggregate]) -> BoundAggregate:
    """The measure for the values of one argument's aggregates, with marks; it has no result itself."""
    value = replace(sharing[0].arguments[0], mask=None)
    passes = (AggregateArgument(Types.BOOLEAN(), expression=Passes(measure.arguments[0].mask)) for measure in sharing)
    return BoundAggregate(sharing[0].name, "marked_values", (value, *passes))
