"""Group keys: zero, one, or several columns (as a struct). Partial and final aggregation share this module, so both
form the same groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.records.columns import arrow_type

__all__ = ["GroupKeys"]


class GroupKeys:
    """Makes the keys of batches from the columns with these indices."""

    def __init__(self, places: Sequence[int], key_type: TypeInformation) -> None:
        kind = arrow_type(key_type)
        assert kind is not None
        self._places, self._fields = places, list(kind) if len(places) > 1 else []

    def of(self, columns: pa.RecordBatch) -> pa.Array:
        """A key for every row."""
        if not self._places:  # all rows form one group
            return pa.array(np.zeros(columns.num_rows, dtype=np.int8))
        if len(self._places) == 1:
            return columns.column(self._places[0])
        return pa.StructArray.from_arrays([columns.column(at) for at in self._places], fields=self._fields)
