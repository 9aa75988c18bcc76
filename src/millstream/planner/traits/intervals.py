"""Reads time bounds from a join's condition: the distance between two rows' times, or the equality of their windows."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.expressions.row_expressions import Call, Column, RowExpression
from millstream.planner.passes.rewriting import conjuncts
from millstream.planner.relations import Join, TimeKind, WindowKind
from millstream.planner.traits.times import comparison_of, time_term
from millstream.planner.traits.windows import are_equal_windows, window_columns

__all__ = ["Interval", "interval_of", "is_in_one_window", "selects_version", "version_of"]


@dataclass(frozen=True)
class Interval:
    """Bounds on the right time minus the left time. `times` is one column of each side; `parts` are the conjuncts that
    state the bounds."""

    times: tuple[int, int]
    kind: TimeKind
    lower_ms: int
    upper_ms: int
    parts: tuple[RowExpression, ...]


def interval_of(join: Join) -> Interval | None:
    """The interval of a join, if both bounds are on one time attribute of each side; otherwise None."""
    width = len(join.left.schema)
    fields = (*join.left.schema.fields, *join.right.schema.fields)
    bounds_of: dict[tuple[int, int], tuple[list[int], list[int], list[RowExpression]]] = {}
    for part in conjuncts(join.condition) if join.condition is not None else []:
        compared = comparison_of(part)
        terms = None if compared is None else (time_term(compared.left), time_term(compared.right))
        if compared is None or terms is None or terms[0] is None or terms[1] is None:
            continue
        left, right, function = terms[0], terms[1], compared.function
        if left.column >= width:
            left, right, function = right, left, compared.mirrored.function
        if left.column >= width or right.column < width:
            continue
        if fields[left.column].time is None or fields[left.column].time is not fields[right.column].time:
            continue
        lowers, uppers, parts = bounds_of.setdefault((left.column, right.column - width), ([], [], []))
        difference = left.offset_ms - right.offset_ms  # left + a <= right + b: right - left >= a - b
        if function in ("<", "<=", "="):
            lowers.append(difference + (function == "<"))
        if function in (">", ">=", "="):
            uppers.append(difference - (function == ">"))
        parts.append(part)
    for times, (lowers, uppers, parts) in bounds_of.items():
        kind = fields[times[0]].time
        if lowers and uppers and kind is not None:
            return Interval(times, kind, max(lowers), min(uppers), tuple(parts))
    return None


def selects_version(part: RowExpression) -> bool:
    """Whether `version_of` or the key extraction would interpret a conjunct of a temporal join as selecting the
    version: an equality, or a comparison of times."""
    if not isinstance(part, Call):
        return False
    return part.function == "=" or (part.function == "<=" and comparison_of(part) is not None)


def version_of(join: Join) -> tuple[tuple[int, int], RowExpression]:
    """The times of a temporal join, as columns of each side, and the conjunct that compares them. The query's own
    comparisons are wrapped in IS TRUE."""
    width = len(join.left.schema)
    for part in conjuncts(join.condition) if join.condition is not None else []:
        compared = comparison_of(part)
        if compared is None or compared.function != "<=":
            continue
        version, moment = compared.left, compared.right
        if isinstance(version, Column) and isinstance(moment, Column) and moment.index < width <= version.index:
            return (moment.index, version.index - width), part
    raise AssertionError("the condition of a temporal join no longer compares a version's time")


def is_in_one_window(join: Join) -> bool:
    """Whether a join's condition equates its rows' event-time windows."""
    left, right = window_columns(join.left), window_columns(join.right)
    if left is None or right is None or join.condition is None or not are_equal_windows(join.left, join.right):
        return False
    if left.shape.time_kind is not TimeKind.ROWTIME or left.shape.kind is WindowKind.SESSION:
        return False
    width = len(join.left.schema)
    equal = {pair for part in conjuncts(join.condition) if (pair := _equal_columns(part)) is not None}

    def are_equal(lefts: frozenset[int], rights: frozenset[int]) -> bool:
        return any((a, width + b) in equal or (width + b, a) in equal for a in lefts for b in rights)

    return are_equal(left.starts, right.starts) and are_equal(left.ends, right.ends)


def _equal_columns(part: RowExpression) -> tuple[int, int] | None:
    if not isinstance(part, Call) or part.function != "=":
        return None
    first, second = part.arguments
    return (first.index, second.index) if isinstance(first, Column) and isinstance(second, Column) else None
