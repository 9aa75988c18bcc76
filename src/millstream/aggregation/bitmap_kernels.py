"""Bitmap aggregates: BITMAP_BUILD_AGG of numbers; BITMAP_AND_AGG, _OR_AGG and _XOR_AGG of bitmaps; cardinalities.

The accumulator is a bitmap, NULL without values. A number is lifted to a bitmap with one element; single numbers of a
group are united at once, other bitmaps are combined container by container.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.aggregate_columns import Kernel, Parts
from millstream.aggregation.groups import Groups
from millstream.records.bitmaps import cardinality, combined, single_bitmaps, united_singles
from millstream.state.keys.hashing import Int64s

__all__ = ["Bitmap"]


class Bitmap(Kernel):
    """Combines bitmaps; `detail` of the measure is the operation; `build` unites single numbers."""

    ranges_are_cheap = False

    def lift(self, columns: Sequence[pa.Array], at: Int64s) -> Parts:
        values = columns[0]
        if self.measure.detail != "build":
            return [values.cast(self.part_kinds[0])]
        numbers = np.asarray(values.cast(pa.int32()).fill_null(0)).view(np.uint32)
        bitmaps = single_bitmaps(numbers)
        if values.null_count:
            bitmaps = pc.if_else(values.is_valid(), bitmaps, pa.scalar(None, bitmaps.type))
        return [bitmaps]

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        bitmaps, codes = parts[0], groups.codes
        if bitmaps.null_count:
            codes, bitmaps = codes[np.asarray(bitmaps.is_valid())], bitmaps.drop_null()
        operation = self.measure.detail if self.measure.detail != "build" else "or"
        if operation == "or":
            bitmaps, codes = united_singles(bitmaps, codes)
        results: list[bytes | None] = [None] * groups.count
        for code, bitmap in zip(codes.tolist(), bitmaps.to_pylist(), strict=True):
            previous = results[code]
            results[code] = bitmap if previous is None else combined(operation, previous, bitmap)
        return [pa.array(results, self.part_kinds[0])]

    def results(self, parts: Parts) -> pa.Array:
        if not pa.types.is_integer(self.result_kind):
            return parts[0].cast(self.result_kind)
        counts = [None if bitmap is None else cardinality(bitmap) for bitmap in parts[0].to_pylist()]
        return pa.array(counts, self.result_kind)
