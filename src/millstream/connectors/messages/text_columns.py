"""Converts string columns to a type, a column at a time, for strings of unambiguous form.

JSON and CSV write dates, times, bytes and decimals as text. A value of a simple form is converted with its column;
any other is marked as doubtful, and its record is read individually by the converters of `files/values`. Those are
the reference: a conversion here must equal theirs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import BasicType, BasicTypeInfo, DecimalTypeInfo, TypeInformation, Types
from millstream.records.columns import arrow_type
from millstream.records.date_forms import DAY_FORM, HOUR_FORM
from millstream.records.shapes import is_byte_array, plain_type

__all__ = [
    "Finish",
    "Mask",
    "bytes_column",
    "char_column",
    "finish_of_text",
    "instant_column",
    "narrow_decimals",
    "narrow_floats",
    "narrow_whole",
    "temporal_column",
    "wide_decimal",
]

Mask = npt.NDArray[np.bool_]
Finish = Callable[[pa.Array, Mask], pa.Array]
"""Converts a column to the type; marks the values that only the slow path can convert."""

_TIME = rf"{HOUR_FORM}(?:\.[0-9]{{1,6}})?"
_DATE_FORM, _TIME_FORM = f"^{DAY_FORM}$", f"^{_TIME}Z?$"
_TIMESTAMP_FORM = f"^{DAY_FORM}[ T]{_TIME}Z?$"
_WHOLE_FORM = r"^-?[0-9]{1,18}$"
_FRACTION_FORM = r"^-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?$"
_DIGITS_MAX = 38
_WHOLE = (BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG)


def narrow_floats(array: pa.Array, doubt: Mask) -> pa.Array:
    """64-bit numbers as 32-bit ones; a number out of range is doubtful."""
    # Rounded from the 64-bit number that Python reads, not directly from the text: rarely, the two differ.
    wide = array.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = wide.astype(np.float32)
    doubt |= np.isinf(narrow)
    return pa.array(narrow, pa.float32(), mask=np.asarray(array.is_null()) if array.null_count else None)


def narrow_whole(array: pa.Array, arrow: pa.DataType, doubt: Mask) -> pa.Array:
    """64-bit whole numbers as a narrower type; a number out of range is doubtful."""
    if arrow == array.type:
        return array
    limits = np.iinfo(arrow.to_pandas_dtype())
    is_wide = pc.fill_null(pc.or_(pc.less(array, limits.min), pc.greater(array, limits.max)), False)
    doubt |= is_wide.to_numpy(zero_copy_only=False)
    return array.cast(arrow, safe=False)


def char_column(array: pa.Array, doubt: Mask) -> pa.Array:
    """Strings of one character each."""
    doubt |= np.asarray(pc.fill_null(pc.not_equal(pc.utf8_length(array), 1), False))
    return array


def _in_form(array: pa.Array, form: str, doubt: Mask) -> pa.Array:
    """The strings that match the form; the others are doubtful, and null here."""
    fits = pc.fill_null(pc.match_substring_regex(array, form), True)
    if pc.all(fits, min_count=0).as_py():
        return array
    doubt |= ~fits.to_numpy(zero_copy_only=False)
    return pc.if_else(fits, array, pa.scalar(None, pa.string()))


def _without_zone(array: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(array, characters="Z")


def _date(array: pa.Array, doubt: Mask) -> pa.Array:
    return _in_form(array, _DATE_FORM, doubt).cast(pa.date32())


def _time(array: pa.Array, doubt: Mask) -> pa.Array:
    texts = _without_zone(_in_form(array, _TIME_FORM, doubt))
    # Arrow parses a time of day only as part of a timestamp.
    moments = pc.binary_join_element_wise("1970-01-01T", texts, "").cast(pa.timestamp("us"))
    return moments.cast(pa.int64()).cast(pa.time64("us"))


def _timestamp(array: pa.Array, doubt: Mask) -> pa.Array:
    return _without_zone(_in_form(array, _TIMESTAMP_FORM, doubt)).cast(pa.timestamp("us"))


def instant_column(array: pa.Array, doubt: Mask) -> pa.Array:
    """Strings as instants."""
    moments = _timestamp(array, doubt)
    nulls = np.asarray(moments.is_null()) if moments.null_count else None
    micros = np.asarray(pc.fill_null(moments.cast(pa.int64()), 0))
    seconds, rest = np.divmod(micros, 1_000_000)
    arrow = arrow_type(Types.INSTANT())
    parts = [pa.array(seconds), pa.array((rest * 1000).astype(np.int32))]
    if nulls is not None:
        parts = [pc.if_else(pa.array(nulls), pa.scalar(None, part.type), part) for part in parts]
    return pa.StructArray.from_arrays(parts, type=arrow, mask=None if nulls is None else pa.array(nulls))


def bytes_column(array: pa.Array, doubt: Mask) -> pa.Array:
    """Strings in base 64 as bytes."""
    decoded: list[bytes | None] = []
    for at, text in enumerate(array.to_pylist()):
        try:
            decoded.append(None if text is None else base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            decoded.append(None)
            doubt[at] = True
    return pa.array(decoded, pa.binary())


def _unchanged(array: pa.Array, doubt: Mask) -> pa.Array:
    return array


def _whole(array: pa.Array, doubt: Mask) -> pa.Array:
    return _in_form(array, _WHOLE_FORM, doubt).cast(pa.int64())


def _fraction(array: pa.Array, doubt: Mask) -> pa.Array:
    return _in_form(array, _FRACTION_FORM, doubt).cast(pa.float64())


def _boolean(array: pa.Array, doubt: Mask) -> pa.Array:
    return pc.equal(_in_form(array, "^(?:true|false)$", doubt), "true")


def wide_decimal(type_info: DecimalTypeInfo) -> pa.DataType:
    """The type in which decimals are read before their precision is checked: Arrow checks the number of digits when it
    casts a column, but not when it parses text."""
    return (
        pa.decimal256(76, type_info.scale) if type_info.precision == _DIGITS_MAX else pa.decimal128(38, type_info.scale)
    )


def narrow_decimals(type_info: DecimalTypeInfo) -> Finish:
    """The cast of wide decimals to the type; decimals with too many digits are doubtful."""
    arrow = pa.decimal128(type_info.precision, type_info.scale)
    limit = pa.scalar(Decimal((0, (1,), type_info.precision - type_info.scale)), pa.decimal256(76, type_info.scale))

    def finish(array: pa.Array, doubt: Mask) -> pa.Array:
        try:
            return array.cast(arrow)
        except pa.ArrowInvalid:
            is_wide = pc.fill_null(pc.greater_equal(pc.abs(array).cast(limit.type), limit), False)
            doubt |= is_wide.to_numpy(zero_copy_only=False)
            return pc.if_else(is_wide, pa.scalar(None, array.type), array).cast(arrow)

    return finish


def _decimal(type_info: DecimalTypeInfo) -> Finish:
    before, after = type_info.precision - type_info.scale, type_info.scale
    form = f"^-?[0-9]{{1,{max(before, 1)}}}" + (rf"(?:\.[0-9]{{1,{after}}})?$" if after else "$")
    narrow = narrow_decimals(type_info)
    return lambda array, doubt: narrow(_in_form(array, form, doubt).cast(wide_decimal(type_info)), doubt)


def finish_of_text(type_info: TypeInformation) -> Finish | None:
    """The converter from a column of CSV strings to the type; None: value by value only."""
    plain = plain_type(type_info)
    if isinstance(plain, DecimalTypeInfo):
        return _decimal(plain)
    if is_byte_array(plain):
        return bytes_column
    if not isinstance(plain, BasicTypeInfo):
        return temporal_column(plain)
    basic = plain.basic_type
    if basic in _WHOLE:
        return lambda array, doubt: narrow_whole(_whole(array, doubt), arrow_type(plain), doubt)
    if basic is BasicType.FLOAT:
        return lambda array, doubt: narrow_floats(_fraction(array, doubt), doubt)
    singles: dict[BasicType, Finish] = {
        BasicType.STRING: _unchanged,
        BasicType.CHAR: char_column,
        BasicType.DOUBLE: _fraction,
        BasicType.BOOLEAN: _boolean,
        BasicType.INSTANT: instant_column,
    }
    return singles.get(basic)


def temporal_column(type_info: TypeInformation) -> Finish | None:
    """The converter from strings to dates or times."""
    columns: dict[TypeInformation, Finish] = {
        Types.SQL_DATE(): _date,
        Types.SQL_TIME(): _time,
        Types.SQL_TIMESTAMP(): _timestamp,
    }
    return columns.get(plain_type(type_info))
