"""The string form of one value: the slow reference for `text`.

A number has the fewest digits, but at least two, that are read back as the same number; of several candidates the
closest is chosen. This is Java's rule, implemented here by trial.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    ExternalTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.records.shapes import is_byte_array, is_sequence

__all__ = ["text"]


def text(value: Any, type_info: TypeInformation) -> str:
    """The string form of a value of this type.

    >>> text([1.5, None], Types.LIST(Types.FLOAT()))
    '[1.5, null]'
    """
    if isinstance(type_info, ExternalTypeInfo):
        return text(value, type_info.type_info)
    if type_info == Types.PICKLED_BYTE_ARRAY():
        return str(value)
    return _cell(value, type_info)


def _cell(value: Any, type_info: TypeInformation) -> str:
    if value is None:
        return "null"
    if isinstance(type_info, ExternalTypeInfo):
        return _cell(value, type_info.type_info)
    if isinstance(type_info, TupleTypeInfo):
        return "(" + ",".join(map(_cell, value, type_info.get_field_types())) + ")"
    if isinstance(type_info, RowTypeInfo):
        kind = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}[value.get_row_kind().name]
        return f"{kind}[{', '.join(map(_cell, value, type_info.get_field_types()))}]"
    if is_byte_array(type_info):
        return "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in value) + "]"
    if is_sequence(type_info):
        return "[" + ", ".join(_cell(item, type_info.element_type) for item in value) + "]"
    if isinstance(type_info, MapTypeInfo):
        key_type, item_type = type_info.key_type, type_info.value_type
        entries = (f"{_cell(key, key_type)}={_cell(item, item_type)}" for key, item in value.items())
        return "{" + ", ".join(entries) + "}"
    return _single(value, type_info)


def _single(value: Any, type_info: TypeInformation) -> str:
    basic = type_info.basic_type if isinstance(type_info, BasicTypeInfo) else None
    if basic is BasicType.BOOLEAN:
        return str(value).lower()
    if basic is BasicType.DOUBLE:
        return _number(value, float)
    if basic is BasicType.FLOAT:
        return _number(value, np.float32)
    if basic is BasicType.BIG_DEC:
        return "0" + str(value)[2:] if str(value).startswith("-0") and value == 0 else str(value)
    if basic is BasicType.INSTANT:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=value.seconds)
        return moment.isoformat() + _part_of_second(value.nanos) + "Z"
    if type_info == Types.SQL_TIME():
        return str(value.replace(microsecond=0))
    if type_info == Types.SQL_TIMESTAMP():
        part = f"{value.microsecond:06}".rstrip("0") or "0"
        return f"{value.replace(microsecond=0)}.{part}"
    if isinstance(type_info, LocalTimeTypeInfo) and isinstance(value, (dt.time, dt.datetime)):
        has_seconds = value.second or value.microsecond
        shown = value.replace(microsecond=0).isoformat(timespec="auto" if has_seconds else "minutes")
        return shown + _part_of_second(value.microsecond * 1000)
    return str(value)


def _part_of_second(nanos: int) -> str:
    """Empty, or a decimal point and 3, 6 or 9 digits, as few as possible."""
    for width in (0, 3, 6, 9):
        if nanos % 10 ** (9 - width) == 0:
            return f".{nanos // 10 ** (9 - width):0{width}}" if width else ""
    raise AssertionError(nanos)


def _number(value: float, rounded: Callable[[float], Any]) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return str(value).replace("inf", "Infinity")
    sign = "-" if str(value).startswith("-") else ""
    if value == 0:
        return f"{sign}0.0"
    digits, exponent = _fewest_digits(abs(value), rounded)
    if -3 <= exponent < 7:
        whole = digits.ljust(exponent + 2, "0") if exponent >= 0 else "0" * -exponent + digits
        point = max(exponent, 0) + 1
        return f"{sign}{whole[:point]}.{whole[point:].rstrip('0') or '0'}"
    return f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{exponent}"


def _fewest_digits(value: float, rounded: Callable[[float], Any]) -> tuple[str, int]:
    """The digits, and the power of ten of the first digit."""
    exact = Decimal(value)
    for count in range(2, 18):
        nearest = Context(prec=count).create_decimal(exact)
        step = Decimal(1).scaleb(nearest.adjusted() - count + 1)
        near = [candidate for candidate in (nearest - step, nearest, nearest + step) if candidate > 0]
        same = [candidate for candidate in near if float(rounded(float(candidate))) == value]
        if same:
            best = min(same, key=lambda candidate: abs(candidate - exact))
            return "".join(map(str, best.normalize().as_tuple().digits)).ljust(count, "0"), best.adjusted()
    raise AssertionError(value)
