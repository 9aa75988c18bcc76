"""Timestamps and watermarks: how a watermark strategy is applied to batches.

A strategy extracts a timestamp from each record and says how far event time has come. Its memory is one number,
the largest timestamp seen, so a watermark can be kept in the manifest and taken up again. Watermarks only ever
go forward.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.errors import ProgramError
from millstream.records.batch import Batch, Timestamps
from millstream.runtime.barrier import MIN_WATERMARK
from millstream.runtime.failure import UserCall

__all__ = ["Timekeeper"]


class Timekeeper:
    """Applies one strategy to one split or subtask, starting from the watermark it had before."""

    def __init__(self, strategy: WatermarkStrategy | None, watermark: int, call: UserCall) -> None:
        self._strategy = strategy
        self._call = call
        self.watermark = watermark
        assigner = strategy.timestamp_assigner if strategy is not None else None
        self._extract = None if assigner is None else call.bind(assigner, "extract_timestamp", "timestamp assigner")

    def stamp(self, batch: Batch) -> Batch:
        """The batch with its timestamps; event time moves on."""
        if self._strategy is None:
            return batch
        if self._extract is not None:
            batch.timestamps = self._timestamps(batch)
        delay = self._strategy.max_out_of_orderness_ms
        if delay is not None and batch.timestamps is not None and len(batch):
            # One less than the largest seen: another record with that very timestamp may still come.
            self.watermark = max(self.watermark, int(batch.timestamps.max()) - delay - 1)
        return batch

    def _timestamps(self, batch: Batch) -> Timestamps:
        values = batch.values()
        previous = batch.timestamps.tolist() if batch.timestamps is not None else [MIN_WATERMARK] * len(values)
        remaining = iter(values)
        try:
            stamps = list(map(self._extract, remaining, previous))  # type: ignore[arg-type]
        except Exception as error:
            raise self._call.failed(error, "timestamp assigner", self._call.current(values, remaining)) from error
        for i, stamp in enumerate(stamps) if not set(map(type, stamps)) <= {int} else ():
            if type(stamp) is not int:
                raise self._call.failed(_not_an_int(stamp), "timestamp assigner", (values[i],))
        return np.array(stamps, dtype=np.int64)


def _not_an_int(stamp: Any) -> ProgramError:
    return ProgramError(
        f"the timestamp assigner returned {stamp!r} ({type(stamp).__name__}); "
        "a timestamp is an int: milliseconds since 1970-01-01 UTC"
    )
