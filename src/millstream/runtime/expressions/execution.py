"""Steps carried out on a frame, and what goes wrong there put into words.

Kernels say which row of theirs has no result; here that becomes the row of the batch, the expression as SQL, and the
values. A kernel that fails in another way is asked again row by row, until the row is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.expressions.row_expressions import Call, UserCall
from millstream.expressions.sql_text import sql_text
from millstream.runtime.expressions.by_distinct import dictionary_of, entries, known_result, remember_result, spread
from millstream.runtime.expressions.frames import Frame
from millstream.runtime.expressions.kernel import KERNELS, CallContext, Value, ValueProblem
from millstream.runtime.expressions.problems import ExpressionError
from millstream.runtime.expressions.selection import run_case, run_coalesce, run_logic
from millstream.runtime.expressions.steps import Block, CaseStep, CoalesceStep, KernelStep, LogicStep, Step, UserStep
from millstream.runtime.expressions.user_calls import UserCallProblem, called

__all__ = ["run_block", "run_steps"]


def run_block(frame: Frame, block: Block) -> Value:
    """A block's result for the rows of a frame."""
    run_steps(frame, block.steps)
    return frame.plain(block.result)


def run_coded_block(frame: Frame, block: Block) -> Value:
    """The same; text may be a dictionary."""
    run_steps(frame, block.steps)
    return frame.value(block.result)


def run_steps(frame: Frame, steps: Sequence[Step]) -> None:
    """Fill the slots of these steps, in their order."""
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
    return _run_over(step, frame, [frame.plain(slot) for slot in step.arguments], frame.rows)


def _run_once(step: KernelStep, frame: Frame) -> Value:
    """A function of constants: computed for one row, whatever their number."""
    arguments = [pa.repeat(frame.value(slot), 1) for slot in step.arguments]
    result = _run_over(step, frame, arguments, 1)
    return result if isinstance(result, pa.Scalar) else result[0]


def _run_by_distinct(step: KernelStep, frame: Frame, slot: int) -> Value | None:
    """The function over the distinct values of its one column; None: by rows."""
    dictionary = dictionary_of(frame, slot, is_dear=step.is_dear)
    if dictionary is None:
        return None
    values, codes = entries(dictionary)
    if len(values) > frame.rows:
        return None
    arguments = [values if argument == slot else frame.value(argument) for argument in step.arguments]
    known = known_result(frame, step.slot, arguments, is_dear=step.is_dear)
    if known is not None:
        return spread(known, codes)
    try:
        result = _checked(KERNELS[step.call.function](_context(step, frame, len(values)), *arguments), step.call)
    except MemoryError:
        raise
    except (ValueProblem, pa.ArrowException, ArithmeticError, ValueError):
        # Perhaps it is a value that no row has: the rows themselves decide.
        return None
    if isinstance(result, pa.Scalar):
        return result
    remember_result(frame, step.slot, arguments, result)
    return spread(result, codes)


def _run_over(step: KernelStep, frame: Frame, arguments: Sequence[Value], rows: int) -> Value:
    kernel = KERNELS.get(step.call.function)
    if kernel is None:
        raise LookupError(f"the function {step.call.function} has no kernel")
    try:
        return _checked(kernel(_context(step, frame, rows), *arguments), step.call)
    except MemoryError:  # Arrow's is an ArrowException, too, and no problem of a row
        raise
    except ValueProblem as problem:
        raise _error(step.call, str(problem), frame, arguments, problem.row) from None
    except (pa.ArrowException, ArithmeticError, ValueError) as problem:
        row, message = _first_problem(step, frame, arguments, rows, problem)
        raise _error(step.call, message, frame, arguments, row) from problem


def _context(step: KernelStep, frame: Frame, rows: int) -> CallContext:
    return CallContext(step.call, rows, frame.session, step.slot)


def _checked(result: Value, call: Call) -> Value:
    """A kernel's result, of just the type that was promised."""
    expected = call.type.arrow
    return result if result.type == expected else result.cast(expected)


def _first_problem(
    step: KernelStep, frame: Frame, arguments: Sequence[Value], rows: int, problem: Exception
) -> tuple[int, str]:
    """The first row that fails alone, and what it says; slow, but only once."""
    kernel = KERNELS[step.call.function]
    for row in range(rows):
        single = [each if isinstance(each, pa.Scalar) else each[row : row + 1] for each in arguments]
        try:
            kernel(_context(step, frame, 1), *single)
        except (ValueProblem, pa.ArrowException, ArithmeticError, ValueError) as reason:
            return row, str(reason)
    return 0, str(problem)


def _error(call: Call | UserCall, message: str, frame: Frame, arguments: Sequence[Value], row: int) -> ExpressionError:
    values = [value_at(argument, row) for argument in arguments]
    origin = frame.origin(row) if row < frame.rows else row
    return ExpressionError(message, origin, call.site or sql_text(call), values)


def value_at(argument: Value, row: int) -> Any:
    """The Python value of a row, as it is shown in an error; what Python has no value for is Arrow's number, or the
    type of what holds it."""
    value = argument if isinstance(argument, pa.Scalar) else argument[row]
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # a year beyond 9999, or nanoseconds
        return str(value.type) if pa.types.is_nested(value.type) else value.value


def _run_user_function(step: UserStep, frame: Frame) -> Value:
    arguments = [frame.plain(slot) for slot in step.arguments]
    try:
        return called(step.call, arguments, frame.rows, frame.session.options)
    except UserCallProblem as problem:
        cause = problem.__cause__ or problem
        raise _error(step.call, str(problem), frame, arguments, problem.row) from cause
