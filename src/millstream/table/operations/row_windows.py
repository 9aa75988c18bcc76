"""Windows of the Table API over groups. Count windows, such as `Tumble.over(row_interval(10))`, become OVER.

Rows are counted by group in arrival order. A window that ends with a row contains the rows just before it. Its
aggregates are therefore OVER aggregates of that many rows, emitted for rows that complete a window: the tenth, the
fifteenth, …. An incomplete window emits nothing, as in Flink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from millstream.errors import LATER, NotYetError
from millstream.graph.site import refuse
from millstream.planner import table_operations as operations
from millstream.planner.relations import Relation, TimeKind, WindowKind
from millstream.planner.session import PlannerSession
from millstream.sql.query_syntax import NamedWindow
from millstream.sql.syntax import Aggregated, As, Call, Frame, FrameBound, Literal, Name, OrderItem, Over, WindowSpec
from millstream.table.expressions import col

__all__ = ["window_select"]

_WINDOW, _PLACE, _ROW = "$window", "$place", "$row"
_WHOLE = ("span", "options", "target", "query")
"""Attributes without replaceable parts."""
_PROPERTIES = frozenset({"WINDOW_START", "WINDOW_END", "WINDOW_ROWTIME", "WINDOW_PROCTIME"})


def window_select(
    relation: Relation,
    window: operations.GroupWindow,
    groups: Sequence[Any],
    items: Sequence[Any],
    session: PlannerSession,
) -> Relation:
    """`window(…).group_by(w, …).select(…)`; `groups` are the groups in addition to the window."""
    if isinstance(window.size, Call) and window.size.name == "ROW_INTERVAL":
        return _row_window_select(relation, window, groups, items, session)
    return operations.window_select(relation, window, groups, items, session)


def _row_window_select(
    relation: Relation,
    window: operations.GroupWindow,
    groups: Sequence[Any],
    items: Sequence[Any],
    session: PlannerSession,
) -> Relation:
    size, slide = _lengths(window)
    _check_time(window, relation)
    outputs = _Outputs(groups)
    columns = [
        As(outputs.outer(item.operand if isinstance(item, As) else item), (name,))
        for item, name in zip(items, operations.names_of(items), strict=True)
    ]
    partition, order = tuple(Name((name,)) for name, _ in outputs.groups), (OrderItem(window.time),)
    frame = Frame("ROWS", FrameBound("PRECEDING", Literal("NUMBER", str(size - 1))), FrameBound("CURRENT"))
    windows = [
        NamedWindow(_WINDOW, WindowSpec(partition, order, frame)),
        NamedWindow(_PLACE, WindowSpec(partition, order)),
    ]
    keyed = operations.add_columns(relation, [As(node, (name,)) for name, node in outputs.groups], session)
    numbered = As(Over(Aggregated(Call("ROW_NUMBER")), _PLACE), (_ROW,))
    aggregates = [As(Over(call, _WINDOW), (name,)) for name, call in outputs.calls]
    rows = operations.over_select(keyed, windows, [*partition, *aggregates, numbered], session)
    fills_window = (col(_ROW) >= size) & ((col(_ROW) - size) % slide == 0)
    return operations.select(operations.where(rows, fills_window._node, session), columns, session)


class _Outputs:
    """The selected items over groups and aggregates as columns: `groups` and `calls` map names to expressions."""

    def __init__(self, groups: Sequence[Any]) -> None:
        plain = [node.operand if isinstance(node, As) else node for node in groups]
        self.groups = [(f"$group{at}", node) for at, node in enumerate(plain)]
        self.calls: list[tuple[str, Aggregated]] = []
        self._aliases = {node.names[0]: f"$group{at}" for at, node in enumerate(groups) if isinstance(node, As)}

    def outer(self, node: Any) -> Any:
        """The node with groups and aggregates replaced by their columns."""
        if isinstance(node, tuple):
            return tuple(map(self.outer, node))
        group = next((name for name, written in self.groups if written == node), None)
        if group is not None:
            return Name((group,))
        if isinstance(node, Aggregated):
            return Name((self._call_name(node),))
        if isinstance(node, Name):
            if node.parts[-1] not in self._aliases:
                raise refuse(
                    f"select: found the column {'.'.join(node.parts)!r}, expected groups and aggregates. Name it in "
                    "group_by(...), or aggregate it"
                )
            return Name((self._aliases[node.parts[-1]],))
        if isinstance(node, Call) and node.name in _PROPERTIES:
            raise refuse("select: a window of rows has no start, end or time. Leave them out, or use a window of time")
        if not is_dataclass(node) or isinstance(node, type):
            return node
        parts: Any = node
        changed = {each.name: self.outer(getattr(node, each.name)) for each in fields(node) if each.name not in _WHOLE}
        return replace(parts, **changed) if changed else node

    def _call_name(self, call: Aggregated) -> str:
        for name, known in self.calls:
            if known == call:
                return name
        self.calls.append((f"$call{len(self.calls)}", call))
        return self.calls[-1][0]


def _lengths(window: operations.GroupWindow) -> tuple[int, int]:
    """The size of a window in rows, and the distance between window starts."""
    if window.kind is WindowKind.SESSION:
        raise refuse("Session.with_gap: found a number of rows, expected a duration, as lit(10).minutes")
    size = _rows("over", window.size)
    slide = size if window.slide is None else _rows("every", window.slide)
    return size, slide


def _rows(method: str, node: Any) -> int:
    if not isinstance(node, Call) or node.name != "ROW_INTERVAL":
        raise refuse(f"{method}: found a duration mixed with a number of rows, expected row_interval(5) in both")
    literal = node.arguments[0]
    assert isinstance(literal, Literal)
    if literal.value < 1:
        raise refuse(f"{method}: found row_interval({literal.value}), expected at least one row")
    return int(literal.value)


def _check_time(window: operations.GroupWindow, relation: Relation) -> None:
    """Rejects event time: rows are counted in arrival order, which is processing time."""
    name = window.time.parts[-1] if isinstance(window.time, Name) else ""
    time = next((field.time for field in relation.schema.fields if field.name == name), None)
    if time is TimeKind.ROWTIME:
        raise NotYetError.of(
            f"a window of rows on {name!r}, which is event time", LATER, "a column of PROCTIME(), or windows of time"
        )
    if time is not TimeKind.PROCTIME:
        raise refuse(f"on: found {name or 'an expression'!r}, expected a column of processing time, as PROCTIME() is")
