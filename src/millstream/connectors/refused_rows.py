"""Rows of a committed epoch that a target refuses: how a sink reports them, and how it publishes without them.

A row is identified by its position: the index of the item among the manifest's items for the sink, and the index of
the row in the columns staged there. A sink that can identify rows raises `RefusedRowsError` with these positions. The
driver records the rows it sets aside in the item itself, before it calls `commit` again:

    {"form": 1, "records": 3, "chunks": […], "refused": [0, 2]}

Readers of staged columns skip these rows and do not renumber the others, so names derived from row numbers are stable.
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
    "accepted_rows",
    "json_line",
    "printable",
    "rows_at",
    "shown_row",
    "without_rows",
]

REFUSED = "refused"
"""The key in a staged item for the rows to skip."""

_SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class RefusedRow:
    """Row `row` of the `item`-th published item, the reason, and a short text of the row."""

    item: int
    row: int
    reason: str
    shown: str = ""


class RefusedRowsError(ConnectorError, ProgramError):
    """A target refuses these rows but not the others, so a retry does not help. Nothing after them is published.

    `continues_after`: rows before them are already published, and rows skipped before stay skipped."""

    def __init__(self, message: str, rows: Sequence[RefusedRow], *, continues_after: bool = False) -> None:
        super().__init__(message)
        self.rows, self.continues_after = tuple(rows), continues_after


def without_rows(publish: Sequence[Json], rows: Iterable[RefusedRow]) -> list[Json]:
    """The items to publish, with the rows to skip noted in each item.

    >>> without_rows([{"records": 1}, {"records": 2}], [RefusedRow(1, 0, "too long")])
    [{'records': 1}, {'records': 2, 'refused': [0]}]
    """
    skipped_rows: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        skipped_rows[row.item].add(row.row)
    return [
        {**item, REFUSED: sorted(skipped_rows[number])} if number in skipped_rows else item
        for number, item in enumerate(publish)
    ]


def accepted_rows(
    staged: Mapping[str, Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]:
    """The staged columns without the skipped rows, and the number of each row."""
    refused, first = staged.get(REFUSED), 0
    for batch in batches:
        numbers = np.arange(first, first + batch.num_rows, dtype=np.int64)
        first += batch.num_rows
        if refused:
            numbers = numbers[~np.isin(numbers, refused)]
            batch = batch.take(pa.array(numbers - (first - batch.num_rows)))
        yield batch, numbers


def rows_at(batches: Iterable[pa.RecordBatch], rows: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Only these rows, by their numbers, in order."""
    first, wanted = 0, np.array(sorted(rows), dtype=np.int64)
    for batch in batches:
        positions = wanted[(wanted >= first) & (wanted < first + batch.num_rows)] - first
        if len(positions):
            yield batch.take(pa.array(positions))
        first += batch.num_rows


def shown_row(batch: pa.RecordBatch, row: int) -> str:
    """A row for display: the start of its JSON."""
    [value] = batch.slice(row, 1).to_pylist()
    text = json_line(value)
    return printable(text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…")


def printable(text: str) -> str:
    r"""An external text on one line, without control characters for terminals or logs.

    >>> printable("a\x1b[2J\n\u202eb ä")
    'a\\x1b[2J\\n\\u202eb ä'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def json_line(value: Any) -> str:
    r"""Any value of a column as one line of JSON: bytes as text where they are UTF-8, other non-JSON values as text.

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
