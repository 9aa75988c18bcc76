"""Expressions of the Table API are the parser's syntax trees: built by calls or written as SQL, they are equal."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from millstream.errors import ProgramError
from millstream.sql.parser import parse_expression
from millstream.sql.syntax import Aggregated, As, Call, Cast, Interval, Literal, Name, OrderItem
from millstream.table import DataTypes, Expression
from millstream.table.expression import (
    JsonExistsOnError,
    JsonOnNull,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    TimeIntervalUnit,
    TimePointUnit,
)
from millstream.table.expressions import (
    and_,
    array,
    call,
    call_sql,
    coalesce,
    col,
    concat_ws,
    current_timestamp,
    if_then_else,
    json_object,
    lit,
    map_,
    negative,
    not_,
    null_of,
    or_,
    pi,
    row,
    temporal_overlaps,
    timestamp_diff,
)


def plain(node: Any) -> Any:
    """Syntax with literals as Python values, so that the parser's can be compared with those of calls."""
    if isinstance(node, Literal):
        is_text = isinstance(node.value, str) and node.kind not in ("NUMBER", "BOOLEAN")
        return ("literal", node.value if is_text else str(node.value).upper())
    if isinstance(node, Aggregated) and not (node.distinct or node.filter or node.order_by or node.within_group):
        return plain(node.call)
    if isinstance(node, tuple):
        return tuple(map(plain, node))
    if hasattr(node, "__dataclass_fields__"):
        fields = {name: plain(getattr(node, name)) for name in node.__dataclass_fields__ if name != "span"}
        return (type(node).__name__, tuple(fields.items()))
    return node


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        (col("a") + 1, "a + 1"),
        (1 - col("a") * 2, "1 - a * 2"),
        (col("a") / 2 % 3, "a / 2 % 3"),
        (-col("a"), "-a"),
        (negative(col("a")), "-a"),
        (col("a") == "x", "a = 'x'"),
        ((col("a") != 1) & (col("b") > 2) | (col("c") <= 3), "a <> 1 AND b > 2 OR c <= 3"),
        (and_(col("a") < 1, col("b"), col("c")), "a < 1 AND b AND c"),
        (or_(col("a"), col("b")), "a OR b"),
        (~col("a"), "a IS NOT TRUE"),
        (not_(col("a")), "NOT a"),
        (col("a").is_null, "a IS NULL"),
        (col("a").is_not_true, "a IS NOT TRUE"),
        (col("a").between(1, 5), "a BETWEEN 1 AND 5"),
        (col("a").not_between(1, 5), "a NOT BETWEEN 1 AND 5"),
        (col("a").in_(1, 2, 3), "a IN (1, 2, 3)"),
        (col("a").like("x%"), "a LIKE 'x%'"),
        (col("a").upper_case, "UPPER(a)"),
        (col("a").substring(2), "SUBSTRING(a, 2)"),
        (col("a").substring(2, 3), "SUBSTRING(a, 2, 3)"),
        (col("a").regexp_extract("(x)", 1), "REGEXP_EXTRACT(a, '(x)', 1)"),
        (col("a").split_index(",", 0), "SPLIT_INDEX(a, ',', 0)"),
        (col("a").position(col("b")), "POSITION(a IN b)"),
        (col("a").trim_leading("x"), "TRIM(LEADING 'x' FROM a)"),
        (col("a").trim(), "TRIM(a)"),
        (col("a").extract(TimeIntervalUnit.YEAR), "EXTRACT(YEAR FROM a)"),
        (col("a").floor(TimeIntervalUnit.DAY), "FLOOR(a TO DAY)"),
        (col("a").ceil(), "CEIL(a)"),
        (timestamp_diff(TimePointUnit.HOUR, col("a"), col("b")), "TIMESTAMPDIFF(HOUR, a, b)"),
        (col("a").sum, "SUM(a)"),
        (col("a").count.distinct, "COUNT(DISTINCT a)"),
        (col("a") ** 2, "POWER(a, 2)"),
        (if_then_else(col("a") > 1, "x", "y"), "CASE WHEN a > 1 THEN 'x' ELSE 'y' END"),
        (coalesce(col("a"), 0), "COALESCE(a, 0)"),
        (concat_ws("-", col("a"), "b"), "CONCAT_WS('-', a, 'b')"),
        (array(1, 2), "ARRAY[1, 2]"),
        (map_("k", 1), "MAP['k', 1]"),
        (row(1, "a"), "ROW(1, 'a')"),
        (col("a").at(1), "a[1]"),
        (pi(), "PI()"),
        (current_timestamp(), "CURRENT_TIMESTAMP"),
        (col("a").json_exists("$.x", JsonExistsOnError.TRUE), "JSON_EXISTS(a, '$.x' TRUE ON ERROR)"),
        (col("a").is_json(), "a IS JSON"),
        (col("a").is_json(JsonType.OBJECT), "a IS JSON OBJECT"),
        (col("a").json_value("$.x"), "JSON_VALUE(a, '$.x')"),
        (
            col("a").json_value(
                "$.x",
                on_empty=JsonValueOnEmptyOrError.DEFAULT,
                default_on_empty=1,
                on_error=JsonValueOnEmptyOrError.ERROR,
            ),
            "JSON_VALUE(a, '$.x' DEFAULT 1 ON EMPTY ERROR ON ERROR)",
        ),
        (
            col("a").json_query("$.x", JsonQueryWrapper.CONDITIONAL_ARRAY, JsonQueryOnEmptyOrError.EMPTY_ARRAY),
            "JSON_QUERY(a, '$.x' WITH CONDITIONAL ARRAY WRAPPER EMPTY ARRAY ON EMPTY NULL ON ERROR)",
        ),
        (temporal_overlaps(col("a"), col("b"), col("c"), col("d")), "(a, b) OVERLAPS (c, d)"),
        (col("a").overlay("b", 1, 2), "OVERLAY(a PLACING 'b' FROM 1 FOR 2)"),
        (json_object(JsonOnNull.ABSENT, "k", col("a")), "JSON_OBJECT('k' VALUE a ABSENT ON NULL)"),
        (col("a").sha2(256), "SHA2(a, 256)"),
        (call("my_udf", col("a"), 1), "my_udf(a, 1)"),
        (call_sql("a + b"), "a + b"),
        (col("a").if_null(0), "IFNULL(a, 0)"),
    ],
    ids=str,
)
def test_a_call_builds_the_same_node_as_the_parser(expression: Expression[Any], sql: str) -> None:
    assert plain(expression._node) == plain(parse_expression(sql))


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1, "INT NOT NULL"),
        (1 << 31, "BIGINT NOT NULL"),
        (-(1 << 31), "INT NOT NULL"),
        (1 << 63, "DECIMAL(19, 0) NOT NULL"),
        (1.5, "DOUBLE NOT NULL"),
        (True, "BOOLEAN NOT NULL"),
        ("abc", "CHAR(3) NOT NULL"),
        (b"ab", "BINARY(2) NOT NULL"),
        (Decimal("12.340"), "DECIMAL(5, 3) NOT NULL"),
        (Decimal("1E+3"), "DECIMAL(4, 0) NOT NULL"),
        (Decimal("0.001"), "DECIMAL(3, 3) NOT NULL"),
        (datetime.date(2024, 1, 2), "DATE NOT NULL"),
        (datetime.time(1, 2, 3), "TIME(0) NOT NULL"),
        (datetime.datetime(2024, 1, 2), "TIMESTAMP(0) NOT NULL"),
        (datetime.datetime(2024, 1, 2, microsecond=120_000), "TIMESTAMP(2) NOT NULL"),
        (None, "NULL"),
    ],
    ids=str,
)
def test_a_literal_has_flinks_type_of_a_python_value(value: Any, type_: str) -> None:
    node = lit(value)._node
    assert isinstance(node, Literal) and node.kind == "VALUE" and str(node.type) == type_
    assert node.value == value


def test_a_literal_may_have_an_explicit_type() -> None:
    assert lit(1, DataTypes.BIGINT())._node == Literal("VALUE", 1, DataTypes.BIGINT(False))
    assert null_of(DataTypes.INT())._node == Cast(Literal("NULL"), DataTypes.INT())


@pytest.mark.parametrize(
    ("expression", "value", "unit"),
    [
        (lit(5).minutes, "5", "MINUTE"),
        (lit(1).day, "1", "DAY"),
        (lit(2).weeks, "14", "DAY"),
        (lit(2).quarters, "6", "MONTH"),
        (lit(3).years, "3", "YEAR"),
        (lit(1500).millis, "1.500", "SECOND"),
    ],
)
def test_a_number_with_a_unit_is_an_interval(expression: Expression[Any], value: str, unit: str) -> None:
    assert expression._node == Interval(value, unit)


def test_an_interval_of_a_column_is_a_multiple() -> None:
    assert col("n").hours._node == Call("*", (Name(("n",)), Interval("1", "HOUR")))
    assert lit(-3).seconds._node == Interval("3", "SECOND", negative=True)


def test_names_order_and_casts() -> None:
    assert col("a").alias("b", "c")._node == As(Name(("a",)), ("b", "c"))
    assert col("a").desc._node == OrderItem(Name(("a",)), descending=True)
    assert col("a").try_cast(DataTypes.INT())._node == Cast(Name(("a",)), DataTypes.INT(), is_try=True)


def test_the_repr_of_an_expression_is_similar_to_sql() -> None:
    assert repr((col("a") > 1) & col("b").is_null) == "Expression<((a > 1) AND (b IS NULL))>"
    assert repr(col("a").sum) == "Expression<SUM(a)>"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: bool(col("a") > 1), "Write & for and"),
        (lambda: 1 < col("a") < 5, "between"),
        (lambda: col("a") + DataTypes.INT, "DataTypes.INT()|udf"),
        (lambda: col("a") == (lambda n: n), "udf"),
        (lambda: col(""), "expected the name of a column"),
        (lambda: col("a").cast("INT"), "DataTypes.BIGINT"),
        (lambda: col("a").distinct, "expected an aggregate before it"),
        (lambda: col("a").extract("YEAR"), "TimeIntervalUnit.DAY"),
        (lambda: lit(object()), "expected a SQL value"),
        (lambda: lit(Decimal("NaN")), "no NaN"),
        (lambda: lit(1, int), "DataTypes.BIGINT"),
        (lambda: call_sql("a +"), "line 1"),
        (lambda: list(col("a")), "flatten"),
        (lambda: col("a").alias(3), "a name as text"),
    ],
)
def test_invalid_expressions_are_rejected_with_advice(wrong: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        wrong()
