"""Three-valued logic: AND, OR, NOT, IS TRUE and similar operators."""

from __future__ import annotations

from millstream.expressions.functions.signatures import BOOLEAN, repeated, scalar
from millstream.expressions.types import BooleanType

__all__: list[str] = []

FAMILY = "logic"


def _define() -> None:
    result = BooleanType()
    chain = [BOOLEAN, repeated(BOOLEAN)]
    both = "TRUE if all are TRUE; FALSE if one is FALSE, even if others are unknown."
    scalar("condition AND condition", chain, result, both, FAMILY, name="AND", is_lazy=True, may_fail=False)
    one = "TRUE if one is TRUE, even if others are unknown; FALSE if all are FALSE."
    scalar("condition OR condition", chain, result, one, FAMILY, name="OR", is_lazy=True, may_fail=False)
    scalar(
        "NOT condition", [BOOLEAN], result, "TRUE for FALSE; unknown stays unknown.", FAMILY, name="NOT", may_fail=False
    )
    for value in ("TRUE", "FALSE", "UNKNOWN"):
        for name, doc in (
            (f"IS {value}", f"Whether it is {value}; never unknown."),
            (f"IS NOT {value}", f"Whether it is not {value}; never unknown."),
        ):
            scalar(f"condition {name}", [BOOLEAN], result, doc, FAMILY, name=name, nulls="never", may_fail=False)


_define()
