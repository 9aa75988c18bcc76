"""A data frame: a table under pandas' names. Its methods give others; `collect`, `to_pandas`, `write_generic` run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.common.types import Row
from millstream.dataframe.datatype import DataType
from millstream.graph.site import refuse
from millstream.table import expressions
from millstream.table.expression import Expression
from millstream.table.schema import Schema
from millstream.table.table import Table
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DataFrame", "GroupedDataFrame", "col", "lit"]


def col(name: str) -> Expression[Any]:
    """A column by its name."""
    return expressions.col(name)


def lit(value: Any, data_type: DataType | None = None) -> Expression[Any]:
    """A constant; its type is that of the value unless it is given."""
    return expressions.lit(value) if data_type is None else expressions.lit(value, data_type.table_data_type)


def _columns(method: str, columns: tuple[Any, ...]) -> list[Expression[Any]]:
    """Names and expressions as expressions; there is one at least."""
    if not columns:
        raise refuse(f"{method}: found no columns, expected names or expressions, as col('id')")
    return [_column(method, each) for each in columns]


def _column(method: str, column: Any) -> Expression[Any]:
    if isinstance(column, str):
        return expressions.col(column)
    if not isinstance(column, Expression):
        raise refuse(f"{method}: found {column!r} ({type(column).__name__}), expected a column's name or an expression")
    return column


class DataFrame:
    """Rows with named columns, which are computed when something asks for them."""

    def __init__(self, table: Table) -> None:
        if not isinstance(table, Table):
            raise refuse(f"DataFrame: found {table!r} ({type(table).__name__}), expected a Table. See from_table")
        self._table = table

    def filter(self, *predicates: Expression[Any]) -> DataFrame:
        """The rows for which all predicates are true."""
        table = self._table
        for predicate in _columns("filter", predicates):
            table = table.filter(predicate)
        return DataFrame(table)

    def with_column(self, name: str, expr: Expression[Any]) -> DataFrame:
        """One column more; one of this name is replaced."""
        if not isinstance(name, str):
            raise refuse(f"with_column: found {name!r} as the column's name, expected text")
        return DataFrame(self._table.add_or_replace_columns(_column("with_column", expr).alias(name)))

    def select(self, *columns: str | Expression[Any]) -> DataFrame:
        """These columns, by name or computed."""
        return DataFrame(self._table.select(*_columns("select", columns)))

    def group_by(self, *columns: str | Expression[Any]) -> GroupedDataFrame:
        """The rows by the values of columns, to be aggregated."""
        return GroupedDataFrame(self, _columns("group_by", columns))

    def agg(self, *aggs: Expression[Any]) -> DataFrame:
        """Aggregates of all rows: `agg(col('price').max.alias('highest'))`."""
        return DataFrame(self._table.select(*_columns("agg", aggs)))

    def collect(self) -> list[Row]:
        """All rows. It runs the program; what has no end is never through."""
        with self._table.execute().collect() as rows:
            return list(rows)

    def to_table(self) -> Table:
        """The table behind it."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a DataFrame of pandas."""
        return self._table.to_pandas()

    def write_generic(self, connector: str, *, options: dict[str, str] | None = None) -> TableResult:
        """Write the rows by a connector of SQL: `write_generic('filesystem', options={'path': …, 'format': 'csv'})`."""
        schema = self._table.get_schema()
        columns = Schema.new_builder().from_fields(schema.get_field_names(), schema.get_field_data_types()).build()
        return self._table.execute_insert(described(connector, columns, options))

    def __repr__(self) -> str:
        schema = self._table.get_schema()
        pairs = zip(schema.get_field_names(), schema.get_field_data_types(), strict=True)
        return f"DataFrame({', '.join(f'{name}: {type_}' for name, type_ in pairs)})"


class GroupedDataFrame:
    """Rows by the values of some columns."""

    def __init__(self, dataframe: DataFrame, grouping_keys: list[Expression[Any]]) -> None:
        self._dataframe = dataframe
        self._grouping_keys = list(grouping_keys)

    def agg(self, *aggs: Expression[Any]) -> DataFrame:
        """The columns that group, and these aggregates of each group."""
        grouped = self._dataframe.to_table().group_by(*self._grouping_keys)
        return DataFrame(grouped.select(*self._grouping_keys, *_columns("agg", aggs)))


def described(connector: str, schema: Schema, options: dict[str, str] | None) -> TableDescriptor:
    """A table of a connector with options."""
    builder = TableDescriptor.for_connector(connector).schema(schema)
    for key, value in (options or {}).items():
        builder = builder.option(key, value)
    return builder.build()
