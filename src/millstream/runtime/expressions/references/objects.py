"""References of structured objects, as tuples of field values."""

from __future__ import annotations

from typing import Any

from millstream.expressions.nested_types import RowType
from millstream.runtime.expressions.kernel import CallContext, reference

__all__: list[str] = []


@reference("OBJECT_OF")
def object_of(context: CallContext, class_name: str, *members: Any) -> tuple[Any, ...]:
    return members[1::2]


@reference("OBJECT_UPDATE")
def object_update(context: CallContext, whole: Any, *members: Any) -> tuple[Any, ...] | None:
    """OBJECT_UPDATE; NULL for NULL."""
    if whole is None:
        return None
    type_ = context.argument_types[0]
    assert isinstance(type_, RowType)
    values = list(whole.values()) if isinstance(whole, dict) else list(whole)
    for name, value in zip(members[::2], members[1::2], strict=True):
        values[type_.names.index(name)] = value
    return tuple(values)
