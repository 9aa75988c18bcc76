"""How passes go through a plan: every relation once, however many use it, so that what is shared stays shared."""

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
    "is_deterministic",
    "is_plain",
    "moved",
    "only_uses",
    "relations_of",
    "rewritten",
    "rewritten_by_uses",
    "rewritten_knowing",
    "substituted",
    "tells_keys_apart",
]

GROWTH_MAX = 100
"""By how many parts an expression may grow when it computes itself what a projection below it computed."""


_COMPARISONS = frozenset(
    {"=", "<>", "<", "<=", ">", ">=", "IN", "IS NULL", "IS NOT NULL", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"}
)

IsShared = Callable[[Relation], bool]
"""Whether several use a relation."""


def rewritten(sinks: Sequence[Sink], rule: Callable[[Relation], Relation]) -> tuple[Sink, ...]:
    """The plan with every relation changed by a rule, inputs first."""
    return rewritten_by_uses(sinks, lambda relation, is_shared: rule(relation))


def rewritten_by_uses(sinks: Sequence[Sink], rule: Callable[[Relation, IsShared], Relation]) -> tuple[Sink, ...]:
    """The same, by a rule that may ask which of the new relations below it several use."""
    used = consumers(sinks)
    shared: set[int] = set()

    def noting(old: Relation, new: Relation) -> Relation:
        result = rule(new, lambda each: id(each) in shared)
        if used[id(old)] > 1:
            shared.add(id(result))
        return result

    return rewritten_knowing(sinks, noting)


def rewritten_knowing(sinks: Sequence[Sink], rule: Callable[[Relation, Relation], Relation]) -> tuple[Sink, ...]:
    """The same, by a rule that gets the relation as it was, and as it is over its new inputs."""
    done: dict[int, tuple[Relation, Relation]] = {}

    def change(relation: Relation) -> Relation:
        held = done.get(id(relation))
        if held is not None:
            return held[1]
        inputs = relation.inputs
        changed = [change(each) for each in inputs]
        same = all(new is old for new, old in zip(changed, inputs, strict=True))
        result = rule(relation, relation if same else relation.with_inputs(*changed))
        # The old relation is kept beside the new one: ids are only unique among objects that live.
        done[id(relation)] = (relation, result)
        return result

    results = tuple(change(sink) for sink in sinks)
    assert all(isinstance(result, Sink) for result in results)
    return results  # type: ignore[return-value]


def relations_of(sinks: Sequence[Relation]) -> Iterator[Relation]:
    """Every relation of a plan once, inputs before what uses them."""
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
    """How many relations use each one, by its id."""
    return Counter(id(each) for relation in relations_of(sinks) for each in relation.inputs)


# --- expressions ------------------------------------------------------------------------------------------------------


def conjuncts(condition: RowExpression) -> list[RowExpression]:
    """The parts of a condition that all must be true."""
    if isinstance(condition, Call) and condition.function == "AND":
        return [part for argument in condition.arguments for part in conjuncts(argument)]
    return [condition]


def conjunction(parts: Sequence[RowExpression]) -> RowExpression | None:
    """All parts as one condition; None where there is none."""
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    # Halves, not a chain: whoever goes through it goes by its depth.
    middle = len(parts) // 2
    left, right = conjunction(parts[:middle]), conjunction(parts[middle:])
    assert left is not None and right is not None
    nullable = left.type.is_nullable or right.type.is_nullable
    return Call(right.type.with_nullability(nullable), "AND", (left, right))


def is_deterministic(expression: RowExpression) -> bool:
    """Whether it has the same value for the same row, always."""
    for part in walk(expression):
        if isinstance(part, Call):
            definition = definition_of(part.function)
            if definition is not None and not definition.deterministic:
                return False
        elif isinstance(part, UserCall) and not getattr(part.function, "is_deterministic", True):
            return False
    return True


def substituted(expression: RowExpression, expressions: Sequence[RowExpression]) -> RowExpression:
    """The expression with every column replaced by what computes it."""
    return transform(expression, lambda part: expressions[part.index] if isinstance(part, Column) else part)


def moved(expression: RowExpression, places: dict[int, int]) -> RowExpression:
    """The expression with its columns at other places."""

    def change(part: RowExpression) -> RowExpression:
        return replace(part, index=places[part.index]) if isinstance(part, Column) else part

    return transform(expression, change)


def can_be_substituted(expressions: Sequence[RowExpression], into: Sequence[RowExpression]) -> bool:
    """Whether `into`, over columns that `expressions` compute, may compute them itself: each that is not deterministic
    is used at most once, or it would have two values; and the whole does not grow much, or it would double with every
    level of a query that uses a column twice."""
    uses = Counter(part.index for whole in into for part in walk(whole) if isinstance(part, Column))
    if not all(uses[index] <= 1 or is_deterministic(each) for index, each in enumerate(expressions)):
        return False
    sizes = [sum(1 for _ in walk(each)) for each in expressions]
    grown = sum(sizes[index] * count for index, count in uses.items())
    return grown <= sum(sizes) + GROWTH_MAX


def is_plain(expression: RowExpression) -> bool:
    """Whether it costs nothing: a column, a field of one, or a constant."""
    while isinstance(expression, Call) and expression.function == "FIELD":
        expression = expression.arguments[0]
    return isinstance(expression, Column | Literal)


def only_uses(expression: RowExpression, columns: Container[int]) -> bool:
    """Whether it looks at no other columns."""
    return all(column in columns for column in columns_of(expression))


def tells_keys_apart(expression: RowExpression) -> bool:
    """Whether it may differ for values that are one key: 0.0 and -0.0 are equal, and their texts and quotients are not.
    Such a condition is of the key that a group has, not of the keys that its rows came with.

    >>> from millstream.expressions.types import BooleanType, DoubleType, VarCharType
    >>> x, zero = Column(DoubleType(), 0), Literal(DoubleType(), 0.0)
    >>> text = Call(VarCharType(9), "CAST", (x,))
    >>> [tells_keys_apart(Call(BooleanType(), "=", pair)) for pair in ((x, zero), (text, text))]
    [False, True]
    """
    arguments = getattr(expression, "arguments", ())
    if isinstance(expression, Call) and expression.function in _COMPARISONS:
        arguments = [each for each in arguments if not isinstance(each, Column)]
    if isinstance(expression, Column):
        return holds_floats(expression.type.arrow)
    return any(tells_keys_apart(each) for each in arguments)
