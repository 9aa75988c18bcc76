"""Functions run once for each distinct value of a column, not once for each row.

Where a column comes as a dictionary, any deterministic function of it alone is. Where it does not, a dear function (a
pattern, a date format) makes one, if a sample says that values repeat often enough. The result stays a dictionary for
the functions that follow.

Batches of one row group of a file have one dictionary. What a function gave for it is kept for the next batch, and
taken if that has the same values and constants.

The dictionary may hold values that no row has, so a function that fails on it is run again over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.runtime.expressions.frames import Frame
from millstream.runtime.expressions.kernel import Value
from millstream.runtime.expressions.numbers import truth_column, truths

__all__ = ["dictionary_of", "entries", "known_result", "remember_result", "spread"]

_ROWS_MIN = 1024
_SAMPLE_ROWS = 2048
_SAMPLE_PLACES = np.random.default_rng(17).random(_SAMPLE_ROWS)
_REPEATS_MIN = 2.0
"""How many rows there must be for a distinct value: making the dictionary costs about as much as a cheap function."""


def dictionary_of(frame: Frame, slot: int, *, is_dear: bool) -> pa.DictionaryArray | None:
    """The slot's values as a dictionary, if they are one, or if making one pays for a dear function."""
    value = frame.value(slot)
    if isinstance(value, pa.DictionaryArray):
        return value
    if not is_dear or isinstance(value, pa.Scalar) or len(value) < _ROWS_MIN or not _is_encodable(value.type):
        return None
    if slot not in frame.dictionaries:
        frame.dictionaries[slot] = value.dictionary_encode() if pays(value) else None
    return frame.dictionaries[slot]


def _is_encodable(type_: pa.DataType) -> bool:
    return bool(kinds.is_string(type_) or kinds.is_binary(type_) or kinds.is_temporal(type_))


def pays(values: pa.Array) -> bool:
    """Whether values repeat, as far as a sample can say.

    In a sample of s rows of d values that are as frequent as each other, a share of about s / 2d is there already.
    """
    rows = len(values)
    size = min(_SAMPLE_ROWS, rows)
    # One row of every stretch, at a place that does not repeat: data that comes in turns must not fool it.
    places = (np.arange(size) + _SAMPLE_PLACES[:size]) * (rows / size)
    sample = values.take(pa.array(places.astype(np.int64)))
    different = pc.count_distinct(sample, mode="all").as_py()
    repeated = 1.0 - different / size
    if repeated <= 0.0:
        return False
    distinct = different if repeated > 0.5 else size / (2.0 * repeated)
    return bool(distinct * _REPEATS_MIN <= rows)


def entries(dictionary: pa.DictionaryArray) -> tuple[pa.Array, pa.Array]:
    """The values to run over, and for each row which one it is. Where rows are NULL, NULL is one of the values."""
    values, codes = dictionary.dictionary, dictionary.indices
    if codes.null_count:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        codes = codes.cast(pa.int32()).fill_null(len(values) - 1)
    return values, codes


def known_result(frame: Frame, slot: int, arguments: Sequence[Value], *, is_dear: bool) -> pa.Array | None:
    """What the function of this slot gave for just these arguments in a batch before, whatever their order; None: it
    had others, or running it again costs less than to find them."""
    known = None if frame.results is None else frame.results.get(slot)
    if known is None:
        return None
    result: pa.Array = known[1]
    different = [pair for pair in zip(known[0], arguments, strict=True) if not _is_same(*pair)]
    if not different:
        return result
    if len(different) > 1 or any(isinstance(value, pa.Scalar) for value in different[0]):
        return None
    values_before, values = different[0]
    if not kinds.is_string(values.type) or len(values) > 2 * len(values_before):
        return None
    # A comparison of all values is done sooner than they are found.
    if not is_dear and not kinds.is_string(result.type):
        return None
    # Row groups have the same values in another order: to find them costs less than most functions.
    places = _places(frame, values, values_before)
    if places.null_count:
        return None
    result = result.take(places)
    if len(values) >= len(values_before):  # for the batches of this row group that follow
        remember_result(frame, slot, arguments, result)
    return result


_PLACES_SLOT = -1
"""Where what was found last is kept, beside the results of slots."""


def _places(frame: Frame, values: pa.Array, values_before: pa.Array) -> pa.Array:
    """Where each of the values stood. Found once for all functions of one column."""
    assert frame.results is not None
    last = frame.results.get(_PLACES_SLOT)
    if last is None or not _is_same(last[0], values) or not _is_same(last[1], values_before):
        last = frame.results[_PLACES_SLOT] = (values, values_before, pc.index_in(values, value_set=values_before))
    places: pa.Array = last[2]
    return places


def remember_result(frame: Frame, slot: int, arguments: Sequence[Value], result: pa.Array) -> None:
    """For the next batch."""
    if frame.results is not None:
        frame.results[slot] = (tuple(arguments), result)


def _is_same(argument: Value, other: Value) -> bool:
    if isinstance(argument, pa.Scalar) or isinstance(other, pa.Scalar):
        return isinstance(argument, pa.Scalar) and isinstance(other, pa.Scalar) and bool(argument.equals(other))
    return argument is other or bool(argument.equals(other))


def spread(results: pa.Array, codes: pa.Array) -> pa.Array:
    """Results for values as results for rows: text as a dictionary again, what has a fixed width spelt out."""
    if kinds.is_string(results.type) or kinds.is_binary(results.type):
        return pa.DictionaryArray.from_arrays(codes, results, safe=False)  # codes of as many values as there are
    if kinds.is_boolean(results.type) and not results.null_count:
        return truth_column(np.take(truths(results), codes.to_numpy()))
    return results.take(codes)
