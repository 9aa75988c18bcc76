"""Types of single values: numbers, text, dates, bytes, and the untyped pickle.

A type is a plain immutable value: two are equal when they describe the same thing, and they can be hashed, pickled and
printed. `notation` is the short form that plans, messages, stored files and f-strings use; `str` is PyFlink's text,
`repr` the expression that creates it. No type has a Java counterpart.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any

from millstream.common.time import Instant
from millstream.errors import NotAvailableError

_EPOCH = datetime(1970, 1, 1)


class TypeInformation:
    """The kind of values of a stream, a state or a field. Made by `Types`.

    >>> from millstream.common.typeinfo import Types
    >>> Types.LIST(Types.INT()) == Types.LIST(Types.INT())
    True
    """

    def __init__(self) -> None:
        """A type has no parts unless its class adds some."""

    def get_java_type_info(self) -> Any:
        """PyFlink's bridge to the JVM; not available here."""
        raise NotAvailableError(
            f"{self} has no Java type behind it. Use the Python type itself, "
            "or millstream.records.columns.arrow_type for its Arrow type."
        )

    def need_conversion(self) -> bool:
        """Whether values differ between the user's side and PyFlink's wire form."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """The value in PyFlink's wire form."""
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """The user's value from PyFlink's wire form."""
        return obj

    def _parts(self) -> tuple[object, ...]:
        """The attributes that distinguish this type from others of its class."""
        return ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypeInformation):
            return NotImplemented
        return type(self) is type(other) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self).__name__, *self._parts()))

    @property
    def notation(self) -> str:
        """The short form: `ROW<name STRING, age INT>`. It is stored with state, so it does not change."""
        return repr(self)

    def __format__(self, specification: str) -> str:
        return format(self.notation, specification)

    def __str__(self) -> str:
        """PyFlink's text: `RowTypeInfo(name: String, age: Integer)`."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._parts()))})"


class BasicType(Enum):
    """The single-valued types, by Flink's names."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


class BasicTypeInfo(TypeInformation):
    """The type of a single value.

    >>> BasicTypeInfo.LONG_TYPE_INFO()
    Types.LONG()
    """

    def __init__(self, basic_type: BasicType) -> None:
        self._basic_type = basic_type

    @property
    def basic_type(self) -> BasicType:
        """Which of the basic types this is."""
        return self._basic_type

    def _parts(self) -> tuple[object, ...]:
        return (self._basic_type,)

    @property
    def notation(self) -> str:
        return self._basic_type.name

    def __str__(self) -> str:
        return self._basic_type.value

    def __repr__(self) -> str:
        return f"Types.{self._basic_type.name}()"

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        """Text."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        """True or False."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of 8 bits."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of 16 bits."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of 32 bits."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of 64 bits."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        """A floating-point number of 32 bits."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        """A floating-point number of 64 bits."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        """A single character."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of any size."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        """A decimal number of any size."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> BasicTypeInfo:
        """A point on the UTC time line."""
        return InstantTypeInfo(BasicType.INSTANT)


class InstantTypeInfo(BasicTypeInfo):
    """The type of an `Instant`; its wire form is nanoseconds since 1970."""

    def __init__(self, basic_type: BasicType = BasicType.INSTANT) -> None:
        super().__init__(basic_type)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Instant | None) -> int | None:
        return None if obj is None else obj.seconds * 1_000_000_000 + obj.nanos

    def from_internal_type(self, obj: int | None) -> Instant | None:
        return None if obj is None else Instant(*divmod(obj, 1_000_000_000))


class DateTypeInfo(TypeInformation):
    """The type of a `datetime.date`; its wire form is days since 1970."""

    EPOCH_ORDINAL = datetime(1970, 1, 1).toordinal()

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, d: date | None) -> int | None:
        return None if d is None else d.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, v: int | None) -> date | None:
        return None if v is None else date.fromordinal(v + self.EPOCH_ORDINAL)

    @property
    def notation(self) -> str:
        return "SQL_DATE"

    def __repr__(self) -> str:
        return "Types.SQL_DATE()"


class TimeTypeInfo(TypeInformation):
    """The type of a `datetime.time` without a zone; its wire form is microseconds since midnight."""

    # PyFlink shifts by the machine's zone here. A time of day has no zone, so no shift is applied.
    EPOCH_ORDINAL = 0

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, t: time | None) -> int | None:
        if t is None:
            return None
        return ((t.hour * 60 + t.minute) * 60 + t.second) * 1_000_000 + t.microsecond

    def from_internal_type(self, t: int | None) -> time | None:
        if t is None:
            return None
        seconds, micros = divmod(t, 1_000_000)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)

    @property
    def notation(self) -> str:
        return "SQL_TIME"

    def __repr__(self) -> str:
        return "Types.SQL_TIME()"


class TimestampTypeInfo(TypeInformation):
    """The type of a `datetime.datetime` without a zone; one with a zone is converted to UTC.

    Its wire form is microseconds since 1970. The machine's zone has no effect.
    """

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, dt: datetime | None) -> int | None:
        if dt is None:
            return None
        wall = dt if dt.tzinfo is None else dt.astimezone(UTC).replace(tzinfo=None)
        return (wall - _EPOCH) // timedelta(microseconds=1)

    def from_internal_type(self, ts: int | None) -> datetime | None:
        return None if ts is None else _EPOCH + timedelta(microseconds=ts)

    @property
    def notation(self) -> str:
        return "SQL_TIMESTAMP"

    def __repr__(self) -> str:
        return "Types.SQL_TIMESTAMP()"


class SqlTimeTypeInfo(TypeInformation):
    """Makes the types of dates, times of day and timestamps."""

    @staticmethod
    def DATE() -> TypeInformation:
        """A `datetime.date`."""
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TypeInformation:
        """A `datetime.time`."""
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TypeInformation:
        """A `datetime.datetime`."""
        return TimestampTypeInfo()


class LocalTimeTypeInfo(TypeInformation):
    """Java's zone-free dates and times; in Python the same values as the SQL ones."""

    class TimeType(Enum):
        """Which of the three it is."""

        LOCAL_DATE = 0
        LOCAL_TIME = 1
        LOCAL_DATE_TIME = 2

    def __init__(self, time_type: LocalTimeTypeInfo.TimeType) -> None:
        self._time_type = time_type

    @property
    def time_type(self) -> LocalTimeTypeInfo.TimeType:
        """Which of the three it is."""
        return self._time_type

    def _parts(self) -> tuple[object, ...]:
        return (self._time_type,)

    @property
    def notation(self) -> str:
        return self._time_type.name

    def __str__(self) -> str:
        return f"LocalTimeTypeInfo({self._time_type.name})"


class PickledBytesTypeInfo(TypeInformation):
    """The type of any Python value, which travels as a pickle."""

    @property
    def notation(self) -> str:
        return "PICKLED"

    def __str__(self) -> str:
        return "PickledByteArrayTypeInfo"

    def __repr__(self) -> str:
        return "Types.PICKLED_BYTE_ARRAY()"
