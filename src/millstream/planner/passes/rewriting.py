"""Plan traversals for passes. Each visits every relation once, regardless of its number of consumers, which preserves
sharing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace

from millstream.expressions.functions.registry import definition_of
from millstream.expressions.row_expressions import (
    Call,
    Column,
    Literal,
    RowExpression,
    UserCall,
    columns_of,
    transform,
    walk,
)
from millstream.planner.relations import Relation, Sink
from millstream.state.keys.key_columns import holds_floats

__all__ = [
    "IsShared",
    "can_be_substituted",
    "conjunction",
    "conjuncts",
    "consumers",
    "distinguishes_equal_keys",
    "is_deterministic",
    "is_plain",
    "moved",
    "only_uses",
    "relations_of",
    "rewritten",
    "rewritten_by_uses",
    "rewritten_knowing",
    "substituted",
]

GROWTH_MAX = 100
"""How many parts an expression may gain by computing a projected column itself."""


_COMPARISONS = frozenset(
    {"=", "<>", "<", "<=", ">", ">=", "IN", "IS NULL", "IS NOT NULL", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"}
)

IsShared = Callable[[Relation], bool]
"""Whether a relation has several consumers."""


def rewritten(sinks: Sequence[Sink], rule: Callable[[Relation], Relation]) -> tuple[Sink, ...]:
    """Rewrites every relation by a rule, inputs first."""
    return rewritten_by_uses(sinks, lambda relation, is_shared: rule(relation))


def rewritten_by_uses(sinks: Sequence[Sink], rule: Callable[[Relation, IsShared], Relation]) -> tuple[Sink, ...]:
    """Rewrites by a rule that can check which of the new relations below have several consumers."""
    used = consumers(sinks)
    shared: set[int] = set()

    def noting(old: Relation, new: Relation) -> Relation:
        result = rule(new, lambda each: id(each) in shared)
        if used[id(old)] > 1:
            shared.add(id(result))
        return result

    return rewritten_knowing(sinks, noting)


def rewritten_knowing(sinks: Sequence[Sink], rule: Callable[[Relation, Relation], Relation]) -> tuple[Sink, ...]:
    """Rewrites by a rule that receives the previous relation, and a copy of it with its new inputs."""
    done: dict[int, tuple[Relation, Relation]] = {}

    def change(relation: Relation) -> Relation:
        entry = done.get(id(relation))
        if entry is not None:
            return entry[1]
        inputs = relation.inputs
        changed = [change(each) for each in inputs]
        same = all(new is old for new, old in zip(changed, inputs, strict=True))
        result = rule(relation, relation if same else relation.with_inputs(*changed))
        # The cache also references the old relation: the id of a collected object may be reused.
        done[id(relation)] = (relation, result)
        return result

    results = tuple(change(sink) for sink in sinks)
    assert all(isinstance(result, Sink) for result in results)
    return results  # type: ignore[return-value]


def relations_of(sinks: Sequence[Relation]) -> Iterator[Relation]:
    """Every relation of a plan once, inputs before consumers."""
    seen: set[int] = set()

    def visit(relation: Relation) -> Iterator[Relation]:
        if id(relation) in seen:
            return
        seen.add(id(relation))
        for each in relation.inputs:
            yield from visit(each)
        yield relation

    for sink in sinks:
        yield from visit(sink)


def consumers(sinks: Sequence[Relation]) -> Counter[int]:
    """The number of consumers of each relation, by its id."""
    return Counter(id(each) for relation in relations_of(sinks) for each in relation.inputs)


# --- expressions ------------------------------------------------------------------------------------------------------


def conjuncts(condition: RowExpression) -> list[RowExpression]:
    """The operands of nested ANDs."""
    if isinstance(condition, Call) and condition.function == "AND":
        return [part for argument in condition.arguments for part in conjuncts(argument)]
    return [condition]


def conjunction(parts: Sequence[RowExpression]) -> RowExpression | None:
    """Combines conjuncts into one condition; None for an empty list."""
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    # A balanced tree, not a chain, because traversals recurse to its depth.
    middle = len(parts) // 2
    left, right = conjunction(parts[:middle]), conjunction(parts[middle:])
    assert left is not None and right is not None
    nullable = left.type.is_nullable or right.type.is_nullable
    return Call(right.type.with_nullability(nullable), "AND", (left, right))


def is_deterministic(expression: RowExpression) -> bool:
    """Whether an expression always has the same value for the same row."""
    for part in walk(expression):
        if isinstance(part, Call):
            definition = definition_of(part.function)
            if definition is not None and not definition.deterministic:
                return False
        elif isinstance(part, UserCall) and not getattr(part.function, "is_deterministic", True):
            return False
    return True


def substituted(expression: RowExpression, expressions: Sequence[RowExpression]) -> RowExpression:
    """Replaces every column by the expression that computes it."""
    return transform(expression, lambda part: expressions[part.index] if isinstance(part, Column) else part)


def moved(expression: RowExpression, places: dict[int, int]) -> RowExpression:
    """Moves an expression's columns to other positions."""

    def change(part: RowExpression) -> RowExpression:
        return replace(part, index=places[part.index]) if isinstance(part, Column) else part

    return transform(expression, change)


def can_be_substituted(expressions: Sequence[RowExpression], into: Sequence[RowExpression]) -> bool:
    """Whether `expressions` can be substituted for the columns that `into` uses. Each nondeterministic expression must
    be used at most once, or it would have two values. The result must not grow much: otherwise it would double with
    every level of a query that uses a column twice."""
    uses = Counter(part.index for whole in into for part in walk(whole) if isinstance(part, Column))
    if not all(uses[index] <= 1 or is_deterministic(each) for index, each in enumerate(expressions)):
        return False
    sizes = [sum(1 for _ in walk(each)) for each in expressions]
    grown = sum(sizes[index] * count for index, count in uses.items())
    return grown <= sum(sizes) + GROWTH_MAX


def is_plain(expression: RowExpression) -> bool:
    """Whether an expression costs nothing: a column, a field of a column, or a constant."""
    while isinstance(expression, Call) and expression.function == "FIELD":
        expression = expression.arguments[0]
    return isinstance(expression, Column | Literal)


def only_uses(expression: RowExpression, columns: Container[int]) -> bool:
    """Whether an expression uses no other columns."""
    return all(column in columns for column in columns_of(expression))


def distinguishes_equal_keys(expression: RowExpression) -> bool:
    """Whether an expression may differ for equal keys: 0.0 and -0.0 are equal, but their strings and quotients differ.
    A group stores one such key, and not the keys of the individual rows.

    >>> from millstream.expressions.types import BooleanType, DoubleType, VarCharType
    >>> x, zero = Column(DoubleType(), 0), Literal(DoubleType(), 0.0)
    >>> text = Call(VarCharType(9), "CAST", (x,))
    >>> [distinguishes_equal_keys(Call(BooleanType(), "=", pair)) for pair in ((x, zero), (text, text))]
    [False, True]
    """
    arguments = getattr(expression, "arguments", ())
    if isinstance(expression, Call) and expression.function in _COMPARISONS:
        arguments = [each for each in arguments if not isinstance(each, Column)]
    if isinstance(expression, Column):
        return holds_floats(expression.type.arrow)
    return any(distinguishes_equal_keys(each) for each in arguments)
