"""The meaning of a source's own state. Some sources copy a table's queried columns into the job's store.

A query that reads other columns would start a second copy. The columns are therefore part of the meaning of the
source's position, and a change to them is reported before the job starts.
"""

from __future__ import annotations

from typing import Any

from millstream.checkpoint.meanings import Meaning
from millstream.planner.entries import TableEntry
from millstream.planner.relations import Scan
from millstream.planner.table_definitions import table_factory

__all__ = ["copied_columns"]


def copied_columns(plan: Any, scan: Scan) -> Meaning | None:
    """The copied columns, with their meanings in `plan`; None if the source copies nothing."""
    entry = scan.table
    if not isinstance(entry, TableEntry) or entry.origin is not None:
        return None
    if not table_factory(entry, scan.options).copies_rows:
        return None
    names, columns = plan.stored_rows(scan)
    return Meaning("a copy of a table", entry.path[-1], columns, (), names)
