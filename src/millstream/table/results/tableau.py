"""Draws a result as Flink's client does: lines of `+---+`, right-aligned values, and the number of rows.

A query's column widths are derived from its types, because they are needed before the first row; those of a statement
are derived from its rows. A value wider than its column is cut and ends in three dots. East Asian wide characters count
as two.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from millstream.expressions import types
from millstream.expressions.data_type import DataType

__all__ = ["NULL_TEXT", "drawn", "widths_by_rows", "widths_by_types"]

NULL_TEXT = "<NULL>"
_INTEGER_WIDTHS: dict[type[DataType], int] = {
    types.TinyIntType: 4,
    types.SmallIntType: 6,
    types.IntType: 11,
    types.BigIntType: 20,
}


def shown_width(text: str) -> int:
    """The width of a string on the screen.

    >>> shown_width("añ"), shown_width("千"), shown_width("e\\u0301")
    (2, 2, 1)
    """
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.combining(character) != 0 for character in text)
    return len(text) + wide - marks


def widths_by_types(names: Sequence[str], data_types: Sequence[DataType], width_max: int) -> list[int]:
    """The width of each column, by its type."""
    return [
        max(shown_width(name), _type_width(type_, width_max), len(NULL_TEXT))
        for name, type_ in zip(names, data_types, strict=True)
    ]


def _type_width(data_type: DataType, width_max: int) -> int:
    if type(data_type) in _INTEGER_WIDTHS:
        return _INTEGER_WIDTHS[type(data_type)]
    if isinstance(data_type, types.DecimalType):
        return data_type.precision + 2
    if isinstance(data_type, types.BooleanType):
        return 5
    if isinstance(data_type, types.DateType):
        return 10
    if isinstance(data_type, types.TimeType):
        return 8 if data_type.precision == 0 else data_type.precision + 9
    if isinstance(data_type, types.TimestampType | types.LocalZonedTimestampType):
        return 19 if data_type.precision == 0 else data_type.precision + 20
    return width_max


def widths_by_rows(names: Sequence[str], rows: Sequence[Sequence[str]], width_max: int) -> list[int]:
    """The width of each column, by its rows."""
    columns = zip(names, *rows, strict=True) if rows else ((name,) for name in names)
    return [min(max(map(shown_width, column)), max(width_max, shown_width(column[0]))) for column in columns]


def drawn(names: Sequence[str], widths: Sequence[int], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """The lines of the table, as its rows arrive."""
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    count = 0
    for count, row in enumerate(rows, start=1):
        if count == 1:
            yield from (border, _line(names, widths), border)
        yield _line(row, widths)
    if count == 0:
        yield "Empty set"
        return
    yield border
    yield f"{count} row{'' if count == 1 else 's'} in set"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "|" + "|".join(f" {_fitted(cell, width)} " for cell, width in zip(cells, widths, strict=True)) + "|"


def _fitted(cell: str, width: int) -> str:
    """The text, right-aligned, and truncated if too wide."""
    if shown_width(cell) > width:
        while shown_width(cell) > width - 3 and cell:
            cell = cell[:-1]
        cell += "..."
    return " " * (width - shown_width(cell)) + cell
