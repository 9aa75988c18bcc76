"""Formats records as strings, for `print()` and string encoders, as a function of the declared type.

Flink prints in Java's notation: `(hi,0,5)` for a TUPLE, `true`, `110.1` for a FLOAT, `1.0E10`, `{a=1}`, `[1, 2]`, and
`+I[a, null]` for a ROW. `texts` produces this form. PyFlink's `print()` is the same except for rows, which it formats
in Python: `+I[a,None]`; `printed_texts` does the same. Values of an untyped stream are formatted by Python, as in
PyFlink.

A whole column is formatted at once: the cells of all records of one field, then the records. Invariant, tested on
random types and values: `texts(values, t)` equals `[text(value, t) for value in values]`, with `text` from
`text_reference`. Values are in the form defined by their type (`conformance`); where Java shows a memory address (a
bare array), the elements are shown.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from millstream.common.time import Instant
from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    ExternalTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.typeinfo.number_text import far_text, is_near_one, number_text
from millstream.common.types import KIND_TEXTS, Row
from millstream.expressions.data_type import DataType
from millstream.expressions.types import DecimalType, LocalZonedTimestampType, TimestampType, TimeType
from millstream.records.shapes import is_byte_array, is_sequence
from millstream.records.table_type import TableRowType, TableValueType, plain_equivalent

__all__ = ["float_texts", "printed_texts", "texts"]

Writer: TypeAlias = Callable[[Sequence[Any]], list[str]]
"""Writes a column: a string for each of its values."""

NULL = "null"


def texts(values: Sequence[Any], type_info: TypeInformation | None) -> list[str]:
    """The string form of each record, as Flink writes values of this type.

    >>> texts([("hi", True, 110.1), ("ho", None, 1e10)], Types.TUPLE([Types.STRING(), Types.BOOLEAN(), Types.DOUBLE()]))
    ['(hi,true,110.1)', '(ho,null,1.0E10)']
    >>> texts([("a", True)], None)
    ["('a', True)"]
    """
    return list(map(str, values)) if type_info is None else _writer(type_info)(values)


def printed_texts(values: Sequence[Any], type_info: TypeInformation | None) -> list[str]:
    """The string form of each record in PyFlink's `print()`: a row is formatted from Python's strings.

    >>> printed_texts([Row("a", None, True)], Types.ROW([Types.STRING(), Types.INT(), Types.BOOLEAN()]))
    ['+I[a,None,True]']
    >>> printed_texts([[1, None]], Types.LIST(Types.INT()))
    ['[1, null]']
    """
    inside = _unwrapped(type_info)
    # PyFlink prints a table's rows in Java.
    if isinstance(inside, RowTypeInfo) and not isinstance(inside, TableRowType):
        return [
            NULL if row is None else f"{KIND_TEXTS[row._row_kind._value_]}[{','.join(map(str, row._values))}]"
            for row in values
        ]
    return texts(values, type_info)


def _unwrapped(type_info: TypeInformation | None) -> TypeInformation | None:
    """The type inside Flink's wrapper for types of tables. Unlike `plain_type` it preserves Java's local times."""
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    return type_info


@lru_cache(maxsize=1024)
def _writer(declared: TypeInformation) -> Writer:
    type_info = _unwrapped(declared)
    if type_info is None or is_untyped(type_info):
        return lambda values: list(map(str, values))
    return _nullable(_present_writer(type_info))


def is_untyped(type_info: TypeInformation) -> bool:
    """Whether values of this type exist only in Python: pickles, and types of unknown kinds."""
    known = (BasicTypeInfo, DecimalTypeInfo, RowTypeInfo, TupleTypeInfo, MapTypeInfo, TableValueType)
    return not (
        isinstance(type_info, known) or is_byte_array(type_info) or is_sequence(type_info) or type_info in _TEMPORAL
    )


def _nullable(write: Writer) -> Writer:
    """The writer for nullable columns."""

    def write_some(values: Sequence[Any]) -> list[str]:
        if not any([value is None for value in values]):  # noqa: C419 - a list is faster
            return write(values)
        present = iter(write([value for value in values if value is not None]))
        return [NULL if value is None else next(present) for value in values]

    return write_some


def _present_writer(type_info: TypeInformation) -> Writer:
    if isinstance(type_info, TableValueType):
        return _table_value_writer(type_info)
    if isinstance(type_info, BasicTypeInfo):
        return _BASIC.get(type_info.basic_type, _plain_texts)
    if isinstance(type_info, DecimalTypeInfo):
        return _each(_decimal_text)
    if isinstance(type_info, RowTypeInfo):
        return _row_writer(type_info)
    if isinstance(type_info, TupleTypeInfo):
        return _tuple_writer(type_info)
    if is_byte_array(type_info):
        return lambda values: [str(np.frombuffer(value, np.int8).tolist()) for value in values]
    if is_sequence(type_info):
        return _list_writer(type_info.element_type)
    if isinstance(type_info, MapTypeInfo):
        return _map_writer(type_info)
    return _TEMPORAL[type_info]


def _table_value_writer(type_info: TableValueType) -> Writer:
    """A value of a SQL type, as Java writes the corresponding value of Flink's tables."""
    equivalent = plain_equivalent(type_info.data_type)
    if equivalent is not None:
        return _plain_texts if is_untyped(equivalent) else _present_writer(equivalent)
    return _TABLE_VALUES.get(type(type_info.data_type), _plain_texts)


def _cell_writer(type_info: TypeInformation) -> Writer:
    """The writer of a nested value: a nested untyped value may be NULL, too."""
    write = _writer(type_info)
    return write if not is_untyped(_unwrapped(type_info) or type_info) else _nullable(write)


def _row_writer(type_info: RowTypeInfo) -> Writer:
    join_cells = _cells_writer(type_info.get_field_types(), ", ")

    def write(rows: Sequence[Row]) -> list[str]:
        cells = join_cells([row._values for row in rows])
        return [f"{KIND_TEXTS[row._row_kind._value_]}[{joined}]" for row, joined in zip(rows, cells, strict=True)]

    return write


def _tuple_writer(type_info: TupleTypeInfo) -> Writer:
    join_cells = _cells_writer(type_info.get_field_types(), ",")
    return lambda tuples: [f"({joined})" for joined in join_cells(tuples)]


def _cells_writer(types: list[TypeInformation], separator: str) -> Writer:
    """Writes the cells of records, field by field, with `separator` between the cells of a record."""
    writers = [_cell_writer(field_type) for field_type in types]

    def write(records: Sequence[Sequence[Any]]) -> list[str]:
        if not writers:
            return [""] * len(records)
        columns = zip(*records, strict=True)
        written = [write_cells(column) for write_cells, column in zip(writers, columns, strict=True)] if records else []
        return list(map(separator.join, zip(*written, strict=True)))

    return write


def _list_writer(element_type: TypeInformation) -> Writer:
    write_elements = _cell_writer(element_type)

    def write(lists: Sequence[list[Any]]) -> list[str]:
        elements = write_elements(list(itertools.chain.from_iterable(lists)))
        return [f"[{', '.join(piece)}]" for piece in _pieces(elements, map(len, lists))]

    return write


def _map_writer(type_info: MapTypeInfo) -> Writer:
    write_keys, write_items = _cell_writer(type_info.key_type), _cell_writer(type_info.value_type)

    def write(maps: Sequence[dict[Any, Any]]) -> list[str]:
        keys = write_keys(list(itertools.chain.from_iterable(maps)))
        items = write_items(list(itertools.chain.from_iterable(entries.values() for entries in maps)))
        pairs = [f"{key}={item}" for key, item in zip(keys, items, strict=True)]
        return [f"{{{', '.join(piece)}}}" for piece in _pieces(pairs, map(len, maps))]

    return write


def _pieces(parts: list[str], lengths: Any) -> list[list[str]]:
    bounds = [0, *itertools.accumulate(lengths)]
    return [parts[start:stop] for start, stop in itertools.pairwise(bounds)]


def _plain_texts(values: Sequence[Any]) -> list[str]:
    return list(map(str, values))


def _boolean_texts(values: Sequence[bool]) -> list[str]:
    return ["true" if value else "false" for value in values]


def float_texts(values: Sequence[float]) -> list[str]:
    """FLOATs as Java writes them, with the digits that 32 bits need.

    >>> float_texts([110.0999984741211, 1.0000000200408773e20])
    ['110.1', '1.0E20']
    """
    shortest = np.array(values, np.float32).astype(str).tolist()
    return [
        digits if is_near_one(value) else far_text(value, digits, np.float32)
        for value, digits in zip(values, shortest, strict=True)
    ]


def _decimal_text(value: Decimal) -> str:
    return str(value if value else abs(value))  # Java's zero has no sign


def _timestamp_text(value: dt.datetime) -> str:
    digits = value.isoformat(" ", "microseconds").rstrip("0")
    return f"{digits}0" if digits.endswith(".") else digits


def _local_time_text(value: dt.time) -> str:
    if not value.second and not value.microsecond:
        return value.isoformat("minutes")
    return value.isoformat("seconds") + _fraction(value.microsecond * 1_000)


def _local_timestamp_text(value: dt.datetime) -> str:
    return f"{value.date().isoformat()}T{_local_time_text(value.time())}"


def _moment_text(value: dt.datetime) -> str:
    """A TIMESTAMP_LTZ as java.time writes an instant: with its seconds, in UTC.

    >>> _moment_text(dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
    '1970-01-01T00:00:00Z'
    """
    return f"{value.replace(tzinfo=None).isoformat('T', 'seconds')}{_fraction(value.microsecond * 1_000)}Z"


def _fraction(nanos: int) -> str:
    """The fraction of a second as java.time writes it: in milli-, micro- or nanoseconds."""
    if not nanos:
        return ""
    digits = f"{nanos:09}"
    return "." + (digits[:3] if nanos % 1_000_000 == 0 else digits[:6] if nanos % 1_000 == 0 else digits)


_DAYS_TO_2000 = 10_957
_DAYS_PER_400_YEARS = 146_097


def _instant_text(value: Instant) -> str:
    days, seconds = divmod(value.seconds, 86_400)
    # The calendar repeats every 400 years, which covers years outside the range of Python's dates.
    cycles, day = divmod(days - _DAYS_TO_2000, _DAYS_PER_400_YEARS)
    date = dt.date(2000, 1, 1) + dt.timedelta(day)
    year = date.year + 400 * cycles
    year_text = f"{'-' if year < 0 else '+' if year > 9999 else ''}{abs(year):04}"
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{year_text}-{date.month:02}-{date.day:02}T{time}{_fraction(value.nanos)}Z"


def _each(write: Callable[[Any], str]) -> Writer:
    return lambda values: list(map(write, values))


_BASIC: dict[BasicType, Writer] = {
    BasicType.STRING: list,
    BasicType.CHAR: list,
    BasicType.BOOLEAN: _boolean_texts,
    BasicType.FLOAT: float_texts,
    BasicType.DOUBLE: _each(number_text),
    BasicType.BIG_DEC: _each(_decimal_text),
    BasicType.INSTANT: _each(_instant_text),
}
_TimeType = LocalTimeTypeInfo.TimeType
_TEMPORAL: dict[TypeInformation, Writer] = {
    Types.SQL_DATE(): _plain_texts,
    Types.SQL_TIME(): _each(lambda value: value.isoformat("seconds")),  # java.sql.Time shows no fraction of a second
    Types.SQL_TIMESTAMP(): _each(_timestamp_text),
    LocalTimeTypeInfo(_TimeType.LOCAL_DATE): _plain_texts,
    LocalTimeTypeInfo(_TimeType.LOCAL_TIME): _each(_local_time_text),
    LocalTimeTypeInfo(_TimeType.LOCAL_DATE_TIME): _each(_local_timestamp_text),
}
_TABLE_VALUES: dict[type[DataType], Writer] = {
    DecimalType: _each(_decimal_text),
    TimeType: _each(_local_time_text),
    TimestampType: _each(_local_timestamp_text),
    LocalZonedTimestampType: _each(_moment_text),
}
