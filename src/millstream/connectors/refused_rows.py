"""Rows of a committed epoch that a target refuses: how a sink says which they are, and how it publishes without them.

A row is named by its place: the number of the item among those that the manifest lists for the sink, and the number of
the row among the columns that are staged there. A sink that can tell raises `RefusedRowsError` with these places. What
the driver then sets aside stands in the item itself, when it is given to `commit` again:

    {"form": 1, "records": 3, "chunks": […], "refused": [0, 2]}

Whoever reads staged columns leaves these rows out, and counts the others as before: a name that is made of a row's
number stays the name of that row.
"""

from __future__ import annotations

import base64
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.connectors.contracts import Json
from millstream.errors import ConnectorError, ProgramError

__all__ = [
    "REFUSED",
    "RefusedRow",
    "RefusedRowsError",
    "json_line",
    "kept_rows",
    "printable",
    "rows_at",
    "shown_row",
    "without_rows",
]

REFUSED = "refused"
"""The key in a staged item under which the rows stand that are left out of it."""

_SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class RefusedRow:
    """Row `row` of the `item`-th thing to be published, why it is refused, and what it is, in short."""

    item: int
    row: int
    reason: str
    shown: str = ""


class RefusedRowsError(ConnectorError, ProgramError):
    """A target refuses these rows, and not the others: asking again does not help. Nothing after them is published.

    `goes_on_behind`: rows before them are published already, and rows that were left out before stay so."""

    def __init__(self, message: str, rows: Sequence[RefusedRow], *, goes_on_behind: bool = False) -> None:
        super().__init__(message)
        self.rows, self.goes_on_behind = tuple(rows), goes_on_behind


def without_rows(publish: Sequence[Json], rows: Iterable[RefusedRow]) -> list[Json]:
    """What is to be published, with a note in each item which of its rows are left out.

    >>> without_rows([{"records": 1}, {"records": 2}], [RefusedRow(1, 0, "too long")])
    [{'records': 1}, {'records': 2, 'refused': [0]}]
    """
    left_out: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        left_out[row.item].add(row.row)
    return [
        {**item, REFUSED: sorted(left_out[number])} if number in left_out else item
        for number, item in enumerate(publish)
    ]


def kept_rows(
    staged: Mapping[str, Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]:
    """The staged columns without the rows that are left out, and the number of each row."""
    refused, first = staged.get(REFUSED), 0
    for batch in batches:
        numbers = np.arange(first, first + batch.num_rows, dtype=np.int64)
        first += batch.num_rows
        if refused:
            numbers = numbers[~np.isin(numbers, refused)]
            batch = batch.take(pa.array(numbers - (first - batch.num_rows)))
        yield batch, numbers


def rows_at(batches: Iterable[pa.RecordBatch], rows: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """These rows alone, by their numbers, in order."""
    first, wanted = 0, np.array(sorted(rows), dtype=np.int64)
    for batch in batches:
        here = wanted[(wanted >= first) & (wanted < first + batch.num_rows)] - first
        if len(here):
            yield batch.take(pa.array(here))
        first += batch.num_rows


def shown_row(batch: pa.RecordBatch, row: int) -> str:
    """A row as people are shown it: the beginning of its JSON."""
    [value] = batch.slice(row, 1).to_pylist()
    text = json_line(value)
    return printable(text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…")


def printable(text: str) -> str:
    r"""A stranger's text on one line, without what a terminal or a log would obey.

    >>> printable("a\x1b[2J\n\u202eb ä")
    'a\\x1b[2J\\n\\u202eb ä'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def json_line(value: Any) -> str:
    r"""Any value of a column as one line of JSON: bytes as text where they are UTF-8, what JSON does not know as text.

    >>> json_line({"a": b"x", "b": b"\xff", "c": float("nan"), "d": [1, None]})
    '{"a": "x", "b": "base64:/w==", "c": "nan", "d": [1, null]}'
    """
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return "base64:" + base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
