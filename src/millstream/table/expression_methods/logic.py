"""Python operators, comparisons and conditions on an `Expression`.

`&` and `|` are AND and OR, because Python's `and` and `or` cannot be overloaded. `~` is IS NOT TRUE, as in PyFlink: it
is TRUE for NULL, where `not_` is NULL. Applied to `in_(table)`, `~` is NOT IN. An expression has a truth value only per
row, so `if` and `and` raise an error that names the alternative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from millstream.graph.site import refuse
from millstream.sql.query_syntax import BoundTable, Query
from millstream.sql.syntax import Between, Case, In
from millstream.table.expression_methods.syntax_holder import SyntaxHolder, node_of
from millstream.table.expression_methods.written import written

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["LogicMethods"]


class LogicMethods(SyntaxHolder):
    """Operators, comparisons and conditions."""

    def __abs__(self) -> Expression[Any]:
        return self._call("ABS")

    def __eq__(self, other: object) -> Expression[Any]:  # type: ignore[override]
        return self._compared("=", other)

    def __ne__(self, other: object) -> Expression[Any]:  # type: ignore[override]
        return self._compared("<>", other)

    def __lt__(self, other: Any) -> Expression[Any]:
        return self._compared("<", other)

    def __gt__(self, other: Any) -> Expression[Any]:
        return self._compared(">", other)

    def __le__(self, other: Any) -> Expression[Any]:
        return self._compared("<=", other)

    def __ge__(self, other: Any) -> Expression[Any]:
        return self._compared(">=", other)

    __hash__ = None  # type: ignore[assignment]

    def _compared(self, operator: str, other: Any) -> Expression[Any]:
        return self._made_call(operator, self._node, node_of(other))

    def __and__(self, other: Any) -> Expression[Any]:
        return self._compared("AND", other)

    def __or__(self, other: Any) -> Expression[Any]:
        return self._compared("OR", other)

    def __invert__(self) -> Expression[Any]:
        # NOT IN a table is a single join, which a wrapping IS NOT TRUE would split into several.
        is_in_table = isinstance(self._node, In) and self._node.query is not None
        return self._call("NOT" if is_in_table else "IS NOT TRUE")

    def __rand__(self, other: Any) -> Expression[Any]:
        return self._compared("AND", other)

    def __ror__(self, other: Any) -> Expression[Any]:
        return self._compared("OR", other)

    def __add__(self, other: Any) -> Expression[Any]:
        return self._compared("+", other)

    def __sub__(self, other: Any) -> Expression[Any]:
        return self._compared("-", other)

    def __mul__(self, other: Any) -> Expression[Any]:
        return self._compared("*", other)

    def __truediv__(self, other: Any) -> Expression[Any]:
        return self._compared("/", other)

    def __mod__(self, other: Any) -> Expression[Any]:
        return self._compared("%", other)

    def __pow__(self, power: Any) -> Expression[Any]:
        return self._compared("POWER", power)

    def __neg__(self) -> Expression[Any]:
        return self._call("-")

    def __radd__(self, other: Any) -> Expression[Any]:
        return self._made_call("+", node_of(other), self._node)

    def __rsub__(self, other: Any) -> Expression[Any]:
        return self._made_call("-", node_of(other), self._node)

    def __rmul__(self, other: Any) -> Expression[Any]:
        return self._compared("*", other)

    def __rtruediv__(self, other: Any) -> Expression[Any]:
        return self._made_call("/", node_of(other), self._node)

    def __rmod__(self, other: Any) -> Expression[Any]:
        return self._made_call("%", node_of(other), self._node)

    def __rpow__(self, power: Any) -> Expression[Any]:
        return self._made_call("POWER", node_of(power), self._node)

    def __bool__(self) -> NoReturn:
        raise refuse(
            f"found {written(self._node)} where Python needs True or False; its truth is known per row "
            "only. Write & for and, | for or, ~ for not, and .between(a, b) for a <= x <= b"
        )

    def __iter__(self) -> NoReturn:
        raise refuse(f"found {written(self._node)} where Python needs several values. All fields of a row are .flatten")

    def between(self, lower_bound: Any, upper_bound: Any) -> Expression[Any]:
        """Whether the value is between two values, both included."""
        return self._made(Between(self._node, node_of(lower_bound), node_of(upper_bound)))

    def not_between(self, lower_bound: Any, upper_bound: Any) -> Expression[Any]:
        """Whether the value is outside two values."""
        return self._made(Between(self._node, node_of(lower_bound), node_of(upper_bound), negated=True))

    def then(self, if_true: Any, if_false: Any) -> Expression[Any]:
        """One value if the condition is true, another if it is false or NULL."""
        return self._made(Case(((self._node, node_of(if_true)),), node_of(if_false)))

    def if_null(self, null_replacement: Any) -> Expression[Any]:
        """The value, or another one if it is NULL."""
        return self._call("IFNULL", null_replacement)

    @property
    def is_null(self) -> Expression[Any]:
        """Whether the value is NULL."""
        return self._call("IS NULL")

    @property
    def is_not_null(self) -> Expression[Any]:
        """Whether the value is not NULL."""
        return self._call("IS NOT NULL")

    @property
    def is_true(self) -> Expression[Any]:
        """Whether the value is true; false for NULL."""
        return self._call("IS TRUE")

    @property
    def is_false(self) -> Expression[Any]:
        """Whether the value is false; false for NULL."""
        return self._call("IS FALSE")

    @property
    def is_not_true(self) -> Expression[Any]:
        """Whether the value is false or NULL."""
        return self._call("IS NOT TRUE")

    @property
    def is_not_false(self) -> Expression[Any]:
        """Whether the value is true or NULL."""
        return self._call("IS NOT FALSE")

    def in_(self, first_element_or_table: Any, *remaining_elements: Any) -> Expression[Any]:
        """Whether the value equals one of these values, or a value of a one-column table. The latter is allowed in
        `where` and `filter`: `orders.where(col("user").in_(users.select(col("id"))))`."""
        from millstream.table.table import Table

        if isinstance(first_element_or_table, Table):
            if remaining_elements:
                raise refuse("in_: found a table and values, expected one table, or values alone")
            table = first_element_or_table
            return self._made(In(self._node, query=Query(BoundTable(table._relation, table._t_env._session))))
        values = (first_element_or_table, *remaining_elements)
        return self._made(In(self._node, tuple(map(node_of, values))))
