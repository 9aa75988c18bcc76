"""Kernels of NOT, IS TRUE and similar operators. AND and OR are steps of the program (`selection`), not kernels."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.expressions.kernel import CallContext, Value, kernel

__all__: list[str] = []


@kernel("NOT")
def invert(context: CallContext, value: Value) -> Value:
    """NOT; unknown stays unknown."""
    return pc.invert(value)


@kernel("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN")
def is_truth(context: CallContext, value: Value) -> Value:
    """The test for a truth value; never unknown."""
    words = context.call.function.split()
    if words[-1] == "UNKNOWN":
        result = pc.is_null(value)
    else:
        result = pc.fill_null(pc.equal(value, pa.scalar(words[-1] == "TRUE")), False)
    return pc.invert(result) if "NOT" in words else result
