"""Entry points of expressions: columns, literals, and functions that are not methods of an expression.

>>> print(concat_ws("-", col("a"), lit(3)))
concat_ws('-', a, 3)
"""

from __future__ import annotations

from typing import Any

from millstream.expressions.data_type import DataType
from millstream.graph.site import refuse_type
from millstream.pyflink_names import add_pyflink_names
from millstream.sql.parser import parse_expression
from millstream.sql.syntax import Call, Cast, Descriptor, Literal, Name, RowValue, Star
from millstream.table.expression import Expression
from millstream.table.expression_functions.calls import made_call
from millstream.table.expression_functions.json import (
    json,
    json_array,
    json_array_agg,
    json_object,
    json_object_agg,
    json_string,
)
from millstream.table.expression_functions.times import (
    convert_tz,
    current_database,
    current_date,
    current_time,
    current_timestamp,
    current_watermark,
    date_format,
    from_unixtime,
    local_time,
    local_timestamp,
    source_watermark,
    temporal_overlaps,
    timestamp_diff,
    to_date,
    to_timestamp,
    to_timestamp_ltz,
    unix_timestamp,
)
from millstream.table.expression_methods.literals import literal
from millstream.table.expression_methods.syntax_holder import node_of

__all__ = [
    "CURRENT_RANGE",
    "CURRENT_ROW",
    "UNBOUNDED_RANGE",
    "UNBOUNDED_ROW",
    "and_",
    "array",
    "atan2",
    "call",
    "call_sql",
    "coalesce",
    "col",
    "concat",
    "concat_ws",
    "convert_tz",
    "current_database",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_watermark",
    "date_format",
    "descriptor",
    "e",
    "from_unixtime",
    "if_then_else",
    "json",
    "json_array",
    "json_array_agg",
    "json_object",
    "json_object_agg",
    "json_string",
    "lag",
    "lead",
    "lit",
    "local_time",
    "local_timestamp",
    "log",
    "map_",
    "map_from_arrays",
    "negative",
    "not_",
    "null_of",
    "object_of",
    "or_",
    "pi",
    "rand",
    "rand_integer",
    "range_",
    "row",
    "row_interval",
    "source_watermark",
    "temporal_overlaps",
    "timestamp_diff",
    "to_date",
    "to_timestamp",
    "to_timestamp_ltz",
    "unix_timestamp",
    "uuid",
    "with_all_columns",
    "with_columns",
    "without_columns",
]


def col(name: str) -> Expression[Any]:
    """The column with that name; "*" is all columns."""
    if not isinstance(name, str) or not name:
        raise refuse_type(f"col: found {name!r}, expected the name of a column as text")
    return Expression(Star() if name == "*" else Name((name,)))


def lit(v: Any, data_type: DataType | None = None) -> Expression[Any]:
    """A Python value as a literal, with its inferred or the requested type."""
    if data_type is not None and not isinstance(data_type, DataType):
        raise refuse_type(f"lit: found {data_type!r} as the data type, expected one such as DataTypes.BIGINT()")
    return Expression(literal(v, data_type))


def range_(start: str | int, end: str | int) -> Expression[Any]:
    """The columns between two, both included, by name or by position counted from 1."""
    return Expression(Call("RANGE_TO", (_column_place(start), _column_place(end))))


def _column_place(place: str | int) -> Any:
    if isinstance(place, str):
        return Name((place,))
    if isinstance(place, int) and not isinstance(place, bool):
        return literal(place)
    raise refuse_type(f"range_: found {place!r}, expected the name of a column or its position counted from 1")


def and_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression[Any]:
    """Whether all conditions are true."""
    return _folded("AND", predicate0, predicate1, *predicates)


def or_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression[Any]:
    """Whether at least one condition is true."""
    return _folded("OR", predicate0, predicate1, *predicates)


def _folded(operator: str, first: Any, *others: Any) -> Expression[Any]:
    node = node_of(first)
    for other in others:
        node = Call(operator, (node, node_of(other)))
    return Expression(node)


def not_(expression: Any) -> Expression[Any]:
    """Negates a condition; NULL for NULL."""
    return made_call("NOT", expression)


UNBOUNDED_ROW: Expression[Any] = made_call("UNBOUNDED_ROW")
"""An over window that starts with the first row."""
UNBOUNDED_RANGE: Expression[Any] = made_call("UNBOUNDED_RANGE")
"""An over window that starts with the first time."""
CURRENT_ROW: Expression[Any] = made_call("CURRENT_ROW")
"""An over window that ends with the row itself."""
CURRENT_RANGE: Expression[Any] = made_call("CURRENT_RANGE")
"""An over window that ends with all rows of the row's time."""


def row_interval(rows: int) -> Expression[Any]:
    """A number of rows, as the size of a window."""
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise refuse_type(f"row_interval: found {rows!r}, expected a number of rows")
    return made_call("ROW_INTERVAL", rows)


# --- composite values -------------------------------------------------------------------------------------------------


def array(head: Any, *tail: Any) -> Expression[Any]:
    """An array of these elements."""
    return made_call("ARRAY", head, *tail)


def row(head: Any, *tail: Any) -> Expression[Any]:
    """A row of these fields."""
    return Expression(RowValue(tuple(map(node_of, (head, *tail)))))


def map_(key: Any, value: Any, *tail: Any) -> Expression[Any]:
    """A map: key, value, key, value, …"""
    return made_call("MAP", key, value, *tail)


def map_from_arrays(key: Any, value: Any) -> Expression[Any]:
    """A map of an array of keys and an array of values."""
    return made_call("MAP_FROM_ARRAYS", key, value)


def descriptor(*column_names: str) -> Expression[Any]:
    """Column names as an argument of a table function."""
    return Expression(Descriptor(column_names))


def object_of(class_name: str, *args: Any) -> Expression[Any]:
    """A structured object: the name of its class, then name, value, name, value, …"""
    return made_call("OBJECT_OF", class_name, *args)


# --- numbers, strings, conditions -------------------------------------------------------------------------------------


def pi() -> Expression[Any]:
    """The number pi."""
    return made_call("PI")


def e() -> Expression[Any]:
    """The number e."""
    return made_call("E")


def rand(seed: Any = None) -> Expression[Any]:
    """A random number from 0 to 1, excluding 1."""
    return made_call("RAND", seed)


def rand_integer(bound: Any, seed: Any = None) -> Expression[Any]:
    """A random integer from 0 to a bound, excluding the bound."""
    return made_call("RAND_INTEGER", bound) if seed is None else made_call("RAND_INTEGER", seed, bound)


def atan2(y: Any, x: Any) -> Expression[Any]:
    """The angle of the point (x, y)."""
    return made_call("ATAN2", y, x)


def negative(v: Any) -> Expression[Any]:
    """The number with the opposite sign."""
    return made_call("-", v)


def concat(first: Any, *others: Any) -> Expression[Any]:
    """The concatenation of the strings; NULL if any is NULL."""
    return made_call("CONCAT", first, *others)


def concat_ws(separator: Any, first: Any, *others: Any) -> Expression[Any]:
    """The concatenation of the strings with a separator, omitting NULLs."""
    return made_call("CONCAT_WS", separator, first, *others)


def uuid() -> Expression[Any]:
    """A new UUID, as a string."""
    return made_call("UUID")


def null_of(data_type: DataType) -> Expression[Any]:
    """NULL with a type."""
    if not isinstance(data_type, DataType):
        raise refuse_type(f"null_of: found {data_type!r}, expected a data type such as DataTypes.INT()")
    return Expression(Cast(Literal("NULL"), data_type.nullable()))


def log(v: Any, base: Any = None) -> Expression[Any]:
    """The logarithm to the given base; by default the natural logarithm."""
    return made_call("LOG", v) if base is None else made_call("LOG", base, v)


def if_then_else(condition: Any, if_true: Any, if_false: Any) -> Expression[Any]:
    """One value if a condition is true, another if it is false or NULL."""
    return Expression(node_of(condition)).then(if_true, if_false)


def coalesce(*args: Any) -> Expression[Any]:
    """The first value that is not NULL."""
    return made_call("COALESCE", *args)


# --- columns of a table -----------------------------------------------------------------------------------------------


def with_all_columns() -> Expression[Any]:
    """All columns."""
    return Expression(Star())


def with_columns(head: Any, *tails: Any) -> Expression[Any]:
    """These columns: names, positions counted from 1, or ranges."""
    return made_call("WITH_COLUMNS", head, *tails)


def without_columns(head: Any, *tails: Any) -> Expression[Any]:
    """All columns except these: names, positions counted from 1, or ranges."""
    return made_call("WITHOUT_COLUMNS", head, *tails)


# --- other rows, other functions --------------------------------------------------------------------------------------


def lag(expr: Any, offset: Any = 1, default: Any = None) -> Expression[Any]:
    """The value of an earlier row, by a number of rows, in an over window."""
    return made_call("LAG", expr, offset, default)


def lead(expr: Any, offset: Any = 1, default: Any = None) -> Expression[Any]:
    """The value of a later row, by a number of rows, in an over window."""
    return made_call("LEAD", expr, offset, default)


def call(f: Any, *args: Any) -> Expression[Any]:
    """Calls a function, given by its name in the catalog or as a wrapper created by `udf` and similar."""
    from millstream.table.udf import UserDefinedFunctionWrapper

    if isinstance(f, UserDefinedFunctionWrapper):
        return f(*args)
    if not isinstance(f, str):
        raise refuse_type(f"call: found {f!r}, expected a function's name, or a wrapper made by udf()")
    *path, name = f.split(".")
    if not path and name.upper() == "SUM0":  # Flink's name for a function without SQL syntax
        name = "$SUM0"
    return Expression(Call(name, tuple(map(node_of, args)), path=tuple(path)))


def call_sql(sql_expression: str) -> Expression[Any]:
    """An expression written in SQL: `call_sql("price * 0.9")`."""
    if not isinstance(sql_expression, str):
        raise refuse_type(f"call_sql: found {sql_expression!r}, expected a SQL expression as text")
    return Expression(parse_expression(sql_expression))


add_pyflink_names(globals())
