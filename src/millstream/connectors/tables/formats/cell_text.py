"""Values of SQL types as text, column by column: the text of a CSV field, and quoted values in JSON.

Flink's strings: `true`, `1.0E7`, `2020-01-01 00:00:00.123` (no fraction where it is zero), the same with `Z` for
TIMESTAMP_LTZ, which is in UTC, bytes in base 64. With the style `ISO-8601` a `T` separates date and time.

`read_cells` returns the column and a mask of invalid strings; digits beyond the type are truncated (times) or
rounded half up (decimals), as in Flink. A number out of range is invalid. `cell_value` and
`cell_text` do the same for one value: they define the result.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from collections.abc import Callable
from decimal import Context, Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import Types
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nanosecond_range import FIRST, LAST, is_within_range
from millstream.records.bounded_numbers import bounded_decimal
from millstream.records.date_forms import DAY_FORM, HOUR_FORM
from millstream.records.table_values import UnfitValue, conformed
from millstream.records.text import texts as java_texts

__all__ = [
    "ISO",
    "SQL",
    "Mask",
    "cell_text",
    "cell_value",
    "decimal_text",
    "decimal_texts",
    "has_text",
    "read_cells",
    "written_cells",
]

SQL, ISO = "SQL", "ISO-8601"
Mask = npt.NDArray[np.bool_]

_WHOLE = (types.TinyIntType, types.SmallIntType, types.IntType, types.BigIntType)
_FRACTION = (types.FloatType, types.DoubleType)
_TEXT = (types.CharType, types.VarCharType)
_BYTES = (types.BinaryType, types.VarBinaryType)
_MOMENT = (types.TimestampType, types.LocalZonedTimestampType)
_EXACT = Context(prec=76)
_KNOWN = (types.BooleanType, types.DecimalType, types.DateType, types.TimeType)

_TIME_FORM = rf"{HOUR_FORM}(?:\.[0-9]{{0,9}})?"
_WHOLE_FORM = r"^[+-]?[0-9]{1,30}$"
_PLAINLY_WHOLE = {
    8: "[0-9]{1,2}|1[01][0-9]",
    16: "[0-9]{1,4}|[12][0-9]{4}",
    32: "[0-9]{1,9}|1[0-9]{9}|20[0-9]{8}",
    64: "[0-9]{1,18}|[1-8][0-9]{18}",
}
"""Regular expressions by width: they match most numbers of that width, and no larger one."""
_FRACTION_FORM = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_ODD_FRACTIONS = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_EPOCH = dt.datetime(1970, 1, 1)


def has_text(data_type: DataType) -> bool:
    """Whether a value of the type has a single text."""
    return isinstance(data_type, (*_WHOLE, *_FRACTION, *_TEXT, *_BYTES, *_MOMENT, *_KNOWN))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_cells(texts: pa.Array, data_type: DataType, style: str = SQL) -> tuple[pa.Array, Mask | None]:
    """The values of strings, NULL for NULL, and a mask of the invalid strings (None: all are valid).

    >>> column, bad = read_cells(pa.array(["12", None, "x"]), types.IntType())
    >>> column.to_pylist(), bad.tolist()
    ([12, None, None], [False, False, True])
    """
    if isinstance(data_type, _TEXT):
        return texts, None
    if isinstance(data_type, _BYTES):
        return _one_by_one(texts, data_type, style)
    trimmed = pc.utf8_trim_whitespace(texts) if isinstance(data_type, (*_WHOLE, *_FRACTION)) else texts
    is_plain = pc.fill_null(pc.match_substring_regex(trimmed, _form(data_type, style)), True)
    if pc.all(is_plain, min_count=0).as_py():
        column = _columns(trimmed, data_type)
        return _one_by_one(texts, data_type, style) if column is None else (column, None)
    column = _columns(pc.if_else(is_plain, trimmed, pa.scalar(None, texts.type)), data_type)
    if column is None:
        return _one_by_one(texts, data_type, style)
    others = pc.invert(is_plain)
    values, bad_values = _one_by_one(texts.filter(others), data_type, style)
    column = pc.replace_with_mask(column, others, values)
    if bad_values is None:
        return column, None
    bad: Mask = others.to_numpy(zero_copy_only=False).copy()
    bad[bad] = bad_values
    return column, bad


def _one_by_one(texts: pa.Array, data_type: DataType, style: str) -> tuple[pa.Array, Mask | None]:
    bad = np.zeros(len(texts), np.bool_)
    values: list[Any] = []
    for at, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else cell_value(text, data_type, style))
        except ValueError:
            values.append(None)
            bad[at] = True
    return pa.array(values, data_type.arrow), bad if bad.any() else None


def _form(data_type: DataType, style: str) -> str:
    """Regular expression of strings that are certainly valid for the type; not for text and bytes."""
    if isinstance(data_type, _WHOLE):
        return f"^[+-]?(?:{_PLAINLY_WHOLE[data_type.arrow.bit_width]})$"
    if isinstance(data_type, _FRACTION):
        return _FRACTION_FORM
    if isinstance(data_type, types.BooleanType):
        return "^(?:true|false)$"
    if isinstance(data_type, types.DecimalType):
        whole, scale = data_type.precision - data_type.scale, data_type.scale
        return f"^-?[0-9]{{1,{max(whole, 1)}}}" + (rf"(?:\.[0-9]{{1,{scale}}})?$" if scale else "$")
    if isinstance(data_type, types.DateType):
        return f"^{DAY_FORM}$"
    return f"^{_TIME_FORM}$" if isinstance(data_type, types.TimeType) else _moment_form(data_type, style)


def _columns(texts: pa.Array, data_type: DataType) -> pa.Array | None:
    """The column of strings that match the type's form; None where one is too large for it."""
    try:
        if isinstance(data_type, (*_WHOLE, *_FRACTION)):
            return pc.utf8_ltrim(texts, "+").cast(data_type.arrow)
        if isinstance(data_type, types.BooleanType):
            return pc.equal(texts, "true")
        if isinstance(data_type, types.DecimalType):
            # Arrow checks a number's precision when it casts a column, not when it parses text.
            return texts.cast(pa.decimal256(76, data_type.scale)).cast(data_type.arrow)
        if isinstance(data_type, types.DateType):
            return texts.cast(pa.date32())
        return _times(texts, data_type) if isinstance(data_type, types.TimeType) else _moments(texts, data_type)
    except (pa.ArrowInvalid, OverflowError):  # such as a time beyond 2262 in nanoseconds: the slow path finds it
        return None


def _moment_form(data_type: DataType, style: str) -> str:
    between = " " if style == SQL else "T"
    zone = "Z" if isinstance(data_type, types.LocalZonedTimestampType) else ""
    return f"^{DAY_FORM}{between}{_TIME_FORM}{zone}$"


def _moments(texts: pa.Array, data_type: DataType) -> pa.Array:
    unit = data_type.arrow.unit
    seconds = pc.utf8_slice_codeunits(texts, 0, 19).cast(pa.timestamp("s")).cast(pa.int64())
    ticks = _with_fractions(seconds, texts, 20, unit, data_type.precision)  # type: ignore[attr-defined]
    return ticks.cast(data_type.arrow)


def _times(texts: pa.Array, data_type: types.TimeType) -> pa.Array:
    moments = pc.binary_join_element_wise("1970-01-01 ", pc.utf8_slice_codeunits(texts, 0, 8), "")
    seconds = moments.cast(pa.timestamp("s")).cast(pa.int64())
    ticks = _with_fractions(seconds, texts, 9, "ms", 3)
    return ticks.cast(pa.int32()).cast(data_type.arrow)


def _with_fractions(seconds: pa.Array, texts: pa.Array, at: int, unit: str, precision: int) -> pa.Array:
    """Ticks of the unit, from whole seconds and the fraction digits in the strings from position `at`."""
    digits = _DIGITS[unit]
    if not digits:
        return seconds
    ticks = pc.multiply_checked(seconds, 10**digits)
    fractions = pc.utf8_rtrim(pc.utf8_slice_codeunits(texts, at, at + min(precision, digits)), "Z")
    padded = pc.utf8_rpad(fractions, digits, "0")
    return pc.add_checked(ticks, padded.cast(pa.int64()))


def cell_value(text: str, data_type: DataType, style: str = SQL) -> Any:
    """The value of a string, in the form `pa.array` accepts: times are ticks. Raises ValueError."""
    try:
        return _cell_value(text, data_type, style)
    except (ValueError, ArithmeticError, UnfitValue, binascii.Error) as error:
        expected = f", expected {error}" if isinstance(error, UnfitValue) else ""
        raise ValueError(f"{text[:100]!r} is not a valid {data_type.nullable()}{expected}") from error


def _cell_value(text: str, data_type: DataType, style: str) -> Any:
    if isinstance(data_type, _TEXT):
        text.encode()  # a lone surrogate, which JSON can contain, is not text
        return text
    if isinstance(data_type, _WHOLE):
        trimmed = text.strip()
        if re.fullmatch(_WHOLE_FORM[1:-1], trimmed) is None:
            raise ValueError(text)
        value, bits = int(trimmed), data_type.arrow.bit_width
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(text)
        return value
    if isinstance(data_type, _FRACTION):
        return _fraction(text.strip(), data_type)
    if isinstance(data_type, types.BooleanType):
        return (
            {"true": True, "false": False}[text.strip().lower()] if text.strip().lower() in _BOOLEANS else _reject(text)
        )
    if isinstance(data_type, types.DecimalType):
        return conformed(bounded_decimal(text, data_type.scale), data_type)
    if isinstance(data_type, types.DateType):
        return dt.date.fromisoformat(text) if re.fullmatch(DAY_FORM, text) else _reject(text)
    if isinstance(data_type, types.TimeType):
        if re.fullmatch(_TIME_FORM, text) is None:
            raise ValueError(text)
        moment = dt.datetime.fromisoformat(f"1970-01-01 {text[:8]}")
        return (moment - _EPOCH) // dt.timedelta(milliseconds=1) + int(text[9:12].ljust(3, "0"))
    if isinstance(data_type, _MOMENT):
        if re.fullmatch(_moment_form(data_type, style)[1:-1], text) is None:
            raise ValueError(text)
        return _ticks(text.removesuffix("Z"), data_type)
    if isinstance(data_type, _BYTES):
        return base64.b64decode(text, validate=True)
    raise AssertionError(data_type)


_BOOLEANS = ("true", "false")


def _reject(text: str) -> Any:
    raise ValueError(text)


def _fraction(text: str, data_type: DataType) -> float:
    if text in _ODD_FRACTIONS:
        return float(_ODD_FRACTIONS[text])
    if re.fullmatch(_FRACTION_FORM[1:-1], text) is None:
        raise ValueError(text)
    if isinstance(data_type, types.DoubleType):
        return float(text)
    # Arrow rounds a string once, to the target width.
    return pa.scalar(text.removeprefix("+")).cast(data_type.arrow).as_py()  # type: ignore[no-any-return]


def _ticks(text: str, data_type: DataType) -> int:
    digits, precision = _DIGITS[data_type.arrow.unit], data_type.precision  # type: ignore[attr-defined]
    moment = dt.datetime.fromisoformat(text[:19].replace("T", " "))
    fraction = text[20 : 20 + min(precision, digits)].ljust(digits, "0")
    ticks: int = (moment - _EPOCH) // dt.timedelta(seconds=1) * 10**digits + int(fraction or 0)
    if not is_within_range(ticks):
        raise UnfitValue(f"a time from {FIRST} to {LAST} (UTC)")
    return ticks


# --- writing ----------------------------------------------------------------------------------------------------------

Write = Callable[[pa.Array], pa.Array]


def written_cells(column: pa.Array, data_type: DataType, style: str = SQL, plain_decimals: bool = False) -> pa.Array:
    """The strings of a column; NULL for NULL.

    >>> import datetime
    >>> moments = pa.array([datetime.datetime(2020, 1, 1, 7), None], pa.timestamp("ms"))
    >>> written_cells(moments, types.TimestampType(3)).to_pylist()
    ['2020-01-01 07:00:00', None]
    """
    if isinstance(data_type, _TEXT):
        return column
    if isinstance(data_type, _FRACTION):
        written = java_texts(column.to_pylist(), Types.FLOAT() if pa.types.is_float32(column.type) else Types.DOUBLE())
        return pa.array(written, pa.string(), mask=np.asarray(column.is_null()))
    if isinstance(data_type, _BYTES):
        encoded = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
        return pa.array(encoded, pa.string())
    if isinstance(data_type, types.DecimalType):
        if plain_decimals:
            return pa.array([None if value is None else f"{value:f}" for value in column.to_pylist()], pa.string())
        return decimal_texts(column)
    if isinstance(data_type, _MOMENT):
        return _moment_texts(column, style)
    if isinstance(data_type, types.TimeType):
        return _trimmed(column.cast(pa.string()), column, 1_000)
    return column.cast(pa.string())


def decimal_texts(column: pa.Array) -> pa.Array:
    """Decimals as Flink writes them into CSV and JSON, each by `decimal_text`: no trailing zeros, 1E+2 for a hundred.

    >>> import decimal
    >>> decimal_texts(pa.array([decimal.Decimal("1.500"), decimal.Decimal("100.000")])).to_pylist()
    ['1.5', '1E+2']
    """
    written = column.cast(pa.string())
    if column.type.scale > 0:
        written = pc.utf8_rtrim(pc.utf8_rtrim(written, "0"), ".")
    ends_in_zero = pc.and_(pc.ends_with(written, "0"), pc.not_equal(written, "0"))
    is_odd = pc.fill_null(pc.or_(ends_in_zero, pc.match_substring(written, "E")), False)
    if not pc.any(is_odd).as_py():
        return written
    texts = [decimal_text(value) for value in column.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(written, is_odd, pa.array(texts, pa.string()))


def decimal_text(value: Decimal) -> str:
    """One decimal as Flink writes it."""
    return str(_EXACT.normalize(value))


def _moment_texts(column: pa.Array, style: str) -> pa.Array:
    unit, zone = column.type.unit, column.type.tz
    local = column.cast(pa.timestamp(unit)) if zone else column
    written = _trimmed(local.cast(pa.string()), local, 10 ** _DIGITS[unit])
    if style == ISO:
        written = pc.replace_substring(written, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(written, "Z", "") if zone else written


def _trimmed(written: pa.Array, column: pa.Array, per_second: int) -> pa.Array:
    """The strings without trailing zeros, and without a zero fraction."""
    if per_second == 1:
        return written
    ticks = column.cast(pa.int32() if pa.types.is_time32(column.type) else pa.int64()).cast(pa.int64())
    present = np.asarray(pc.fill_null(ticks, 0))
    fraction = present % per_second
    if not fraction.any():
        return pc.utf8_slice_codeunits(written, 0, -len(str(per_second)))
    if (fraction % 10).all() and not column.null_count:
        return written
    return pc.utf8_rtrim(pc.utf8_rtrim(written, "0") if fraction.all() else _without_trailing_zeros(written), ".")


_without_trailing_zeros = partial(pc.replace_substring_regex, pattern=r"\.0*$|(\.[0-9]*?[1-9])0+$", replacement=r"\1")


def cell_text(value: Any, data_type: DataType, style: str = SQL) -> str:
    """The text of a value: `written_cells` of one."""
    written = written_cells(pa.array([value], data_type.arrow), data_type, style)
    return str(written[0].as_py())
