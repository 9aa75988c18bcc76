"""The reference of PRINTF, on `java_format`."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.types import FloatType
from millstream.runtime.expressions.java_format import JavaFormatError, java_format
from millstream.runtime.expressions.kernel import CallContext, reference
from millstream.runtime.expressions.number_texts import float_text

__all__ = ["iso_moment", "printf"]

_DAY_ZERO = dt.date(1970, 1, 1)


@reference("PRINTF")
def printf(context: CallContext, template: str | None, *values: Any) -> str | None:
    """Formats values; NULL if Java rejects the format. Dates are passed as day numbers."""
    if template is None:
        return None
    arguments = tuple((value - _DAY_ZERO).days if type(value) is dt.date else value for value in values)
    types = context.argument_types[1:]
    texts = tuple(_java_text(value, type_) for value, type_ in zip(arguments, types, strict=True))
    try:
        return java_format(template, arguments, texts)
    except JavaFormatError:
        return None


def _java_text(value: Any, type_: DataType) -> str:
    """The string that Java's String.valueOf returns."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return float_text(value, isinstance(type_, FloatType))
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return iso_moment(value)
    return str(value)


def iso_moment(moment: dt.datetime) -> str:
    """An instant in the format of Java's toString."""
    text = moment.replace(tzinfo=None).isoformat()
    whole, point, fraction = text.partition(".")
    # Java always writes seconds, and fractions in groups of three digits.
    return whole + (f".{fraction[:3]}" if point and fraction.endswith("000") else point + fraction)
