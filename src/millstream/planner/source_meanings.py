"""What a source keeps beside its position: some copy a table into the job's store, with the columns that a query reads.

A query that reads other columns would begin another copy, and from there on the job would stand in two. So the columns
are part of what the source's position means, and a change of them is told before anything starts.
"""

from __future__ import annotations

from typing import Any

from millstream.checkpoint.meanings import Meaning
from millstream.planner.entries import TableEntry
from millstream.planner.relations import Scan
from millstream.planner.table_definitions import table_factory

__all__ = ["copied_columns"]


def copied_columns(plan: Any, scan: Scan) -> Meaning | None:
    """The columns that are copied, by `plan`'s words for them; None where nothing is."""
    entry = scan.table
    if not isinstance(entry, TableEntry) or entry.origin is not None:
        return None
    if not table_factory(entry, scan.options).copies_rows:
        return None
    names, columns = plan.stored_rows(scan)
    return Meaning("a copy of a table", entry.path[-1], columns, (), names)
