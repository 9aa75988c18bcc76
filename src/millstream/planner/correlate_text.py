"""Table functions and UNNEST in plan output, with Flink's names and their join condition."""

from __future__ import annotations

from millstream.planner.expression_text import Notation, expression_text
from millstream.planner.relations import Correlate, Unnest

__all__ = ["correlate_text", "logical_correlate_text"]


def logical_correlate_text(relation: Correlate | Unnest) -> str:
    """The relation in the abstract syntax tree."""
    notation = Notation.LOGICAL
    if isinstance(relation, Unnest):
        text = expression_text(relation.collection, relation.input.schema.names, notation)
        return f"LogicalCorrelate(unnest=[{text}]{_joined_on(relation, notation)})"
    return f"LogicalCorrelate(invocation=[{_invocation(relation, notation)}]{_joined_on(relation, notation)})"


def correlate_text(relation: Correlate | Unnest, notation: Notation) -> str:
    """The relation in the physical plan."""
    if isinstance(relation, Unnest):
        text = expression_text(relation.collection, relation.input.schema.names, notation)
        function = "$UNNEST_ROWS_WITH_ORDINALITY$1" if relation.with_ordinality else "$UNNEST_ROWS$1"
        call = f"{function}({text})"
    else:
        call = _invocation(relation, notation)
    kind, names = relation.kind.value, ", ".join(relation.schema.names)
    on = _joined_on(relation, notation)
    return f"Correlate(invocation=[{call}], select=[{names}], joinType=[{kind}]{on})"


def _invocation(relation: Correlate, notation: Notation) -> str:
    names = relation.input.schema.names
    arguments = ", ".join(expression_text(each, names, notation) for each in relation.arguments)
    return f"{getattr(relation.function, 'name', 'function')}({arguments})"


def _joined_on(relation: Correlate | Unnest, notation: Notation) -> str:
    """The join condition, if any."""
    if relation.condition is None:
        return ""
    return f", condition=[{expression_text(relation.condition, relation.schema.names, notation)}]"
