"""Reads the key columns that a client sends over Flight; each is checked for validity and size before it is decoded.

A few bytes on the wire can be gigabytes once decoded: a dictionary with one long string that a million rows reference,
a run-length encoded key repeated a million times, views that all reference the same string, lists of a billion nulls.
So types whose size is not apparent are rejected, and for the others the decoded size of every row is computed before
anything is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.query.server.settings import Limits
from millstream.query.wire.refusals import BadQuestionError, TooLargeError

__all__ = ["check_key_type", "decoded_bytes", "key_columns", "too_many_keys"]

_DEPTH_MAX = 8
_VALUE_BYTES = 8  # the size of the smallest value as an object


def key_columns(reader: Any, limits: Limits) -> Iterator[pa.Array]:
    """The columns of one call, as they arrive; raises a Refusal for one that is invalid or too large."""
    rows, size = 0, 0
    while True:
        try:
            batch = reader.read_chunk().data
            if batch is None:
                continue
            if batch.num_columns != 1:
                raise BadQuestionError(f"a batch has {batch.num_columns} columns. Send one column of keys.")
            check_key_type(batch.schema.field(0).type)
            rows += batch.num_rows
            if rows > limits.flight_keys_max:
                raise too_many_keys(limits.flight_keys_max)
            # A received offset may be out of bounds.
            batch.validate(full=True)
        except StopIteration:
            return
        except pa.ArrowException as error:
            raise BadQuestionError(f"a batch is damaged: {error}. Send batches of an Arrow library.") from error
        keys = batch.column(0)
        size += max(batch.nbytes, decoded_bytes(keys))
        if size > limits.flight_call_bytes_max:
            raise TooLargeError(
                f"the keys of one call have {size} bytes once they are decoded, of {limits.flight_call_bytes_max} at "
                "most. Use several."
            )
        yield keys


def check_key_type(kind: pa.DataType, depth: int = 0) -> None:
    """Raises BadQuestionError for a type whose columns may be larger than they look.

    >>> check_key_type(pa.list_(pa.string()))
    >>> check_key_type(pa.map_(pa.string(), pa.int64()))
    Traceback (most recent call last):
    millstream.query.wire.refusals.BadQuestionError: a column of map<string, int64> is not accepted for keys. \
Send a plain column.
    >>> check_key_type(pa.run_end_encoded(pa.int32(), pa.string()))
    Traceback (most recent call last):
    millstream.query.wire.refusals.BadQuestionError: a column of run_end_encoded<run_ends: int32, values: string> is \
not accepted for keys. Send a plain column.
    """
    is_leaf = not pa.types.is_nested(kind) and not isinstance(kind, pa.BaseExtensionType)
    if pa.types.is_dictionary(kind):
        is_leaf = not pa.types.is_nested(kind.value_type) and not pa.types.is_dictionary(kind.value_type)
    if is_leaf and not pa.types.is_run_end_encoded(kind):
        return
    if depth == _DEPTH_MAX or not (_is_list(kind) or pa.types.is_struct(kind)):
        raise BadQuestionError(f"a column of {str(kind)[:100]} is not accepted for keys. Send a plain column.")
    for number in range(kind.num_fields):
        check_key_type(kind.field(number).type, depth + 1)


def decoded_bytes(column: pa.Array) -> int:
    """The minimum size of this column with every value decoded.

    >>> decoded_bytes(pa.DictionaryArray.from_arrays([0] * 1000, ["a" * 1000]))
    1008000
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = _lengths(column.dictionary)
        named = 0 if lengths is None else pc.sum(lengths.take(column.indices)).as_py() or 0
        return len(column) * max(_VALUE_BYTES, _width(kind.value_type)) + named
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        return decoded_bytes(column.values.slice(column.offset * size, len(column) * size)) + len(column) * _VALUE_BYTES
    if _is_list(kind):
        return decoded_bytes(column.flatten()) + len(column) * _VALUE_BYTES
    if pa.types.is_struct(kind):
        return sum(map(decoded_bytes, column.flatten())) + len(column) * _VALUE_BYTES
    lengths = _lengths(column)
    return len(column) * max(_VALUE_BYTES, _width(kind)) + (0 if lengths is None else pc.sum(lengths).as_py() or 0)


def _lengths(column: pa.Array) -> pa.Array | None:
    """The size in bytes of every value, where sizes differ."""
    kind = str(column.type)
    if kind in ("string_view", "binary_view"):
        # A view has sixteen bytes: four for its length, the others for its reference.
        views = np.frombuffer(column.buffers()[1] or b"", dtype=np.int32)
        lengths = views[4 * column.offset : 4 * (column.offset + len(column)) : 4]
        return pa.array(lengths.astype(np.int64), mask=column.is_null().to_numpy(zero_copy_only=False))
    if kind in ("string", "binary", "large_string", "large_binary"):
        return pc.binary_length(column).cast(pa.int64())
    return None


def _width(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0


def _is_list(kind: pa.DataType) -> bool:
    plain = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in plain)


def too_many_keys(most: int) -> TooLargeError:
    """The refusal for more keys than one call may have."""
    return TooLargeError(f"more than {most} keys are requested in one call. Use several.")
