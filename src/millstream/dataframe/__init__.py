"""PyFlink's DataFrame API: tables with a pandas-like interface, built on the Table API.

    >>> import millstream.dataframe as mf
    >>> bids = mf.from_dict({"auction": [1, 1, 2], "price": [5, 7, 3]})
    >>> bids.group_by("auction").agg(mf.col("price").sum.alias("total"))
    DataFrame(auction: BIGINT, total: BIGINT)

A data frame is lazy and immutable; `collect`, `to_pandas` and `write_generic` run it.
"""

from __future__ import annotations

from millstream.dataframe.context import (
    get_or_create_table_environment,
    get_table_environment,
    set_table_environment,
)
from millstream.dataframe.convert import from_arrow, from_dict, from_pandas, from_records, from_table, range
from millstream.dataframe.dataframe import DataFrame, GroupedDataFrame, col, lit
from millstream.dataframe.datatype import DataType
from millstream.dataframe.io import read_generic

__all__ = [
    "DataFrame",
    "DataType",
    "GroupedDataFrame",
    "col",
    "from_arrow",
    "from_dict",
    "from_pandas",
    "from_records",
    "from_table",
    "get_or_create_table_environment",
    "get_table_environment",
    "lit",
    "range",
    "read_generic",
    "set_table_environment",
]
