"""Keyed functions over whole Arrow batches (beyond PyFlink), for maximum throughput."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.function import Function
from millstream.runtime.operators.keyed_batches import KeyedBatch, KeyedBatchResult

__all__ = ["KeyedBatch", "KeyedBatchFunction", "KeyedBatchResult"]


class KeyedBatchFunction(Function):
    """Processes a batch of records of a keyed stream at once, with the states of all keys in the batch, as Arrow
    columns.

    Pass it to `key_by(...).process_batches(...)`. It receives every record exactly once, and records of a key in order
    of arrival. Batches may have any size, so results must not depend on batch boundaries.

    >>> import numpy as np, pyarrow as pa
    >>> from millstream.common import Types
    >>> class Count(KeyedBatchFunction):
    ...     def states(self):
    ...         return {"count": Types.LONG()}
    ...     def process_batch(self, batch):
    ...         counts = batch.states["count"].fill_null(0).to_numpy()
    ...         counts = counts + np.bincount(batch.key_of, minlength=len(batch.keys))
    ...         output = pa.record_batch({"f0": batch.keys, "f1": counts})
    ...         return KeyedBatchResult(output, {"count": counts})
    """

    @abstractmethod
    def states(self) -> Mapping[str, TypeInformation]:
        """The states by name, each with a columnar type. Called when the program is built."""

    @abstractmethod
    def process_batch(self, batch: KeyedBatch) -> KeyedBatchResult:
        """The output and the new states for a batch."""
