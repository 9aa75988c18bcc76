"""Rewrites Table API syntax that SQL lacks: fields by position, all fields at once, and `+` of strings.

`get(0)` selects a field by position, and `flatten` expands all fields; SQL names them. Both depend on the operand's
type, so the operand is bound here to determine it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from millstream.errors import MillstreamError
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import LENGTH_MAX, VarCharType, is_text
from millstream.graph.site import refuse
from millstream.planner.binder import Scope, bind_expression
from millstream.planner.relations import Relation
from millstream.planner.session import PlannerSession
from millstream.sql.syntax import As, Call, Cast, FieldAccess, Name
from millstream.table.expression_methods.written import written

__all__ = ["plain_items"]

_STRING = VarCharType(LENGTH_MAX)
_WHOLE = ("span", "options", "target", "query")
"""Attributes without replaceable parts; a query is bound over rows of its own."""


def plain_items(items: Sequence[Any], relation: Relation, session: PlannerSession) -> list[Any]:
    """The items in SQL syntax; a flattened row becomes several."""
    made: list[Any] = []
    for item in items:
        inner = item.operand if isinstance(item, As) else item
        if isinstance(inner, FieldAccess) and inner.name == "*":
            made += _flattened(
                replace(inner, operand=_named(inner.operand, relation, session)), item, relation, session
            )
        else:
            made.append(_named(item, relation, session))
    return made


def _flattened(node: FieldAccess, item: Any, relation: Relation, session: PlannerSession) -> list[Any]:
    names = _row_type(node.operand, relation, session).names
    prefix = node.operand.parts[-1] if isinstance(node.operand, Name) else "_c0"
    aliases = item.names if isinstance(item, As) else tuple(f"{prefix}${name}" for name in names)
    if len(aliases) != len(names):
        raise refuse(f"flatten: found {len(aliases)} names for {len(names)} fields: {', '.join(names)}")
    return [As(replace(node, name=name), (alias,)) for name, alias in zip(names, aliases, strict=True)]


def _named(node: Any, relation: Relation, session: PlannerSession) -> Any:
    """Replaces field positions by names, innermost first."""
    if isinstance(node, tuple):
        return tuple(_named(part, relation, session) for part in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    changed = {}
    for field in fields(node):
        value = getattr(node, field.name)
        if field.name not in _WHOLE and (is_dataclass(value) or isinstance(value, tuple)):
            new = _named(value, relation, session)
            if new != value:
                changed[field.name] = new
    if changed:
        node = replace(node, **changed)
    if isinstance(node, Call) and node.name == "+" and len(node.arguments) == 2 and node.span is None:
        return _joined_texts(node, relation, session)
    if isinstance(node, FieldAccess) and node.name.startswith("#"):
        place, names = int(node.name[1:]), _row_type(node.operand, relation, session).names
        if not 0 <= place < len(names):
            raise refuse(f"get: found field {place}, expected 0 to {len(names) - 1}: {', '.join(names)}")
        return replace(node, name=names[place])
    return node


def _joined_texts(node: Call, relation: Relation, session: PlannerSession) -> Call:
    """Replaces `+` of a string and any value by their concatenation."""
    try:
        types = [bind_expression(each, Scope.of(relation), session).type for each in node.arguments]
    except MillstreamError:
        return node  # an aggregate, or a mistake: binding the whole expression decides
    if not any(map(is_text, types)):
        return node
    pairs = zip(node.arguments, types, strict=True)
    return Call("CONCAT", tuple(each if is_text(type_) else Cast(each, _STRING) for each, type_ in pairs))


def _row_type(operand: Any, relation: Relation, session: PlannerSession) -> RowType:
    bound = bind_expression(operand, Scope.of(relation), session)
    if not isinstance(bound.type, RowType):
        raise refuse(f"{written(operand)} has no fields: it is {bound.type}, not a ROW")
    return bound.type
