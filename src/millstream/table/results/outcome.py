"""The outcome of a statement, as data: its columns, the source of its rows, and display options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from millstream.planner.relations import Schema
from millstream.records.table_type import TableRowType
from millstream.table.result_kind import ResultKind
from millstream.table.results.row_source import RowSource
from millstream.table.results.tableau import NULL_TEXT, drawn, widths_by_rows, widths_by_types
from millstream.table.results.value_texts import ValueTexts, row_texts

__all__ = ["Outcome"]

_WIDTH_MAX = 30
_WIDTH_OF_STATEMENTS = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """A statement's outcome. `is_query`: rows arrive while a job runs, and types determine column widths; `with_kinds`:
    prints each row's kind (streaming); `is_plain`: the rows are lines of text (OK, EXPLAIN)."""

    schema: Schema
    source: RowSource
    kind: ResultKind = ResultKind.SUCCESS_WITH_CONTENT
    is_query: bool = False
    with_kinds: bool = False
    is_plain: bool = False
    zone: str = "UTC"
    width_max: int = _WIDTH_MAX

    @cached_property
    def type_info(self) -> TableRowType:
        """The type of its rows."""
        return TableRowType(self.schema.row_type)

    @cached_property
    def _texts(self) -> ValueTexts:
        return ValueTexts(self.schema, self.zone)

    def changes(self, timeout_s: float | None) -> list[list[str]] | None:
        """The available changes, as strings with their kinds; a job's changes in whole epochs. Empty after the timeout,
        None at the end."""
        batches = self.source.take(timeout_s)
        return None if batches is None else [row for batch in batches for row in self._texts.of_batch(batch)]

    def lines(self) -> Iterable[str]:
        """The lines of `print`, as rows arrive."""
        names = (["op"] if self.with_kinds else []) + list(self.schema.names)
        # As in Flink, statement results print NULL as an empty cell; queries print NULL.
        null_text = NULL_TEXT if self.is_query else ""
        rows = row_texts(self.source, self.schema, self.zone, self.with_kinds, null_text)
        if self.is_plain:
            return (row[0] for row in rows)
        if self.is_query:
            widths = widths_by_types(self.schema.names, self.schema.types, self.width_max)
            return drawn(names, ([2] if self.with_kinds else []) + widths, rows)
        texts = list(rows)
        return drawn(names, widths_by_rows(names, texts, _WIDTH_OF_STATEMENTS), texts)
