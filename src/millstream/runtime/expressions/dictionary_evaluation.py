"""Evaluates functions once for each distinct value of a column instead of once per row.

If a column is dictionary-encoded, every deterministic function of that column alone runs on its dictionary. If it is
not, an expensive function (a pattern, a date format) encodes it, provided that a sample shows enough repetition. The
result stays encoded for subsequent functions.

Batches of one row group share a dictionary. Results for it are cached for the next batch, and reused if it has the same
values and constants.

The dictionary may contain values that no row uses, so a function that fails on it is run again over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.runtime.expressions.frames import Frame
from millstream.runtime.expressions.kernel import Value
from millstream.runtime.expressions.numbers import boolean_column, booleans

__all__ = ["cache_result", "cached_result", "dictionary_of", "distinct_values", "expand"]

_ROWS_MIN = 1024
_SAMPLE_ROWS = 2048
_SAMPLE_PLACES = np.random.default_rng(17).random(_SAMPLE_ROWS)
_REPEATS_MIN = 2.0
"""Required rows per distinct value: encoding costs about as much as a cheap function."""


def dictionary_of(frame: Frame, slot: int, *, is_expensive: bool) -> pa.DictionaryArray | None:
    """The slot's values as a dictionary array, if they are encoded, or if encoding pays off for an expensive
    function."""
    value = frame.value(slot)
    if isinstance(value, pa.DictionaryArray):
        return value
    if not is_expensive or isinstance(value, pa.Scalar) or len(value) < _ROWS_MIN or not _is_encodable(value.type):
        return None
    if slot not in frame.dictionaries:
        frame.dictionaries[slot] = value.dictionary_encode() if repeats_enough(value) else None
    return frame.dictionaries[slot]


def _is_encodable(type_: pa.DataType) -> bool:
    return bool(kinds.is_string(type_) or kinds.is_binary(type_) or kinds.is_temporal(type_))


def repeats_enough(values: pa.Array) -> bool:
    """Whether values repeat often enough, estimated from a sample.

    In a sample of s rows of d equally frequent values, about s / 2d of the rows are repetitions.
    """
    rows = len(values)
    size = min(_SAMPLE_ROWS, rows)
    # One row per interval, at irregular offsets: periodic data must not bias the sample.
    places = (np.arange(size) + _SAMPLE_PLACES[:size]) * (rows / size)
    sample = values.take(pa.array(places.astype(np.int64)))
    different = pc.count_distinct(sample, mode="all").as_py()
    repeated = 1.0 - different / size
    if repeated <= 0.0:
        return False
    distinct = different if repeated > 0.5 else size / (2.0 * repeated)
    return bool(distinct * _REPEATS_MIN <= rows)


def distinct_values(dictionary: pa.DictionaryArray) -> tuple[pa.Array, pa.Array]:
    """The values to evaluate, and the index of each row's value. If any row is NULL, the values include NULL."""
    values, codes = dictionary.dictionary, dictionary.indices
    if codes.null_count:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        codes = codes.cast(pa.int32()).fill_null(len(values) - 1)
    return values, codes


def cached_result(frame: Frame, slot: int, arguments: Sequence[Value], *, is_expensive: bool) -> pa.Array | None:
    """The result of this slot for the same arguments in the previous batch, reordered if needed; None: the arguments
    differ, or evaluating again is cheaper than matching them."""
    cached = None if frame.results is None else frame.results.get(slot)
    if cached is None:
        return None
    result: pa.Array = cached[1]
    different = [pair for pair in zip(cached[0], arguments, strict=True) if not _is_same(*pair)]
    if not different:
        return result
    if len(different) > 1 or any(isinstance(value, pa.Scalar) for value in different[0]):
        return None
    values_before, values = different[0]
    if not kinds.is_string(values.type) or len(values) > 2 * len(values_before):
        return None
    # Comparing all values is cheaper than looking them up.
    if not is_expensive and not kinds.is_string(result.type):
        return None
    # Row groups have the same values in different order: looking them up is cheaper than most functions.
    places = _places(frame, values, values_before)
    if places.null_count:
        return None
    result = result.take(places)
    if len(values) >= len(values_before):  # for the following batches of this row group
        cache_result(frame, slot, arguments, result)
    return result


_PLACES_SLOT = -1
"""Key of the most recent lookup of values, stored among the results of slots."""


def _places(frame: Frame, values: pa.Array, values_before: pa.Array) -> pa.Array:
    """The previous position of each value. Looked up once for all functions of one column."""
    assert frame.results is not None
    last = frame.results.get(_PLACES_SLOT)
    if last is None or not _is_same(last[0], values) or not _is_same(last[1], values_before):
        last = frame.results[_PLACES_SLOT] = (values, values_before, pc.index_in(values, value_set=values_before))
    places: pa.Array = last[2]
    return places


def cache_result(frame: Frame, slot: int, arguments: Sequence[Value], result: pa.Array) -> None:
    """Caches a result for the next batch."""
    if frame.results is not None:
        frame.results[slot] = (tuple(arguments), result)


def _is_same(argument: Value, other: Value) -> bool:
    if isinstance(argument, pa.Scalar) or isinstance(other, pa.Scalar):
        return isinstance(argument, pa.Scalar) and isinstance(other, pa.Scalar) and bool(argument.equals(other))
    return argument is other or bool(argument.equals(other))


def expand(results: pa.Array, codes: pa.Array) -> pa.Array:
    """Expands results per value to results per row: strings stay dictionary-encoded, fixed-width types are decoded."""
    if kinds.is_string(results.type) or kinds.is_binary(results.type):
        return pa.DictionaryArray.from_arrays(codes, results, safe=False)  # the codes are within the dictionary
    if kinds.is_boolean(results.type) and not results.null_count:
        return boolean_column(np.take(booleans(results), codes.to_numpy()))
    return results.take(codes)
