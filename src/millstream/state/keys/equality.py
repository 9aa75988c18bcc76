"""What equality of keys means, stated once; and whether keys (or subs) are the same, many pairs at once.

The rule, for the keys of a stream, of a `MapState` and of a broadcast state alike:

- Numbers that are equal by value are one key, whatever their type: 1, True, 1.0, Decimal("1.00") and numpy's own. A
  value is exact: numpy.float32(0.1) is not 0.1.
- All NaNs are one key, whatever their bits; -0.0 is 0.0; None is None.
- Rows, tuples and lists are one key if they have as many values and these are one key each, in order; frozen
  dataclasses if they are also of one class.
- All else is one key if Python says that it is equal. Text is never equal to bytes, nor to a number.
- In a map whose keys have no declared type, a row, a named tuple, a dataclass or a member of an enumeration is a key
  of its own class, because it must come back as what it was; give such keys a type to have them compared by value.
- A declared type comes first: a key is what the type makes of it (FLOAT rounds, BOOLEAN holds no number), and keys of
  two types are not compared.

Everything that hashes, numbers, sorts, routes, stores, looks up or asks for keys follows it:

    `hashing`, `canonical`   one key has one hash: Spark's, which is blind to the bits of a NaN and the sign of a zero
    `canonical`              keys without a declared type: one key has one row of bytes
    `normalised` (here)      keys in columns: one key has one bit pattern, so that Arrow's dictionary may number them
    `same` (here)            keys that share a hash are compared by the rule; older columns need not be normalised
    `settled_keys`           keys as Python values: one key is one dictionary key, and the form that functions see

Arrow's `equal` says otherwise for null and NaN and knows no structs, hence `same`. Plain columns are compared in numpy,
texts and decimals in Arrow, structs field by field; lists, which are rare as keys, one by one in Python.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["Bools", "bits_view", "holds_floats", "normalised", "of_bits", "plain_view", "plain_view_type", "same"]

Bools: TypeAlias = NDArray[np.bool_]

_VIEWS: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


def same(left: pa.Array, right: pa.Array) -> Bools:
    """For each position, whether the two arrays (of one type and length) hold the same value.

    >>> same(pa.array([1, None, None]), pa.array([1, None, 3])).tolist()
    [True, True, False]
    >>> same(pa.array([float("nan"), 0.0]), pa.array([float("nan"), -0.0])).tolist()
    [True, True]
    """
    answer = _same_values(left, right)
    if left.null_count or right.null_count:
        left_nulls, right_nulls = np.asarray(left.is_null()), np.asarray(right.is_null())
        answer = np.where(left_nulls | right_nulls, left_nulls & right_nulls, answer)
    return answer


def _same_values(left: pa.Array, right: pa.Array) -> Bools:
    """`same` where neither is null; anything elsewhere."""
    kind = left.type
    t = pa.types
    if t.is_null(kind):
        return np.ones(len(left), dtype=np.bool_)
    if t.is_struct(kind):
        answer = np.ones(len(left), dtype=np.bool_)
        for i in range(kind.num_fields):
            answer &= same(left.field(i), right.field(i))
        return answer
    if t.is_nested(kind):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array([_same_python(a, b) for a, b in pairs], dtype=np.bool_)
    if plain_view_type(kind) is not None:
        equal: Bools = plain_view(left) == plain_view(right)
        return equal
    answer = _without_nulls(pc.equal(left, right))
    if t.is_floating(kind):
        answer |= _without_nulls(pc.is_nan(left)) & _without_nulls(pc.is_nan(right))
    return answer


def _without_nulls(answers: pa.Array) -> Bools:
    return np.asarray(answers.fill_null(False) if answers.null_count else answers)


def _same_python(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same_python, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same_python(left[name], right[name]) for name in left)
    return bool(left == right) or (left != left and right != right)


def holds_floats(kind: pa.DataType) -> bool:
    """Whether values of this type are or contain floats: only then can one key have several bit patterns."""
    if pa.types.is_struct(kind):
        return any(holds_floats(field.type) for field in kind)
    return pa.types.is_floating(kind) or (pa.types.is_list(kind) and holds_floats(kind.value_type))


def normalised(array: pa.Array) -> pa.Array:
    """The column with one bit pattern per key: every NaN the same, -0.0 as 0.0; a type without floats stays as it is.

    >>> str(normalised(pa.array([[-0.0], [1.5], None])).to_pylist())
    '[[0.0], [1.5], None]'
    """
    kind = array.type
    if not holds_floats(kind):
        return array
    if pa.types.is_floating(kind):
        array = pc.add(array, pa.scalar(0.0, kind))  # turns -0.0 into 0.0 and leaves every other number alone
        is_nan = pc.is_nan(array)
        return pc.if_else(is_nan, pa.scalar(math.nan, kind), array) if pc.any(is_nan).as_py() else array
    if pa.types.is_struct(kind):
        children = [normalised(array.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    whole = array.take(pa.array(range(len(array)), pa.int64()))  # a slice cannot be given new values
    return pa.ListArray.from_arrays(whole.offsets, normalised(whole.values), type=kind, mask=whole.is_null())


def plain_view_type(kind: pa.DataType) -> type[np.signedinteger[Any]] | None:
    """The numpy type in which values of this type can be compared bit by bit, if there is one."""
    t = pa.types
    if t.is_floating(kind) or t.is_boolean(kind) or t.is_decimal(kind) or not t.is_primitive(kind):
        return None
    return _VIEWS.get(kind.bit_width)


def bits_view(array: pa.Array) -> NDArray[np.signedinteger[Any]] | None:
    """Values of a fixed width as numpy integers of their bits, to be moved, not understood; None if some are null.

    >>> of_bits(bits_view(pa.array([0.5, -1.0]))[::-1], pa.float64()).to_pylist()
    [-1.0, 0.5]
    """
    t, kind = pa.types, array.type
    if not t.is_primitive(kind) or t.is_boolean(kind) or array.null_count:
        return None
    bits = _VIEWS.get(kind.bit_width)
    if bits is None or not len(array):
        return None
    return np.frombuffer(array.buffers()[1], bits, len(array), array.offset * (kind.bit_width // 8))


def of_bits(bits: NDArray[np.signedinteger[Any]], kind: pa.DataType) -> pa.Array:
    """The values that `bits_view` gave the bits of."""
    whole = np.ascontiguousarray(bits)
    return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(whole)])


def plain_view(array: pa.Array) -> NDArray[np.signedinteger[Any]]:
    """The values of an integer or time column as numpy, without a copy; undefined under nulls.

    >>> plain_view(pa.array([1, 2, 3])[1:]).tolist()
    [2, 3]
    """
    kind = plain_view_type(array.type)
    assert kind is not None, array.type
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * (array.type.bit_width // 8))
