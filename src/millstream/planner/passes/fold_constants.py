"""Evaluates constant expressions with the kernels that tasks use, and removes decided conditions.

A constant that fails (1 / 0) raises here, with its position. Inside CASE, AND, OR and COALESCE, which may not evaluate
it, it remains and fails at run time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.errors import MillstreamError
from millstream.expressions.functions.registry import definition_of
from millstream.expressions.row_expressions import Call, Literal, RowExpression
from millstream.expressions.types import BooleanType, is_text
from millstream.planner.passes.rewriting import conjunction, conjuncts, rewritten
from millstream.planner.relations import (
    Aggregate,
    Correlate,
    Filter,
    Project,
    Relation,
    Sink,
    Unnest,
    Values,
    WatermarkAssign,
)
from millstream.planner.session import PlannerSession
from millstream.sql.places import problem

__all__ = ["fold_constants", "folded"]

_PATTERNED = frozenset({"LIKE", "SIMILAR TO"})
"""Functions that fail on an invalid constant pattern. Regular expression functions return NULL instead, as in Flink."""


def fold_constants(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Evaluates constant expressions."""

    def rule(relation: Relation) -> Relation:
        if _is_empty(relation):
            return Values(relation.schema, ())
        if isinstance(relation, Project):
            return replace(relation, expressions=tuple(folded(each, session) for each in relation.expressions))
        if isinstance(relation, Values):
            return replace(relation, rows=tuple(tuple(folded(each, session) for each in row) for row in relation.rows))
        if isinstance(relation, Filter):
            return _filtered(relation, folded(relation.condition, session))
        if isinstance(relation, WatermarkAssign):
            return replace(relation, watermark=folded(relation.watermark, session))
        if isinstance(relation, Unnest | Correlate):
            return _correlated(relation, session)
        return relation

    return rewritten(sinks, rule)


def _correlated(relation: Unnest | Correlate, session: PlannerSession) -> Relation:
    condition = None if relation.condition is None else folded(relation.condition, session)
    condition = None if condition is None or _is(condition, True) else condition
    if isinstance(relation, Unnest):
        return replace(relation, collection=folded(relation.collection, session), condition=condition)
    arguments = tuple(folded(each, session) for each in relation.arguments)
    return replace(relation, arguments=arguments, condition=condition)


def _is_empty(relation: Relation) -> bool:
    """Whether a relation is empty because its inputs are."""
    if isinstance(relation, Sink) or not relation.inputs:
        return False
    if isinstance(relation, Aggregate) and not relation.groups:
        return False
    return all(isinstance(each, Values) and not each.rows for each in relation.inputs)


def _filtered(relation: Filter, condition: RowExpression) -> Relation:
    """The filter without conjuncts that are always true; an empty relation if one is never true."""
    parts = [part for part in conjuncts(condition) if not _is(part, True)]
    if any(isinstance(part, Literal) and part.value is not True for part in parts):
        return Values(relation.schema, ())
    whole = conjunction(parts)
    return relation.input if whole is None else replace(relation, condition=whole)


def _is(expression: RowExpression, value: bool) -> bool:
    return isinstance(expression, Literal) and expression.value is value


def folded(
    expression: RowExpression, session: PlannerSession, is_reached: bool = True, site: str | None = None
) -> RowExpression:
    """An expression with its constant parts evaluated. `is_reached`: every row evaluates the expression; `site`: the
    enclosing expression's text."""
    if not isinstance(expression, Call):
        return expression
    definition = definition_of(expression.function)
    site = expression.site or site
    is_lazy = definition is not None and definition.is_lazy
    arguments = tuple(
        folded(argument, session, is_reached and (not is_lazy or position == 0), site)
        for position, argument in enumerate(expression.arguments)
    )
    if any(new is not old for new, old in zip(arguments, expression.arguments, strict=True)):
        expression = replace(expression, arguments=arguments)
    if expression.function in ("AND", "OR"):
        return _simplified(expression)
    if expression.function == "CASE":
        return _decided(_flat(expression))
    if expression.function in _PATTERNED and is_reached:
        _check_pattern(expression, session)
    if definition is None or not definition.deterministic or not _is_constant(expression):
        return expression
    return _computed(expression, session, is_reached, site)


def _check_pattern(call: Call, session: PlannerSession) -> None:
    """Rejects an invalid constant pattern now, not at the first row that is not NULL."""
    text, *rest = call.arguments
    if not isinstance(text, Literal) and all(isinstance(each, Literal) and each.value is not None for each in rest):
        _computed(replace(call, arguments=(Literal(text.type, ""), *rest)), session, is_reached=True, site=call.site)


def _is_constant(call: Call) -> bool:
    return bool(call.arguments) and all(isinstance(argument, Literal) for argument in call.arguments)


def _simplified(call: Call) -> RowExpression:
    """Simplifies AND and OR with constants: TRUE AND x is x, FALSE AND x is FALSE; NULL remains."""
    neutral = call.function == "AND"
    if any(_is(argument, not neutral) for argument in call.arguments):
        return Literal(BooleanType(False), not neutral)
    rest = [argument for argument in call.arguments if not _is(argument, neutral)]
    if not rest:
        return Literal(BooleanType(False), neutral)
    if len(rest) == 1:
        return rest[0]
    return call if len(rest) == len(call.arguments) else replace(call, arguments=tuple(rest))


def _flat(case: Call) -> Call:
    """Flattens a CASE in a CASE's ELSE: `then` of the Table API nests the branches of one SQL CASE. Strings of any
    length count as one type, because the inner CASE pads nothing."""
    last = case.arguments[-1]
    if not isinstance(last, Call) or last.function != "CASE":
        return case
    if last.type.nullable() != case.type.nullable() and not (is_text(last.type) and is_text(case.type)):
        return case
    return replace(case, arguments=(*case.arguments[:-1], *last.arguments))


def _decided(case: Call) -> RowExpression:
    """A CASE without branches that are never taken; the first branch's value if it is always taken."""
    *pairs, otherwise = case.arguments
    branches: list[RowExpression] = []
    for when, then in zip(pairs[0::2], pairs[1::2], strict=True):
        if isinstance(when, Literal) and when.value is not True:
            continue
        if _is(when, True):
            otherwise = then
            break
        branches += [when, then]
    if not branches and isinstance(otherwise, Literal):
        return replace(otherwise, type=case.type)
    if not branches and otherwise.type == case.type:
        return otherwise
    if len(branches) + 1 == len(case.arguments) or not branches:
        return case
    return replace(case, arguments=(*branches, otherwise))


def _computed(call: Call, session: PlannerSession, is_reached: bool, site: str | None) -> RowExpression:
    # Kernels are loaded only if there is a constant to evaluate: most plans have none.
    from millstream.runtime.expressions.compile import compile_program
    from millstream.runtime.expressions.kernel import KERNELS, SessionFacts, load_kernels

    facts = SessionFacts(zone=session.zone, catalog=session.catalog, database=session.database)
    load_kernels()
    if call.function not in KERNELS and call.function not in ("CASE", "COALESCE", "NOT"):
        return call
    try:
        column = compile_program([call], ()).run([], 1, facts).columns[0]
        value = column[0].as_py()
    except MillstreamError as error:
        if not is_reached:
            return call
        why = getattr(error, "problem", error.message)
        raise problem(f"this constant cannot be computed: {why}", getattr(site, "span", None)) from None
    except (ValueError, OverflowError):
        return call  # Python cannot represent nanoseconds or a year beyond 9999
    if value is None and not call.type.is_nullable and is_reached:
        raise problem(
            f"this constant cannot be computed: it does not fit {call.type}, and would be NULL. Choose a wider type, "
            "or TRY_CAST, whose result may be NULL",
            getattr(site, "span", None),
        )
    literal = _literal_value(value, call)
    return call if literal is call else Literal(call.type, literal)


def _literal_value(value: Any, call: Call) -> Any:
    """The value of a literal; the call itself if Python cannot represent the value (nanoseconds, nested types)."""
    plain = (bool, int, float, str, bytes)
    if value is None or isinstance(value, plain):
        return value
    if type(value).__module__ in ("datetime", "decimal"):
        return value
    return call
