"""Comparing a multiple with a constant compares the column itself, without computing the product or its cast; the
results are the same.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from inputs.random_expressions import call

from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.expressions.types import (
    BigIntType,
    DecimalType,
    DoubleType,
    IntegralType,
    IntType,
    SmallIntType,
    TinyIntType,
)
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.exact_products import simplify_product
from millstream.runtime.expressions.kernel import SessionFacts
from millstream.runtime.expressions.reference import evaluate

TYPES = st.sampled_from([TinyIntType(), SmallIntType(), IntType(), BigIntType()])
FUNCTIONS = st.sampled_from(["<", "<=", ">", ">="])


def _decimal(number: Decimal) -> Literal:
    return Literal(DecimalType(12, 3, False), number.quantize(Decimal("0.001")))


def _comparison(function: str, column: Column, factor: Decimal, constant: Decimal, is_mirrored: bool) -> Call:
    product = call("*", column, _decimal(factor)) if is_mirrored else call("*", _decimal(factor), column)
    limit = Literal(DecimalType(38, 3, False), constant.quantize(Decimal("0.001")))
    made: Call = call(function, limit, product) if is_mirrored else call(function, product, limit)
    return made


def _near(type_: IntegralType, bound: Decimal) -> list[int | None]:
    lowest, highest = -(2 ** (type_.bits - 1)), 2 ** (type_.bits - 1) - 1
    around = [int(bound) + step for step in range(-2, 3)]
    return [None, lowest, highest, 0, *(number for number in around if lowest <= number <= highest)]


@given(
    FUNCTIONS,
    TYPES,
    st.decimals(-999, 999, places=3).filter(bool),
    st.decimals(-(10**12), 10**12, places=3),
    st.booleans(),
)
@example(">", BigIntType(), Decimal("0.908"), Decimal(1_000_000), False)
@example("<=", BigIntType(), Decimal("-0.5"), Decimal(3), True)
def test_comparing_the_column_agrees_with_comparing_its_multiple(
    function: str, type_: IntegralType, factor: Decimal, constant: Decimal, is_mirrored: bool
) -> None:
    comparison = _comparison(function, Column(type_, 0), factor, constant, is_mirrored)
    numbers = _near(type_, constant / factor)
    is_held = abs(constant / factor) < 2 ** (type_.bits - 1) - 1
    assert (simplify_product(comparison) is not comparison) or not is_held
    columns = [pa.array(numbers, type_.arrow)]
    result = compile_program([comparison], [type_]).run(columns, len(numbers), SessionFacts()).columns[0]
    assert result.to_pylist() == [evaluate(comparison, [number]) for number in numbers]


def test_a_program_compares_the_column_and_multiplies_only_for_outputs() -> None:
    price = Column(BigIntType(), 0)
    condition = _comparison(">", price, Decimal("0.908"), Decimal(1_000_000), False)
    assert simplify_product(condition) == call(">", price, Literal(BigIntType(False), 1_101_321))
    program = compile_program([price], [BigIntType()], condition)
    assert program.condition is not None and len(program.condition.steps) == 1


@pytest.mark.parametrize(
    "comparison",
    [
        # 38 digits have no room for the product of all BIGINTs: those beyond are NULL.
        Call(
            call(">", Column(IntType(), 0), Literal(IntType(False), 0)).type,
            ">",
            (
                Call(
                    DecimalType(20, 3),
                    "*",
                    (Literal(DecimalType(5, 3, False), Decimal("9.999")), Column(BigIntType(), 0)),
                ),
                Literal(DecimalType(20, 3, False), Decimal(5)),
            ),
        ),
        # The product of a number with three digits is rounded to two.
        Call(
            call(">", Column(IntType(), 0), Literal(IntType(False), 0)).type,
            ">",
            (
                Call(DecimalType(30, 2), "*", (_decimal(Decimal("0.125")), Column(IntType(), 0))),
                Literal(DecimalType(30, 2, False), Decimal(5)),
            ),
        ),
        # The bound is no TINYINT.
        _comparison("<", Column(TinyIntType(), 0), Decimal("0.001"), Decimal(1), False),
        _comparison("<", Column(TinyIntType(), 0), Decimal(0), Decimal(1), False),
        call(
            "=", call("*", _decimal(Decimal(2)), Column(IntType(), 0)), Literal(DecimalType(38, 3, False), Decimal(4))
        ),
        call(">", call("*", Literal(DoubleType(False), 2.0), Column(DoubleType(), 0)), Literal(DoubleType(False), 4.0)),
    ],
)
def test_comparisons_whose_result_might_change_are_not_rewritten(comparison: RowExpression) -> None:
    assert simplify_product(comparison) is comparison


@given(TYPES, st.decimals(-999, 999, places=3).filter(bool), st.integers(1, 38))
@example(BigIntType(), Decimal("0.908"), 23)
def test_a_product_is_computed_in_the_type_of_its_cast(type_: IntegralType, factor: Decimal, digits: int) -> None:
    cast_type = DecimalType(max(digits, 3), 3)
    cast = Call(cast_type, "CAST", (call("*", _decimal(factor), Column(type_, 0)),))
    numbers = _near(type_, Decimal(0))
    result = compile_program([cast], [type_]).run([pa.array(numbers, type_.arrow)], len(numbers), SessionFacts())
    assert result.columns[0].to_pylist() == [evaluate(cast, [number]) for number in numbers]
    assert result.columns[0].type == cast_type.arrow
    has_room = abs(factor) * 2 ** (type_.bits - 1) * 1000 < 10**cast_type.precision
    assert (simplify_product(cast) is not cast) == has_room
