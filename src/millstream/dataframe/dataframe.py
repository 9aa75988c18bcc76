"""Data frames: tables with pandas' names. Methods return new frames; `collect`, `to_pandas` and `write_generic` run
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from millstream.common.types import Row
from millstream.dataframe.datatype import DataType
from millstream.graph.site import refuse, refuse_type
from millstream.table import expressions
from millstream.table.expression import Expression
from millstream.table.schema import Schema
from millstream.table.table import Table
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    import pandas as pd

Column = str | Expression[Any]
Predicate = Column | Callable[["DataFrame"], Expression[Any]]

__all__ = ["DataFrame", "GroupedDataFrame", "col", "lit"]


def col(name: str) -> Expression[Any]:
    """A column by name."""
    return expressions.col(name)


def lit(value: Any, data_type: DataType | None = None) -> Expression[Any]:
    """A constant, of the value's type unless a type is given."""
    if data_type is None:
        return expressions.lit(value)
    if not isinstance(data_type, DataType):
        raise refuse_type(f"lit: found {data_type!r} as the data type, expected one such as DataType.int64()")
    return expressions.lit(value, data_type.table_data_type)


def _columns(method: str, columns: tuple[Any, ...], named: dict[str, Any] | None = None) -> list[Expression[Any]]:
    """Names and expressions as expressions, with lists flattened, then the keyword columns; at least one."""
    several = [each for item in columns for each in (item if isinstance(item, list | tuple) else [item])]
    chosen = [_column(method, each) for each in several]
    chosen += [_expression(method, each).alias(name) for name, each in (named or {}).items()]
    if not chosen:
        raise refuse(f"{method}: found no columns, expected names or expressions, as col('id')")
    return chosen


def _column(method: str, column: Any) -> Expression[Any]:
    if isinstance(column, str):
        return expressions.col(column)
    return _expression(method, column, "a column's name or an expression")


def _expression(method: str, value: Any, expected: str = "an expression") -> Expression[Any]:
    if not isinstance(value, Expression):
        raise refuse_type(f"{method}: found {value!r} ({type(value).__name__}), expected {expected}, as col('id') + 1")
    return value


class DataFrame:
    """Rows with named columns, computed on demand.

    `frame["id"]` is a column, `frame[["id", "name"]]` a frame of columns, `frame[frame["id"] > 3]` a frame of rows.
    """

    def __init__(self, table: Table) -> None:
        if not isinstance(table, Table):
            raise refuse_type(f"DataFrame: found {table!r} ({type(table).__name__}), expected a Table. See from_table")
        self._table = table

    def filter(self, *predicates: Predicate, **constraints: Any) -> DataFrame:
        """The rows that satisfy all predicates: expressions, SQL strings, or functions from this frame to an
        expression. Keywords compare columns for equality: `filter(status="new")`; None selects NULL."""
        if not predicates and not constraints:
            raise refuse("filter: found no columns, expected a predicate, as col('id') > 3, or id=3")
        table = self._table
        for predicate in predicates:
            table = table.filter(self._condition(predicate))
        for name, value in constraints.items():
            column = expressions.col(name)
            table = table.filter(column.is_null if value is None else column == value)
        return DataFrame(table)

    def _condition(self, predicate: Any) -> Expression[Any]:
        if isinstance(predicate, str):
            return expressions.call_sql(predicate)
        return self._resolve_argument(
            "filter", predicate, "an expression, an SQL text, or a function that returns an expression"
        )

    def _resolve_argument(self, method: str, value: Any, expected: str) -> Expression[Any]:
        """An expression, or the result of a function of this frame."""
        if callable(value) and not isinstance(value, type | Expression):
            value = value(self)
        return _expression(method, value, expected)

    def with_column(self, name: str, expr: Expression[Any] | Callable[[DataFrame], Expression[Any]]) -> DataFrame:
        """Adds or replaces a column, computed by an expression or by a function of this frame."""
        if not isinstance(name, str):
            raise refuse_type(f"with_column: found {name!r} as the column's name, expected text")
        computed = self._resolve_argument("with_column", expr, "an expression, or a function that returns one")
        return DataFrame(self._table.add_or_replace_columns(computed.alias(name)))

    def select(self, *columns: Column | Sequence[Column], **projections: Expression[Any]) -> DataFrame:
        """Selects columns by name or expression, also in lists, then the keyword columns."""
        return DataFrame(self._table.select(*_columns("select", columns, projections)))

    @overload
    def __getitem__(self, key: str) -> Expression[Any]: ...

    @overload
    def __getitem__(self, key: list[Any] | tuple[Any, ...] | Expression[Any]) -> DataFrame: ...

    def __getitem__(self, key: Any) -> Any:
        """A column by name, a frame by a list of columns, or the rows that satisfy an expression."""
        if isinstance(key, str):
            return expressions.col(key)
        if isinstance(key, Expression):
            return self.filter(key)
        if isinstance(key, list | tuple):
            return self.select(*key)
        raise refuse_type(f"frame[…]: found {key!r}, expected a name, a list of columns or a condition")

    __iter__ = None  # otherwise Python would call __getitem__ with 0, 1, … endlessly

    def group_by(self, *columns: Column | Sequence[Column]) -> GroupedDataFrame:
        """Groups the rows by columns, for aggregation."""
        return GroupedDataFrame(self, _columns("group_by", columns))

    def agg(self, *aggs: Expression[Any], **named_aggs: Expression[Any]) -> DataFrame:
        """Aggregates all rows: `agg(highest=col('price').max)`."""
        return DataFrame(self._table.select(*_aggregates(aggs, named_aggs)))

    def collect(self) -> list[Row]:
        """Runs the program and returns all rows; it does not return for unbounded input."""
        with self._table.execute().collect() as rows:
            return list(rows)

    def to_table(self) -> Table:
        """The underlying table."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """Runs the program and returns all rows as a pandas DataFrame."""
        return self._table.to_pandas()

    def write_generic(self, connector: str, *, options: dict[str, str] | None = None) -> TableResult:
        """Writes the rows by an SQL connector, and waits until they are written:
        `write_generic('filesystem', options={'path': …, 'format': 'csv'})`."""
        schema = self._table.get_schema()
        columns = Schema.new_builder().from_fields(schema.get_field_names(), schema.get_field_data_types()).build()
        result = self._table.execute_insert(table_descriptor(connector, columns, options))
        result.wait()
        return result

    def __repr__(self) -> str:
        schema = self._table.get_schema()
        pairs = zip(schema.get_field_names(), schema.get_field_data_types(), strict=True)
        return f"DataFrame({', '.join(f'{name}: {type_}' for name, type_ in pairs)})"


class GroupedDataFrame:
    """Rows grouped by columns."""

    def __init__(self, dataframe: DataFrame, grouping_keys: list[Expression[Any]]) -> None:
        self._dataframe = dataframe
        self._grouping_keys = list(grouping_keys)

    def agg(self, *aggs: Expression[Any], **named_aggs: Expression[Any]) -> DataFrame:
        """The grouping columns and the aggregates of each group: `agg(total=col('price').sum)`."""
        grouped = self._dataframe.to_table().group_by(*self._grouping_keys)
        return DataFrame(grouped.select(*self._grouping_keys, *_aggregates(aggs, named_aggs)))


def _aggregates(aggs: tuple[Any, ...], named_aggs: dict[str, Any]) -> list[Expression[Any]]:
    """Aggregates, then the keyword aggregates."""
    return _columns("agg", tuple(_expression("agg", each) for each in aggs), named_aggs)


def table_descriptor(connector: str, schema: Schema, options: dict[str, str] | None) -> TableDescriptor:
    """The descriptor of a table with this connector and options."""
    builder = TableDescriptor.for_connector(connector).schema(schema)
    for key, value in (options or {}).items():
        builder = builder.option(key, value)
    return builder.build()
