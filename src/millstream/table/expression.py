"""`Expression`: a value computed per row of a query, built with method calls instead of SQL text.

It holds a single node of SQL syntax (`millstream.sql.syntax`). Names are resolved and types checked when a table uses
the expression. >>> from millstream.table.expressions import col >>> (col("price") * 2 > 10) & col("name").like("a%")
Expression<(((price * 2) > 10) AND (name LIKE 'a%'))> >>> print(col("price") * 2) times(price, 2)

`print` shows PyFlink's text, `repr` a string close to SQL.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.sql.syntax import Name, Node
from millstream.table.expression_methods.aggregates import AggregateMethods
from millstream.table.expression_methods.bitmaps import BitmapMethods
from millstream.table.expression_methods.collections import CollectionMethods
from millstream.table.expression_methods.json import JsonMethods
from millstream.table.expression_methods.logic import LogicMethods
from millstream.table.expression_methods.numbers import NumberMethods
from millstream.table.expression_methods.patterns import PatternMethods
from millstream.table.expression_methods.pyflink_text import pyflink_text
from millstream.table.expression_methods.texts import TextMethods
from millstream.table.expression_methods.times import TimeMethods
from millstream.table.expression_methods.units import (
    JsonExistsOnError,
    JsonOnNull,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    TimeIntervalUnit,
    TimePointUnit,
)
from millstream.table.expression_methods.written import written

__all__ = [
    "Expression",
    "JsonExistsOnError",
    "JsonOnNull",
    "JsonQueryOnEmptyOrError",
    "JsonQueryWrapper",
    "JsonType",
    "JsonValueOnEmptyOrError",
    "TimeIntervalUnit",
    "TimePointUnit",
]

T = TypeVar("T")


class Expression(
    LogicMethods,
    NumberMethods,
    TextMethods,
    PatternMethods,
    TimeMethods,
    CollectionMethods,
    JsonMethods,
    BitmapMethods,
    AggregateMethods,
    Generic[T],
):
    """A value computed per row: a column, a literal, or a function of other expressions.

    Programs start with `col`, `lit` and the other functions of `millstream.table.expressions`.
    """

    def __init__(self, j_expr_or_property_name: str | Node) -> None:
        if isinstance(j_expr_or_property_name, str):
            self._node: Any = Name((j_expr_or_property_name,))
        elif isinstance(j_expr_or_property_name, Node):
            self._node = j_expr_or_property_name
        else:
            raise refuse(f"Expression: found {j_expr_or_property_name!r}. Make one by col(name), lit(value) or call(f)")

    def __str__(self) -> str:
        return pyflink_text(self._node)

    def __repr__(self) -> str:
        return f"Expression<{written(self._node)}>"


add_pyflink_names(globals())
