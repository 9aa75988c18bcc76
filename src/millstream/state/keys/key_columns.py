"""Equality of keys, and keys as columns: hashes, key groups, partitions and comparisons of many keys.

The rule of equality applies to the keys of a stream, of a `MapState` and of a broadcast state alike:

- Numbers that are equal by value are one key, whatever their type: 1, True, 1.0, Decimal("1.00") and numpy types. A
  value is exact: numpy.float32(0.1) is not 0.1.
- All NaNs are one key, whatever their bits; -0.0 is 0.0; None is None.
- Rows, tuples and lists are one key if they have equally many values, pairwise one key, in order; frozen
  dataclasses if they are also instances of one class.
- In columns of SQL, maps and multisets are one key if they have the same entries, in any order.
- All other values are one key if Python considers them equal. Strings never equal bytes or numbers.
- In a map whose keys have no declared type, a row, a named tuple, a dataclass or a member of an enumeration is a key
  of its own class, because it must be returned unchanged; give such keys a type to have them compared by value.
- A declared type takes precedence: a key is converted to the type (FLOAT rounds, BOOLEAN holds no number), and keys of
  two types are not compared. It becomes an Arrow column of that type and hashes as Spark hashes that column: the JVM
  computes the same hash. So an INT 1 and a LONG 1 hash differently, and a key type, like `max_parallelism`, must
  not change while a job has state.
- Without one, an int hashes as a LONG, a string as a STRING (`canonical`). The same applies to a declared type with
  decimals of any size or pickled values, after its values were checked: 1.0 and 1.00 have different encodings.

All code that hashes, numbers, sorts, routes, stores, looks up or queries keys follows this rule:

    `hashing`, `canonical`   one key has one hash: Spark's, which ignores the bits of a NaN and the sign of a zero
    `canonical`              keys without a declared type: one key has one row of bytes
    `normalised` (here)      keys in columns: one key has one bit pattern, so that Arrow's dictionary may number them
    `same` (here)            keys that share a hash are compared by the rule; older columns need not be normalised
    `settled_keys`           keys as Python values: one key is one dictionary key, and the form that functions see

*Key groups* are the fixed buckets of state, independent of the parallelism:

    key_group = hash mod max_parallelism            partition = key_group * parallelism // max_parallelism

A key's group never changes while the job lives, so `max_parallelism` is fixed by its first epoch. A partition owns a
contiguous range of groups: at a new parallelism it reads other ranges of the same segments, and nothing is rewritten.

Invariants: one key has one hash and one value in the column, in every batch and every process, independent of the other
keys. Keys that could not be looked up again (lists, dicts, objects without value equality) are rejected. The ranges of
all partitions cover every group exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from millstream.errors import ConfigurationError, ProgramError
from millstream.records.columns import KIND_COLUMN, arrow_type, as_declared, stream_schema, to_record_batch
from millstream.records.shapes import is_sequence, plain_type
from millstream.records.table_type import TableRowType, TableValueType
from millstream.state.keys.canonical import canonical_bytes
from millstream.state.keys.canonical_columns import hash_canonical
from millstream.state.keys.hashing import Int64s, xxhash64_column
from millstream.state.keys.nested_columns import (
    holds_floats,
    holds_maps,
    same_lists,
    unsliced,
    with_ordered_entries,
)

__all__ = [
    "MAX_PARALLELISM_MAX",
    "Bools",
    "Int32s",
    "KeyColumn",
    "bits_view",
    "check_parallelism",
    "holds_declared_maps",
    "holds_floats",
    "is_hashed_as_values",
    "is_stored_as_is",
    "key_column",
    "key_column_of_arrow",
    "key_group_range",
    "key_groups",
    "normalised",
    "of_bits",
    "partitions",
    "plain_view",
    "plain_view_type",
    "same",
]

Bools: TypeAlias = NDArray[np.bool_]

_VIEWS: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


def same(left: pa.Array, right: pa.Array) -> Bools:
    """For each position, whether the two arrays (of the same type and length) have the same value.

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
    """`same` where neither is null; undefined elsewhere."""
    kind = left.type
    t = pa.types
    if t.is_null(kind):
        return np.ones(len(left), dtype=np.bool_)
    if t.is_struct(kind):
        answer = np.ones(len(left), dtype=np.bool_)
        for i in range(kind.num_fields):
            answer &= same(left.field(i), right.field(i))
        return answer
    if t.is_list(kind) or t.is_map(kind):
        if holds_maps(kind):
            left, right = normalised(left), normalised(right)
        return same_lists(left, right, same)
    if plain_view_type(kind) is not None:
        equal: Bools = plain_view(left) == plain_view(right)
        return equal
    answer = _without_nulls(pc.equal(left, right))
    if t.is_floating(kind):
        answer |= _without_nulls(pc.is_nan(left)) & _without_nulls(pc.is_nan(right))
    return answer


def _without_nulls(answers: pa.Array) -> Bools:
    return np.asarray(answers.fill_null(False) if answers.null_count else answers)


def normalised(array: pa.Array) -> pa.Array:
    """The column with one bit pattern per key: every NaN the same, -0.0 as 0.0, the entries of maps in one order; a
    type without floats and maps is returned unchanged.

    >>> str(normalised(pa.array([[-0.0], [1.5], None])).to_pylist())
    '[[0.0], [1.5], None]'
    """
    kind = array.type
    if not holds_floats(kind) and not holds_maps(kind):
        return array
    if pa.types.is_floating(kind):
        array = pc.add(array, pa.scalar(0.0, kind))  # turns -0.0 into 0.0 and keeps every other number
        is_nan = pc.is_nan(array)
        return pc.if_else(is_nan, pa.scalar(math.nan, kind), array) if pc.any(is_nan).as_py() else array
    if pa.types.is_struct(kind):
        children = [normalised(array.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    whole = unsliced(array)
    if pa.types.is_map(kind):
        parts = normalised(whole.keys), normalised(whole.items)
        mask = whole.is_null() if whole.null_count else None
        return with_ordered_entries(pa.MapArray.from_arrays(whole.offsets, *parts, type=kind, mask=mask))
    return pa.ListArray.from_arrays(whole.offsets, normalised(whole.values), type=kind, mask=whole.is_null())


def plain_view_type(kind: pa.DataType) -> type[np.signedinteger[Any]] | None:
    """The numpy type in which values of this type can be compared bit by bit, if there is one."""
    t = pa.types
    if t.is_floating(kind) or t.is_boolean(kind) or t.is_decimal(kind) or not t.is_primitive(kind):
        return None
    return _VIEWS.get(kind.bit_width)


def bits_view(array: pa.Array) -> NDArray[np.signedinteger[Any]] | None:
    """Fixed-width values as numpy integers of the same bits, for copying without interpretation; None if any are null.

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
    """The inverse of `bits_view`."""
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


Int32s: TypeAlias = NDArray[np.int32]

MAX_PARALLELISM_MAX = 32_768
"""Flink's own limit: more groups make the bookkeeping of every checkpoint expensive."""


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Rejects values unless 1 <= parallelism <= max_parallelism <= 32768.

    >>> check_parallelism(256, 128)
    Traceback (most recent call last):
    millstream.errors.ConfigurationError: parallelism is 256, above the maximum parallelism 128. Lower it, \
or set pipeline.max-parallelism before the job's first epoch.
    """
    if not 1 <= max_parallelism <= MAX_PARALLELISM_MAX:
        raise ConfigurationError(
            f"the maximum parallelism is {max_parallelism}, expected 1 to {MAX_PARALLELISM_MAX}. "
            "Set pipeline.max-parallelism within these."
        )
    if parallelism < 1:
        raise ConfigurationError(f"parallelism is {parallelism}, expected 1 or more. Set parallelism.default.")
    if parallelism > max_parallelism:
        raise ConfigurationError(
            f"parallelism is {parallelism}, above the maximum parallelism {max_parallelism}. Lower it, "
            "or set pipeline.max-parallelism before the job's first epoch."
        )


def key_groups(hashes: Int64s, max_parallelism: int) -> Int32s:
    """The group of every hash, as Spark's `pmod(hash, max_parallelism)`.

    >>> key_groups(np.array([-1, 0, 129]), 128).tolist()
    [127, 0, 1]
    """
    check_parallelism(1, max_parallelism)
    if max_parallelism & (max_parallelism - 1) == 0:  # the usual case: the lowest bits, for either sign
        return (hashes & (max_parallelism - 1)).astype(np.int32)
    return np.mod(hashes, max_parallelism).astype(np.int32)


def partitions(groups: Int32s, parallelism: int, max_parallelism: int) -> Int32s:
    """The partition that owns each group.

    >>> partitions(np.array([0, 42, 43, 127], dtype=np.int32), 3, 128).tolist()
    [0, 0, 1, 2]
    """
    check_parallelism(parallelism, max_parallelism)
    # 32768 * 32768 fits 31 bits, so 32-bit arithmetic is enough.
    return groups * np.int32(parallelism) // np.int32(max_parallelism)


def key_group_range(partition: int, parallelism: int, max_parallelism: int) -> range:
    """The groups that `partition` owns: exactly those that `partitions` sends to it.

    >>> [key_group_range(p, 3, 128) for p in range(3)]
    [range(0, 43), range(43, 86), range(86, 128)]
    """
    check_parallelism(parallelism, max_parallelism)
    start, stop = (-(-edge * max_parallelism // parallelism) for edge in (partition, partition + 1))
    return range(start, stop)


class KeyColumn:
    """The keys of a batch of records, in the records' order.

    `hashes` is Spark's `xxhash64` of each key. `array` is the keys as Arrow: of the declared type, or, for keys without
    one, the bytes of `canonical_bytes`, so that its type depends on the program and never on the batch. Each is
    computed on first use: routing records needs only the hashes, and after pre-aggregation only for the remaining rows.

    >>> keys = key_column(["a", "b", "a"], None)
    >>> keys.groups(128).tolist(), keys.partitions(8, 128).tolist()
    ([76, 83, 76], [4, 5, 4])
    """

    __slots__ = ("_array", "_hashes", "_keys")

    def __init__(self, hashes: Int64s | None, array: pa.Array | None, keys: list[Any] | None = None) -> None:
        assert array is not None or (hashes is not None and keys is not None)
        self._hashes = hashes
        self._array = array
        self._keys = keys

    @property
    def hashes(self) -> Int64s:
        """The hash of every key."""
        if self._hashes is None:
            self._hashes = xxhash64_column(self._array)
        return self._hashes

    @property
    def array(self) -> pa.Array:
        """The keys as an Arrow column in which equal keys are equal values."""
        if self._array is None:
            assert self._keys is not None
            self._array = pa.array(map(canonical_bytes, self._keys), pa.binary(), size=len(self._keys))
        return self._array

    def take(self, rows: Int64s) -> KeyColumn:
        """The keys of these rows."""
        hashes = None if self._hashes is None else self._hashes[rows]
        return KeyColumn(hashes, self.array.take(pa.array(rows)))

    @classmethod
    def concat(cls, columns: Sequence[KeyColumn]) -> KeyColumn:
        """All keys, one column after another."""
        hashes = [column._hashes for column in columns if column._hashes is not None]
        array = pa.concat_arrays([column.array for column in columns])
        return cls(np.concatenate(hashes) if len(hashes) == len(columns) else None, array)

    def groups(self, max_parallelism: int) -> Int32s:
        """The key group of every key: hash mod max_parallelism."""
        return key_groups(self.hashes, max_parallelism)

    def partitions(self, parallelism: int, max_parallelism: int) -> Int32s:
        """The partition of every key: key group * parallelism // max_parallelism."""
        return partitions(self.groups(max_parallelism), parallelism, max_parallelism)

    def __len__(self) -> int:
        return len(self.hashes) if self._array is None else len(self._array)


def key_column(keys: list[Any], key_type: TypeInformation | None) -> KeyColumn:
    """The keys of a batch, as a column of the declared type or (None) in canonical form.

    >>> from millstream.common.typeinfo import Types
    >>> key_column([1, True, 1.0], None).hashes.tolist() == [key_column([1], Types.LONG()).hashes[0]] * 3
    True
    >>> key_column([{"user": 1}], None)
    Traceback (most recent call last):
    millstream.errors.ProgramError: key {'user': 1} is a dict, which can change and has no fixed order: its state \
could not be looked up again. Use tuple(sorted(key.items())) as the key.
    """
    schema = None if key_type is None else stream_schema(key_type)
    if key_type is None or schema is None:
        return KeyColumn(hash_canonical(keys), None, keys)
    if is_hashed_as_values(key_type):
        return key_column(as_declared(keys, key_type), None)
    if keys and holds_declared_maps(key_type):
        raise ProgramError(
            f"a key of Arrow type {arrow_type(key_type)} is a dict, or contains one, so its state cannot be looked up. "
            "Use tuple(sorted(key.items())) as the key"
        )
    batch = to_record_batch(keys, key_type)
    if isinstance(plain_type(key_type), RowTypeInfo | TupleTypeInfo):
        return key_column_of_arrow(_struct_of(batch, list(schema)))
    return key_column_of_arrow(batch.column(0))


def holds_declared_maps(key_type: TypeInformation) -> bool:
    """Whether keys of this type are or contain maps of a program, which are not hashable. SQL maps are columns."""
    kind = arrow_type(key_type)
    return kind is not None and holds_maps(kind) and not isinstance(key_type, TableRowType | TableValueType)


def is_stored_as_is(type_info: TypeInformation) -> bool:
    """Whether keys of this type are hashed and stored in the form of stream columns. (Decimals are not.)"""
    arrow = arrow_type(type_info)
    return arrow is not None and key_column([], type_info).array.type == arrow


def key_column_of_arrow(array: pa.Array) -> KeyColumn:
    """Keys that are already an Arrow column of their declared type, such as a field of a typed stream.

    >>> key_column_of_arrow(pa.array([1])).hashes.tolist()
    [-7001672635703045582]
    """
    keys = normalised(array)
    # The hash ignores the bits of floats, but not the order of a map's entries.
    return KeyColumn(xxhash64_column(keys if holds_maps(array.type) else array), keys)


def _struct_of(batch: pa.RecordBatch, fields: list[pa.Field]) -> pa.Array:
    """The columns of a row or tuple type as one struct. A change kind is not part of the key, but a null kind marks a
    None record."""
    nulls = batch.column(KIND_COLUMN).is_null() if KIND_COLUMN in batch.schema.names else None
    if not fields:
        return pa.array([{}] * batch.num_rows, pa.struct([]))
    return pa.StructArray.from_arrays(batch.columns[: len(fields)], fields=fields, mask=nulls)


def is_hashed_as_values(type_info: TypeInformation) -> bool:
    """Whether equal values of this type may have different Arrow encodings, so that values must be hashed."""
    plain = plain_type(type_info)
    if isinstance(plain, BasicTypeInfo):
        return plain.basic_type is BasicType.BIG_DEC
    if isinstance(plain, RowTypeInfo | TupleTypeInfo):
        return any(map(is_hashed_as_values, plain.get_field_types()))
    if is_sequence(plain):
        return is_hashed_as_values(plain.element_type)
    return arrow_type(plain) is None  # pickled, inside a row
