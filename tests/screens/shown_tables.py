"""Tables read from a screen: their cells, in any style of borders."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["changelog_on", "rows_on"]

_ROW = re.compile(r"^[│|](.*)[│|]$")


def rows_on(lines: Sequence[str]) -> list[tuple[str, ...]]:
    """The rows of the last table that begins on the screen, sorted."""
    begins = max((at for at, line in enumerate(lines) if line.startswith("┏")), default=len(lines))
    rows = (_ROW.match(line) for line in lines[begins:])
    return sorted(tuple(cell.strip() for cell in row.group(1).split("│")) for row in rows if row)


def changelog_on(lines: Sequence[str]) -> list[tuple[str, ...]]:
    """The result of the changes below the last heading `op`, sorted: a slow replay of the printed changes."""
    begins = max((at for at, line in enumerate(lines) if line.startswith("| op |")), default=len(lines))
    rows: list[tuple[str, ...]] = []
    for line in lines[begins + 1 :]:
        match = _ROW.match(line)
        if match:
            kind, *cells = (cell.strip() for cell in match.group(1).split("|"))
            if kind in ("+I", "+U"):
                rows.append(tuple(cells))
            else:
                rows.remove(tuple(cells))
    return sorted(rows)
