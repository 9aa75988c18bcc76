"""Syntactic properties of an aggregation: which calls are aggregates, and the grouping sets of GROUP BY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from millstream.expressions.functions.registry import FunctionKind
from millstream.expressions.user_functions import UserFunctionKind
from millstream.planner.binding.calls import function_of
from millstream.planner.relations import GROUPING_FUNCTIONS
from millstream.planner.session import PlannerSession
from millstream.sql import query_syntax, syntax

__all__ = ["has_aggregates", "is_aggregate", "names_grouping", "parts_of", "written_sets"]


def parts_of(node: Any) -> Iterator[syntax.Node]:
    """A node and its descendants, except those of nested queries."""
    if isinstance(node, syntax.Node):
        yield node
        if isinstance(node, query_syntax.Query):
            return
    if isinstance(node, tuple):
        for each in node:
            yield from parts_of(each)
    elif is_dataclass(node) and not isinstance(node, syntax.Span):
        for each in fields(node):
            if each.name != "span":
                yield from parts_of(getattr(node, each.name))


def is_aggregate(node: syntax.Node, session: PlannerSession) -> bool:
    """Whether a node is a call of an aggregate."""
    if isinstance(node, syntax.Aggregated):
        return True
    if not isinstance(node, syntax.Call):
        return False
    function = function_of(node, session)
    return function is not None and function.kind in (FunctionKind.AGGREGATE, UserFunctionKind.AGGREGATE)


def has_aggregates(nodes: Sequence[Any], session: PlannerSession) -> bool:
    """Whether any of these nodes contains an aggregate call. Calls with OVER do not count."""
    over: set[int] = set()
    for node in nodes:
        for part in parts_of(node):
            if isinstance(part, syntax.Over):
                over |= {id(part.call), id(part.call.call)}
            elif id(part) not in over and is_aggregate(part, session):
                return True
    return False


def names_grouping(part: syntax.Node) -> bool:
    """Whether a node calls GROUPING, GROUPING_ID or GROUP_ID."""
    return isinstance(part, syntax.Call) and part.name.upper() in GROUPING_FUNCTIONS and not part.path


def written_sets(group: query_syntax.GroupingSets) -> list[tuple[syntax.Expression, ...]]:
    """The grouping sets: ROLLUP drops groups one by one from the right, CUBE has every subset."""
    parts = group.sets
    if group.kind == "ROLLUP":
        return [sum(parts[:count], ()) for count in range(len(parts), -1, -1)]
    if group.kind == "CUBE":
        chosen = [[part for at, part in enumerate(parts) if mask >> at & 1] for mask in range(1 << len(parts))]
        return [sum(each, ()) for each in reversed(chosen)]
    return list(parts)
