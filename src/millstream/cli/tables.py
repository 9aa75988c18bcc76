"""Tables on the screen: rich ones in a terminal, aligned text in a pipe, the same cells in both."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TextIO

__all__ = ["aligned_text", "print_table"]


def aligned_text(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """A table as lines of text; columns whose headings are in `right` are aligned there.

    >>> print(aligned_text(["state", "rows"], [["total", "7"], ["seen", "1,200"]], right=["rows"]))
    state   rows
    total      7
    seen   1,200
    """
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if heading in right else cell.ljust(width)
            for cell, width, heading in zip(line, widths, headings, strict=True)
        ).rstrip()
        for line in lines
    )


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    screen: TextIO,
    *,
    right: Collection[str] = (),
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print a table. `styles` colours columns by their headings, in a terminal."""
    if not screen.isatty():
        print(aligned_text(headings, rows, right), file=screen)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for heading in headings:
        justify = "right" if heading in right else "left"
        table.add_column(heading, justify=justify, overflow="fold", style=(styles or {}).get(heading))  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=screen).print(table)
