"""Aggregates, names, casts, sort order and windows on an `Expression`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.expressions.data_type import DataType
from millstream.graph.site import refuse_type
from millstream.sql.syntax import Aggregated, Argument, As, Call, Cast, Name, OrderItem, Over
from millstream.table.expression_methods.syntax_holder import SyntaxHolder, node_of
from millstream.table.expression_methods.written import written

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["AggregateMethods"]


class AggregateMethods(SyntaxHolder):
    """Aggregates, names, casts, order and windows."""

    def _aggregated(self, function: str, *arguments: Any) -> Expression[Any]:
        values = tuple(node_of(each) for each in arguments if each is not None)
        return self._made(Aggregated(Call(function, (self._node, *values))))

    @property
    def distinct(self) -> Expression[Any]:
        """The aggregate over distinct values only: `col("a").count.distinct`."""
        node = self._node
        if isinstance(node, Call):
            node = Aggregated(node)
        if not isinstance(node, Aggregated):
            raise refuse_type(
                f"distinct: found {written(self._node)}, expected an aggregate before it, as in col('a').count.distinct"
            )
        return self._made(Aggregated(node.call, True, node.filter, node.within_group, node.order_by, node.nulls))

    @property
    def sum(self) -> Expression[Any]:
        """The sum; NULL without values."""
        return self._aggregated("SUM")

    @property
    def sum0(self) -> Expression[Any]:
        """The sum; 0 without values."""
        return self._aggregated("$SUM0")

    @property
    def min(self) -> Expression[Any]:
        """The smallest value."""
        return self._aggregated("MIN")

    @property
    def max(self) -> Expression[Any]:
        """The largest value."""
        return self._aggregated("MAX")

    @property
    def count(self) -> Expression[Any]:
        """The number of values that are not NULL."""
        return self._aggregated("COUNT")

    @property
    def avg(self) -> Expression[Any]:
        """The mean."""
        return self._aggregated("AVG")

    @property
    def first_value(self) -> Expression[Any]:
        """The first value."""
        return self._aggregated("FIRST_VALUE")

    @property
    def last_value(self) -> Expression[Any]:
        """The last value."""
        return self._aggregated("LAST_VALUE")

    def list_agg(self, separator: Any = None) -> Expression[Any]:
        """The strings, concatenated with a separator (by default a comma)."""
        return self._aggregated("LISTAGG", separator)

    @property
    def stddev_pop(self) -> Expression[Any]:
        """The standard deviation of the population."""
        return self._aggregated("STDDEV_POP")

    @property
    def stddev_samp(self) -> Expression[Any]:
        """The standard deviation of a sample."""
        return self._aggregated("STDDEV_SAMP")

    @property
    def var_pop(self) -> Expression[Any]:
        """The variance of the population."""
        return self._aggregated("VAR_POP")

    @property
    def var_samp(self) -> Expression[Any]:
        """The variance of a sample."""
        return self._aggregated("VAR_SAMP")

    @property
    def collect(self) -> Expression[Any]:
        """The values as a multiset."""
        return self._aggregated("COLLECT")

    @property
    def array_agg(self) -> Expression[Any]:
        """The values as an array."""
        return self._aggregated("ARRAY_AGG")

    def percentile(self, percentage: Any, frequency: Any = None) -> Expression[Any]:
        """The percentile: the value at this fraction of the sorted values."""
        return self._aggregated("PERCENTILE", percentage, frequency)

    def alias(self, name: str, *extra_names: str) -> Expression[Any]:
        """Names the expression; an expression with several columns takes several names."""
        names = (name, *extra_names)
        if wrong := [each for each in names if not isinstance(each, str) or not each]:
            raise refuse_type(f"alias: found {wrong[0]!r}, expected a name as text")
        return self._made(As(self._node, names))

    def as_argument(self, name: str) -> Expression[Any]:
        """Turns the expression into a named argument of a function."""
        return self._made(Argument(name, self._node))

    def cast(self, data_type: DataType) -> Expression[Any]:
        """Casts to another type; fails for a value that does not fit."""
        return self._made(Cast(self._node, _checked_type("cast", data_type)))

    def try_cast(self, data_type: DataType) -> Expression[Any]:
        """Casts to another type; returns NULL for a value that does not fit."""
        return self._made(Cast(self._node, _checked_type("try_cast", data_type), is_try=True))

    @property
    def asc(self) -> Expression[Any]:
        """Ascending order."""
        return self._made(OrderItem(self._node))

    @property
    def desc(self) -> Expression[Any]:
        """Descending order."""
        return self._made(OrderItem(self._node, descending=True))

    @property
    def start(self) -> Expression[Any]:
        """The window's start: `col("w").start`."""
        return self._call("WINDOW_START")

    @property
    def end(self) -> Expression[Any]:
        """The window's exclusive end: `col("w").end`."""
        return self._call("WINDOW_END")

    def over(self, alias: Any) -> Expression[Any]:
        """The aggregate over a window of `over_window` around each row."""
        node = self._node
        window = alias if isinstance(alias, str) else _plain_name(alias)
        if isinstance(node, Call):
            node = Aggregated(node)
        if not isinstance(node, Aggregated):
            raise refuse_type(
                f"over: found {written(self._node)}, expected an aggregate before it, as in col('a').sum.over(col('w'))"
            )
        return self._made(Over(node, window))


def _plain_name(alias: Any) -> str:
    node = node_of(alias)
    if not isinstance(node, Name) or len(node.parts) != 1:
        raise refuse_type(f"over: found {alias}, expected the alias of an over window, as in col('w')")
    return node.parts[0]


def _checked_type(method: str, data_type: Any) -> DataType:
    if not isinstance(data_type, DataType):
        raise refuse_type(f"{method}: found {data_type!r}, expected a data type such as DataTypes.BIGINT()")
    return data_type
