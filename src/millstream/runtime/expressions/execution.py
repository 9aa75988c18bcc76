"""Executes steps on a frame and converts their failures to errors that name the row.

A kernel reports the position of the first row without a result; this module maps it to the row of the batch, the
expression as SQL, and the values. If a kernel fails without a position, it is run again row by row to locate the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.expressions.row_expressions import Call, UserCall
from millstream.expressions.sql_text import sql_text
from millstream.runtime.expressions.dictionary_evaluation import (
    cache_result,
    cached_result,
    dictionary_of,
    distinct_values,
    expand,
)
from millstream.runtime.expressions.expression_errors import ExpressionError
from millstream.runtime.expressions.frames import Frame
from millstream.runtime.expressions.kernel import KERNELS, CallContext, EvaluationError, Value
from millstream.runtime.expressions.selection import run_case, run_coalesce, run_logic
from millstream.runtime.expressions.steps import Block, CaseStep, CoalesceStep, KernelStep, LogicStep, Step, UserStep
from millstream.runtime.expressions.user_calls import UserCallError, call_function

__all__ = ["run_block", "run_steps"]


def run_block(frame: Frame, block: Block) -> Value:
    """Evaluates a block for the rows of a frame; dictionaries are decoded."""
    run_steps(frame, block.steps)
    return frame.decoded(block.result)


def run_coded_block(frame: Frame, block: Block) -> Value:
    """Evaluates a block for the rows of a frame; strings may be dictionary-encoded."""
    run_steps(frame, block.steps)
    return frame.value(block.result)


def run_steps(frame: Frame, steps: Sequence[Step]) -> None:
    """Fills the slots of the steps, in order."""
    for step in steps:
        if step.slot not in frame.values:
            frame.values[step.slot] = _run(step, frame)


def _run(step: Step, frame: Frame) -> Value:
    if isinstance(step, KernelStep):
        return _run_kernel(step, frame)
    if isinstance(step, CaseStep):
        return run_case(step, frame, run_block, run_coded_block)
    if isinstance(step, LogicStep):
        return run_logic(step, frame, run_block)
    if isinstance(step, CoalesceStep):
        return run_coalesce(step, frame, run_block)
    assert isinstance(step, UserStep)
    return _run_user_function(step, frame)


def _run_kernel(step: KernelStep, frame: Frame) -> Value:
    if step.is_deterministic:
        varying = {slot for slot in step.arguments if not isinstance(frame.value(slot), pa.Scalar)}
        if not varying:
            return _run_once(step, frame)
        if len(varying) == 1:
            (slot,) = varying
            result = _run_by_distinct(step, frame, slot)
            if result is not None:
                return result
    return _run_over(step, frame, [frame.decoded(slot) for slot in step.arguments], frame.rows)


def _run_once(step: KernelStep, frame: Frame) -> Value:
    """Evaluates a function of constants for a single row."""
    arguments = [pa.repeat(frame.value(slot), 1) for slot in step.arguments]
    result = _run_over(step, frame, arguments, 1)
    return result if isinstance(result, pa.Scalar) else result[0]


def _run_by_distinct(step: KernelStep, frame: Frame, slot: int) -> Value | None:
    """Evaluates the function over the distinct values of its only varying column; None: it must run by rows."""
    dictionary = dictionary_of(frame, slot, is_expensive=step.is_expensive)
    if dictionary is None:
        return None
    values, codes = distinct_values(dictionary)
    if len(values) > frame.rows:
        return None
    arguments = [values if argument == slot else frame.value(argument) for argument in step.arguments]
    cached = cached_result(frame, step.slot, arguments, is_expensive=step.is_expensive)
    if cached is not None:
        return expand(cached, codes)
    try:
        result = _cast_result(KERNELS[step.call.function](_context(step, frame, len(values)), *arguments), step.call)
    except MemoryError:
        raise
    except (EvaluationError, pa.ArrowException, ArithmeticError, ValueError):
        # The failing dictionary value may not occur in any row: evaluate the rows themselves.
        return None
    if isinstance(result, pa.Scalar):
        return result
    cache_result(frame, step.slot, arguments, result)
    return expand(result, codes)


def _run_over(step: KernelStep, frame: Frame, arguments: Sequence[Value], rows: int) -> Value:
    kernel = KERNELS.get(step.call.function)
    if kernel is None:
        raise LookupError(f"the function {step.call.function} has no kernel")
    try:
        return _cast_result(kernel(_context(step, frame, rows), *arguments), step.call)
    except MemoryError:  # Arrow's MemoryError is an ArrowException too, but is not caused by a row
        raise
    except EvaluationError as problem:
        raise _error(step.call, str(problem), frame, arguments, problem.row) from None
    except (pa.ArrowException, ArithmeticError, ValueError) as problem:
        row, message = _first_problem(step, frame, arguments, rows, problem)
        raise _error(step.call, message, frame, arguments, row) from problem


def _context(step: KernelStep, frame: Frame, rows: int) -> CallContext:
    return CallContext(step.call, rows, frame.session, step.slot)


def _cast_result(result: Value, call: Call) -> Value:
    """Casts a kernel's result to the exact type of the call."""
    expected = call.type.arrow
    return result if result.type == expected else result.cast(expected)


def _first_problem(
    step: KernelStep, frame: Frame, arguments: Sequence[Value], rows: int, problem: Exception
) -> tuple[int, str]:
    """The first row that fails when evaluated alone, and its message. Slow, but runs only after a failure."""
    kernel = KERNELS[step.call.function]
    for row in range(rows):
        single = [each if isinstance(each, pa.Scalar) else each[row : row + 1] for each in arguments]
        try:
            kernel(_context(step, frame, 1), *single)
        except (EvaluationError, pa.ArrowException, ArithmeticError, ValueError) as reason:
            return row, str(reason)
    return 0, str(problem)


def _error(call: Call | UserCall, message: str, frame: Frame, arguments: Sequence[Value], row: int) -> ExpressionError:
    values = [value_at(argument, row) for argument in arguments]
    origin = frame.origin(row) if row < frame.rows else row
    return ExpressionError(message, origin, call.site or sql_text(call), values)


def value_at(argument: Value, row: int) -> Any:
    """The Python value of a row for an error message. If Python cannot represent it, Arrow's number, or the type of the
    nested value."""
    value = argument if isinstance(argument, pa.Scalar) else argument[row]
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # a year beyond 9999, or nanoseconds
        return str(value.type) if pa.types.is_nested(value.type) else value.value


def _run_user_function(step: UserStep, frame: Frame) -> Value:
    arguments = [frame.decoded(slot) for slot in step.arguments]
    try:
        return call_function(step.call, arguments, frame.rows, frame.session.options)
    except UserCallError as problem:
        cause = problem.__cause__ or problem
        raise _error(step.call, str(problem), frame, arguments, problem.row) from cause
