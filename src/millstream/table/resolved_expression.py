"""`ResolvedExpression`: an expression with its type."""

from __future__ import annotations

from typing import Any

from millstream.expressions.data_type import DataType
from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.sql.syntax import Node
from millstream.table.expression import Expression
from millstream.table.expression_methods.written import written

__all__ = ["ResolvedExpression"]


class ResolvedExpression(Expression[Any]):
    """An expression, and its type in a table."""

    def __init__(self, j_resolved_expr: Node, *, data_type: DataType | None = None) -> None:
        if data_type is None:
            raise refuse("ResolvedExpression: a table resolves expressions; read one off its resolved schema")
        super().__init__(j_resolved_expr)
        self._data_type = data_type

    def get_output_data_type(self) -> DataType:
        """The type of its values."""
        return self._data_type

    def get_resolved_children(self) -> list[ResolvedExpression]:
        """The resolved operands: none, because only the whole has a type."""
        return []

    def as_serializable_string(self) -> str:
        """The expression in SQL syntax."""
        return self.as_summary_string()

    def as_summary_string(self) -> str:
        """The expression as text."""
        return self._node.span.text if self._node.span is not None else written(self._node)


add_pyflink_names(globals())
