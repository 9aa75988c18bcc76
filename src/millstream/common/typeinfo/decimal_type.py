"""DECIMAL(precision, scale): a decimal number with a fixed number of digits, as in SQL and Parquet (beyond PyFlink's
`Types`).

`Types.BIG_DEC()` holds any decimal as its text. A DECIMAL is a 128-bit column, can be stored in files that other
systems read, and each of its values has `scale` digits after the point. A value with more digits is rejected, never
rounded: the program decides how to round money.
"""

from __future__ import annotations

from millstream.common.typeinfo.scalar_types import TypeInformation
from millstream.errors import ProgramError

__all__ = ["DecimalTypeInfo"]

_PRECISION_MAX = 38


class DecimalTypeInfo(TypeInformation):
    """The type of a `decimal.Decimal` of at most `precision` digits, `scale` of them after the point.

    >>> DecimalTypeInfo(10, 2).notation
    'DECIMAL(10, 2)'
    """

    def __init__(self, precision: int = 10, scale: int = 0) -> None:
        if not isinstance(precision, int) or not 1 <= precision <= _PRECISION_MAX:
            raise ProgramError(f"DECIMAL: its precision is {precision!r}, expected 1 to {_PRECISION_MAX} digits.")
        if not isinstance(scale, int) or not 0 <= scale <= precision:
            raise ProgramError(f"DECIMAL: its scale is {scale!r}, expected 0 to {precision}, the precision.")
        self._precision = precision
        self._scale = scale

    @property
    def precision(self) -> int:
        """The maximum number of digits."""
        return self._precision

    @property
    def scale(self) -> int:
        """The number of digits after the point."""
        return self._scale

    def _parts(self) -> tuple[object, ...]:
        return self._precision, self._scale

    @property
    def notation(self) -> str:
        return f"DECIMAL({self._precision}, {self._scale})"

    def __str__(self) -> str:
        return self.notation

    def __repr__(self) -> str:
        return f"Types.DECIMAL({self._precision}, {self._scale})"
