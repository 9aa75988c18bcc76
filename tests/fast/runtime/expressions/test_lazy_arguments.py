"""AND, OR, CASE, IF and COALESCE evaluate only the arguments that decide: errors in others are not raised."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from inputs.random_expressions import call

from millstream.expressions.row_expressions import Column, Literal, RowExpression, UserCall
from millstream.expressions.types import BigIntType, BooleanType, IntType, NullType
from millstream.expressions.user_functions import UserFunction
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.expression_errors import ExpressionError
from millstream.runtime.expressions.kernel import SessionFacts

X = Column(IntType(), 0)
ZERO = Literal(IntType(False), 0)
ONE = Literal(IntType(False), 1)
INVERSE = call("/", Literal(IntType(False), 100), X)
NULL = Literal(NullType(), None)


def compute(expression: RowExpression, values: list[int | None], condition: RowExpression | None = None) -> list[Any]:
    program = pickle.loads(pickle.dumps(compile_program([expression], [IntType()], condition)))
    columns: list[pa.Array] = program.run([pa.array(values, pa.int32())], len(values), SessionFacts()).columns
    return columns[0].to_pylist()


def test_case_divides_only_where_the_divisor_is_not_zero() -> None:
    assert compute(call("CASE", call("<>", X, ZERO), INVERSE, NULL), [5, 0, None, -4]) == [20, None, None, -25]


def test_a_later_condition_is_evaluated_only_for_rows_that_reach_it() -> None:
    is_large = call(">", INVERSE, ONE)
    chosen = call("CASE", call("=", X, ZERO), ZERO, is_large, ONE, Literal(IntType(False), 2))
    assert compute(chosen, [0, 10, 100, None]) == [0, 1, 2, 2]


def test_and_and_or_short_circuit() -> None:
    assert compute(call("AND", call("<>", X, ZERO), call(">", INVERSE, ONE)), [0, 10, 1000, None]) == [
        False,
        True,
        False,
        None,
    ]
    assert compute(call("OR", call("=", X, ZERO), call(">", INVERSE, ONE)), [0, 10, 1000, None]) == [
        True,
        True,
        False,
        None,
    ]


def test_coalesce_and_if_evaluate_only_the_returned_argument() -> None:
    assert compute(call("COALESCE", call("NULLIF", X, ZERO), call("/", ONE, call("+", X, ONE))), [0, 7, None]) == [
        1,
        7,
        None,
    ]
    assert compute(call("IF", call("=", X, ZERO), ZERO, INVERSE), [0, 50]) == [0, 2]


def test_outputs_are_computed_only_for_rows_that_pass_the_condition() -> None:
    assert compute(INVERSE, [0, 50, 0, None], call("<>", X, ZERO)) == [2]


def test_an_argument_that_all_rows_reach_fails_with_its_row() -> None:
    with pytest.raises(
        ExpressionError, match=r"100 / \$0: division by zero for \(100, 0\), in row 3 of the batch"
    ) as error:
        compute(INVERSE, [50, 50, 20, 0], call(">", call("+", X, ONE), ZERO))
    assert error.value.row == 3 and error.value.values == (100, 0)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_an_error_inside_a_branch_names_the_row_of_the_batch() -> None:
    with pytest.raises(ExpressionError) as error:
        compute(call("CASE", call("<", X, ONE), INVERSE, ZERO), [5, 6, -1, 0])
    assert error.value.row == 3


def test_a_function_of_the_program_is_called_only_for_rows_that_reach_it() -> None:
    seen: list[int | None] = []

    def watch(value: int | None) -> bool:
        seen.append(value)
        return True

    user = UserCall(BooleanType(), UserFunction("watch", watch, (BooleanType(),)), (X,))
    program = compile_program([call("AND", call(">", X, ONE), user)], [IntType()])
    result = program.run([pa.array([1, 2, 3, None], pa.int32())], 4, SessionFacts())
    assert result.columns[0].to_pylist() == [False, True, True, None]
    assert seen == [2, 3, None]


def test_a_repeated_subexpression_is_computed_once() -> None:
    seen: list[int] = []

    def double(value: int) -> int:
        seen.append(value)
        return 2 * value

    user = UserCall(BigIntType(), UserFunction("double", double, (BigIntType(),)), (X,))
    program = compile_program([call("+", user, user), user], [IntType()], call(">", user, ONE))
    result = program.run([pa.array([0, 1, 2], pa.int32())], 3, SessionFacts())
    assert [column.to_pylist() for column in result.columns] == [[4, 8], [2, 4]]
    assert seen == [0, 1, 2]
    assert [function.name for function in program.user_functions()] == ["double"]


def test_nondeterministic_subexpressions_are_computed_each_time() -> None:
    numbers = iter(range(100))
    user = UserCall(
        BigIntType(), UserFunction("next", lambda: next(numbers), (BigIntType(),), is_deterministic=False), ()
    )
    program = compile_program([user, user], [IntType()])
    result = program.run([pa.array([0, 0], pa.int32())], 2, SessionFacts())
    assert [column.to_pylist() for column in result.columns] == [[0, 1], [2, 3]]


def test_an_empty_batch_never_fails() -> None:
    assert compute(call("/", ONE, ZERO), []) == []
    with pytest.raises(ExpressionError):
        compute(call("/", ONE, ZERO), [1])
