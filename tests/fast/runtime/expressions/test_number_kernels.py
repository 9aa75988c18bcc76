"""Edge cases of arithmetic, comparisons and casts, each with the result of Flink 2.3: over columns, not constants."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.random_expressions import call, cast

from millstream.expressions.data_type import DataType
from millstream.expressions.data_types import DataTypes as T
from millstream.expressions.row_expressions import Column, Literal, RowExpression
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.expression_errors import ExpressionError
from millstream.runtime.expressions.kernel import SessionFacts
from millstream.runtime.expressions.reference import evaluate

INT_MIN, LONG_MAX = -(2**31), 2**63 - 1


def call_over_columns(name: str, *sides: tuple[DataType, Any]) -> Any:
    """A function of one row whose values come as columns."""
    columns = [pa.array([value], type_.arrow) for type_, value in sides]
    return run(call(name, *(Column(type_, i) for i, (type_, _) in enumerate(sides))), [t for t, _ in sides], columns)


def run(expression: RowExpression, types: list[DataType], columns: list[pa.Array]) -> Any:
    return compile_program([expression], types).run(columns, 1, SessionFacts()).columns[0][0].as_py()


@pytest.mark.parametrize(
    ("name", "left", "right", "result"),
    [
        ("+", (T.INT(), 2**31 - 1), (T.INT(), 1), INT_MIN),
        ("*", (T.SMALLINT(), 32767), (T.SMALLINT(), 2), -2),
        ("/", (T.INT(), INT_MIN), (T.INT(), -1), INT_MIN),
        ("%", (T.INT(), INT_MIN), (T.INT(), -1), 0),
        ("/", (T.INT(), -7), (T.INT(), 2), -3),
        ("%", (T.INT(), -7), (T.INT(), 3), -1),
        ("%", (T.BIGINT(), 7), (T.BIGINT(), -3), 1),
        ("/", (T.DOUBLE(), 1.0), (T.DOUBLE(), 0.0), math.inf),
        ("/", (T.INT(), None), (T.INT(), 0), None),
        ("/", (T.DECIMAL(2, 1), Decimal("2.0")), (T.DECIMAL(3, 2), Decimal("3.00")), Decimal("0.666667")),
        ("/", (T.DECIMAL(2, 1), Decimal("-2.0")), (T.DECIMAL(3, 2), Decimal("3.00")), Decimal("-0.666667")),
        ("/", (T.DECIMAL(10, 2), Decimal("99999999.99")), (T.INT(), 7), Decimal("14285714.2842857142857")),
        ("%", (T.DECIMAL(3, 2), Decimal("-7.25")), (T.DECIMAL(2, 1), Decimal("2.5")), Decimal("-2.25")),
        ("+", (T.DECIMAL(38, 0), Decimal(10**38 - 1)), (T.DECIMAL(38, 0), Decimal(1)), None),
        ("=", (T.DECIMAL(38, 0), Decimal(1)), (T.DECIMAL(2, 2), Decimal("0.91")), False),
        ("GREATEST", (T.DOUBLE(), math.nan), (T.DOUBLE(), 1.0), math.nan),
        ("LEAST", (T.DOUBLE(), math.nan), (T.DOUBLE(), 1.0), 1.0),
    ],
)  # fmt: skip
def test_operators(name: str, left: tuple[DataType, Any], right: tuple[DataType, Any], result: Any) -> None:
    actual = call_over_columns(name, left, right)
    assert actual == result or (isinstance(actual, float) and math.isnan(actual) and math.isnan(result))


@pytest.mark.parametrize("type_", [T.INT(), T.DECIMAL(5, 2)], ids=str)
@pytest.mark.parametrize("name", ["/", "%"])
def test_whole_numbers_and_decimals_are_not_divided_by_zero(name: str, type_: DataType) -> None:
    with pytest.raises(ExpressionError, match="division by zero"):
        call_over_columns(
            name, (type_, 1 if type_ == T.INT() else Decimal(1)), (type_, 0 if type_ == T.INT() else Decimal(0))
        )


@pytest.mark.parametrize(
    ("value", "choices", "result"),
    [(1, [1, None], True), (3, [1, None], None), (3, [1, 2], False), (None, [1, 2], None)],
)
def test_in_is_unknown_where_null_could_be_the_value(value: Any, choices: list[Any], result: bool | None) -> None:
    literals = [Literal(T.INT(each is None), each) for each in choices]
    expression = call("IN", Column(T.INT(), 0), *literals)
    assert run(expression, [T.INT()], [pa.array([value], pa.int32())]) is result


@pytest.mark.parametrize(
    ("type_", "value", "digits", "result"),
    [
        (T.DOUBLE(), 1.005, 2, 1.01),
        (T.DOUBLE(), 2.675, 2, 2.68),
        (T.DOUBLE(), -2.5, 0, -3.0),
        (T.DOUBLE(), 123456.789, -2, 123500.0),
        (T.INT(), 12350, -2, 12400),
        (T.INT(), -12350, -2, -12400),
        (T.DECIMAL(4, 3), Decimal("1.005"), 2, Decimal("1.01")),
        (T.DECIMAL(4, 3), Decimal("-1.005"), 2, Decimal("-1.01")),
        (T.DECIMAL(3, 1), Decimal("99.5"), 0, Decimal(100)),
    ],
)
def test_halves_are_rounded_away_from_zero(type_: DataType, value: Any, digits: int, result: Any) -> None:
    expression = call("ROUND", Column(type_, 0), Literal(T.INT(False), digits))
    assert run(expression, [type_], [pa.array([value], type_.arrow)]) == result


@pytest.mark.parametrize(
    ("from_", "value", "to", "result"),
    [
        (T.DOUBLE(), math.nan, T.INT(), 0),
        (T.DOUBLE(), 3e9, T.INT(), 2**31 - 1),
        (T.DOUBLE(), 300.0, T.TINYINT(), 44),
        (T.DOUBLE(), 1e20, T.TINYINT(), -1),
        (T.DOUBLE(), -math.inf, T.BIGINT(), -(2**63)),
        (T.INT(), 300, T.TINYINT(), 44),
        (T.DECIMAL(11, 1), Decimal("3000000000.5"), T.INT(), -1294967296),
        (T.DECIMAL(5, 3), Decimal("12.345"), T.DECIMAL(4, 2), Decimal("12.35")),
        (T.DECIMAL(5, 3), Decimal("-12.345"), T.DECIMAL(4, 2), Decimal("-12.35")),
        (T.DECIMAL(6, 1), Decimal("12345.6"), T.DECIMAL(4, 2), None),
        (T.DOUBLE(), 1.005, T.DECIMAL(10, 2), Decimal("1.01")),
        (T.BIGINT(), LONG_MAX, T.DOUBLE(), 9.223372036854775807e18),
        (T.DOUBLE(), 1e7, T.STRING(), "1.0E7"),
        (T.DOUBLE(), 1e-3, T.STRING(), "0.001"),
        (T.FLOAT(), 16777216.0, T.STRING(), "1.6777216E7"),
        (T.BOOLEAN(), True, T.STRING(), "TRUE"),
        (T.STRING(), " 12.7 ", T.INT(), 12),
        (T.STRING(), "+5", T.INT(), 5),
        (T.STRING(), "Yes", T.BOOLEAN(), True),
        (T.STRING(), " 12.346 ", T.DECIMAL(5, 2), Decimal("12.35")),
        (T.STRING(), "ab", T.CHAR(4), "ab  "),
        (T.STRING(), "abcdef", T.VARCHAR(3), "abc"),
        (T.ARRAY(T.INT()), [1, None], T.STRING(), "[1, NULL]"),
    ],
)
def test_casts(from_: DataType, value: Any, to: DataType, result: Any) -> None:
    assert run(cast(Column(from_, 0), to), [from_], [pa.array([value], from_.arrow)]) == result


@pytest.mark.parametrize(
    ("text", "to"),
    [("1e2", T.INT()), ("99999999999", T.INT()), ("inf", T.DOUBLE()), (" true", T.BOOLEAN()), ("2020-02-30", T.DATE())],
)
def test_invalid_text_raises_or_is_null(text: str, to: DataType) -> None:
    column, types = [pa.array([text])], [T.STRING()]
    with pytest.raises(ExpressionError, match=r"the (text|number)"):
        run(cast(Column(T.STRING(), 0), to), types, column)
    assert run(cast(Column(T.STRING(), 0), to, "TRY_CAST"), types, column) is None


_LONGS = st.one_of(st.none(), st.integers(0, 2**32 + 9), st.integers(-(2**63), LONG_MAX))


@given(st.lists(_LONGS, min_size=1), st.sampled_from([1, 2, 123, 2**32 - 1, 2**32, LONG_MAX]), st.booleans())
def test_a_remainder_by_a_constant_is_that_of_each_row(
    numbers: list[int | None], divisor: int, has_signs: bool
) -> None:
    numbers = numbers if has_signs else [None if number is None else abs(number) % 2**63 for number in numbers]
    remainder = call("MOD", Column(T.BIGINT(), 0), Literal(T.BIGINT(), divisor))
    program = compile_program([remainder], [T.BIGINT()])
    result = program.run([pa.array(numbers, pa.int64())], len(numbers), SessionFacts()).columns[0]
    assert result.to_pylist() == [evaluate(remainder, [number]) for number in numbers]
