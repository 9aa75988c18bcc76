"""The keys of a batch, as Python values for functions or as a column for the store and the exchange.

Where the key is a field of a typed stream, its column *is* the key column and nothing runs per record. Else the
user's selector is called for every record.

Invariant: both forms name the same keys, and equal keys are one key in either.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.common.types import Row
from millstream.graph.field_key import FieldKey
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, arrow_type, as_declared
from millstream.runtime.failure import UserCall
from millstream.state.hashing import xxhash64_column
from millstream.state.keys import KeyColumn, key_column, key_column_of_arrow

__all__ = ["Keying", "settled_keys"]

_NAN = math.nan
_SAMPLE_ROWS = 1_024
# Hashing a text costs several times what finding it in a dictionary does, as long as the dictionary stays small.
_REPEATS_MIN = 4


class Keying:
    """Finds the keys of batches. `selector` is the user's, `key_type` what it was declared to give."""

    def __init__(self, selector: Any, key_type: TypeInformation | None, call: UserCall) -> None:
        self.key_type = key_type
        self._call = call
        self._key_of = call.bind(selector, "get_key", "key selector")
        self._column = selector.column if isinstance(selector, FieldKey) and _is_stored_as_is(key_type) else None

    def values(self, batch: Batch) -> list[Any]:
        """The key of every record, as functions see it."""
        return settled_keys(self._call.each(self._key_of, batch.values(), "key selector"), self.key_type)

    def column(self, batch: Batch) -> KeyColumn:
        """The key of every record, as the store knows it."""
        if self._column is not None and batch.typed:
            columns = batch.columns()
            kind = columns.schema.get_field_index(KIND_COLUMN)
            if kind < 0 or not columns.column(kind).null_count:  # a record that is None has no field
                return _column_of(columns.column(self._column))
        keys = self._call.each(self._key_of, batch.values(), "key selector")
        with self._call.running("key selector"):
            return key_column(keys, self.key_type)


def settled_keys(keys: list[Any], key_type: TypeInformation | None) -> list[Any]:
    """Keys in the one form that stands for all equal ones, so that dictionaries agree with the store."""
    if key_type is not None:
        return as_declared(keys, key_type)
    kinds = set(map(type, keys))
    if float in kinds:
        # All NaNs are one key, but no NaN equals another: let them be one object.
        keys = [_NAN if key != key else key for key in keys]
    if Row in kinds:
        keys = [tuple(key) if type(key) is Row else key for key in keys]
    return keys


def _is_stored_as_is(key_type: TypeInformation | None) -> bool:
    """Whether the store keeps keys of this type as the columns of a stream do. (Decimals, for one, it does not.)"""
    return key_type is not None and key_column([], key_type).array.type == arrow_type(key_type)


def _column_of(array: pa.Array) -> KeyColumn:
    """A key column; texts that repeat are hashed once each.

    >>> texts = pa.array(["a", "b"] * 2_000)
    >>> _column_of(texts).hashes.tolist() == xxhash64_column(texts).tolist()
    True
    """
    is_text = pa.types.is_string(array.type) or pa.types.is_binary(array.type)
    if not is_text or len(array) < _SAMPLE_ROWS or array.null_count:
        return key_column_of_arrow(array)
    sample = array.slice(0, _SAMPLE_ROWS).dictionary_encode().dictionary
    if len(sample) * _REPEATS_MIN > _SAMPLE_ROWS:
        return key_column_of_arrow(array)
    encoded = array.dictionary_encode()
    hashes = xxhash64_column(encoded.dictionary)
    return KeyColumn(hashes[encoded.indices.to_numpy()], array)
