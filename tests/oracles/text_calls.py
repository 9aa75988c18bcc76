"""Calls of functions on text, JSON and collections, for tests: bound as the planner binds them, run in every way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import NOT_CONSTANT, Arguments, definition_of
from millstream.expressions.nested_types import ArrayType, MapType
from millstream.expressions.row_expressions import Call, Literal
from millstream.expressions.types import (
    LENGTH_MAX,
    BigIntType,
    BooleanType,
    DoubleType,
    IntType,
    NullType,
    VarBinaryType,
    VarCharType,
)
from millstream.runtime.expressions.kernel import (
    KERNELS,
    REFERENCES,
    CallContext,
    EvaluationError,
    SessionFacts,
    load_kernels,
    load_references,
)
from millstream.runtime.expressions.plain_values import arrow_column, python_value, python_values

STRING = VarCharType(LENGTH_MAX)
PROBLEM = "<no result>"


def type_of(value: Any) -> DataType:
    """The SQL type of a Python value."""
    if isinstance(value, list):
        return ArrayType(type_of(next((each for each in value if each is not None), "")))
    if isinstance(value, dict):
        return MapType(STRING, type_of(next(iter(value.values()), 0)))
    types: dict[type, DataType] = {bool: BooleanType(), float: DoubleType(), bytes: VarBinaryType(LENGTH_MAX)}
    types[type(None)] = NullType()
    if isinstance(value, int) and not isinstance(value, bool):
        return IntType() if abs(value) < 2**31 else BigIntType()
    return types.get(type(value), STRING)


def bound(name: str, types: Sequence[DataType], options: dict[str, Any], constants: Sequence[Any] = ()) -> Call:
    """The call of a function with arguments of these types."""
    definition = definition_of(name)
    assert definition is not None, name
    given = tuple(options.items())
    binding = definition.bind(Arguments(tuple(types), tuple(constants), given))
    return Call(binding.result, definition.name, tuple(Literal(type_) for type_ in binding.arguments), given)


def expected(call: Call, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """The reference's result for each row; PROBLEM if it has none."""
    load_references()
    context = CallContext(call, 1, SessionFacts())
    found = []
    for row in rows:
        try:
            found.append(REFERENCES[call.function](context, *row))
        except EvaluationError:
            found.append(PROBLEM)
    return found


def computed(call: Call, rows: Sequence[Sequence[Any]], constant_places: Sequence[int] = ()) -> list[Any]:
    """The kernel's results; arguments at `constant_places` are passed once for all rows, as their value in the first
    row.
    """
    load_kernels()
    columns: list[Any] = []
    for place, argument in enumerate(call.arguments):
        column = arrow_column([row[place] for row in rows], argument.type)
        # A slice has an offset in its buffers, as batches often do.
        column = pa.concat_arrays([column[:1], column])[1:]
        columns.append(column[0] if place in constant_places else column)
    result = KERNELS[call.function](CallContext(call, len(rows), SessionFacts()), *columns)
    if isinstance(result, pa.Scalar):
        assert result.type == call.type.arrow
        return [python_value(result, call.type)] * len(rows)
    assert result.type == call.type.arrow and len(result) == len(rows)
    result.validate(full=True)
    return python_values(result, call.type)


def answer(name: str, *values: Any, **options: Any) -> Any:
    """The result of a function for values; PROBLEM if none. The kernel must agree with the reference, in every way."""
    constants = values if name == "JSON_OBJECT" else [NOT_CONSTANT] * len(values)  # its keys are constants
    call = bound(name, [type_of(value) for value in values], options, constants)
    (said,) = expected(call, [values])
    places = range(len(values))
    for constant_places in ((), tuple(places[1:]), tuple(places)):
        try:
            (found,) = computed(call, [values], constant_places)
        except EvaluationError:
            found = PROBLEM
        assert same(found, said), f"{name}{values}: the kernel says {found!r}, the reference {said!r}"
    return said


def same(left: Any, right: Any) -> bool:
    """Equal, NaN included."""
    return repr(left) == repr(right) or left == right
