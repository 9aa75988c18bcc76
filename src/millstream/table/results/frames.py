"""The rows of a result as a pandas DataFrame."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.types import RowKind
from millstream.expressions.types import LocalZonedTimestampType
from millstream.graph.site import refuse
from millstream.table.results.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["frame_of"]


def frame_of(outcome: Outcome) -> pd.DataFrame:
    """All rows of a result, as they stand at its end. TIMESTAMP_LTZ is shown in the session's zone, as PyFlink does."""
    if importlib.util.find_spec("pandas") is None:
        raise refuse("to_pandas needs pandas. Install it: pip install pandas")
    batches: list[pa.RecordBatch] = []
    while (batch := outcome.source.next_batch()) is not None:
        batches.append(_inserted(batch, len(outcome.schema)))
    frame: pd.DataFrame = pa.Table.from_batches(batches, outcome.schema.row_type.schema).to_pandas(
        date_as_object=True, timestamp_as_object=False
    )
    for place, type_ in enumerate(outcome.schema.types):
        if isinstance(type_, LocalZonedTimestampType):
            name = frame.columns[place]
            frame[name] = frame[name].dt.tz_convert(outcome.zone).dt.tz_localize(None)
    return frame


def _inserted(batch: pa.RecordBatch, columns: int) -> pa.RecordBatch:
    """The rows of a batch of a table that only grows."""
    if batch.num_columns == columns:
        return batch
    if pc.any(pc.not_equal(batch.column(columns), RowKind.INSERT.value)).as_py():
        raise refuse("to_pandas: the table changes. Use execute().collect(), whose rows say how they change it")
    return batch.select(range(columns))
