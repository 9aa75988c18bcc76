"""Kernels of structured objects, which are struct arrays."""

from __future__ import annotations

import pyarrow as pa

from millstream.expressions.nested_types import RowType
from millstream.runtime.expressions.kernel import CallContext, Value, kernel
from millstream.runtime.expressions.kernels.reference_kernels import column_of

__all__: list[str] = []


@kernel("OBJECT_OF")
def object_of(context: CallContext, class_name: Value, *members: Value) -> Value:
    fields = [column_of(context, value) for value in members[1::2]]
    return _struct(context, fields, None)


@kernel("OBJECT_UPDATE")
def object_update(context: CallContext, whole: Value, *members: Value) -> Value:
    type_ = context.argument_types[0]
    assert isinstance(type_, RowType)
    objects = column_of(context, whole)
    fields = objects.flatten()
    for name, value in zip(members[::2], members[1::2], strict=True):
        place = type_.names.index(name.as_py() if isinstance(name, pa.Scalar) else name[0].as_py())
        fields[place] = column_of(context, value)
    return _struct(context, fields, objects.is_null() if objects.null_count else None)


def _struct(context: CallContext, fields: list[pa.Array], mask: pa.Array | None) -> pa.Array:
    kinds = list(context.type.arrow)
    if not kinds:
        return pa.array([{}] * context.rows, context.type.arrow)
    cast = [field.cast(kind.type) for field, kind in zip(fields, kinds, strict=True)]
    return pa.StructArray.from_arrays(cast, fields=kinds, mask=mask)
