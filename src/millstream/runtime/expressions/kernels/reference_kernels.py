"""Kernels for functions without an Arrow kernel: they run the reference for each row.

The functions registered here are expensive, so the program runs them over distinct values if that pays off.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import pyarrow as pa

from millstream.runtime.expressions.kernel import KERNELS, REFERENCES, CallContext, EvaluationError, Kernel, Value
from millstream.runtime.expressions.plain_values import arrow_column, python_value, python_values

__all__ = ["column_of", "register_by_value", "run_by_value", "with_reference_rows"]


def run_by_value(context: CallContext, function: Callable[..., Any], *arguments: Value) -> Value:
    """Runs a function of one row's values for every row."""
    types = context.argument_types
    if all(isinstance(argument, pa.Scalar) for argument in arguments):
        values = [python_value(argument, type_) for argument, type_ in zip(arguments, types, strict=True)]
        return arrow_column([function(context, *values)], context.type)[0]
    columns = [
        repeat(python_value(argument, type_), context.rows)
        if isinstance(argument, pa.Scalar)
        else python_values(argument, type_)
        for argument, type_ in zip(arguments, types, strict=True)
    ]
    results: list[Any] = []
    try:
        for row in zip(*columns, strict=True):
            results.append(function(context, *row))
    except EvaluationError as problem:
        raise EvaluationError(str(problem), len(results)) from None
    return arrow_column(results, context.type)


def register_by_value(*names: str) -> None:
    """Registers the references of functions as their kernels."""
    for name in names:
        if name in KERNELS:
            raise ValueError(f"the kernel {name} is already registered")
        KERNELS[name] = _kernel(REFERENCES[name])


def _kernel(function: Callable[..., Any]) -> Kernel:
    def by_value(context: CallContext, *arguments: Value) -> Value:
        return run_by_value(context, function, *arguments)

    return by_value


def column_of(context: CallContext, value: Value) -> pa.Array:
    """The value as a column; a scalar is repeated for all rows."""
    return value if isinstance(value, pa.Array) else pa.repeat(value, context.rows)


def with_reference_rows(context: CallContext, fast: pa.Array, slow: pa.Array, name: str, *arguments: Value) -> pa.Array:
    """Replaces the rows of a fast result that `slow` marks with results of the reference of `name`."""
    import pyarrow.compute as pc

    if not pc.any(slow, min_count=1).as_py():
        return fast
    chosen = [a if isinstance(a, pa.Scalar) else a.filter(slow) for a in arguments]
    part = CallContext(context.call, pc.sum(slow).as_py(), context.session)
    try:
        results = run_by_value(part, REFERENCES[name], *chosen)
    except EvaluationError as problem:
        raise EvaluationError(str(problem), pc.indices_nonzero(slow)[problem.row].as_py()) from None
    return pc.replace_with_mask(fast, slow, results)
