"""Prints tables: coloured in a terminal, as aligned text in a pipe, with the same cells in both.

Each table row takes one terminal row: nothing wraps. If a table is too wide, its strings (names, addresses) are
truncated with `…`, then columns are omitted, the least important first, and a line names them. Output to a pipe is
complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["aligned_text", "fitted_widths", "print_table"]

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TEXT_MIN = 12
_BETWEEN = 2
"""Columns of the terminal between two columns of the table."""

Style = str | Callable[[str], str]


def aligned_text(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """A table as lines of text; columns whose headings are in `right` are right-aligned.

    >>> print(aligned_text(["state", "rows"], [["total", "7"], ["seen", "1,200"]], right=["rows"]))
    state   rows
    total      7
    seen   1,200
    """
    from rich.cells import cell_len  # East Asian characters are two columns wide

    lines = [list(map(_one_line, line)) for line in (headings, *rows)]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(headings))]

    def padded(cell: str, width: int, is_right: bool) -> str:
        blanks = " " * (width - cell_len(cell))
        return blanks + cell if is_right else cell + blanks

    return "\n".join(
        "  ".join(
            padded(cell, width, heading in right) for cell, width, heading in zip(line, widths, headings, strict=True)
        ).rstrip()
        for line in lines
    )


def fitted_widths(
    widths: Mapping[str, int], columns: int, texts: Collection[str] = (), optional: Sequence[str] = ()
) -> dict[str, int]:
    """The columns shown in `columns` columns of a terminal, with their widths. `texts` may be cut, the longest first;
    `optional` may be omitted, the first of them first.

    >>> fitted_widths({"job": 6, "rows": 5, "store": 40}, 80, texts=["store"])
    {'job': 6, 'rows': 5, 'store': 40}
    >>> fitted_widths({"job": 6, "rows": 5, "store": 40}, 40, texts=["store"])
    {'job': 6, 'rows': 5, 'store': 25}
    >>> fitted_widths({"job": 6, "rows": 5, "store": 40}, 24, texts=["store"], optional=["rows"])
    {'job': 6, 'store': 16}
    """
    fitted = dict(widths)
    for left_out in ("", *optional):
        fitted.pop(left_out, None)
        shown = dict(fitted)
        while (too_wide := _total(shown) - columns) > 0:
            longest = max((name for name in shown if name in texts), key=lambda name: shown[name], default=None)
            if longest is None or shown[longest] <= _TEXT_MIN:
                break
            others = max((width for name, width in shown.items() if name in texts and name != longest), default=0)
            # Down to the next longest column, so that both are cut equally.
            shown[longest] = max(_TEXT_MIN, shown[longest] - too_wide, min(others, shown[longest] - 1))
        if too_wide <= 0:
            return shown
    return shown


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + _BETWEEN * (len(widths) - 1)


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    screen: TextIO,
    *,
    right: Collection[str] = (),
    texts: Collection[str] = (),
    optional: Sequence[str] = (),
    styles: Mapping[str, Style] | None = None,
) -> None:
    """Print a table. In a terminal, `styles` colours columns by their headings, and `texts` and `optional` are cut or
    omitted if it is narrow (`fitted_widths`)."""
    if not screen.isatty():
        print(aligned_text(headings, rows, right), file=screen)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=screen, highlight=False)
    rows = [list(map(_one_line, row)) for row in rows]
    widths = {
        heading: max(Text(cell).cell_len for cell in (heading, *(row[number] for row in rows)))
        for number, heading in enumerate(headings)
    }
    # The last terminal column stays free: some terminals wrap after it.
    shown = fitted_widths(widths, console.width - 1, texts, optional)

    def line(cells: Sequence[str], style: Callable[[str, str], str]) -> Text:
        parts = [
            _fitted(cell, shown[heading], heading in right, style(heading, cell))
            for heading, cell in zip(headings, cells, strict=True)
            if heading in shown
        ]
        whole = Text(" " * _BETWEEN).join(parts)
        whole.rstrip()
        return whole

    def styled(heading: str, cell: str) -> str:
        style = (styles or {}).get(heading, "")
        return style if isinstance(style, str) else style(cell)

    console.print(line(headings, lambda *_: "bold"), soft_wrap=True)
    for row in rows:
        console.print(line(row, styled), soft_wrap=True)
    if len(shown) < len(headings):
        left_out = ", ".join(heading for heading in headings if heading not in shown)
        console.print(Text(f"(no room for: {left_out})", "dim"), soft_wrap=True)


def _one_line(cell: str) -> str:
    """A cell without line breaks, tabs and other characters that move the cursor: names are the user's, or a foreign
    store's.

    >>> _one_line("clicks\\n\\x1b[2Jof\\tday 1")
    'clicks  [2Jof day 1'
    """
    return _CONTROL.sub(" ", cell)


def _fitted(cell: str, width: int, is_right: bool, style: str) -> Text:
    from rich.text import Text

    text = Text(cell, style)
    text.truncate(width, overflow="ellipsis")
    text.align("right" if is_right else "left", width)
    return text
