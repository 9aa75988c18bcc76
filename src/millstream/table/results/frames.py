"""The rows of a result as a pandas DataFrame."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.expressions.types import LocalZonedTimestampType
from millstream.graph.site import refuse
from millstream.runtime.tables.changes import change_signs, consolidated_rows
from millstream.state.keys.hashing import Int64s
from millstream.table.results.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["frame_of"]


def frame_of(outcome: Outcome) -> pd.DataFrame:
    """The final rows of a result. TIMESTAMP_LTZ is converted to the session's zone, as in PyFlink."""
    if importlib.util.find_spec("pandas") is None:
        raise refuse("to_pandas needs pandas. Install it: pip install pandas")
    frame: pd.DataFrame = pa.Table.from_batches(_rows_left(outcome), outcome.schema.row_type.schema).to_pandas(
        date_as_object=True, timestamp_as_object=False
    )
    for place, type_ in enumerate(outcome.schema.types):
        if isinstance(type_, LocalZonedTimestampType):
            name = frame.columns[place]
            frame[name] = frame[name].dt.tz_convert(outcome.zone).dt.tz_localize(None)
    return frame


def _rows_left(outcome: Outcome) -> list[pa.RecordBatch]:
    """The rows that remain after all changes; the unchanged batches of an append-only table."""
    batches: list[pa.RecordBatch] = []
    signs: list[Int64s] = []
    while (batch := outcome.source.next_batch()) is not None:
        rows, of_batch = change_signs(batch)
        batches.append(rows)
        signs.append(np.ones(rows.num_rows, dtype=np.int64) if of_batch is None else of_batch)
    if all((each > 0).all() for each in signs):
        return batches
    left, of_left = consolidated_rows(pa.concat_batches(batches), np.concatenate(signs))
    if (of_left < 0).any():
        row = left.slice(int(np.flatnonzero(of_left < 0)[0]), 1).to_pylist()[0]
        raise refuse(f"to_pandas: the row {row} is deleted more often than it was inserted. Correct the source")
    return [left]
