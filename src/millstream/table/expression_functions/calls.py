"""Creates expressions that call a built-in function."""

from __future__ import annotations

from typing import Any

from millstream.table.expression import Expression
from millstream.table.expression_methods.syntax_holder import call_node

__all__ = ["made_call"]


def made_call(name: str, *arguments: Any, **options: Any) -> Expression[Any]:
    """A call of a built-in function; trailing None arguments are omitted."""
    return Expression(call_node(name, arguments, **options))
