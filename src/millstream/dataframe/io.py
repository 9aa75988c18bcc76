"""Data frames read by SQL connectors."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.dataframe.context import get_or_create_table_environment
from millstream.dataframe.dataframe import DataFrame, table_descriptor
from millstream.dataframe.datatype import DataType, row_type
from millstream.table.schema import Schema

__all__ = ["read_generic"]


def read_generic(
    connector: str,
    *,
    schema: Mapping[str, DataType] | None = None,
    options: dict[str, str] | None = None,
    computed_columns: Mapping[str, str] | None = None,
    watermark: tuple[str, str] | None = None,
) -> DataFrame:
    """A data frame of a connector's table: `read_generic('datagen', schema={'id': DataType.int64()})`.

    The schema is required. `computed_columns` maps names to SQL expressions; `watermark` is a column and the
    expression of its watermark.
    """
    types = row_type("read_generic", schema)
    builder = Schema.new_builder().from_fields(list(types.names), list(types.types))
    for name, expression in (computed_columns or {}).items():
        builder = builder.column_by_expression(name, expression)
    if watermark is not None:
        builder = builder.watermark(*watermark)
    environment = get_or_create_table_environment()
    return DataFrame(environment.from_descriptor(table_descriptor(connector, builder.build(), options)))
