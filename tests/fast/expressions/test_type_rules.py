"""Flink's type rules: casts, common types, precision of decimals, PyFlink's DataTypes. The expected types are those of
Flink 2.3.
"""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest

from millstream.errors import ProgramError
from millstream.expressions import decimals
from millstream.expressions.coercion import arrow_value, as_type, can_cast, common_type, leading_type
from millstream.expressions.data_type import DataType
from millstream.expressions.data_types import DataTypes as T
from millstream.expressions.data_types import DecimalType, create_arrow_schema, from_arrow_type, to_arrow_type
from millstream.expressions.functions.registry import NOT_CONSTANT, Arguments, SignatureError, definition_of
from millstream.expressions.row_expressions import Call, Column, Literal

D10_3, D4_2, D38_10 = T.DECIMAL(10, 3), T.DECIMAL(4, 2), T.DECIMAL(38, 10)


def bound(name: str, *types: DataType, constants: tuple[object, ...] = ()) -> str:
    definition = definition_of(name)
    assert definition is not None
    padded = constants + (NOT_CONSTANT,) * (len(types) - len(constants))
    return str(definition.bind(Arguments(types, padded)).result)


@pytest.mark.parametrize(
    ("name", "types", "result"),
    [
        ("+", (T.INT(), T.BIGINT()), "BIGINT"),
        ("+", (T.TINYINT(), T.TINYINT()), "TINYINT"),
        ("+", (T.BIGINT(), T.FLOAT()), "FLOAT"),
        ("+", (D10_3, T.INT()), "DECIMAL(14, 3)"),
        ("+", (D10_3, T.FLOAT()), "DOUBLE"),
        ("*", (D10_3, T.BIGINT()), "DECIMAL(30, 3)"),
        ("*", (T.DECIMAL(4, 3, False), T.BIGINT(False)), "DECIMAL(24, 3) NOT NULL"),
        ("/", (D10_3, T.INT()), "DECIMAL(21, 14)"),
        ("/", (T.INT(), T.BIGINT()), "BIGINT"),
        ("%", (T.BIGINT(), T.INT()), "INT"),
        ("%", (D10_3, T.INT()), "DECIMAL(10, 3)"),
        ("MOD", (D4_2, D10_3), "DECIMAL(5, 3)"),
        ("*", (D38_10, D38_10), "DECIMAL(38, 6)"),
        ("/", (D38_10, D4_2), "DECIMAL(38, 8)"),
        ("+", (D4_2, D38_10), "DECIMAL(38, 9)"),
        ("*", (T.FLOAT(), T.DOUBLE()), "FLOAT"),
        ("*", (T.DOUBLE(), T.FLOAT()), "DOUBLE"),
        ("-", (D10_3,), "DECIMAL(10, 3)"),
        ("CEIL", (D10_3,), "DECIMAL(10, 0)"),
        ("CASE", (T.BOOLEAN(), T.INT(), D10_3), "DECIMAL(13, 3)"),
        ("CASE", (T.BOOLEAN(), T.CHAR(1, False), T.CHAR(3, False)), "VARCHAR(3) NOT NULL"),
        ("CASE", (T.BOOLEAN(), T.CHAR(3, False)), "CHAR(3)"),
        ("COALESCE", (T.INT(), T.INT(False)), "INT NOT NULL"),
        ("IF", (T.BOOLEAN(), T.INT(False), T.BIGINT(False)), "BIGINT"),
        ("NULLIF", (T.INT(False), T.BIGINT()), "INT"),
        ("GREATEST", (T.INT(), D10_3, T.DOUBLE()), "DOUBLE"),
        ("=", (T.DATE(), T.STRING()), "BOOLEAN"),
        ("IS NULL", (T.INT(),), "BOOLEAN NOT NULL"),
        ("POWER", (D10_3, T.INT()), "DOUBLE"),
    ],
)
def test_results_have_flinks_types(name: str, types: tuple[DataType, ...], result: str) -> None:
    assert bound(name, *types) == result


@pytest.mark.parametrize(("digits", "result"), [(1, "DECIMAL(9, 1)"), (-1, "DECIMAL(8, 0)"), (5, "DECIMAL(10, 3)")])
def test_rounding_to_constant_digits_determines_the_result_type(digits: int, result: str) -> None:
    assert bound("ROUND", D10_3, T.INT(False), constants=(NOT_CONSTANT, digits)) == result
    assert bound("ROUND", D10_3, T.INT()) == "DECIMAL(10, 3)"


@pytest.mark.parametrize(
    ("name", "types", "message"),
    [
        ("ABS", (T.STRING(),), "ABS takes a number, got STRING. Call it as ABS(number)."),
        ("ABS", (), "ABS takes 1 argument, got nothing."),
        ("%", (T.DOUBLE(), T.INT()), "% takes two integers or decimals, got DOUBLE, INT"),
        ("=", (T.INT(), T.STRING()), "= takes values of one type, got INT, STRING. Call it as value = value. CAST one"),
        ("=", (T.BOOLEAN(), T.INT()), "= takes values of one type, got BOOLEAN, INT"),
        ("AND", (T.INT(), T.BOOLEAN()), "AND takes a BOOLEAN as argument 1, got INT"),
        ("CASE", (T.BOOLEAN(), T.INT(), T.STRING()), "CASE takes values of one type, got INT, STRING"),
        ("+", (T.STRING(), T.INT()), "+ takes two numbers, or a time and an interval, got STRING, INT"),
    ],
)
def test_errors_of_unsupported_arguments_have_one_form(name: str, types: tuple[DataType, ...], message: str) -> None:
    with pytest.raises(SignatureError) as error:
        bound(name, *types)
    assert str(error.value).startswith(message)


def test_common_types() -> None:
    assert str(common_type([T.CHAR(3, False), T.CHAR(3)])) == "CHAR(3)"
    assert str(common_type([T.NULL(), T.INT(False)])) == "INT"
    assert common_type([T.INT(), T.STRING()]) is None and common_type([]) is None
    assert str(common_type([T.ARRAY(T.INT(False)), T.ARRAY(T.BIGINT(False))])) == "ARRAY<BIGINT NOT NULL>"
    assert str(common_type([T.DATE(), T.TIMESTAMP(3)])) == "TIMESTAMP(3)"
    assert str(common_type([T.DECIMAL(38, 0), T.DECIMAL(38, 38)])) == "DECIMAL(38, 0)"
    assert str(leading_type([T.INT(), T.FLOAT(), T.DOUBLE()])) == "FLOAT"


def test_supported_and_unsupported_casts() -> None:
    assert can_cast(T.INT(), T.BIGINT(), explicit=False) and not can_cast(T.BIGINT(), T.INT(), explicit=False)
    assert can_cast(T.STRING(), T.INT()) and not can_cast(T.STRING(), T.INT(), explicit=False)
    assert not can_cast(T.INT(), T.DATE()) and not can_cast(T.DATE(), T.TIME()) and not can_cast(T.BYTES(), T.INT())
    assert can_cast(T.ROW([T.INT()]), T.ROW([T.STRING()])) and not can_cast(T.ROW([T.INT()]), T.ROW([T.DATE()]))
    assert not can_cast(T.INT(), T.INT(False), explicit=False)


def test_constants_are_cast_at_planning_and_columns_at_runtime() -> None:
    assert as_type(Literal(T.INT(False), 5), T.DECIMAL(10, 2)) == Literal(T.DECIMAL(10, 2, False), Decimal(5))
    assert as_type(Literal(T.NULL(), None), T.INT()) == Literal(T.INT(), None)
    column = Column(T.INT(False), 0)
    assert as_type(column, T.INT()) is column
    assert as_type(column, T.BIGINT()) == Call(T.BIGINT(False), "CAST", (column,))
    text = Column(T.CHAR(3), 0)
    assert as_type(text, T.STRING()) is text and as_type(text, T.VARCHAR(2)) != text


def test_literals_become_arrow_values() -> None:
    row = T.ROW([T.FIELD("a", T.INT()), T.FIELD("b", T.MAP(T.STRING(), T.DECIMAL(3, 1)))])
    value = arrow_value(Literal(row, (1, {"x": Decimal("2.5")})))
    assert value.type == row.arrow and value.as_py() == {"a": 1, "b": [("x", Decimal("2.5"))]}
    assert arrow_value(Literal(T.INTERVAL(T.DAY()), dt.timedelta(days=1))).as_py() == dt.timedelta(days=1)


def test_sums_and_averages_of_decimals() -> None:
    assert str(decimals.sum_aggregate_type(DecimalType(10, 3))) == "DECIMAL(38, 3)"
    assert str(decimals.average_type(DecimalType(10, 3))) == "DECIMAL(38, 6)"
    assert str(decimals.average_type(DecimalType(38, 18))) == "DECIMAL(38, 18)"


@pytest.mark.parametrize(
    "type_",
    [
        T.STRING(), T.BYTES(), T.BOOLEAN(), T.TINYINT(), T.SMALLINT(), T.INT(), T.BIGINT(), T.FLOAT(), T.DOUBLE(),
        T.DATE(), T.DECIMAL(10, 2), T.TIMESTAMP(3), T.TIMESTAMP_LTZ(6), T.ARRAY(T.INT()),
        T.ROW([T.FIELD("a", T.INT())]), T.MAP(T.STRING(False), T.INT()),
    ],
    ids=str,
)  # fmt: skip
def test_types_are_converted_to_arrow_and_back(type_: DataType) -> None:
    assert from_arrow_type(to_arrow_type(type_)) == type_
    assert pickle.loads(pickle.dumps(type_)) == type_


def test_an_arrow_type_without_a_sql_type_is_rejected() -> None:
    with pytest.raises(ProgramError, match="the Arrow type uint64 has no SQL data type"):
        from_arrow_type(pa.uint64())
    assert create_arrow_schema(["a"], [T.INT(False)]) == pa.schema([pa.field("a", pa.int32(), False)])


def test_pyflinks_conversions_of_values() -> None:
    assert T.DATE().to_sql_type(dt.date(1970, 1, 3)) == 2 and T.DATE().from_sql_type(2) == dt.date(1970, 1, 3)
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 678)
    assert T.TIMESTAMP().from_sql_type(T.TIMESTAMP().to_sql_type(moment)) == moment
    assert T.TIME().from_sql_type(T.TIME().to_sql_type(dt.time(1, 2, 3))) == dt.time(1, 2, 3)
    row = T.ROW([T.FIELD("a", T.DATE()), T.FIELD("b", T.INT())])
    assert row.need_conversion() and row.to_sql_type({"a": dt.date(1970, 1, 2), "b": 5}) == (1, 5)
    assert row.from_sql_type((1, 5)).a == dt.date(1970, 1, 2)
    assert row.field_names() == ["a", "b"] and len(row) == 2
    grown = T.ROW([]).add("x", T.INT())
    assert str(grown) == "ROW<`x` INT>"


def test_intervals_name_their_units() -> None:
    assert str(T.INTERVAL(T.YEAR(3), T.MONTH())) == "INTERVAL YEAR(3) TO MONTH"
    with pytest.raises(ProgramError, match="there is no interval MONTH TO DAY"):
        T.INTERVAL(T.MONTH(), T.DAY())
