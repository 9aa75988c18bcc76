"""Checks results of user-defined functions against NOT NULL and declared lengths of strings and bytes.

The planner relies on both: it removes IS NULL of a NOT NULL result. A result that violates them, also inside rows and
arrays, is therefore an error and is never stored or emitted.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, RowType
from millstream.expressions.types import BinaryType, CharType, VarBinaryType, VarCharType

__all__ = ["first_violation"]

_LENGTH_MAX = 0x7FFFFFFF
_SHOWN_MAX = 60


def first_violation(column: pa.Array, type_: DataType) -> tuple[int, str] | None:
    """The first row with a value that violates the declared type, and the message; None if all rows conform.

    >>> first_violation(pa.array(["abc", "abcd"]), VarCharType(3))
    (1, "it returned 'abcd' of length 4, but declares VARCHAR(3)")
    """
    if not _has_constraints(type_):
        return None
    if not type_.is_nullable and column.null_count:
        return int(np.asarray(column.is_null()).argmax()), f"it returned None, but declares {type_}"
    if isinstance(type_, CharType | VarCharType | BinaryType | VarBinaryType):
        return _too_long(column, type_)
    violation = None
    if isinstance(type_, ArrayType) and pa.types.is_list(column.type):
        violation = first_violation(column.flatten(), type_.element_type)
        return None if violation is None else (pc.list_parent_indices(column)[violation[0]].as_py(), violation[1])
    if isinstance(type_, RowType) and pa.types.is_struct(column.type):
        present = pc.indices_nonzero(column.is_valid())
        rows = column.take(present)
        violation = min(
            (
                each
                for at, part in enumerate(type_.types)
                if (each := first_violation(rows.field(at), part)) is not None
            ),
            default=None,
        )
        return None if violation is None else (present[violation[0]].as_py(), violation[1])
    return None


@lru_cache(maxsize=1024)
def _has_constraints(type_: DataType) -> bool:
    """Whether the type has NOT NULL or length constraints."""
    if not type_.is_nullable:
        return True
    if isinstance(type_, CharType | VarCharType | BinaryType | VarBinaryType):
        return type_.length < _LENGTH_MAX
    if isinstance(type_, ArrayType):
        return _has_constraints(type_.element_type)
    return isinstance(type_, RowType) and any(map(_has_constraints, type_.types))


def _too_long(column: pa.Array, type_: CharType | VarCharType | BinaryType | VarBinaryType) -> tuple[int, str] | None:
    if type_.length >= _LENGTH_MAX:
        return None
    lengths = pc.utf8_length(column) if pa.types.is_string(column.type) else pc.binary_length(column)
    wrong = np.asarray(pc.fill_null(pc.greater(lengths, type_.length), False))
    if not wrong.any():
        return None
    row = int(wrong.argmax())
    shown = repr(column[row].as_py())
    shown = shown if len(shown) <= _SHOWN_MAX else shown[: _SHOWN_MAX - 1] + "…"
    return row, f"it returned {shown} of length {lengths[row].as_py()}, but declares {type_}"
