"""PRINTF: Java's formats, a row at a time."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np

from millstream.expressions.data_type import DataType
from millstream.expressions.types import FloatType
from millstream.runtime.expressions.java_format import JavaFormatProblem, java_format
from millstream.runtime.expressions.kernel import CallContext, reference

__all__ = ["java_number", "printf"]

_DAY_ZERO = dt.date(1970, 1, 1)


def java_number(value: float, is_float: bool = False) -> str:
    """A floating number as Java writes it.

    >>> java_number(1.0), java_number(1e7), java_number(0.00012)
    ('1.0', '1.0E7', '1.2E-4')
    """
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    shortest = decimal.Decimal(str(np.float32(value)) if is_float else repr(value))
    sign, digits, exponent = shortest.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent
    if value == 0:
        shown = "0.0"
    elif -3 < point <= 7:
        padded = "0" * max(1 - point, 0) + text + "0" * max(point - len(text), 0)
        at = max(point, 1)
        shown = f"{padded[:at]}.{padded[at:] or '0'}"
    else:
        shown = f"{text[0]}.{text[1:] or '0'}E{point - 1}"
    return "-" + shown if sign else shown


@reference("PRINTF")
def printf(context: CallContext, template: str | None, *values: Any) -> str | None:
    """NULL where Java refuses the format. Dates are numbers of days there."""
    if template is None:
        return None
    given = tuple((value - _DAY_ZERO).days if type(value) is dt.date else value for value in values)
    types = context.argument_types[1:]
    texts = tuple(_java_text(value, type_) for value, type_ in zip(given, types, strict=True))
    try:
        return java_format(template, given, texts)
    except JavaFormatProblem:
        return None


def _java_text(value: Any, type_: DataType) -> str:
    """What Java's String.valueOf gives."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return java_number(value, isinstance(type_, FloatType))
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return _iso_moment(value)
    return str(value)


def _iso_moment(moment: dt.datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat()
    whole, point, fraction = text.partition(".")
    # Java writes seconds always, and fractions by thousands.
    return whole + (f".{fraction[:3]}" if point and fraction.endswith("000") else point + fraction)
