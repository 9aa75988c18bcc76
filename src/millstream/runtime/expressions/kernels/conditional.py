"""The kernel of NULLIF. CASE, IF, COALESCE and IFNULL are steps of the program (`selection`), not kernels."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.expressions.functions.comparison import compared_type
from millstream.expressions.nanosecond_range import uncast_times
from millstream.runtime.expressions.column_casts import cast_column
from millstream.runtime.expressions.kernel import CallContext, Value, kernel
from millstream.runtime.expressions.kernels.comparison import same_value
from millstream.runtime.expressions.mixed_precisions import compare_times

__all__: list[str] = []


@kernel("NULLIF")
def null_if(context: CallContext, value: Value, other: Value) -> Value:
    """The value, or NULL if both are equal."""
    if kinds.is_nested(value.type):
        columns = [
            [each.as_py()] * context.rows if isinstance(each, pa.Scalar) else each.to_pylist()
            for each in (value, other)
        ]
        pairs = zip(*columns, strict=True)
        return pa.array(
            [None if a is not None and b is not None and same_value(a, b) else a for a, b in pairs], value.type
        )
    common = compared_type("NULLIF", context.argument_types, "NULLIF(value, other)")
    types = uncast_times(context.argument_types, common) or [common, common]
    sides = [
        cast_column(pa.repeat(each, context.rows) if isinstance(each, pa.Scalar) else each, from_, to, context.session)
        for each, from_, to in zip((value, other), context.argument_types, types, strict=True)
    ]
    is_mixed = sides[0].type != sides[1].type
    equal = pc.fill_null(compare_times("=", *sides) if is_mixed else pc.equal(*sides), False)
    return pc.if_else(equal, pa.scalar(None, value.type), value)
