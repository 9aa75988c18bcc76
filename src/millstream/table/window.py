"""Windows of the Table API: group windows by time or count (Tumble, Slide, Session), and over windows around each row.

They are built in steps: `Tumble.over(lit(10).minutes).on(col("ts")).alias("w")`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from millstream.graph.site import refuse
from millstream.planner.relations import WindowKind
from millstream.pyflink_names import add_pyflink_names
from millstream.sql.query_syntax import NamedWindow
from millstream.sql.syntax import Call, Frame, FrameBound, Name, OrderItem, WindowSpec
from millstream.sql.syntax import Expression as Syntax
from millstream.table.expression import Expression
from millstream.table.expression_methods.syntax_holder import node_of

__all__ = ["GroupWindow", "Over", "OverWindow", "Session", "Slide", "Tumble"]


@dataclass(frozen=True)
class _WindowParts:
    """The parts of a group window collected so far."""

    kind: WindowKind
    size: Syntax
    slide: Syntax | None = None
    time: Syntax | None = None
    alias: str = ""


class _Step:
    """A step in building a group window."""

    _before = ""

    def __init__(self, java_window: Any) -> None:
        if not isinstance(java_window, _WindowParts):
            raise refuse(f"{type(self).__name__}: windows start with Tumble.over(), Slide.over() or Session.with_gap()")
        self._parts = java_window


class GroupWindow(_Step):
    """A window that groups rows, with its name."""

    def __init__(self, java_window: Any) -> None:
        super().__init__(java_window)


class _OnTime(_Step):
    def alias(self, alias: str) -> GroupWindow:
        """Names the window, for `group_by` and `select`."""
        return GroupWindow(replace(self._parts, alias=_alias(alias)))


class _Sized(_Step):
    def _on(self, time_field: Any) -> _WindowParts:
        return replace(self._parts, time=node_of(_expression("on", time_field)))


class Tumble:
    """Adjacent windows of the same size."""

    @classmethod
    def over(cls, size: Expression[Any]) -> TumbleWithSize:
        """Windows of the given size: `lit(10).minutes`, or `row_interval(100)`."""
        return TumbleWithSize(_WindowParts(WindowKind.TUMBLE, _expression("Tumble.over", size)._node))


class TumbleWithSize(_Sized):
    """Tumbling windows with their size."""

    def __init__(self, java_window: Any) -> None:
        super().__init__(java_window)

    def on(self, time_field: Expression[Any]) -> TumbleWithSizeOnTime:
        """Sets the time attribute of the windows."""
        return TumbleWithSizeOnTime(self._on(time_field))


class TumbleWithSizeOnTime(_OnTime):
    """Tumbling windows with size and time."""

    def __init__(self, java_window: Any) -> None:
        super().__init__(java_window)


class Session:
    """Windows that end after a gap without rows."""

    @classmethod
    def with_gap(cls, gap: Expression[Any]) -> SessionWithGap:
        """Sets the gap without rows that ends a window: `lit(10).minutes`."""
        return SessionWithGap(_WindowParts(WindowKind.SESSION, _expression("Session.with_gap", gap)._node))


class SessionWithGap(_Sized):
    """Sessions with their gap."""

    def __init__(self, java_window: Any) -> None:
        super().__init__(java_window)

    def on(self, time_field: Expression[Any]) -> SessionWithGapOnTime:
        """Sets the time attribute of the windows."""
        return SessionWithGapOnTime(self._on(time_field))


class SessionWithGapOnTime(_OnTime):
    """Sessions with gap and time."""

    def __init__(self, java_window: Any) -> None:
        super().__init__(java_window)


class Slide:
    """Windows of the same size that start at regular intervals, and may overlap."""

    @classmethod
    def over(cls, size: Expression[Any]) -> SlideWithSize:
        """Windows of the given size: `lit(10).minutes`, or `row_interval(100)`."""
        return SlideWithSize(_WindowParts(WindowKind.HOP, _expression("Slide.over", size)._node))


class SlideWithSize(_Sized):
    """Sliding windows with their size."""

    def __init__(self, java_window: Any) -> None:
        super().__init__(java_window)

    def every(self, slide: Expression[Any]) -> SlideWithSizeAndSlide:
        """Sets the interval between window starts."""
        return SlideWithSizeAndSlide(replace(self._parts, slide=_expression("every", slide)._node))


class SlideWithSizeAndSlide(_Sized):
    """Sliding windows with size and slide."""

    def __init__(self, java_window: Any) -> None:
        super().__init__(java_window)

    def on(self, time_field: Expression[Any]) -> SlideWithSizeAndSlideOnTime:
        """Sets the time attribute of the windows."""
        return SlideWithSizeAndSlideOnTime(self._on(time_field))


class SlideWithSizeAndSlideOnTime(_OnTime):
    """Sliding windows with size, slide and time."""

    def __init__(self, java_window: Any) -> None:
        super().__init__(java_window)


@dataclass(frozen=True)
class _OverParts:
    """The parts of an over window collected so far."""

    partition: tuple[Syntax, ...] = ()
    order: Any = None
    preceding: Syntax | None = None
    following: Syntax | None = None
    alias: str = ""


class _OverStep:
    def __init__(self, java_over_window: Any) -> None:
        if not isinstance(java_over_window, _OverParts):
            raise refuse(f"{type(self).__name__}: over windows start with Over.partition_by() or Over.order_by()")
        self._parts = java_over_window


class Over:
    """Over windows: a range of rows around each row."""

    @classmethod
    def order_by(cls, order_by: Expression[Any]) -> OverWindowPartitionedOrdered:
        """Orders all rows, as one partition, by a time attribute."""
        return OverWindowPartitionedOrdered(_OverParts(order=_expression("order_by", order_by)._node))

    @classmethod
    def partition_by(cls, *partition_by: Expression[Any]) -> OverWindowPartitioned:
        """Partitions the rows by values."""
        columns = tuple(_expression("partition_by", each)._node for each in partition_by)
        return OverWindowPartitioned(_OverParts(partition=columns))


class OverWindowPartitioned(_OverStep):
    """A partitioned over window without an order."""

    def __init__(self, java_over_window: Any) -> None:
        super().__init__(java_over_window)

    def order_by(self, order_by: Expression[Any]) -> OverWindowPartitionedOrdered:
        """Orders the rows by a time attribute."""
        return OverWindowPartitionedOrdered(replace(self._parts, order=_expression("order_by", order_by)._node))


class OverWindowPartitionedOrdered(_OverStep):
    """An ordered over window; by default it starts with the first row."""

    def __init__(self, java_over_window: Any) -> None:
        super().__init__(java_over_window)

    def alias(self, alias: str) -> OverWindow:
        """Names the window."""
        return OverWindow(replace(self._parts, alias=_alias(alias)))

    def preceding(self, preceding: Expression[Any]) -> OverWindowPartitionedOrderedPreceding:
        """Sets the start: UNBOUNDED_RANGE, UNBOUNDED_ROW, `row_interval(2)` or `lit(1).minutes`."""
        return OverWindowPartitionedOrderedPreceding(
            replace(self._parts, preceding=_expression("preceding", preceding)._node)
        )


class OverWindowPartitionedOrderedPreceding(_OverStep):
    """An ordered over window with a start; by default it ends with the current row."""

    def __init__(self, java_over_window: Any) -> None:
        super().__init__(java_over_window)

    def alias(self, alias: str) -> OverWindow:
        """Names the window."""
        return OverWindow(replace(self._parts, alias=_alias(alias)))

    def following(self, following: Expression[Any]) -> OverWindowPartitionedOrderedPreceding:
        """Sets the end: CURRENT_ROW or CURRENT_RANGE."""
        return OverWindowPartitionedOrderedPreceding(
            replace(self._parts, following=_expression("following", following)._node)
        )


class OverWindow(_OverStep):
    """A window of rows around each row, with its name."""

    def __init__(self, java_over_window: Any) -> None:
        super().__init__(java_over_window)

    def _named(self) -> NamedWindow:
        """The window's specification in a SQL WINDOW clause."""
        parts = self._parts
        order = parts.order if isinstance(parts.order, OrderItem) else OrderItem(parts.order)
        preceding, following = parts.preceding, parts.following
        is_rows = _call_name(preceding) in ("UNBOUNDED_ROW", "ROW_INTERVAL")
        ends = {"CURRENT_ROW": "ROWS", "CURRENT_RANGE": "RANGE", "UNBOUNDED_ROW": "ROWS", "UNBOUNDED_RANGE": "RANGE"}
        unit = "ROWS" if is_rows else "RANGE"
        if following is not None and ends.get(_call_name(following), unit) != unit:
            raise refuse(
                f"following: found {_call_name(following)}, and preceding is of {unit}. Use the same unit in both"
            )
        frame = Frame(unit, _bound("PRECEDING", preceding), _bound("FOLLOWING", following))
        return NamedWindow(parts.alias, WindowSpec(parts.partition, (order,), frame))


def _call_name(node: Syntax | None) -> str:
    return node.name if isinstance(node, Call) else ""


def _bound(side: str, node: Syntax | None) -> FrameBound:
    """The distance of a window's bound on one side; by default from the first row to the current row."""
    name = _call_name(node)
    if name in ("CURRENT_ROW", "CURRENT_RANGE") or (node is None and side == "FOLLOWING"):
        return FrameBound("CURRENT")
    if name in ("UNBOUNDED_ROW", "UNBOUNDED_RANGE") or node is None:
        return FrameBound(side)
    return FrameBound(side, node.arguments[0] if name == "ROW_INTERVAL" and isinstance(node, Call) else node)


def _expression(method: str, expression: Any) -> Expression[Any]:
    if isinstance(expression, Expression):
        return expression
    advice = f" Write col({expression!r})" if isinstance(expression, str) else " Write lit(10).minutes or col('ts')"
    raise refuse(f"{method}: found {expression!r}, expected an expression.{advice}")


def _alias(alias: Any) -> str:
    if isinstance(alias, Expression) and isinstance(alias._node, Name):
        return alias._node.parts[-1]
    if not isinstance(alias, str) or not alias:
        raise refuse(f"alias: found {alias!r}, expected a name as text")
    return alias


add_pyflink_names(globals())
