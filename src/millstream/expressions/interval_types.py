"""Intervals in months or in milliseconds. The two kinds never mix, because months differ in length."""

from __future__ import annotations

import datetime as dt
from enum import Enum
from typing import Any

import pyarrow as pa

from millstream.expressions.data_type import AtomicType

__all__ = ["DayTimeIntervalType", "YearMonthIntervalType"]


class YearMonthIntervalType(AtomicType):
    """A number of months."""

    name = "INTERVAL"
    DEFAULT_PRECISION = 2

    class YearMonthResolution(Enum):
        YEAR = "YEAR"
        MONTH = "MONTH"
        YEAR_TO_MONTH = "YEAR TO MONTH"

    def __init__(
        self, resolution: YearMonthResolution = YearMonthResolution.MONTH, precision: int = 2, nullable: bool = True
    ) -> None:
        super().__init__(nullable)
        self._resolution = resolution
        self._precision = precision

    @property
    def resolution(self) -> YearMonthResolution:
        """The units of the interval."""
        return self._resolution

    @property
    def precision(self) -> int:
        """The number of digits of years."""
        return self._precision

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self.resolution, self.precision

    @property
    def sql(self) -> str:
        words = self.resolution.value.split(" ", 1)
        digits = f"({self.precision})" if words[0] == "YEAR" else ""
        return " ".join(["INTERVAL", words[0] + digits, *words[1:]])

    @property
    def arrow(self) -> pa.DataType:
        return pa.int32()


class DayTimeIntervalType(AtomicType):
    """A duration in milliseconds."""

    name = "INTERVAL"
    DEFAULT_DAY_PRECISION = 2
    DEFAULT_FRACTIONAL_PRECISION = 6

    def need_conversion(self) -> bool:
        return True

    def to_sql_type(self, obj: Any) -> Any:
        """Milliseconds."""
        return None if obj is None else obj // dt.timedelta(milliseconds=1)

    def from_sql_type(self, obj: Any) -> Any:
        return None if obj is None else dt.timedelta(milliseconds=obj)

    class DayTimeResolution(Enum):
        DAY = "DAY"
        DAY_TO_HOUR = "DAY TO HOUR"
        DAY_TO_MINUTE = "DAY TO MINUTE"
        DAY_TO_SECOND = "DAY TO SECOND"
        HOUR = "HOUR"
        HOUR_TO_MINUTE = "HOUR TO MINUTE"
        HOUR_TO_SECOND = "HOUR TO SECOND"
        MINUTE = "MINUTE"
        MINUTE_TO_SECOND = "MINUTE TO SECOND"
        SECOND = "SECOND"

    def __init__(
        self,
        resolution: DayTimeResolution = DayTimeResolution.DAY_TO_SECOND,
        day_precision: int = 2,
        fractional_precision: int = 6,
        nullable: bool = True,
    ) -> None:
        super().__init__(nullable)
        self._resolution = resolution
        self._day_precision = day_precision
        self._fractional_precision = fractional_precision

    @property
    def resolution(self) -> DayTimeResolution:
        """The units of the interval."""
        return self._resolution

    @property
    def day_precision(self) -> int:
        """The number of digits of days."""
        return self._day_precision

    @property
    def fractional_precision(self) -> int:
        """The number of fractional digits of seconds."""
        return self._fractional_precision

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self.resolution, self.day_precision, self.fractional_precision

    @property
    def sql(self) -> str:
        digits = {"DAY": f"({self.day_precision})", "SECOND": f"({self.fractional_precision})"}
        units = self.resolution.value.split(" TO ")
        return "INTERVAL " + " TO ".join(unit + digits.get(unit, "") for unit in units)

    @property
    def arrow(self) -> pa.DataType:
        return pa.duration("ms")
