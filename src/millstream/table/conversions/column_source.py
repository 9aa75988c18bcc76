"""A source over columns of the program: one Arrow table, read in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.records.table_type import TableRowType

__all__ = ["ColumnSource"]

_BATCH_ROWS_MAX = 65_536


class ColumnSource(Source):
    """Emits the rows of an Arrow table once, in order. The plan carries them to tasks as Arrow IPC."""

    bounded = True
    single = True

    def __init__(self, table: pa.Table, type_info: TableRowType) -> None:
        self._table = table.combine_chunks()
        self.type_info = type_info

    def __getstate__(self) -> dict[str, Any]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table)
        return {"type_info": self.type_info, "bytes": sink.getvalue().to_pybytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.type_info = state["type_info"]
        with pa.ipc.open_stream(state["bytes"]) as reader:
            self._table = reader.read_all().combine_chunks()

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return (Split("columns"),)

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return min(self._table.num_rows, offset + budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= self._table.num_rows)

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        for at in range(start, stop, _BATCH_ROWS_MAX):
            yield from self._table.slice(at, min(stop - at, _BATCH_ROWS_MAX)).to_batches()
        return stop

    def describe(self) -> str:
        return f"{self._table.num_rows} rows of the program"
