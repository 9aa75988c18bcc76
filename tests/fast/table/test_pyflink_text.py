"""`str` of an expression equals PyFlink's; the expected texts were printed by PyFlink 2.3."""

from __future__ import annotations

import decimal
from typing import Any

import pytest

from millstream.table import AggregateFunction, DataTypes
from millstream.table.expression import (
    Expression,
    JsonExistsOnError,
    JsonType,
    JsonValueOnEmptyOrError,
    TimeIntervalUnit,
    TimePointUnit,
)
from millstream.table.expressions import (
    CURRENT_RANGE,
    call,
    call_sql,
    col,
    current_timestamp,
    if_then_else,
    lit,
    log,
    map_,
    not_,
    null_of,
    rand_integer,
    range_,
    row,
    row_interval,
    temporal_overlaps,
    timestamp_diff,
    to_date,
    to_timestamp_ltz,
    with_columns,
)
from millstream.table.udf import udaf, udf, udtf

a, b, c = col("a"), col("b"), col("c")


@udf(result_type=DataTypes.BIGINT())
def add(i: int, j: int) -> int:
    return i + j


lamb = udf(lambda i: i, result_type=DataTypes.BIGINT())


class Agg(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0]

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    def accumulate(self, accumulator: Any, value: int) -> None:
        accumulator[0] += value


agg = udaf(Agg(), result_type=DataTypes.BIGINT(), accumulator_type=DataTypes.ARRAY(DataTypes.BIGINT()))


@udtf(result_types=[DataTypes.INT(), DataTypes.INT()])
def tab(x: int) -> Any:
    yield x, x


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (a, "a"),
        (a.cast(DataTypes.ROW([DataTypes.FIELD("x", DataTypes.INT())])), "cast(a, ROW<`x` INT>)"),
        (a.cast(DataTypes.BIGINT().not_null()), "cast(a, BIGINT NOT NULL)"),
        (a.try_cast(DataTypes.INT()), "TRY_CAST(a, INT)"),
        (a.alias("x", "y"), "as(a, 'x', 'y')"),
        (a.as_argument("q"), "ASSIGNMENT('q', a)"),
        (a.in_("x", b), "in(a, 'x', b)"),
        (a.extract(TimeIntervalUnit.DAY), "extract(DAY, a)"),
        (a.floor(TimeIntervalUnit.HOUR), "floor(a, HOUR)"),
        (a.ceil(), "ceil(a)"),
        (a.get(1), "get(a, 1)"),
        (a.get("f"), "get(a, 'f')"),
        (a.flatten, "flatten(a)"),
        (a.at("k"), "at(a, 'k')"),
        (a.is_json(), "IS_JSON(a)"),
        (a.is_json(JsonType.ARRAY), "IS_JSON(a, ARRAY)"),
        (a.json_exists("$.x", JsonExistsOnError.TRUE), "JSON_EXISTS(a, '$.x', TRUE)"),
        (
            a.json_value("$.x", DataTypes.INT(), JsonValueOnEmptyOrError.DEFAULT, 1, JsonValueOnEmptyOrError.ERROR),
            "JSON_VALUE(a, '$.x', INT, DEFAULT, 1, ERROR, null)",
        ),
        (a.json_query("$.x"), "JSON_QUERY(a, '$.x', STRING, WITHOUT_ARRAY, NULL, NULL)"),
        (a.like("x", "y"), "LIKE(a, 'x', 'y')"),
        (a.similar(b), "similar(a, b)"),
        (lit(b"ab"), "[97, 98]"),
        (lit(1e20), "1.0E20"),
        (lit(1e-7), "1.0E-7"),
        (lit(False), "false"),
        (lit(float("nan")), "NaN"),
        (lit(decimal.Decimal("1E+3")), "1E+3"),
        (lit(decimal.Decimal("0.00000001")), "1E-8"),
        (lit(""), "''"),
        (a + "x", "plus(a, 'x')"),
        (1 - a, "minus(1, a)"),
        (2 * a, "times(a, 2)"),
        (2**a, "power(2, a)"),
        (~(a == 1), "isNotTrue(equals(a, 1))"),
        (a & b, "and(a, b)"),
        (-lit(1), "minusPrefix(1)"),
        (not_(a), "not(a)"),
        (row(a), "row(a)"),
        (map_("k", 1, "j", 2), "map('k', 1, 'j', 2)"),
        (row_interval(2), "2"),
        (rand_integer(10, 3), "randInteger(3, 10)"),
        (log(a), "log(a)"),
        (log(a, 2), "log(2, a)"),
        (if_then_else(a, b, c), "ifThenElse(a, b, c)"),
        (with_columns(range_(1, 3)), "withColumns(rangeTo(1, 3))"),
        (col("*"), "*"),
        (call("cat.db.f", a, 1), "cat.db.f(a, 1)"),
        (call("F"), "F()"),
        (call_sql("a + 1 > b"), "[a + 1 > b]"),
        (call_sql("UPPER(a)"), "[UPPER(a)]"),
        (add(a, 1), "add(a, 1)"),
        (lamb(a), "<lambda>(a)"),
        (agg(a), "Agg(a)"),
        (tab(a).alias("x", "y"), "as(tab(a), 'x', 'y')"),
        (current_timestamp(), "currentTimestamp()"),
        (to_date("x", "y"), "toDate('x', 'y')"),
        (to_timestamp_ltz(1, 3), "TO_TIMESTAMP_LTZ(1, 3)"),
        (temporal_overlaps(a, b, a, lit(2).hours), "temporalOverlaps(a, b, a, 7200000)"),
        (timestamp_diff(TimePointUnit.DAY, a, b), "timestampDiff(DAY, a, b)"),
        (lit(2).quarters, "6"),
        (lit(1).week, "604800000"),
        (lit(1500).millis, "1500"),
        (lit(-5).minutes, "-300000"),
        (a + lit(1).day, "plus(a, 86400000)"),
        (CURRENT_RANGE, "CURRENT_RANGE"),
        (a.sum.distinct.alias("d"), "as(distinct(sum(a)), 'd')"),
        (a.count.over(col("w")), "over(count(a), w)"),
        ((a + b).sum / lit(2), "divide(sum(plus(a, b)), 2)"),
        (col("it's").alias("it's"), "as(it's, 'it''s')"),
        (null_of(DataTypes.STRING()), "null"),
        (a.trim_leading("x"), "trim(true, false, 'x', a)"),
        (a.trim(), "trim(true, true, ' ', a)"),
        (a.list_agg(), "listAgg(a, ',')"),
        (a.between(b, c), "between(a, b, c)"),
        (a.upper_case, "upper(a)"),
        (a.char_length, "charLength(a)"),
        (a.translate(b, c), "TRANSLATE3(a, b, c)"),
        (a.array_max(), "ARRAY_MAX(a)"),
        (a.if_null(b), "IFNULL(a, b)"),
        (a.start, "start(a)"),
        (a.desc, "desc(a)"),
        (a.split_index(b, c), "splitIndex(a, b, c)"),
        (a.first_value, "first_value(a)"),
        (a.to_date, "cast(a, DATE)"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_an_expression_prints_as_pyflinks(expression: Expression[Any], text: str) -> None:
    assert str(expression) == text
