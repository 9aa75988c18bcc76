"""Helpers shared by table readers: turns columns with bad cells into rows and bad messages, and file lines into
messages.

An invalid cell makes its record bad. If the table ignores unreadable input, the cell
is NULL instead, as in Flink; its record is dropped only if the column is NOT NULL. So a NOT NULL column never holds
NULL, regardless of the file's content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.files.formats import BadRecords
from millstream.connectors.files.lines import LineFormat, line_array
from millstream.connectors.messages.codecs import BadMessage, Decoded, MessageDecoder, Messages
from millstream.connectors.tables.formats.cell_text import Mask
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType

__all__ = ["MessageLines", "decoded_rows"]

Indices = npt.NDArray[np.int64]


def decoded_rows(
    row_type: RowType,
    columns: Sequence[tuple[pa.Array, Mask | None]],
    origins: Indices | None,
    bad: Sequence[BadMessage],
    ignores_bad: bool,
    shown: Callable[[int, int], str],
    messages: int,
) -> Decoded:
    """Builds rows from columns and their masks of bad cells. `shown(column, row)` is the text of a cell, for the
    error."""
    batch = pa.RecordBatch.from_arrays([column for column, _ in columns], schema=row_type.schema)
    refused: dict[int, str] = {}
    for at, ((column, bad_cells), field) in enumerate(zip(columns, row_type.fields, strict=True)):
        if bad_cells is not None and not ignores_bad:
            for row in np.flatnonzero(bad_cells).tolist():
                refused.setdefault(
                    row, f"column {field.name!r}: {shown(at, row)!r} is not a valid {field.data_type.nullable()}"
                )
        if column.null_count and not field.data_type.is_nullable:
            for row in np.flatnonzero(np.asarray(column.is_null())).tolist():
                refused.setdefault(row, f"column {field.name!r} is NOT NULL, and found NULL")
    bad_messages = list(bad)
    if refused:
        valid = np.ones(batch.num_rows, np.bool_)
        valid[list(refused)] = False
        message_indexes = np.arange(batch.num_rows) if origins is None else origins
        bad_messages += [BadMessage(int(message_indexes[row]), reason) for row, reason in refused.items()]
        batch, origins = batch.filter(pa.array(valid)), message_indexes[valid]
    bad_messages.sort(key=lambda each: each.index)
    is_whole = origins is not None and len(origins) == messages and bool((origins == np.arange(messages)).all())
    return Decoded(
        Batch.of_columns(batch, TableRowType(row_type)),
        None if is_whole else origins,
        () if ignores_bad else tuple(bad_messages),
    )


class MessageLines(LineFormat):
    """Files with a message per line. Empty lines are skipped."""

    def __init__(self, decoder: MessageDecoder, name: str, skips_empty: bool = True) -> None:
        self.decoder, self.name, self._skips_empty = decoder, name, skips_empty
        self.type_info = decoder.type_info

    def decode(self, position: int, block: bytes, bad: BadRecords) -> Any:
        if position == 0 and block.startswith(b"\xef\xbb\xbf"):
            block = block[3:]
            position = 3
        lines, starts = line_array(block)
        if self._skips_empty:
            valid = np.asarray(pc.binary_length(lines)) > 0
            if not valid.all():
                lines, starts = lines.filter(pa.array(valid)), starts[valid]
        decoded = self.decoder.decode(Messages(lines, lambda at: f"byte {position + int(starts[at])}"))
        for each in decoded.bad:
            text = lines[each.index].as_py().decode("utf-8", "replace")
            bad.add(position + int(starts[each.index]), text, each.reason)
        return decoded.batch.columns()
