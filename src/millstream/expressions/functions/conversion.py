"""CAST and TRY_CAST, TYPEOF.

The target type of a cast is the type of the call itself, so a cast cannot be bound from argument types alone: the
planner builds the call (`coercion.as_type`).
"""

from __future__ import annotations

from millstream.expressions.functions.registry import Arguments, Binding, SignatureError
from millstream.expressions.functions.signatures import ANY, BOOLEAN, STRING, optional, scalar
from millstream.expressions.types import BooleanType

__all__: list[str] = []

FAMILY = "conversion"


def _bind_cast(arguments: Arguments) -> Binding:
    raise SignatureError("CAST takes a value and a type: CAST(value AS type).")


def _define() -> None:
    result = BooleanType()
    cast = "The value as another type; an error if it cannot be cast."
    scalar("CAST(value AS type)", (), result, cast, FAMILY, bind=_bind_cast)
    try_cast = "The value as another type; NULL if it cannot be cast."
    scalar("TRY_CAST(value AS type)", (), result, try_cast, FAMILY, bind=_bind_cast, may_fail=False)
    typeof = "The type of a value as text, without abbreviations if the second is TRUE."
    scalar("TYPEOF(value, in_full)", [ANY, optional(BOOLEAN)], STRING, typeof, FAMILY, nulls="always", may_fail=False)


_define()
