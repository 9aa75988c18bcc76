"""Kernels of CAST, TRY_CAST and TYPEOF, based on `column_casts`."""

from __future__ import annotations

import pyarrow as pa

from millstream.runtime.expressions.column_casts import cast_column, try_cast_column
from millstream.runtime.expressions.kernel import CallContext, Value, kernel

__all__: list[str] = []


def _whole(value: Value, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


@kernel("CAST")
def cast(context: CallContext, value: Value) -> Value:
    """Raises for the first row that cannot be cast."""
    return cast_column(_whole(value, context.rows), context.argument_types[0], context.type, context.session)


@kernel("TRY_CAST")
def try_cast(context: CallContext, value: Value) -> Value:
    """Rows that cannot be cast become NULL."""
    return try_cast_column(_whole(value, context.rows), context.argument_types[0], context.type, context.session)


@kernel("TYPEOF")
def type_of(context: CallContext, value: Value, in_full: Value | None = None) -> Value:
    """The argument's type as a string."""
    is_full = in_full is not None and in_full[0].as_py() is True if isinstance(in_full, pa.Array) else False
    return pa.scalar(type_text(context, is_full))


def type_text(context: CallContext, is_full: bool) -> str:
    """The type as SQL, optionally without abbreviations."""
    text = str(context.argument_types[0])
    if is_full:
        text = text.replace("STRING", "VARCHAR(2147483647)").replace("BYTES", "VARBINARY(2147483647)")
    return text
