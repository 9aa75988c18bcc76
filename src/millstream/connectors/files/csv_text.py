r"""Writes records as lines of CSV, as Flink does: numbers in Java's format, text in quotes unless short and plain.

Flink's writer (Jackson's) uses a coarse rule. It quotes text that is longer than 24 characters, or contains a character
not above the delimiter or the quote in Unicode order: so `a b` is quoted, because a space sorts before a comma. Numbers
and booleans are not quoted. A list or a nested row is one field with a separator between its elements.

Invariant: `CsvRecords` with the same dialect reads the same fields back. A number that contains the
delimiter is quoted too, where Jackson would write two fields.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from millstream.common.time import Instant
from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.typeinfo.number_text import number_text
from millstream.common.types import Row
from millstream.records.shapes import is_sequence, plain_type
from millstream.records.text import texts

__all__ = ["CsvLines", "field_text"]

_UNQUOTED_CHARS_MAX = 24
_BARE = frozenset(
    {
        BasicType.BOOLEAN,
        BasicType.BYTE,
        BasicType.SHORT,
        BasicType.INT,
        BasicType.LONG,
        BasicType.FLOAT,
        BasicType.DOUBLE,
        BasicType.BIG_INT,
        BasicType.BIG_DEC,
    }
)


def _timestamp_text(value: dt.datetime) -> str:
    return str(value).rstrip("0") if value.microsecond else str(value)


def _instant_text(value: Instant) -> str:
    return texts([value], Types.INSTANT())[0].replace("T", " ")


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: str,
    bool: lambda value: "true" if value else "false",
    float: number_text,
    bytes: lambda value: base64.b64encode(value).decode(),
    dt.datetime: _timestamp_text,
    Instant: _instant_text,
}


def field_text(value: Any, type_info: TypeInformation | None, separator: str, null_text: str) -> str:
    """The text of one field before quoting; `type_info` is None where the stream is untyped.

    >>> field_text([1.100000023841858, None], Types.LIST(Types.FLOAT()), "|", "-")
    '1.1|-'
    """
    if value is None:
        return null_text
    plain = None if type_info is None else plain_type(type_info)
    if isinstance(plain, BasicTypeInfo) and plain.basic_type is BasicType.FLOAT:
        return texts([value], plain)[0]
    if isinstance(value, Row | tuple | list):
        types: Sequence[TypeInformation | None] = [None] * len(value)
        if isinstance(plain, RowTypeInfo | TupleTypeInfo):
            types = plain.get_field_types()
        elif plain is not None and is_sequence(plain):
            types = [plain.element_type] * len(value)
        parts = zip(value, types, strict=True)
        return separator.join([field_text(part, part_type, separator, null_text) for part, part_type in parts])
    return _WRITERS.get(type(value), str)(value)


@dataclass(frozen=True)
class CsvLines:
    """Writes records as lines. `separators` are the separators of single columns, by position.

    >>> CsvLines().write([("a b", 1.5, True), ("b", None, False)], None)
    ['"a b",1.5,true', 'b,,false']
    """

    delimiter: str = ","
    quote: str = '"'
    null_text: str = ""
    array_separator: str = ";"
    separators: tuple[tuple[int, str], ...] = ()

    def write(self, records: Sequence[Any], type_info: TypeInformation | None) -> list[str]:
        """A line for each record, without its end. Typed columns are converted column by column."""
        plain = None if type_info is None else plain_type(type_info)
        if isinstance(plain, RowTypeInfo | TupleTypeInfo) and records and None not in map(_none_or_true, records):
            columns = zip(*records, strict=True)
            types = plain.get_field_types()
            written = [self._column(i, column, types[i]) for i, column in enumerate(columns)]
            lines = list(map(self.delimiter.join, zip(*written, strict=True)))
        else:
            lines = [self._record(record, plain) for record in records]
        # A lone empty field would be a blank line, which readers skip.
        return [line or self.quote * 2 for line in lines]

    def _record(self, record: Any, type_info: TypeInformation | None) -> str:
        if isinstance(record, Row | tuple | list):
            return self.delimiter.join([self._column(i, [field], None)[0] for i, field in enumerate(record)])
        return self._column(0, [record], type_info)[0]

    def _column(self, position: int, values: Sequence[Any], type_info: TypeInformation | None) -> list[str]:
        separator = dict(self.separators).get(position, self.array_separator)
        plain = None if type_info is None else plain_type(type_info)
        if isinstance(plain, DecimalTypeInfo) or (isinstance(plain, BasicTypeInfo) and plain.basic_type in _BARE):
            pairs = zip(values, texts(values, plain), strict=True)
            return [self.null_text if value is None else self._quoted(text, self._special()) for value, text in pairs]
        needs_quotes = self._coarsely_quoted()
        return [
            self.null_text
            if value is None
            else self._quoted(
                field_text(value, type_info, separator, self.null_text),
                self._special() if isinstance(value, int | float | Decimal) else needs_quotes,
            )
            for value in values
        ]

    def _quoted(self, text: str, needs_quotes: re.Pattern[str]) -> str:
        if needs_quotes.search(text) is None:
            return text
        return f"{self.quote}{text.replace(self.quote, self.quote * 2)}{self.quote}"

    def _special(self) -> re.Pattern[str]:
        """The characters that end an unquoted field."""
        return re.compile(f"[{re.escape(self.delimiter + self.quote)}\r\n]")

    def _coarsely_quoted(self) -> re.Pattern[str]:
        """The pattern of text that Jackson quotes without checking whether it must."""
        last = re.escape(max(self.delimiter, self.quote, "\r"))
        return re.compile(f"[\\x00-{last}]|^.{{{_UNQUOTED_CHARS_MAX + 1}}}", re.DOTALL)


def _none_or_true(value: Any) -> bool | None:
    return None if value is None else True
