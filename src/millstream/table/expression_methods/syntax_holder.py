"""The base of all expressions of the Table API: holds a node of syntax for the planner to bind.

Names and types are not resolved here: `col("a").upper_case` and `UPPER(a)` in a statement are the same node. Python
values among the arguments become literals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.graph.site import refuse
from millstream.sql.syntax import Call, Node
from millstream.sql.syntax import Expression as Syntax
from millstream.table.expression_methods.literals import literal

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["SyntaxHolder", "call_node", "node_of"]


class SyntaxHolder:
    """Holds a node."""

    _node: Any  # a node of syntax; an order item is not an expression, but asc() and desc() return one

    def _made(self, node: Node) -> Expression[Any]:
        from millstream.table.expression import Expression

        return Expression(node)

    def _call(self, name: str, *arguments: Any, **options: Any) -> Expression[Any]:
        """Calls a function with this expression and the arguments; trailing None arguments are omitted."""
        return self._made(call_node(name, (self, *arguments), **options))

    def _made_call(self, name: str, *arguments: Any, **options: Any) -> Expression[Any]:
        """Calls a function with the arguments only."""
        return self._made(call_node(name, arguments, **options))


def call_node(name: str, arguments: tuple[Any, ...], **options: Any) -> Call:
    """A call of a built-in function; trailing None arguments are omitted."""
    shown = list(arguments)
    while shown and shown[-1] is None:
        shown.pop()
    return Call(name, tuple(map(node_of, shown)), options=tuple(options.items()))


def node_of(value: Any) -> Any:
    """The node of an expression; a Python value becomes a literal."""
    if isinstance(value, SyntaxHolder):
        return value._node
    if isinstance(value, Syntax):
        return value
    advice = _no_value(value)
    if advice is not None:
        raise refuse(f"found {value!r} in an expression, expected an expression or a value. {advice}")
    return literal(value)


def _no_value(value: Any) -> str | None:
    """Advice for an object that cannot be a value; None for other objects."""
    from millstream.table.table import Table

    if isinstance(value, Table):
        return "A table is not a value; for its columns, use col(...)"
    if isinstance(value, type):
        return "Data types are made by DataTypes, as in DataTypes.INT()"
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return "Wrap a Python function by udf(f, result_type=...), and call the wrapper"
    return None
