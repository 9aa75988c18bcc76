"""The null rule of most functions: NULL if any argument is NULL."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["null_of_null"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def null_of_null(function: _Function) -> _Function:
    """Decorates a reference to return NULL if one of its arguments is NULL."""

    @functools.wraps(function)
    def strict(context: Any, *values: Any) -> Any:
        return None if None in values else function(context, *values)

    return strict  # type: ignore[return-value]
