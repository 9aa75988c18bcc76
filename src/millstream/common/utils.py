"""PyFlink's module for its wrapper of Java objects, which does not exist here: using it raises an error.

PyFlink's constructors take Java objects (`j_...`). Those parameters remain, so that signatures are the same, but only
None may be passed, which `refuse_java` checks. This module also checks whether a program's function accepts the
arguments it will receive.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from millstream.errors import NotAvailableError

__all__ = ["JavaObjectWrapper"]


def refuse_java(java_object: Any, what: str, instead: str) -> None:
    """Raises if a Java object was passed.

    >>> refuse_java(None, "Encoder(j_encoder)", "use Encoder.simple_string_encoder()")
    """
    if java_object is not None:
        raise NotAvailableError(
            f"{what} got {java_object!r}, expected None: Millstream runs no Flink JVM and wraps no Java objects. "
            f"Instead, {instead}."
        )


def arguments_misfit(call: Any, expected: Sequence[str]) -> str | None:
    """Why a callable cannot be called with these arguments; None if it can, or if that is unknown.

    >>> arguments_misfit(lambda value: value, ["value", "ctx"])
    'takes (value), expected 2 arguments: (value, ctx)'
    """
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # some built-in callables have no signature
        return None
    try:
        signature.bind(*expected)
    except TypeError:
        count = {0: "no argument", 1: "one argument"}.get(len(expected), f"{len(expected)} arguments")
        return f"takes {signature}, expected {count}: ({', '.join(expected)})"
    return None


class JavaObjectWrapper:
    """PyFlink's base class of wrappers of Java objects; here it wraps none."""

    def __init__(self, j_object: Any = None) -> None:
        refuse_java(j_object, f"{type(self).__name__}(j_object)", "use the Python classes of millstream")

    def get_java_object(self) -> Any:
        """Not available: no Java object exists."""
        raise NotAvailableError(f"{type(self).__name__} has no Java object behind it. Use the Python object itself.")
