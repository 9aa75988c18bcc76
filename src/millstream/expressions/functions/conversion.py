"""CAST and TRY_CAST, TYPEOF.

The type that is cast to is the type of the call itself, so binding a cast by types alone is refused: the planner makes
the call (`coercion.as_type`).
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
    cast = "The value as another type; raises if it cannot be."
    scalar("CAST(value AS type)", (), result, cast, FAMILY, bind=_bind_cast)
    attempt = "The value as another type; NULL if it cannot be."
    scalar("TRY_CAST(value AS type)", (), result, attempt, FAMILY, bind=_bind_cast, may_fail=False)
    typeof = "The type of a value as text, in full if the second is TRUE."
    scalar("TYPEOF(value, in_full)", [ANY, optional(BOOLEAN)], STRING, typeof, FAMILY, nulls="always", may_fail=False)


_define()
