"""Shows a result as one table that changes in place, until it ends or the user ends it.

Invariant: the screen shows the result as of the newest delivered epoch with only a short delay, whether or not more
follows. An epoch is shown as a whole, never with a half-applied update.

`table_lines` renders it, as a pure function of the rows and the terminal size: the newest rows that fit, as many
columns as fit, and below them the numbers of rows and columns. Truncated parts are marked.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.cells import cell_len, set_cell_size

from millstream.cli.sql_client.live_rows import LiveRows
from millstream.connectors.print_sink import showable
from millstream.jobs.console.bottom_area import BottomArea
from millstream.jobs.console.printed_above import streams_above

__all__ = ["Changes", "show_live", "table_lines"]

_PAINT_INTERVAL_S = 0.25
_SIZE_INTERVAL_S = 0.05
_ROWS_OF_FRAME = 5  # the header and its borders, the last border, the footer
_ROWS_ABOVE = 2  # the statement stays visible
_WIDTH_MIN = 8
_LETTERS_OF_CELL_MAX = 4  # for each column of the terminal; letters may have no width
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2;3m", "\x1b[0m"
_BIDI = range(0x202A, 0x202F), range(0x2066, 0x206A)
_ESCAPED = {
    code: repr(chr(code))[1:-1] if code < 0x100 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *_BIDI[0], *_BIDI[1])
}


class Changes(Protocol):
    """Returns the changes of whole epochs that have been delivered: waits for the first of them; empty if there were
    none in time, None if the result has ended."""

    def __call__(self, timeout_s: float) -> list[list[str]] | None: ...


@dataclass(frozen=True)
class _Frame:
    """The characters that a table is drawn with: left, line, between and right of each border, and of a row."""

    top: str
    head: str
    below_head: str
    row: str
    bottom: str
    cut: str
    separator: str


_LINES = _Frame("┏━┳┓", "┃ ┃┃", "┡━╇┩", "│ ││", "└─┴┘", "…", " · ")
_ASCII = _Frame("+-++", "| ||", "+-++", "| ||", "+-++", "~", ", ")


def show_live(
    names: Sequence[str],
    changes: Changes,
    output: TextIO,
    size: Callable[[], os.terminal_size],
    now_s: Callable[[], float] = time.monotonic,
) -> int:
    """Show a result until it has ended; returns the final number of rows. Ctrl-C leaves the last state on the
    screen."""
    rows = LiveRows()
    updated, ending = "", "Ctrl-C ends the query"
    painted_s, painted_size, is_changed = -math.inf, size(), True
    lines: list[str] = []
    area = BottomArea(output, size, now_s)
    try:
        with streams_above(area):
            while True:
                is_due = now_s() - painted_s >= _PAINT_INTERVAL_S
                if (is_changed and is_due) or size() != painted_size:
                    painted_s, painted_size, is_changed = now_s(), size(), False
                    lines = table_lines(names, rows, painted_size, (updated, ending), output)
                area.draw(lines)
                delivered = changes(_SIZE_INTERVAL_S)
                if delivered is None:
                    ending = "done"
                    return rows.count
                if delivered:
                    rows.apply(delivered)
                    updated, is_changed = f"updated {time.strftime('%H:%M:%S')}", True
    finally:
        notes = (updated, ending if ending == "done" else "ended")
        area.close(table_lines(names, rows, size(), notes, output))


def table_lines(
    names: Sequence[str], rows: LiveRows, size: os.terminal_size, notes: Sequence[str], output: TextIO | None = None
) -> list[str]:
    """The lines of the table on a terminal of this size, and a footer with the `notes`."""
    encoding = getattr(output, "encoding", None) or "utf-8"
    frame = _LINES if encoding.lower().startswith("utf") else _ASCII
    shown = rows.newest(max(1, size.lines - _ROWS_OF_FRAME - _ROWS_ABOVE))
    letters_max = size.columns * _LETTERS_OF_CELL_MAX
    cells = [[_cell(text[:letters_max], output) for text in row] for row in (names, *shown)]
    widths = _widths([max(map(cell_len, column)) for column in zip(*cells, strict=True)], size.columns - 1)
    head, *body = [_row(row, widths, frame.head if at == 0 else frame.row, frame.cut) for at, row in enumerate(cells)]
    table = [_border(widths, frame.top), f"{_BOLD}{head}{_PLAIN}", _border(widths, frame.below_head), *body]
    parts = (*_counts(rows.count, len(shown), len(names), len(widths)), *(note for note in notes if note))
    footer = set_cell_size(frame.separator.join(parts), size.columns - 1).rstrip()
    lines = [*table, _border(widths, frame.bottom), f"{_DIM}{footer}{_PLAIN}"]
    return lines[-max(1, size.lines - 1) :]


def _cell(text: str, output: TextIO | None) -> str:
    """The text on one line: characters that move the cursor, or reverse the line, are escaped."""
    escaped = text.translate(_ESCAPED)
    return escaped if output is None else showable(escaped, output)


def _widths(needed: Sequence[int], columns: int) -> list[int]:
    """The widths of the shown columns: the widest shrink first, down to a minimal width, then the last columns are
    omitted. The first one is always shown."""
    count = len(needed)
    while count > 1 and sum(min(width, _WIDTH_MIN) + 3 for width in needed[:count]) + 1 > columns:
        count -= 1
    room = columns - 1 - 3 * count
    width_max = max(
        (most for most in range(1, columns) if sum(min(width, most) for width in needed[:count]) <= room), default=1
    )
    return [min(width, width_max) for width in needed[:count]]


def _row(cells: Sequence[str], widths: Sequence[int], frame: str, cut: str) -> str:
    left, _, between, right = tuple(frame)
    fitted = (
        set_cell_size(cell, width) if cell_len(cell) <= width else set_cell_size(cell, width - 1) + cut
        for cell, width in zip(cells, widths, strict=False)
    )
    return left + between.join(f" {cell} " for cell in fitted) + right


def _border(widths: Sequence[int], frame: str) -> str:
    left, line, between, right = tuple(frame)
    return left + between.join(line * (width + 2) for width in widths) + right


def _counts(count: int, rows: int, all_columns: int, columns: int) -> list[str]:
    """The number of rows, and of columns if not all are shown."""
    number = f"{count:,} row{'' if count == 1 else 's'}"
    parts = [number if rows == count else f"the newest {rows:,} of {number}"]
    return parts if columns == all_columns else [*parts, f"{columns} of {all_columns} columns"]
