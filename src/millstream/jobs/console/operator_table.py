"""The operators of a job in the console: records in and out, and how busy each is, in the order of the plan.

If there are more operators than rows and the terminal is wide enough, two or three share a row, without bars. If that
does not suffice, only the busiest are shown, with the number of omitted ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.jobs.console.amounts import count_text
from millstream.jobs.epochs.progress import OperatorProgress

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["operator_table"]

_BUSY_CELLS = 10
_SIDE_BY_SIDE_COLUMNS = 37
_SIDE_BY_SIDE_MAX = 3


def operator_table(operators: Sequence[OperatorProgress], rows_max: int, columns: int) -> Table:
    """The table, in at most `rows_max` rows besides its heading. `columns`: its maximal width."""
    from rich.table import Table
    from rich.text import Text

    widest = min(_SIDE_BY_SIDE_MAX, max(1, columns // _SIDE_BY_SIDE_COLUMNS))
    per_row = min(widest, -(-len(operators) // max(rows_max, 1)))
    shown = list(operators)
    hidden = 0
    if len(shown) > rows_max * per_row:
        busiest = sorted(shown, key=lambda operator: -operator.busy_share)[: rows_max * per_row - 1]
        shown = [operator for operator in shown if operator in busiest]
        hidden = len(operators) - len(shown)
    cells = [_cells(operator, with_bar=per_row == 1) for operator in shown]
    if hidden:
        rest = f"… {hidden} less busy ones" if per_row == 1 else f"… {hidden} more"
        cells.append((Text(rest, "dim"), Text(), Text(), Text()))
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim", padding=(0, 1))
    for _ in range(per_row):
        table.add_column("operator", ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column("in", justify="right", no_wrap=True)
        table.add_column("out", justify="right", no_wrap=True)
        table.add_column("busy", justify="left" if per_row == 1 else "right", no_wrap=True)
    height = -(-len(cells) // per_row)
    for row in range(height):
        # Column-major: the plan's order is read downwards, then to the right.
        of_row = [cells[at] for at in range(row, len(cells), height)]
        table.add_row(*(cell for four in of_row for cell in four))
    return table


def _cells(operator: OperatorProgress, *, with_bar: bool) -> tuple[Text, Text, Text, Text]:
    from rich.text import Text

    share = min(max(operator.busy_share, 0.0), 1.0)
    full = round(share * _BUSY_CELLS)
    colour = "red" if share > 0.9 else "yellow" if share > 0.6 else "green"
    bar = (("█" * full, colour), ("░" * (_BUSY_CELLS - full), "dim")) if with_bar else ()
    busy = Text.assemble(*bar, f" {share:4.0%}" if with_bar else (f"{share:.0%}", colour))
    return Text(operator.name), _or_blank(operator.records_in), _or_blank(operator.records_out), busy


def _or_blank(count: int) -> Text:
    """A source has no input and a sink no output; a blank shows that better than a zero."""
    from rich.text import Text

    return Text(count_text(count) if count else "·", "default" if count else "dim")
