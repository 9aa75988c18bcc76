"""Rejects unsupported OVER windows and calls, with Flink's messages where Flink rejects them too.

In time order over an append-only table a row is emitted once, so it cannot depend on later rows. A range with a start
bound needs a single sort column for which distances are defined. The plan is not changed.
"""

from __future__ import annotations

from millstream.errors import SqlError
from millstream.expressions.types import (
    DateType,
    DecimalType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    TimeType,
)
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.relations import Over, OverCall, Sink, TimeKind
from millstream.planner.session import PlannerSession
from millstream.planner.traits.changes import GROWS, changes_of
from millstream.planner.traits.time_orders import time_order
from millstream.sql.places import problem

__all__ = ["validate_overs"]

_TIMES = (DateType, TimeType, TimestampType, LocalZonedTimestampType)
_USES_LATER_ROWS = ("LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST")
_OF_GROUPS = ("JSON_ARRAYAGG", "JSON_OBJECTAGG")
_ELSEWHERE = "In BATCH, or over a table that changes, it can be computed"


def validate_overs(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Rejects windows and calls that cannot be computed."""
    for relation in relations_of(sinks):
        if isinstance(relation, Over):
            for call in relation.calls:
                if call.call.function in _OF_GROUPS:
                    raise _refusal(relation, f"{call.call.function} is not supported in OVER windows. Use GROUP BY")
                _check_range(relation, call)
            if not session.is_batch:
                _check_stream(relation)
    return sinks


def _check_range(over: Over, call: OverCall) -> None:
    """Checks that distances refer to one column of numbers or times, and have its type."""
    if call.frame != "RANGE" or not (call.preceding or call.following):
        return
    if len(over.order) != 1:
        raise _refusal(over, "RANGE with a bound needs an ORDER BY of one column: its distance selects the rows")
    type_ = over.input.schema.fields[over.order[0].column].type
    if isinstance(type_, DecimalType):
        raise _refusal(over, f"RANGE with a bound over {type_} is not supported. Order by a cast of it, or use ROWS")
    bound, is_time = "an interval" if call.is_interval else "a number", isinstance(type_, _TIMES)
    if not is_time and not isinstance(type_, NumericType):
        raise _refusal(over, f"RANGE with a bound over {type_}: it has no distances. Order by a number, or use ROWS")
    if is_time != call.is_interval:
        wanted = "an interval, as INTERVAL '1' SECOND" if is_time else "a number"
        raise _refusal(over, f"the bound of RANGE is {bound}, and rows are ordered by {type_}. Write {wanted}")


def _check_stream(over: Over) -> None:
    fields = over.input.schema.fields
    kinds = [fields[key.column].time for key in over.order]
    grows = changes_of(over.input) == GROWS
    if TimeKind.PROCTIME in kinds and not grows and any(_has_range(call) for call in over.calls):
        raise _refusal(over, "RANGE by processing time needs an append-only table. Use ROWS, or another order")
    if not grows or not any(kinds):
        return
    if len(over.order) > 1:
        raise _refusal(over, f"The window can only be ordered by a single time column. {_ELSEWHERE}")
    if time_order(over) is None:
        raise _refusal(over, f"The window can only be ordered in ASCENDING mode. {_ELSEWHERE}")
    for call in over.calls:
        name = call.call.function
        if name in _USES_LATER_ROWS:
            raise _refusal(over, f"{name} Function is not supported in stream mode. {_ELSEWHERE}")
        if call.following is None or call.following > 0:
            raise _refusal(over, f"OVER {call.frame} FOLLOWING windows are not supported yet. {_ELSEWHERE}")
        if call.following < 0:
            raise _refusal(over, f"Unsupported bounded operation for OVER window: end it at CURRENT ROW. {_ELSEWHERE}")


def _has_range(call: OverCall) -> bool:
    return call.frame == "RANGE" and bool(call.preceding or call.following)


def _refusal(over: Over, sentence: str) -> SqlError:
    return problem(sentence, getattr(over.site, "span", None))
