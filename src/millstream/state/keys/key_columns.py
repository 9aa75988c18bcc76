"""Keys as a column: Python keys in, hashes, key groups and partitions out.

A key selector returns one Python value per record. `key_column` turns a batch of them into hashes, without
a loop over the keys where they are of one kind, so that an exchange can route a whole batch and a state
lookup can find a whole batch.

- With a declared key type, keys become an Arrow column of that type and hash as Spark hashes that column:
  the JVM, given the same column, agrees. So an INT 1 and a LONG 1 hash differently, as they do in Spark, and
  a key type, like `max_parallelism`, must not change while a job keeps state.
- Without one, `canonical` decides which values are one key and how each hashes; an int hashes as a LONG, a
  text as a STRING. A declared type that holds decimals of any size or pickled values is treated so too,
  after its values were checked: 1.0 and 1.00 are equal but are written differently.

*Key groups* are the fixed number of buckets that state is kept in, whatever the parallelism:

    key_group = hash mod max_parallelism            partition = key_group * parallelism // max_parallelism

A key's group never changes while the job lives, so `max_parallelism` is fixed by its first epoch. A partition owns a
contiguous range of groups: at a new parallelism it reads other ranges of the same segments, and nothing is rewritten.

Invariants: one key, by the rule of `equality`, has one hash and one value in the column, in every batch and every
process, whatever stands next to it. Keys that cannot be found again (lists, dicts, objects without value equality)
are refused. The ranges of all partitions cover every group exactly once.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from millstream.errors import ConfigurationError
from millstream.records.columns import KIND_COLUMN, arrow_type, as_declared, stream_schema, to_record_batch
from millstream.records.shapes import is_sequence, plain_type
from millstream.state.keys.canonical import canonical_bytes
from millstream.state.keys.canonical_columns import hash_canonical
from millstream.state.keys.equality import normalised
from millstream.state.keys.hashing import Int64s, xxhash64_column

__all__ = [
    "MAX_PARALLELISM_MAX",
    "Int32s",
    "KeyColumn",
    "check_parallelism",
    "is_hashed_as_values",
    "is_stored_as_is",
    "key_column",
    "key_column_of_arrow",
    "key_group_range",
    "key_groups",
    "partitions",
]

Int32s: TypeAlias = NDArray[np.int32]

MAX_PARALLELISM_MAX = 32_768
"""Flink's own limit: more groups than this make every checkpoint pay for their bookkeeping."""


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Refuses what cannot be divided: 1 <= parallelism <= max_parallelism <= 32768 must hold.

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

    `hashes` is Spark's `xxhash64` of each key. `array` is the keys as Arrow: of the declared type, or, for
    keys without one, the bytes of `canonical_bytes`, so that its type depends on the program and never on
    the batch. It is made when it is first needed: routing records needs the hashes only.

    >>> keys = key_column(["a", "b", "a"], None)
    >>> keys.groups(128).tolist(), keys.partitions(8, 128).tolist()
    ([76, 83, 76], [4, 5, 4])
    """

    __slots__ = ("_array", "_keys", "hashes")

    def __init__(self, hashes: Int64s, array: pa.Array | None, keys: list[Any] | None = None) -> None:
        assert array is not None or keys is not None
        self.hashes = hashes
        self._array = array
        self._keys = keys

    @property
    def array(self) -> pa.Array:
        """The keys as an Arrow column in which equal keys are equal values."""
        if self._array is None:
            assert self._keys is not None
            self._array = pa.array(map(canonical_bytes, self._keys), pa.binary(), size=len(self._keys))
        return self._array

    def take(self, rows: Int64s) -> KeyColumn:
        """The keys of these rows."""
        return KeyColumn(self.hashes[rows], self.array.take(pa.array(rows)))

    def groups(self, max_parallelism: int) -> Int32s:
        """The key group of every key: hash mod max_parallelism."""
        return key_groups(self.hashes, max_parallelism)

    def partitions(self, parallelism: int, max_parallelism: int) -> Int32s:
        """The partition of every key: key group * parallelism // max_parallelism."""
        return partitions(self.groups(max_parallelism), parallelism, max_parallelism)

    def __len__(self) -> int:
        return len(self.hashes)


def key_column(keys: list[Any], key_type: TypeInformation | None) -> KeyColumn:
    """The keys of a batch, of the declared type or (None) as their canonical form.

    >>> from millstream.common.typeinfo import Types
    >>> key_column([1, True, 1.0], None).hashes.tolist() == [key_column([1], Types.LONG()).hashes[0]] * 3
    True
    >>> key_column([{"user": 1}], None)
    Traceback (most recent call last):
    millstream.errors.ProgramError: key {'user': 1} is a dict, which can change and has no fixed order: state \
kept for it could not be found again. Use tuple(sorted(key.items())) as the key.
    """
    schema = None if key_type is None else stream_schema(key_type)
    if key_type is None or schema is None:
        return KeyColumn(hash_canonical(keys), None, keys)
    if is_hashed_as_values(key_type):
        return key_column(as_declared(keys, key_type), None)
    batch = to_record_batch(keys, key_type)
    if isinstance(plain_type(key_type), RowTypeInfo | TupleTypeInfo):
        return key_column_of_arrow(_struct_of(batch, list(schema)))
    return key_column_of_arrow(batch.column(0))


def is_stored_as_is(type_info: TypeInformation) -> bool:
    """Whether keys of this type are hashed and stored as the columns of a stream hold them. (Decimals are not.)"""
    arrow = arrow_type(type_info)
    return arrow is not None and key_column([], type_info).array.type == arrow


def key_column_of_arrow(array: pa.Array) -> KeyColumn:
    """Keys that already are an Arrow column of their declared type, a field of a typed stream for instance.

    >>> key_column_of_arrow(pa.array([1])).hashes.tolist()
    [-7001672635703045582]
    """
    return KeyColumn(xxhash64_column(array), normalised(array))


def _struct_of(batch: pa.RecordBatch, fields: list[pa.Field]) -> pa.Array:
    """The columns of a row or tuple type as one. A change kind is not part of the key, but its null is a None."""
    nulls = batch.column(KIND_COLUMN).is_null() if KIND_COLUMN in batch.schema.names else None
    if not fields:
        return pa.array([{}] * batch.num_rows, pa.struct([]))
    return pa.StructArray.from_arrays(batch.columns[: len(fields)], fields=fields, mask=nulls)


def is_hashed_as_values(type_info: TypeInformation) -> bool:
    """Whether equal values of this type may be written differently in Arrow, so that only values tell."""
    plain = plain_type(type_info)
    if isinstance(plain, BasicTypeInfo):
        return plain.basic_type is BasicType.BIG_DEC
    if isinstance(plain, RowTypeInfo | TupleTypeInfo):
        return any(map(is_hashed_as_values, plain.get_field_types()))
    if is_sequence(plain):
        return is_hashed_as_values(plain.element_type)
    return arrow_type(plain) is None  # pickled, inside a row
