"""What every expression of the Table API is: a holder of one node of syntax, which the planner will bind.

Nothing is looked up and no type is known here: `col("a").upper_case` and `UPPER(a)` in a statement are one and the same
node. A Python value among the arguments becomes a literal.
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

    _node: Any  # a node of syntax; an order item is no expression, but asc() and desc() give one

    def _made(self, node: Node) -> Expression[Any]:
        from millstream.table.expression import Expression

        return Expression(node)

    def _call(self, name: str, *arguments: Any, **options: Any) -> Expression[Any]:
        """A function of this expression and the arguments; those at the end that are None are left out."""
        return self._made(call_node(name, (self, *arguments), **options))

    def _made_call(self, name: str, *arguments: Any, **options: Any) -> Expression[Any]:
        """A function of the arguments alone."""
        return self._made(call_node(name, arguments, **options))


def call_node(name: str, arguments: tuple[Any, ...], **options: Any) -> Call:
    """A call of a built-in function; arguments at the end that are None are left out."""
    shown = list(arguments)
    while shown and shown[-1] is None:
        shown.pop()
    return Call(name, tuple(map(node_of, shown)), options=tuple(options.items()))


def node_of(value: Any) -> Any:
    """The node of an expression; of a Python value, a literal."""
    if isinstance(value, SyntaxHolder):
        return value._node
    if isinstance(value, Syntax):
        return value
    advice = _no_value(value)
    if advice is not None:
        raise refuse(f"found {value!r} in an expression, expected an expression or a value. {advice}")
    return literal(value)


def _no_value(value: Any) -> str | None:
    """What to write instead of something that is no value; None for what may be one."""
    from millstream.table.table import Table

    if isinstance(value, Table):
        return "A table has no value; of its columns, use col(...)"
    if isinstance(value, type):
        return "A data type is made by DataTypes, as in DataTypes.INT()"
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return "A Python function becomes one of SQL's by udf(f, result_type=...), which is then called"
    return None
