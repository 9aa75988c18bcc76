"""Resolves a call to a function, in Flink's order, and casts the arguments to its signature.

Order: temporary system functions, built-in functions, temporary functions of the database, catalog functions. Function
names are case insensitive.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

from millstream.errors import ProgramError, SqlError, did_you_mean
from millstream.expressions.coercion import as_type, can_cast
from millstream.expressions.functions.registry import (
    NOT_CONSTANT,
    Arguments,
    FunctionDefinition,
    SignatureError,
    definition_of,
    definitions,
)
from millstream.expressions.row_expressions import Call, Literal, RowExpression, UserCall
from millstream.expressions.user_functions import UserFunction, UserFunctionKind
from millstream.planner.entries import FunctionEntry
from millstream.planner.not_yet import refused_function
from millstream.planner.relations import WindowKind
from millstream.planner.session import PlannerSession
from millstream.planner.type_names import data_type
from millstream.sql import syntax
from millstream.sql.places import problem
from millstream.sql.writing import written

__all__ = [
    "bound_arguments",
    "find_function",
    "function_of",
    "placed_arguments",
    "system_call",
    "user_call",
    "written_text",
]

Function = FunctionDefinition | UserFunction
_TEXT_CHARS_MAX = 200


def find_function(call: syntax.Call, session: PlannerSession) -> Function:
    """The function that a call refers to; raises at the call if it does not exist."""
    name = ".".join((*call.path, call.name))
    function = function_of(call, session)
    if function is None and call.path:
        raise problem(f"No match found for function {name}: there is no function of this name in that database", call)
    refusal = refused_function(name, call) if function is None else None
    if refusal is not None:
        raise refusal
    if function is None:
        known = [definition.name for definition in definitions()]
        known += [entry.name.upper() for entry in session.functions()]
        known += [kind.value for kind in WindowKind]
        near = did_you_mean(name.upper(), known, 0.7)
        raise problem(f"No match found for function {name}: there is no function of this name.{near}", call)
    return function


def function_of(call: syntax.Call, session: PlannerSession) -> Function | None:
    """The function that a call refers to, or None. A Table API call may carry the function itself."""
    attached = dict(call.options).get("function")
    if isinstance(attached, UserFunction):
        return attached
    name, path, node = call.name, call.path, call
    if not path:
        entry = session.find_system_function(name)
        if entry is not None:
            return loaded(entry, node)
        definition = definition_of(name)
        if definition is not None:
            return definition
    entry = session.find_function(name, path)
    return loaded(entry, node) if entry is not None else None


def loaded(entry: FunctionEntry, node: syntax.Node | None) -> UserFunction:
    """The function of a catalog entry, imported if the entry names a module."""
    function = entry.function
    if function is None:
        module, _, name = entry.class_name.rpartition(".")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise problem(
                f"the function {entry.name} cannot be loaded from '{entry.class_name}': {error}", node
            ) from None
    made = getattr(function, "_user_function", function)
    if not isinstance(made, UserFunction):
        raise problem(f"'{entry.class_name}' is not a SQL function: wrap it with udf(…)", node)
    return made


def system_call(
    name: str,
    arguments: Sequence[RowExpression],
    node: syntax.Node | None = None,
    options: tuple[tuple[str, Any], ...] = (),
) -> Call:
    """A call of a built-in function, with its arguments cast to the signature."""
    definition = definition_of(name)
    if definition is None:
        raise problem(f"the function {name} is not supported yet", node)
    options = tuple((key, data_type(each) if isinstance(each, syntax.TypeName) else each) for key, each in options)
    cast, result = bound_arguments(definition, arguments, node, options)
    return Call(result, definition.name, cast, options, written_text(node))


def bound_arguments(
    definition: FunctionDefinition,
    arguments: Sequence[RowExpression],
    node: syntax.Node | None,
    options: tuple[tuple[str, Any], ...] = (),
) -> tuple[tuple[RowExpression, ...], Any]:
    """The arguments cast to a definition's signature, and the type of the result."""
    constants = tuple(each.value if isinstance(each, Literal) else NOT_CONSTANT for each in arguments)
    try:
        binding = definition.bind(Arguments(tuple(each.type for each in arguments), constants, options))
    except SignatureError as error:
        raise problem(error.message, node) from None
    except SqlError:
        raise
    except ProgramError as error:
        raise problem(f"{definition.name}: {error.message}", node) from None
    wanted = binding.arguments
    return tuple(as_type(each, type_) for each, type_ in zip(arguments, wanted, strict=True)), binding.result


def user_call(function: UserFunction, arguments: Sequence[RowExpression], node: syntax.Node) -> UserCall:
    """A call of a user's scalar function."""
    if function.kind is not UserFunctionKind.SCALAR:
        hint = {
            UserFunctionKind.TABLE: "it returns rows: write LATERAL TABLE(…) in FROM",
            UserFunctionKind.AGGREGATE: "it is an aggregate: it needs a GROUP BY, or all rows",
            UserFunctionKind.TABLE_AGGREGATE: "it returns rows per group: use the Table API's flat_aggregate",
        }[function.kind]
        raise problem(f"the function {function.name} has no single value: {hint}", node)
    return UserCall(function.result_type, function, cast_for_user(function, arguments, node), written_text(node))


def placed_arguments(function: UserFunction, call: syntax.Call) -> list[syntax.Expression]:
    """The arguments of a call in the function's order; named arguments are moved to their parameter's position."""
    if not any(isinstance(each, syntax.Argument) for each in call.arguments):
        return list(call.arguments)
    names = [name for name in inspect.signature(function.call).parameters if name != "self"]
    by_name: dict[str, syntax.Expression] = {}
    for argument in call.arguments:
        if not isinstance(argument, syntax.Argument):
            raise problem(f"{call.name}: pass arguments either by position or by name, not both", argument)
        if argument.name not in names:
            hint = did_you_mean(argument.name, names)
            words = f"{call.name} has no argument '{argument.name}': it has {', '.join(names)}.{hint}"
            raise problem(words, argument)
        by_name[argument.name] = argument.value
    missing = [name for name in names[: len(by_name)] if name not in by_name]
    if missing:
        raise problem(f"{call.name}: the argument '{missing[0]}' is missing", call)
    return [by_name[name] for name in names if name in by_name]


def cast_for_user(
    function: UserFunction, arguments: Sequence[RowExpression], node: syntax.Node
) -> tuple[RowExpression, ...]:
    """The arguments cast to the declared types of a user's function."""
    wanted = function.argument_types
    if wanted is not None and len(wanted) != len(arguments):
        counts = f"takes {len(wanted)} argument{'' if len(wanted) == 1 else 's'}, got {len(arguments)}"
        raise problem(f"the function {function.name} {counts}", node)
    wanted_text = function.expected_arguments(len(arguments))
    if wanted_text is not None:
        raise problem(f"the function {function.name} takes {wanted_text}, got {len(arguments)}", node)
    if wanted is None:
        return tuple(arguments)
    for position, (operand, type_) in enumerate(zip(arguments, wanted, strict=True)):
        if not can_cast(operand.type.nullable(), type_.nullable(), explicit=False):
            words = f"takes {type_.nullable()} as argument {position + 1}, got {operand.type.nullable()}"
            raise problem(f"the function {function.name} {words}. Write a CAST", node)
    return tuple(as_type(operand, type_) for operand, type_ in zip(arguments, wanted, strict=True))


class WrittenText(str):
    """An expression's text, for run-time errors; during planning it also carries its span."""

    span: syntax.Span | None = None

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def written_text(node: syntax.Node | None) -> WrittenText | None:
    """The text of a node on one line: as written in the query, or the SQL of a Table API call."""
    if node is None:
        return None
    if node.span is None:
        try:
            return WrittenText(written(node)[:_TEXT_CHARS_MAX])
        except TypeError:  # Python values have no SQL text
            return None
    text = WrittenText(" ".join(node.span.text.split())[:_TEXT_CHARS_MAX])
    text.span = node.span
    return text
